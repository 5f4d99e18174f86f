// The axes: ticks of the steps and of v, and their labels left of and below the picture.

import { PHASE_COLOURS } from "../base/palette.js";
import { LETTER } from "../base/theme.js";
import { sharp } from "../base/plane.js";
import { stroke } from "./pen.js";
import { grouped, shortened, stepName, UNITS } from "../base/formats.js";

/** Return the smallest of 1, 2, 5, 10, 20, 50, … that is at least `least`. */
function tens(least) {
  const power = 10 ** Math.floor(Math.log10(Math.max(least, 1)));
  return power * [1, 2, 5, 10].find((factor) => factor * power >= least);
}
/** Return the smallest of 1, 2, 4, 8, … that is at least `least`. */
const twos = (least) => 2 ** Math.max(0, Math.ceil(Math.log2(Math.max(least, 1))));

/** Return a function that formats the labels of ticks that are `every` bytes apart, a power of two. All labels up to
 * `highest` have the same unit, the largest in which they are exact with at most three decimals; labels wider than
 * `letters` are hexadecimal. */
export function byteLabels(every, highest, letters) {
  let size = 1, unit = 0;
  for (; size * 1024 <= Math.min(highest, every * 8); size *= 1024) unit++;
  const digits = Math.max(0, Math.log2(size / every));
  const format = { minimumFractionDigits: digits, maximumFractionDigits: digits };
  const label = (n) => (n ? `${(n / size).toLocaleString("en-US", format)} ${UNITS[unit]}` : "0 B");
  return label(Math.ceil(highest / size) * size).length <= letters ? label : (n) => `0x${n.toString(16).toUpperCase()}`;
}

/** Return the ticks of the steps as {px, text, more}. The text `more` is drawn if there is space. */
export function stepTicks({ plan, plane, plot }) {
  const { t0, t1 } = plane.win, ticks = [];
  const sample = Array.from({ length: 24 }, (_, k) => plan.nodes.at(Math.floor(t0 + (k / 24) * (t1 - t0))).length);
  const longest = Math.max(...sample);
  const words = Math.max(64, plot.w / 14, LETTER * (longest + grouped(plan.stepAt(plan.steps)).length + 4));
  const [room] = plane.turned(Math.min(132, words), 22), every = tens(room / plane.perStep);
  const [from, to] = [plane.step(t0), plane.step(t1)], middle = plane.perStep > 30 ? 0.5 : 0;
  for (let t = Math.max(0, Math.floor(t0 / every) * every); t < Math.min(plan.steps, t1); t += every) {
    const px = plane.step(t + middle);
    if (px >= from - 1 && px <= to + 1) ticks.push({ px, text: stepName(plan.stepAt(t)), more: plan.nodes.at(t) });
  }
  return ticks;
}

/** Return the ticks of v as {px, text}. */
export function levelTicks(sight) {
  const { scene } = sight;
  if (scene.memory) return byteTicks(sight, { base: 0, height: scene.top });
  if (scene.view === "map") return scene.bands.flatMap((band) => byteTicks(sight, band));
  if (scene.view === "slots") return scene.bands.flatMap((band) => slotTicks(sight, band));
  return rowTicks(sight);
}

/** Return the distance along v that a label needs, for pixels between labels below each other or beside each other. */
const labelRoom = (plane, below, beside) => (plane.sideways ? beside : below) / plane.perLevel;

/** Return ticks at the multiples of `every` in [max(0, first), last]; k is at the coordinate base + k. */
function multiples(plane, base, [first, last], every, label) {
  const ticks = [];
  for (let k = Math.ceil(Math.max(0, first) / every) * every; k <= last; k += every) {
    ticks.push({ px: plane.level(base + k), text: label(k) });
  }
  return ticks;
}

function byteTicks({ plane, plot }, { base, height }) {
  const { v0, v1 } = plane.win, every = twos(labelRoom(plane, 34, 84)), last = Math.min(height, v1 - base);
  const label = byteLabels(every, Math.ceil(last), Math.floor((plot.x - 8) / LETTER));
  return multiples(plane, base, [v0 - base, last], every, label);
}

function slotTicks({ plane }, { base, height }) {
  const { v0, v1 } = plane.win, every = tens(labelRoom(plane, 15, 26)), middle = base + 0.5;
  return multiples(plane, middle, [v0 - middle, Math.min(height - 1, v1 - base)], every, grouped);
}

