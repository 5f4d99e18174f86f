"""Drawings of an arena as SVG, the printed report, and the Markdown summary."""

import re
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from app.cli.main import run
from app.kit.downloads import PICTURES, picture
from app.report.html_report import browser, build_report
from app.report.pictures import THEMES, Sheet, Theme, arena_picture
from app.report.summary import markdown
from app.session import planning
from app.session.view_state import Choice
from app.texts import numbers
from app.texts.palette import CATEGORIES, HUES
from tests.app.canvas.plans import plan_of
from tests.support.build import residual
from tests.support.paths import SAMPLES
from tmmu_core.judge.finding import Finding, Verdict
from tmmu_core.plans.making.engine import plan_graph

SHOWN = planning.make_plan(Choice(source="sample:resnet50"))
SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("kind", PICTURES)
@pytest.mark.parametrize("theme", THEMES)
def test_drawing_has_the_chosen_size_and_theme(kind: str, theme: Theme) -> None:
    root = ET.fromstring(picture(SHOWN, kind, "activations", Sheet(640, 333, theme, is_file=True)))
    assert (root.get("width"), root.get("height"), root.get("viewBox")) == ("640", "333", "0 0 640 333")
    first = root.find(f"{SVG}rect")
    assert first is not None
    assert first.get("fill") == THEMES[theme]["ground"]
    assert root.get("fill") == THEMES[theme]["text"]
    for box in root.iter(f"{SVG}rect"):
        x, y, w, h = (float(box.get(side, "0")) for side in ("x", "y", "width", "height"))
        assert x >= 0
        assert y >= 0
        assert x + w <= 640.01
        assert y + h <= 333.01


@pytest.mark.parametrize(("kind", "colours"), [("map", HUES), ("slots", HUES), ("ledger", CATEGORIES)])
def test_drawing_has_the_colours_of_the_page(kind: str, colours: tuple[str, ...]) -> None:
    drawn = picture(SHOWN, kind, "activations", Sheet(is_file=True))
    assert len({colour for colour in colours if f'fill="{colour}"' in drawn}) >= min(3, len(colours) // 4)


def test_text_and_lines_have_enough_contrast() -> None:
    """Contrast by WCAG 2: 4.5 for text, 3 for lines."""

    def luminance(colour: str) -> float:
        parts = (int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5))
        red, green, blue = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    def contrast(one: str, other: str) -> float:
        high, low = sorted((luminance(one), luminance(other)), reverse=True)
        return (high + 0.05) / (low + 0.05)

    for colours in THEMES.values():
        for ground in (colours["ground"], colours["panel"]):
            assert contrast(colours["text"], ground) >= 4.5
            assert contrast(colours["ink"], ground) >= 3


RESNET = str(SAMPLES / "residual_block.tmmu.json")


def test_still_map_has_a_box_per_storage() -> None:
    root = ET.fromstring(arena_picture(plan_of(), "activations", "map", Sheet()))
    titles = [title.text for title in root.iter(f"{SVG}title")]
    assert sorted(text.split(",")[0] for text in titles if text) == ["a", "b", "c"]


def test_map_of_hashed_addresses_has_all_boxes_in_its_area() -> None:
    plan = planning.make_plan(Choice(source="sample:mixed_sizes", addressing="blake3_sparse")).plan
    root = ET.fromstring(arena_picture(plan, "activations", "map", Sheet()))
    assert all(0 <= float(box.attrib["y"]) < Sheet().height for box in root.iter(f"{SVG}rect"))


def test_shortened_names_keep_the_layer_number() -> None:
    names = [f"transformer.layers.{k}.attention.weight" for k in range(24)]
    short = numbers.shortener(names)
    assert short(names[11], 22) == "…11.attention.weight"
    assert short(names[11], 8) == "…11…"
    assert len({short(name, 10) for name in names}) == 24


def test_labels_of_steps_do_not_overlap() -> None:
    plan = plan_of(nodes=tuple(f"DEPTHWISE_CONV_2D_{k}" for k in range(17)))
    texts = [
        each
        for each in ET.fromstring(arena_picture(plan, "activations", "map", Sheet())).iter()
        if each.tag.endswith("}text")
    ]
    steps = [(float(each.get("x") or 0), each.text) for each in texts if (each.text or "").startswith("#")]
    ends = [x + 7 * len(text or "") for x, text in steps]
    assert len(steps) > 3
    assert all(end < x for end, (x, _) in zip(ends, steps[1:], strict=False))


@pytest.mark.browser
def test_printed_report_has_its_plan(tmp_path: Path) -> None:
    target = tmp_path / "plan.pdf"
    assert run(["report", RESNET, "-o", str(target)]) == 0
    data = target.read_bytes()
    assert data.startswith(b"%PDF")
    page = tmp_path / "page.html"
    page.write_bytes(build_report(plan_graph(residual())))
    program = browser()
    assert program is not None
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/u"]
    dumped = subprocess.run([program, *options, "--dump-dom", page.as_uri()], capture_output=True, timeout=100).stdout
    assert re.search(rb'<figure class="still"><svg.*?<rect', dumped, re.S)


def test_summary_of_an_invalid_plan_begins_with_that() -> None:
    red = Verdict((Finding("overlap", "error", "a and b share bytes", "a", "b"),), ("overlap",))
    shown_text = markdown(plan_of(), red).decode()
    assert shown_text.index("✗ **1 error**") < shown_text.index("| arena |")
    assert "a and b share bytes" in shown_text


def test_summary_of_a_plan_over_its_capacity_has_no_error() -> None:
    over = Verdict((Finding("capacity", "error", "too large", "", ""),), ("capacity",))
    assert "✓ verified" in markdown(plan_of(), over).decode()


def test_summary_of_a_long_timeline_lists_the_buffers_at_its_peak() -> None:
    rows = (("a", "activations", 0, 0, 100, 0, 10), ("b", "activations", 0, 0, 300, 5_000, 9_000))
    shown_text = markdown(plan_of(rows, nodes=("n",) * 8_999), Verdict()).decode()
    assert "300 B at `#5,000 n`; 1 buffer:" in shown_text
    assert "| `b` | 300 B | [5000, 9000) |" in shown_text
