"""Locate the app package, which the core imports only at run time, by name.

In a checkout the app is the folder ``app/`` beside ``tmmu_core/``. In a wheel the folder is named ``tmmu_explorer``,
so that it does not collide with another package ``app`` (``hatch_build.py``, ``docs/decisions/12-packaging.md``).
"""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

HOME = Path(__file__).resolve().parents[2]
WHEEL_FOLDER = "tmmu_explorer"


def app_module(name: str) -> Any:
    """Import and return a module of the app, such as ``cli.main``."""
    if (HOME / WHEEL_FOLDER).is_dir():
        return import_module(f"{WHEEL_FOLDER}.{name}")
    if str(HOME) not in sys.path:
        sys.path.insert(0, str(HOME))
    return import_module(f"app.{name}")


def project_path(name: str) -> Path:
    """Return the path of a project file or folder. Wheel: inside the app package; checkout: in the project root."""
    in_wheel = HOME / WHEEL_FOLDER / name
    return in_wheel if in_wheel.exists() else HOME / name
