"""The one place where the core knows of its faces: by name, and only when somebody asks for one of them.

In a checkout the faces are the folder ``app/`` beside ``tmmu_core/``; a wheel calls the same folder ``tmmu_explorer``,
so that nobody's own ``app`` is in its way (``hatch_build.py``, ``docs/decisions/12-packaging.md``).
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

HOME = Path(__file__).resolve().parents[2]
INSTALLED, BESIDE = "tmmu_explorer", "app"


def face(name: str) -> Any:
    """A module of the faces, such as ``cli.main`` or ``report.build``. Nothing of it is loaded before."""
    if (HOME / INSTALLED).is_dir():
        return import_module(f"{INSTALLED}.{name}")
    if str(HOME) not in sys.path:
        sys.path.insert(0, str(HOME))
    return import_module(f"{BESIDE}.{name}")


def place(name: str) -> Path:
    """Where a file or folder of the project lies that the faces read (the samples, the glossary).

    In a wheel it is inside their package, in a checkout beside them.
    """
    inside = HOME / INSTALLED / name
    return inside if inside.exists() else HOME / name
