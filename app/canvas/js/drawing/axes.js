// The axes: ticks and labels of the steps and of v (bytes, slots or tensors). The strip of live bytes.

import { PHASE_COLOURS } from "../base/palette.js";
import { CONFLICT, LETTER } from "../base/colours.js";
import { arrowHead, drawClipped, fillBox, Plane, sharp, stroke } from "../base/plane.js";
import { grouped, shortBytes, shortened, stepName, UNITS } from "../base/formats.js";

/** Return the smallest of 1, 2, 5, 10, 20, 50, … that is at least `least`. */
function decimalInterval(least) {
  const power = 10 ** Math.floor(Math.log10(Math.max(least, 1)));
  return power * [1, 2, 5, 10].find((factor) => factor * power >= least);
}
/** Return the smallest of 1, 2, 4, 8, … that is at least `least`. */
const binaryInterval = (least) => 2 ** Math.max(0, Math.ceil(Math.log2(Math.max(least, 1))));

/** Return a function that formats a multiple of `every` bytes, at most `highest`. `every` is a power of two.
 * All labels have the same unit: the largest, at most `highest`, in which three decimals give exact labels.
 * If the longest label has more than `letters` letters, all labels are hexadecimal. */
export function byteLabels(every, highest, letters) {
  let size = 1, unit = 0;
  for (; size * 1024 <= Math.min(highest, every * 8); size *= 1024) unit++;
  const digits = Math.max(0, Math.log2(size / every));
  const format = { minimumFractionDigits: digits, maximumFractionDigits: digits };
  const label = (n) => (n ? `${(n / size).toLocaleString("en-US", format)} ${UNITS[unit]}` : "0 B");
  return label(Math.ceil(highest / size) * size).length <= letters ? label : (n) => `0x${n.toString(16).toUpperCase()}`;
}

/** Return the ticks of the steps as {px, text, node}. The name of the node is drawn if there is space. */
export function stepTicks({ plan, plane, plot }) {
  const { t0, t1 } = plane.win, ticks = [];
  const sample = Array.from({ length: 24 }, (_, k) => plan.node(Math.floor(t0 + (k / 24) * (t1 - t0))).length);
  const letters = Math.max(...sample) + grouped(plan.stepAt(plan.steps)).length + 4; // estimate for the longest label
  const labelWidth = Math.min(132, Math.max(64, plot.w / 14, LETTER * letters));
  const [leastPixels] = plane.swappedIfSideways(labelWidth, 22); // between two ticks
  const every = decimalInterval(leastPixels / plane.pixelsPerStep);
  const [from, to] = [plane.step(t0), plane.step(t1)], middle = plane.pixelsPerStep > 30 ? 0.5 : 0;
  for (let t = Math.max(0, Math.floor(t0 / every) * every); t < Math.min(plan.steps, t1); t += every) {
    const px = plane.step(t + middle);
    if (px >= from - 1 && px <= to + 1) ticks.push({ px, text: stepName(plan.stepAt(t)), node: plan.node(t) });
  }
  return ticks;
}

/** Return the ticks of v as {px, text}. */
export function levelTicks(frameState) {
  const { plan, plane, plot, scene } = frameState;
  if (scene.memory) return byteTicks(frameState, { base: 0, height: scene.top });
  if (scene.view === "map") return scene.bands.flatMap((band) => byteTicks(frameState, band));
  if (scene.view === "slots") return scene.bands.flatMap((band) => slotTicks(frameState, band));
  // A tick per visible line with the name of its tensor or, if the names do not fit, ticks with line numbers
  const every = decimalInterval(toLevels(plane, 15, 60));
  const lines = [Math.floor(plane.win.v0), Math.min(scene.top - 1, plane.win.v1)];
  if (every > 1 || plane.sideways) return multiples(plane, 0.5, lines, every, grouped);
  const rows = plan.byBirth().filter((row) => scene.v1[row]), letters = Math.floor((plot.x - 12) / LETTER);
  return multiples(plane, 0.5, lines, 1, (k) => shortened(plan.id(rows[k]), letters));
}

