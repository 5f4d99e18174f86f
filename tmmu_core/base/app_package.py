"""Locate the app package (checkout or wheel). The core imports it by name, only on request.

In a checkout the app is the folder ``app/`` beside ``tmmu_core/``. In a wheel the folder is named ``tmmu_explorer``,
so that it does not collide with another package ``app`` (``hatch_build.py``, ``docs/decisions/12-packaging.md``).
"""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

HOME = Path(__file__).resolve().parents[2]
INSTALLED, BESIDE = "tmmu_explorer", "app"


def app_module(name: str) -> Any:
    """Import and return a module of the app, such as ``cli.main``."""
    if (HOME / INSTALLED).is_dir():
        return import_module(f"{INSTALLED}.{name}")
    if str(HOME) not in sys.path:
        sys.path.insert(0, str(HOME))
    return import_module(f"{BESIDE}.{name}")


def project_path(name: str) -> Path:
    """Return the path of a file or folder of the project that the app reads (samples, glossary).

    In a wheel it is inside the app package, in a checkout beside it.
    """
    inside = HOME / INSTALLED / name
    return inside if inside.exists() else HOME / name
