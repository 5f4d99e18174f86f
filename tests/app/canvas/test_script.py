"""The canvas is joined from plain modules."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import pytest
from playwright.sync_api import Page

from app.canvas.script import (
    DOOR,
    VIEWER_DOOR,
    WALK_DOOR,
    WORKER,
    WORKER_MODULES,
    canvas_script,
    ordered,
    sources,
    walk_script,
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


def test_joined_script_has_no_module_syntax() -> None:
    assert re.findall(r"^(?:import|export)\b.*", canvas_script(), re.M) == []
    assert re.findall(r"^(?:import|export)\b.*", walk_script(), re.M) == []


@pytest.mark.browser
@pytest.mark.parametrize("lie", [{}, {"falling": True}, {"sideways": True}])
def test_pixel_and_point_are_inverse(sheet: Page, lie: dict[str, bool]) -> None:
    back = sheet.evaluate(
        """(lie) => { const rect = { x: 100, y: 40, w: 640, h: 320 }, win = { t0: 3, t1: 19, v0: 512, v1: 4608 };
             const plane = new tmmuCanvas.Plane(rect, win, lie);
             return [plane.at(...plane.point(7, 2048)), plane.box(3, 19, 512, 4608), plane.point(3, 512)]; }""",
        lie,
    )
    assert back[0] == pytest.approx({"t": 7, "v": 2048})
    assert back[1] == [100, 40, 740, 360]  # the whole window fills the whole rectangle
    corner = {"": [100, 360], "falling": [100, 40], "sideways": [100, 40]}["".join(lie)]
    assert back[2] == corner


@pytest.mark.browser
def test_byte_axis_marks_are_distinct(sheet: Page) -> None:
    alike = sheet.evaluate(
        """() => { const found = [];
             for (let top = 3; top < 2 ** 48; top = Math.floor(top * 1.83) + 1)
               for (let every = 1; every <= top; every *= 2)
                 for (const letters of [11, 16]) {
                   const label = tmmuCanvas.words.byteLabels(every, top, letters), seen = new Set();
                   const last = top - (top % every), marks = Math.min(12, last / every + 1);
                   for (let k = 0; k < marks; k++) seen.add(label(last - k * every));
                   if (seen.size < marks) found.push([top, every, letters]);
                 }
             return found; }"""
    )
    assert alike == []
