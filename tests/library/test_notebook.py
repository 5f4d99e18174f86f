"""A notebook, executed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from playwright.sync_api import Browser, expect

import tmmu
from tests.support.paths import ROOT, SAMPLES


@pytest.mark.slow
def test_plan_at_the_end_of_a_cell_shows_its_map() -> None:
    cells = [
        "import tmmu\nplan = tmmu.plan('sample_graphs/residual_block.tmmu.json', planner='greedy')",
        "plan",
        "plan.table().head(2)",
        "plan.gate(max_gap=0)",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    NotebookClient(notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(ROOT)}}).execute()
    shown = [cell.outputs[0].data if cell.outputs else {} for cell in notebook.cells]
    assert "<iframe" in shown[1]["text/html"]
    assert shown[1]["text/plain"].startswith("<Plan residual_block · ")
    assert "offset_bytes" in shown[2]["text/html"]
    assert shown[3]["text/plain"].startswith("<Gate ")


@pytest.mark.browser
@pytest.mark.gate
@pytest.mark.parametrize(
    "result",
    [
        lambda: tmmu.plan(SAMPLES / "residual_block.tmmu.json"),
        lambda: tmmu.pack([0, 1], [2, 3], [4, 8]),
        lambda: tmmu.fit(SAMPLES / "mixed_sizes.tmmu.json", "300KiB"),
    ],
    ids=["plan", "packed", "fit"],
)
def test_notebook_view_shows_tensors_on_hover_and_zooms(
    browser: Browser, tmp_path: Path, result: Callable[[], Any]
) -> None:
    path = tmp_path / "cell.html"
    path.write_text(result()._repr_html_(), encoding="utf-8")
    page = browser.new_context(offline=True).new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(path.as_uri())
    canvas = page.frame_locator("iframe").locator(".tmmu-canvas[data-paintings]")
    picture = canvas.locator("canvas").last
    box = picture.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.75, box["y"] + box["height"] * 0.6)
    expect(canvas.locator(".tip b")).to_be_visible()
    paintings = canvas.get_attribute("data-paintings")
    page.mouse.wheel(0, -600)
    expect(canvas).not_to_have_attribute("data-paintings", str(paintings))
    assert wrong == []
