"""The canvas is joined from plain modules."""

import re
from importlib.resources import files
from pathlib import Path

from app.canvas.script import (
    DOOR,
    VIEWER_DOOR,
    WALK_DOOR,
    WORKER,
    WORKER_MODULES,
    ordered,
    sources,
)

WRITTEN = sorted(set(sources()) - {WORKER})
"""The modules that are files here; the worker's is made of two of them and the library."""


def test_folders_are_small_and_module_names_unique() -> None:
    folders = Path(str(files("app.canvas") / "js"))
    names = [path.name for path in folders.rglob("*.js")]
    assert len(names) == len(set(names))
    assert max(len(list(folder.glob("*.js"))) for folder in [folders, *folders.iterdir()]) <= 15


def test_modules_follow_those_they_import() -> None:
    reached = set()
    for door in (DOOR, WALK_DOOR, VIEWER_DOOR):
        names = [name for name, _ in ordered(sources(), door)]
        reached |= set(names)
        for name, text in ordered(sources(), door):
            for needed in re.findall(r'from "\.[\w./]*/(\w+\.js)"', text):
                assert names.index(needed) < names.index(name)
    assert reached | set(WORKER_MODULES) == set(sources())