/** Return a tick per row with the name of its tensor; if the names do not fit, ticks with row numbers. */
function rowTicks({ plan, plane, plot, scene }) {
  const every = tens(labelRoom(plane, 15, 60)), rows = [Math.floor(plane.win.v0), Math.min(scene.top - 1, plane.win.v1)];
  if (every > 1 || plane.sideways) return multiples(plane, 0.5, rows, every, grouped);
  const shown = plan.byBirth().filter((row) => scene.v1[row]), letters = Math.floor((plot.x - 12) / LETTER);
  return multiples(plane, 0.5, rows, 1, (k) => shortened(plan.ids.at(shown[k]), letters));
}

export function drawGrid(pen, { plane, scene, look }, { steps, levels }) {
  pen.strokeStyle = look.grid;
  pen.lineWidth = 1;
  for (const { px } of steps) stroke(pen, plane.across(sharp(px)));
  if (scene.view === "map") for (const { px } of levels) stroke(pen, plane.across(sharp(px), true));
}

export function drawTicks(pen, sight, { steps, levels }) {
  const { plan, plane, plot, scene, look, height } = sight;
  const v = { lifetimes: "tensor, by first write", slots: plan.slotted ? "slot" : "buffer", map: "offset" }[scene.view];
  const t = plan.events ? "steps at which a range begins or ends" : "step";
  const [foot, left] = plane.turned(steps, levels), [footName, leftName] = plane.turned(t, v);
  pen.fillStyle = look.soft;
  drawFoot(pen, sight, foot);
  drawLeft(pen, sight, left);
  pen.textBaseline = "bottom";
  pen.textAlign = "right";
  pen.fillText(footName, plot.x + plot.w, height - 1);
  pen.textAlign = "left";
  pen.fillText(`${leftName} ${plane.vSign > 0 ? "↓" : "↑"}`, 4, height - 1);
}

function drawFoot(pen, { plot, look }, ticks) {
  const room = ticks.length > 1 ? ticks[1].px - ticks[0].px : 150, floor = plot.y + plot.h;
  let last = -Infinity;
  pen.textBaseline = "top";
  pen.textAlign = "center";
  pen.strokeStyle = look.soft;
  for (const { px, text, more } of [...ticks].sort((a, b) => a.px - b.px)) {
    if (px < plot.x - 1 || px > plot.x + plot.w + 1) continue;
    const letters = Math.max(text.length, Math.floor((room - 10) / LETTER));
    const label = room >= 70 && more ? shortened(`${text} ${more}`, letters) : text;
    const half = pen.measureText(label).width / 2;
    const x = Math.max(plot.x - 30 + half, Math.min(plot.x + plot.w + 10 - half, px));
    if (x - half < last + 6) continue;
    stroke(pen, [sharp(px), floor, sharp(px), floor + 4]);
    pen.fillText(label, x, floor + 6);
    last = x + half;
  }
}

function drawLeft(pen, { plot }, ticks) {
  const letters = Math.floor((plot.x - 14) / LETTER);
  let last = Infinity;
  pen.textAlign = "right";
  pen.textBaseline = "middle";
  for (const { px, text, more } of [...ticks].sort((a, b) => b.px - a.px)) {
    if (px < plot.y - 1 || px > plot.y + plot.h + 1 || last - px < 12) continue;
    const y = Math.min(plot.y + plot.h - 4, Math.max(plot.y + 5, px));
    pen.fillText(more ? shortened(`${text} ${more}`, letters) : text, plot.x - 7, y);
    last = px;
  }
}

const BAND = 4; // pixels
const STEP_NAME = 34; // width of the name of the step axis in pixels

/** Draw a coloured band per phase beside the step axis; below a horizontal axis also its name if there is space. */
export function drawPhases(pen, { plan, plane, plot, look, height }) {
  const { t0, t1 } = plane.win;
  pen.textAlign = "left";
  pen.textBaseline = "bottom";
  for (const [phase, start, end] of plan.stretches) {
    const from = Math.max(start, t0), to = Math.min(end, t1);
    if (to <= from) continue;
    const a = plane.step(from), b = plane.step(to);
    pen.fillStyle = PHASE_COLOURS[phase];
    if (plane.sideways) {
      pen.fillRect(plot.x - BAND - 1, a, BAND, b - a);
      continue;
    }
    pen.fillRect(a, plot.y + plot.h + 1, b - a, BAND);
    const width = pen.measureText(phase).width + 14;
    const x = Math.min((a + b - width) / 2, plot.x + plot.w - STEP_NAME - width);
    if (x < a) continue;
    pen.fillRect(x, height - 11, 8, 8);
    pen.fillStyle = look.soft;
    pen.fillText(phase, x + 12, height - 1);
  }
}
