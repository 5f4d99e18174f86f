// The strip: the live bytes of one arena, or of all arenas of one memory, over the visible steps, and those of the
// baseline as a dashed line. A pixel with several steps shows their maximum.

import { CONFLICT } from "../base/colours.js";
import { Plane } from "../base/plane.js";
import { arrowHead, fillBox, stroke, within } from "./pen.js";
import { shortBytes } from "../base/formats.js";

export function drawStrip(pen, sight) {
  const { plan, plane, look, strip, curve: arena, scene: { before } } = sight;
  if (!arena || !plan.steps) return;
  const extent = Number(arena.extent), capacity = arena.capacity === null ? 0 : Number(arena.capacity);
  const top = 1.17 * Math.max(1, extent, Number(arena.peak), before?.peak ?? 0, capacity <= 1.5 * extent ? capacity : 0);
  const { t0, t1 } = plane.win, { sideways } = plane;
  const bytes = new Plane(strip, { t0, t1, v0: 0, v1: top }, { sideways });
  within(pen, strip, () => {
    fillBox(pen, bytes.box(t0, t1, 0, top), look.panel);
    pen.fillStyle = look.live;
    drawCurve(pen, bytes, arena.live, plan.steps);
    if (arena.capacity !== null && capacity < Number(arena.peak)) {
      const [x0, y0, x1, y1] = bytes.seenBox(t0, t1, capacity, top);
      within(pen, { x: x0, y: y0, w: x1 - x0, h: y1 - y0 }, () => {
        pen.fillStyle = CONFLICT;
        drawCurve(pen, bytes, arena.live, plan.steps);
      });
    }
    pen.strokeStyle = look.line;
    pen.lineWidth = 1.2;
    const level = (size, dash) => stroke(pen, bytes.levelLine(size, t0, t1), dash);
    if (before) drawOutline(pen, bytes, before.live);
    level(extent, []);
    level(Number(arena.bound), [2, 3]);
    if (capacity && capacity <= top) level(capacity, [7, 5]);
    pen.fillStyle = look.line;
    const peak = arena.peak_step + 0.5;
    arrowHead(pen, [...bytes.point(peak, top), ...bytes.point(peak, Number(arena.peak))], 8);
  });
  drawLabels(pen, sight, bytes, arena);
}

/** Return [first, end, most live bytes] of each visible step, or of each pixel if steps are narrower than a pixel. */
function barsOf(plane, live, steps) {
  const { t0, t1 } = plane.win, isWide = plane.perStep >= 1, width = isWide ? 1 : 1 / plane.perStep, bars = [];
  for (let t = isWide ? Math.floor(t0) : t0; t < Math.min(steps, t1); t += width) {
    bars.push([t, t + width, Math.max(0, ...live.subarray(Math.floor(t), Math.min(steps, Math.ceil(t + width))))]);
  }
  return bars;
}

function drawCurve(pen, plane, live, steps) {
  const seam = plane.perStep >= 1 ? 0.3 / plane.perStep : 0; // wide bars overlap, without seams
  for (const [first, end, most] of barsOf(plane, live, steps)) fillBox(pen, plane.box(first, end + seam, 0, most));
}

function drawOutline(pen, plane, live) {
  pen.setLineDash([4, 3]);
  pen.beginPath();
  for (const [first, end, most] of barsOf(plane, live, live.length)) {
    pen.lineTo(...plane.point(first, most));
    pen.lineTo(...plane.point(end, most));
  }
  pen.stroke();
}

function drawLabels(pen, { look, strip }, plane, arena) {
  pen.fillStyle = look.soft;
  pen.font = look.font;
  if (plane.sideways) {
    pen.textAlign = "center";
    pen.textBaseline = "top";
    pen.fillText("live bytes", strip.x + strip.w / 2, strip.y + strip.h + 6);
    return;
  }
  pen.textAlign = "right";
  pen.textBaseline = "middle";
  const extent = plane.level(Number(arena.extent)), middle = strip.y + strip.h / 2 + 6;
  if (Number(arena.extent)) pen.fillText(shortBytes(arena.extent), strip.x - 7, extent);
  pen.fillText("0 B", strip.x - 7, strip.y + strip.h - 4);
  if (Math.abs(extent - middle) > 13) pen.fillText("live bytes", strip.x - 7, middle);
}
