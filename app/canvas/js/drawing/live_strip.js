// The strip: the live bytes of the shown arena, or of all shown arenas together, at the visible steps. A dashed curve
// shows the live bytes in the other plan of a comparison. A pixel with several steps shows their maximum.

import { CONFLICT } from "../base/colours.js";
import { Plane } from "../base/plane.js";
import { arrowHead, fillBox, stroke, drawClipped } from "./pen.js";
import { shortBytes } from "../base/formats.js";

export function drawStrip(pen, frameState) {
  const { plan, plane: { win, sideways }, look, strip, scene: { stripArena: arena, otherSum } } = frameState;
  if (!arena || !plan.steps) return;
  const { extent, peak, bound, capacity } = arena;
  const top = 1.17 * Math.max(1, extent, peak, otherSum?.peak ?? 0, capacity <= 1.5 * extent ? capacity : 0);
  const { t0, t1 } = win, plane = new Plane(strip, { t0, t1, v0: 0, v1: top }, { sideways });
  drawClipped(pen, strip, () => {
    fillBox(pen, plane.box(t0, t1, 0, top), look.panel);
    pen.fillStyle = look.live;
    drawCurve(pen, plane, arena.live, plan.steps);
    if (capacity < peak) {
      const [x0, y0, x1, y1] = plane.visibleBox(t0, t1, capacity, top);
      drawClipped(pen, { x: x0, y: y0, w: x1 - x0, h: y1 - y0 }, () => {
        pen.fillStyle = CONFLICT;
        drawCurve(pen, plane, arena.live, plan.steps);
      });
    }
    Object.assign(pen, { strokeStyle: look.line, lineWidth: 1.2 });
    const level = (size, dash) => stroke(pen, plane.levelLine(size, t0, t1), dash);
    if (otherSum) drawOutline(pen, plane, otherSum.live);
    level(extent, []);
    level(bound, [2, 3]);
    if (capacity && capacity <= top) level(capacity, [7, 5]);
    pen.fillStyle = look.line;
    const peakStep = arena.peak_step + 0.5;
    arrowHead(pen, [...plane.point(peakStep, top), ...plane.point(peakStep, peak)], 8);
  });
  drawLabels(pen, frameState, plane, arena);
}

/** Return [start, end, most live bytes] of each visible step, or of each pixel if steps are narrower than a pixel. */
function barsOf(plane, live, steps) {
  const { t0, t1 } = plane.win, isWide = plane.pixelsPerStep >= 1, bars = [];
  const width = isWide ? 1 : 1 / plane.pixelsPerStep; // in steps
  for (let t = isWide ? Math.floor(t0) : t0; t < Math.min(steps, t1); t += width) {
    bars.push([t, t + width, Math.max(0, ...live.subarray(Math.floor(t), Math.min(steps, Math.ceil(t + width))))]);
  }
  return bars;
}

function drawCurve(pen, plane, live, steps) {
  const overlap = plane.pixelsPerStep >= 1 ? 0.3 / plane.pixelsPerStep : 0; // hides the seams between wide bars
  for (const [start, end, bytes] of barsOf(plane, live, steps)) fillBox(pen, plane.box(start, end + overlap, 0, bytes));
}

function drawOutline(pen, plane, live) {
  pen.setLineDash([4, 3]);
  pen.beginPath();
  for (const [start, end, bytes] of barsOf(plane, live, live.length)) {
    pen.lineTo(...plane.point(start, bytes));
    pen.lineTo(...plane.point(end, bytes));
  }
  pen.stroke();
}

function drawLabels(pen, { look, strip }, plane, arena) {
  Object.assign(pen, { fillStyle: look.soft, font: look.font });
  if (plane.sideways) {
    Object.assign(pen, { textAlign: "center", textBaseline: "top" });
    pen.fillText("live bytes", strip.x + strip.w / 2, strip.y + strip.h + 6);
    return;
  }
  Object.assign(pen, { textAlign: "right", textBaseline: "middle" });
  const extentY = plane.level(arena.extent), middle = strip.y + strip.h / 2 + 6;
  if (arena.extent) pen.fillText(shortBytes(arena.extent), strip.x - 7, extentY);
  const zeroY = strip.y + strip.h - 4;
  if (!arena.extent || zeroY - extentY > 11) pen.fillText("0 B", strip.x - 7, zeroY);
  if (Math.abs(extentY - middle) > 13) pen.fillText("live bytes", strip.x - 7, middle);
}
