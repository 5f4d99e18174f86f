"""Layout of the graph view: boxes do not overlap and stay in their frames; a thousand nodes are fast."""

from typing import Any

import pytest
from playwright.sync_api import Page

from app.canvas.script import library, sources

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
    return (
        a[0] < b[0] + b[2] - 1e-6
        and b[0] < a[0] + a[2] - 1e-6
        and a[1] < b[1] + b[3] - 1e-6
        and b[1] < a[1] + a[3] - 1e-6
    )


def inside(box: list[float], frame: list[float]) -> bool:
    return (
        frame[0] <= box[0]
        and frame[1] <= box[1]
        and box[0] + box[2] <= frame[0] + frame[2]
        and box[1] + box[3] <= frame[1] + frame[3]
    )


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
    edges = [[5 * k + i, 5 * k + i + 1] for k in range(12) for i in range(4)] + [
        [5 * k + 4, 5 * k + 5] for k in range(11)
    ]
    found = arrange(sizes=[[90, 30]] * 60, within=within, edges=edges, levels=[[k + 1, 0] for k in range(12)])
    own = {
        tuple(round(found["boxes"][5 * k + i][j] - found["frames"][k][j], 6) for i in range(5) for j in (0, 1))
        for k in range(12)
    }
    assert len(own) == 1


def test_thousand_nodes_are_laid_out_quickly(arrange: Any) -> None:
    # 40 levels of 25 nodes, none like another: each node reads one of the three before it, sometimes two
    within = [1 + k // 25 for k in range(1000)]
    edges = [[k - 1 - (k * k) % 3, k] for k in range(3, 1000)]
    edges += [[k - 2, k] for k in range(5, 1000, 7) if (k * k) % 3 != 1]
    found = arrange(
        sizes=[[80 + k % 50, 38] for k in range(1000)],
        within=within,
        edges=edges,
        levels=[[k + 1, 0] for k in range(40)],
    )
    assert len(found["boxes"]) == 1000
    assert found["took"] < 8_000  # about one second of a processor of its own; the machine may have others to serve
