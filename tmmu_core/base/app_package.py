"""Locate the app package. The core has no import statement of it: it imports the app at run time, by name.

In a checkout the app is the folder ``app/`` beside ``tmmu_core/``. In a wheel the folder is named ``tmmu_explorer``,
so that it does not collide with another package ``app`` (``hatch_build.py``, ``docs/decisions/12-packaging.md``).
"""

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

HOME = Path(__file__).resolve().parents[2]
IN_WHEEL = "tmmu_explorer"


def app_module(name: str) -> Any:
    """Import and return a module of the app, such as ``cli.main``."""
    if (HOME / IN_WHEEL).is_dir():
        return import_module(f"{IN_WHEEL}.{name}")
    if str(HOME) not in sys.path:
        sys.path.insert(0, str(HOME))
    return import_module(f"app.{name}")


def project_path(name: str) -> Path:
    """Return the path of a file or folder that the app reads: inside of it in a wheel, beside it in a checkout."""
    in_wheel = HOME / IN_WHEEL / name
    return in_wheel if in_wheel.exists() else HOME / name


def sample_entries(folder: Path) -> list[dict[str, str]]:
    """Return the graphs and instances that ``index.json`` of a folder lists; none if the file is missing or damaged."""
    try:
        listed = json.loads((folder / "index.json").read_bytes())
    except (OSError, ValueError):
        return []
    return [entry for kind in ("samples", "instances") for entry in listed.get(kind, ())]