/** Convert pixels to a distance along v: `vertical` pixels for a vertical v axis, else `horizontal` pixels. */
const toLevels = (plane, vertical, horizontal) => (plane.sideways ? horizontal : vertical) / plane.pixelsPerLevel;

/** Return a tick for each multiple k of `every` in [max(0, first), last], at v = base + k. */
function multiples(plane, base, [first, last], every, label) {
  const ticks = [];
  for (let k = Math.ceil(Math.max(0, first) / every) * every; k <= last; k += every) {
    ticks.push({ px: plane.level(base + k), text: label(k) });
  }
  return ticks;
}

function byteTicks({ plane, plot }, { base, height }) {
  const { v0, v1 } = plane.win, every = binaryInterval(toLevels(plane, 34, 84)), last = Math.min(height, v1 - base);
  const label = byteLabels(every, Math.ceil(last), Math.floor((plot.x - 8) / LETTER));
  return multiples(plane, base, [v0 - base, last], every, label);
}

function slotTicks({ plane }, { base, height }) {
  const { v0, v1 } = plane.win, every = decimalInterval(toLevels(plane, 15, 26)), middle = base + 0.5;
  return multiples(plane, middle, [v0 - middle, Math.min(height - 1, v1 - base)], every, grouped);
}

export function drawGrid(pen, { plane, scene, look }, { steps, levels }) {
  Object.assign(pen, { strokeStyle: look.grid, lineWidth: 1 });
  for (const { px } of steps) stroke(pen, plane.across(sharp(px)));
  if (scene.view === "map") for (const { px } of levels) stroke(pen, plane.across(sharp(px), true));
}

export function drawTicks(pen, frameState, { steps, levels }) {
  const { plan, plane, plot, scene, look, height } = frameState;
  const slots = plan.slotted ? "slot" : "buffer";
  const levelAxis = { lifetimes: "tensor, by first write", slots, map: "offset" }[scene.view];
  const stepAxis = plan.events ? "steps at which a live range begins or ends" : "step";
  const [ticksBelow, ticksLeft] = plane.swappedIfSideways(steps, levels);
  const [axisBelow, axisLeft] = plane.swappedIfSideways(stepAxis, levelAxis);
  pen.fillStyle = look.soft;
  drawBelow(pen, frameState, ticksBelow);
  drawLeft(pen, frameState, ticksLeft);
  Object.assign(pen, { textBaseline: "bottom", textAlign: "right" });
  pen.fillText(axisBelow, plot.x + plot.w, height - 1);
  pen.textAlign = "left";
  pen.fillText(`${axisLeft} ${plane.vSign > 0 ? "↓" : "↑"}`, 4, height - 1);
}

function drawBelow(pen, { plot, look }, ticks) {
  const interval = ticks.length > 1 ? ticks[1].px - ticks[0].px : 150, bottom = plot.y + plot.h;
  let lastRight = -Infinity;
  Object.assign(pen, { textBaseline: "top", textAlign: "center", strokeStyle: look.soft });
  for (const { px, text, node } of [...ticks].sort((a, b) => a.px - b.px)) {
    if (px < plot.x - 1 || px > plot.x + plot.w + 1) continue;
    const letters = Math.max(text.length, Math.floor((interval - 10) / LETTER));
    const label = interval >= 70 && node ? shortened(`${text} ${node}`, letters) : text;
    const half = pen.measureText(label).width / 2;
    const x = Math.max(plot.x - 30 + half, Math.min(plot.x + plot.w + 10 - half, px));
    if (x - half < lastRight + 6) continue;
    stroke(pen, [sharp(px), bottom, sharp(px), bottom + 4]);
    pen.fillText(label, x, bottom + 6);
    lastRight = x + half;
  }
}

