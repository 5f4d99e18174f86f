"""Layout of the graph view: boxes do not overlap and stay in their frames."""

from typing import Any

import pytest
from playwright.sync_api import Page

from app.canvas.component import GRAPH, canvas_script, library, sources
from tests.support.pixels import pixel_in

pytestmark = pytest.mark.browser

ARRANGE = f"{library()}\n{sources()['layout.js'].replace('export function arrange', 'globalThis.arrange = function')}"


@pytest.fixture
def arrange(sheet: Page) -> Any:
    """``arrange(sizes=…, within=…, edges=…, levels=…)`` → the layout."""
    sheet.evaluate(f"() => {{ {ARRANGE} globalThis.dagre = dagre; }}")

    def arranged(**drawing: Any) -> dict[str, Any]:
        found: dict[str, Any] = sheet.evaluate(
            """(drawing) => { const began = performance.now();
                 const layout = arrange(dagre, { ...drawing, levels: drawing.levels.map((pair) => [...pair, 60]) });
                 return { ...layout, took: performance.now() - began }; }""",
            drawing,
        )
        return found

    return arranged


def overlap(a: list[float], b: list[float]) -> bool:
    return all(a[k] < b[k] + b[k + 2] - 1e-6 and b[k] < a[k] + a[k + 2] - 1e-6 for k in (0, 1))


def inside(box: list[float], frame: list[float]) -> bool:
    return all(frame[k] <= box[k] and box[k] + box[k + 2] <= frame[k] + frame[k + 2] for k in (0, 1))


def test_boxes_are_apart_inside_their_frames_and_edges_run_down(arrange: Any) -> None:
    # inputs → [ a → b ; [ c → d ] ; lonely ] → e, and an edge that crosses both frames
    levels = [[1, 0], [2, 1]]
    within = [0, 1, 1, 2, 2, 1, 0]
    edges = [[0, 1], [1, 2], [2, 3], [3, 4], [4, 6], [0, 6]]
    found = arrange(sizes=[[80, 30]] * 7, within=within, edges=edges, levels=levels)
    boxes, frames = found["boxes"], found["frames"]
    assert not any(overlap(a, b) for k, a in enumerate(boxes) for b in boxes[:k])
    assert all(inside(boxes[k], frames[level - 1]) for k, level in enumerate(within) if level)
    assert inside(frames[1], frames[0])
    assert not any(overlap(boxes[k], frames[0]) for k in (0, 6))
    assert all(boxes[a][1] + boxes[a][3] <= boxes[b][1] for a, b in edges)
    assert [route is None for route in found["routes"]] == [True, False, True, False, True, False]


def test_cycle_is_laid_out(arrange: Any) -> None:
    found = arrange(sizes=[[80, 30]] * 3, within=[0, 0, 0], edges=[[0, 1], [1, 2], [2, 0]], levels=[])
    assert not any(overlap(a, b) for k, a in enumerate(found["boxes"]) for b in found["boxes"][:k])
    assert all(len(route) >= 4 for route in found["routes"])


def test_equal_blocks_are_laid_out_alike(arrange: Any) -> None:
    within = [k + 1 for k in range(12) for _ in range(5)]
    edges = [[k, k + 1] for k in range(59)]
    found = arrange(sizes=[[90, 30]] * 60, within=within, edges=edges, levels=[[k + 1, 0] for k in range(12)])
    own = {
        tuple(round(found["boxes"][5 * k + i][j] - found["frames"][k][j], 6) for i in range(5) for j in (0, 1))
        for k in range(12)
    }
    assert len(own) == 1


def boxes(layout_key: str, count: int) -> dict[str, Any]:
    """Return the data of a graph drawing with boxes in a row."""
    row = {"under": "", "kind": "node", "level": 0, "path": None, "tip": [], "held": 0, "hidden": 0}
    vertices = [{**row, "key": f"{k}", "name": f"{layout_key}{k}", "pick": f"{layout_key}{k}"} for k in range(count)]
    edges = [[k, k + 1, 1] for k in range(count - 1)]
    marks = {"selected": None, "peak": 0, "carrying": []}
    graph = {"vertices": vertices, "edges": edges, "levels": [], "marks": marks}
    return {**graph, "layout_key": layout_key, "height": 500, "title": "", "status": layout_key}


def test_previous_drawing_works_until_a_new_layout_is_computed(blank: Page) -> None:
    faults: list[str] = []
    blank.on("pageerror", lambda error: faults.append(str(error)))
    blank.set_content("<div id=host></div>")
    blank.add_script_tag(content=canvas_script(GRAPH))
    show = """(data) => { tmmuGraph.streamlit({ data, parentElement: host,
                setTriggerValue: (event, { value }) => host.dataset[event] = value }); }"""
    blank.evaluate(show, boxes("a", 3))
    blank.locator(".graph[data-drawn=a]").wait_for()
    at = pixel_in(blank.locator(".graph"), "a1")
    blank.evaluate(show, boxes("b", 600))
    blank.mouse.move(at["x"], at["y"])
    blank.mouse.click(at["x"], at["y"])
    assert blank.locator("#host").get_attribute("data-select") == "a1"
    blank.locator(".graph[data-drawn=b]").wait_for()
    assert faults == []
