"""The place of a tensor, node or module in a drawing of the canvas, in pixels of the browser window."""

from typing import Any

from playwright.sync_api import Locator

PIXEL = """(root, name) => {
  const { drawing: d } = root, stage = d.stage.getBoundingClientRect(), { layout, data, view, plan, win, scene } = d;
  let box = null;
  if (data && data === d.latest) {
    const vertex = data.vertices.findIndex((v) => v.name === name), frame = data.levels.findIndex((l) => l[2] === name);
    const [x, y, w, h] = layout.boxes[vertex] ?? layout.frames[frame] ?? [];
    const [left, top] = [view.x + x * view.scale, view.y + y * view.scale];
    if (w) box = [left, top, left + w * view.scale, top + (vertex < 0 ? 22 : h) * view.scale];
  }
  const row = win ? plan.rowOf(name) : -1;
  if (row >= 0 && d.shown[plan.arena[row]])
    box = d.plane.visibleBox(plan.birth[row], plan.death[row], scene.v0[row], scene.v1[row]);
  if (!box || box[2] < box[0] || box[3] < box[1]) return null;
  return { x: stage.left + (box[0] + box[2]) / 2, y: stage.top + (box[1] + box[3]) / 2 };
}"""


def pixel_in(drawing: Locator, name: str) -> Any:
    """Return ``{x, y}`` of the centre of the visible part of a box; ``None`` if it is not visible."""
    return drawing.evaluate(PIXEL, name)
