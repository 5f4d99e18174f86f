"""Drawings of an arena as SVG in any size, light and dark."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest

from app.kit.download.downloads import PICTURES, picture
from app.report.html_report import build_report
from app.report.report_theme import LOOKS, Sheet, Theme
from app.report.still_pictures import OVER, still
from tests.app.canvas.plans import plan_of
from tests.support.build import residual
from tests.support.paths import SAMPLES
from tmmu_core.plans.making.engine import plan_graph
from tmmu_core.plans.making.over_capacity import make_plan_anyway
from tmmu_core.plans.making.request import PlanRequest

SVG = "{http://www.w3.org/2000/svg}"
RESNET = str(SAMPLES / "residual_block.tmmu.json")


@pytest.mark.parametrize("kind", PICTURES)
@pytest.mark.parametrize("theme", LOOKS)
def test_drawing_has_the_chosen_size_and_theme(kind: str, theme: Theme) -> None:
    root = ET.fromstring(picture(plan_of(), kind, "activations", Sheet(640, 333, theme, whole=True)))
    assert (root.get("width"), root.get("height"), root.get("viewBox")) == ("640", "333", "0 0 640 333")
    first = root.find(f"{SVG}rect")
    assert first is not None
    assert first.get("fill") == LOOKS[theme].ground
    assert root.get("fill") == LOOKS[theme].text
    for box in root.iter(f"{SVG}rect"):
        x, y, w, h = (float(box.get(side, "0")) for side in ("x", "y", "width", "height"))
        assert x >= 0
        assert y >= 0
        assert x + w <= 640.01
        assert y + h <= 333.01


def boxes(kind: str) -> list[tuple[str, float, float]]:
    """``(name, y, height)`` of the boxes of tensors, from the top down."""
    root = ET.fromstring(still(plan_of(), "activations", kind, Sheet()))  # type: ignore[arg-type]
    found = []
    for box in root.iter(f"{SVG}rect"):
        title = box.find(f"{SVG}title")
        if title is not None and title.text:
            found.append((title.text.split(",")[0], float(box.get("y", "0")), float(box.get("height", "0"))))
    return sorted(found, key=lambda each: each[1])


def test_lifetimes_are_sorted_by_birth_and_slots_by_offset() -> None:
    plan = plan_of()
    here = [row for row in range(len(plan)) if plan.arenas[plan.arena[row]].name == "activations"]
    by_birth = sorted(here, key=lambda row: (int(plan.birth[row]), row))
    assert [name for name, _, _ in boxes("lifetimes")] == [plan.tensor_ids[row] for row in by_birth]
    levels: dict[int, set[float]] = {}
    for name, y, _ in boxes("slots"):
        levels.setdefault(int(plan.logical_slot[plan.row_of[name]]), set()).add(y)
    assert all(len(ys) == 1 for ys in levels.values())
    tops = [min(levels[slot]) for slot in sorted(levels)]
    assert tops == sorted(tops, reverse=True)


def test_bytes_above_the_capacity_are_red() -> None:
    fits = plan_graph(residual()).plan
    top = fits.arena_of["activations"].extent_bytes
    over = make_plan_anyway(residual(), PlanRequest(capacities={"activations": top - 1})).plan
    assert OVER not in still(fits, "activations", "map", Sheet())
    assert OVER in still(over, "activations", "map", Sheet())
    assert OVER not in still(over, "activations", "slots", Sheet())


def test_text_and_lines_have_enough_contrast() -> None:
    """Contrast by WCAG 2: 4.5 for text, 3 for lines."""

    def luminance(colour: str) -> float:
        parts = (int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5))
        red, green, blue = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    def contrast(one: str, other: str) -> float:
        high, low = sorted((luminance(one), luminance(other)), reverse=True)
        return (high + 0.05) / (low + 0.05)

    for look in LOOKS.values():
        for ground in (look.ground, look.panel):
            assert contrast(look.text, ground) >= 4.5
            assert contrast(look.soft, ground) >= 4.5
            assert contrast(look.ink, ground) >= 3


def test_report_colours_have_enough_contrast_in_dark() -> None:
    report = build_report(plan_graph(residual()), theme="dark").decode()
    names = dict(re.findall(r"--(\w+): (#\w+);", report.split('[data-theme="dark"]')[1].split("}")[0]))
    assert names["ground"] == LOOKS["dark"].ground
    assert {"ink", "soft", "good", "bad", "mark"} <= set(names)