function drawLeft(pen, { plot }, ticks) {
  const letters = Math.floor((plot.x - 14) / LETTER);
  let lastPx = Infinity;
  Object.assign(pen, { textAlign: "right", textBaseline: "middle" });
  for (const { px, text, node } of [...ticks].sort((a, b) => b.px - a.px)) {
    if (px < plot.y - 1 || px > plot.y + plot.h + 1 || lastPx - px < 12) continue;
    const y = Math.min(plot.y + plot.h - 4, Math.max(plot.y + 5, px));
    pen.fillText(node ? shortened(`${text} ${node}`, letters) : text, plot.x - 7, y);
    lastPx = px;
  }
}

const PHASE_WIDTH = 4; // width of a phase's line in pixels
const AXIS_NAME = 34; // pixels that the name of the step axis needs, on the right below the picture

/** Draw a coloured line per phase beside the step axis. Below a horizontal axis, also draw the name of each phase once. */
export function drawPhases(pen, { plan, plane, plot, look, height }) {
  const { t0, t1 } = plane.win, named = new Set();
  let right = plot.x; // end of the last name
  Object.assign(pen, { textAlign: "left", textBaseline: "bottom" });
  for (const [phase, first, end] of plan.phases) {
    if (Math.min(end, t1) <= Math.max(first, t0)) continue;
    const a = plane.step(Math.max(first, t0)), b = plane.step(Math.min(end, t1));
    pen.fillStyle = PHASE_COLOURS[phase];
    if (plane.sideways) {
      pen.fillRect(plot.x - PHASE_WIDTH - 1, a, PHASE_WIDTH, b - a);
      continue;
    }
    pen.fillRect(a, plot.y + plot.h + 1, b - a, PHASE_WIDTH);
    const width = pen.measureText(phase).width + 14;
    const x = Math.min(Math.max((a + b - width) / 2, right), plot.x + plot.w - AXIS_NAME - width);
    if (x < right || named.has(phase)) continue;
    named.add(phase);
    right = x + width;
    pen.fillRect(x, height - 11, 8, 8);
    pen.fillStyle = look.soft;
    pen.fillText(phase, x + 12, height - 1);
  }
}

// The strip: the live bytes of the shown arena, or of all shown arenas together, at the visible steps. A dashed curve
// shows the live bytes in the other plan of a comparison. A pixel with several steps shows their maximum.
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
    if (otherSum) {
      pen.setLineDash([4, 3]);
      pen.beginPath();
      for (const [start, end, bytes] of barsOf(plane, otherSum.live, otherSum.live.length)) {
        pen.lineTo(...plane.point(start, bytes));
        pen.lineTo(...plane.point(end, bytes));
      }
      pen.stroke();
    }
    level(extent, []);
    level(bound, [2, 3]);
    if (capacity && capacity <= top) level(capacity, [7, 5]);
    pen.fillStyle = look.line;
    const peakStep = arena.peak_step + 0.5;
    arrowHead(pen, [...plane.point(peakStep, top), ...plane.point(peakStep, peak)], 8);
  });
  Object.assign(pen, { fillStyle: look.soft, font: look.font });
  if (sideways) {
    Object.assign(pen, { textAlign: "center", textBaseline: "top" });
    pen.fillText("live bytes", strip.x + strip.w / 2, strip.y + strip.h + 6);
    return;
  }
  Object.assign(pen, { textAlign: "right", textBaseline: "middle" });
  const extentY = plane.level(extent), middle = strip.y + strip.h / 2 + 6, zeroY = strip.y + strip.h - 4;
  if (extent) pen.fillText(shortBytes(extent), strip.x - 7, extentY);
  if (!extent || zeroY - extentY > 11) pen.fillText("0 B", strip.x - 7, zeroY);
  if (Math.abs(extentY - middle) > 13) pen.fillText("live bytes", strip.x - 7, middle);
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
