// The axes: ticks of the steps and of v, and their labels left of and below the picture.

import { PHASE_COLOURS } from "../base/colours.js";
import { LETTER } from "../base/theme.js";
import { sharp } from "../base/plane.js";
import { stroke } from "./picture.js";
import { grouped, shortened, stepName, UNITS } from "../base/formats.js";

/** Return the smallest of 1, 2, 5 × 10^k that is at least `least`. */
function tens(least) {
  const power = 10 ** Math.floor(Math.log10(Math.max(least, 1)));
  for (const factor of [1, 2, 5, 10]) if (factor * power >= least) return factor * power;
  return 10 * power;
}
/** Return the smallest power of two that is at least `least`. */
const twos = (least) => 2 ** Math.max(0, Math.ceil(Math.log2(Math.max(least, 1))));

/**
 * Return a function that formats the labels of ticks that are `every` bytes apart, a power of two: all in the largest
 * unit in which they are exact with three decimals; if these are wider than `letters`, in hexadecimal.
 */
export function byteLabels(every, highest, letters) {
  let size = 1, unit = 0;
  for (; size * 1024 <= Math.min(highest, every * 8); size *= 1024) unit++;
  const digits = Math.max(0, Math.log2(size / every));
  const format = { minimumFractionDigits: digits, maximumFractionDigits: digits };
  const label = (n) => (n ? `${(n / size).toLocaleString("en-US", format)} ${UNITS[unit]}` : "0 B");
  return label(Math.ceil(highest / size) * size).length <= letters ? label : (n) => `0x${n.toString(16).toUpperCase()}`;
}

/** Return the ticks of both axes as {px, text, more}. The text `more` is drawn only if there is space. */
export function ticksOf(sight) {
  return { steps: stepTicks(sight), levels: levelTicks(sight) };
}

export function stepTicks({ plan, plane, plot }) {
  const { t0, t1 } = plane.win, ticks = [];
  let longest = 0;
  for (let k = 0; k < 24; k++) longest = Math.max(longest, plan.nodes.at(Math.floor(t0 + (k / 24) * (t1 - t0))).length);
  const words = Math.max(64, plot.w / 14, 6.2 * (longest + grouped(plan.stepAt(plan.steps)).length + 4));
  const [room] = plane.turned(Math.min(132, words), 22), every = tens(room / plane.perStep);
  const [from, to] = [plane.step(t0), plane.step(t1)], middle = plane.perStep > 30 ? 0.5 : 0;
  for (let t = Math.max(0, Math.floor(t0 / every) * every); t < Math.min(plan.steps, t1); t += every) {
    const px = plane.step(t + middle);
    if (px >= from - 1 && px <= to + 1) ticks.push({ px, text: stepName(plan.stepAt(t)), more: plan.nodes.at(t) });
  }
  return ticks;
}

function levelTicks(sight) {
  const { scene } = sight;
  if (scene.memory) return byteTicks(sight, { base: 0, height: scene.top });
  if (scene.view === "map") return scene.bands.flatMap((band) => byteTicks(sight, band));
  if (scene.view === "slots") return scene.bands.flatMap((band) => slotTicks(sight, band));
  return rowTicks(sight);
}

function byteTicks({ plane, plot }, { base, height }) {
  const { v0, v1 } = plane.win, [, room] = plane.turned(84, 34), every = twos(room / plane.perLevel), ticks = [];
  const highest = Math.ceil(Math.min(height, v1 - base)); // the edge of the window may be a fraction of a byte
  const label = byteLabels(every, highest, Math.floor((plot.x - 8) / LETTER));
  for (let k = Math.max(0, Math.ceil((v0 - base) / every)); k * every <= height && base + k * every <= v1; k++) {
    ticks.push({ px: plane.level(base + k * every), text: label(k * every) });
  }
  return ticks;
}

function slotTicks({ plane }, { base, height }) {
  const { v0, v1 } = plane.win, [, room] = plane.turned(26, 15), every = tens(room / plane.perLevel), ticks = [];
  const first = Math.max(0, Math.ceil((v0 - base - 0.5) / every) * every);
  for (let k = first; k < height && base + k <= v1; k += every) {
    ticks.push({ px: plane.level(base + k + 0.5), text: grouped(k) });
  }
  return ticks;
}

/** Return a tick per row with the name of its tensor; if the names do not fit, fewer ticks with row numbers. */
function rowTicks({ plan, plane, plot, scene }) {
  const { v0, v1 } = plane.win, [, room] = plane.turned(60, 15), every = tens(room / plane.perLevel), ticks = [];
  const addTick = (lane, text) => ticks.push({ px: plane.level(lane + 0.5), text });
  if (every > 1 || plane.sideways) {
    const last = Math.min(scene.top - 1, v1);
    for (let k = Math.ceil(Math.max(0, v0) / every) * every; k <= last; k += every) addTick(k, grouped(k));
    return ticks;
  }
  const letters = Math.floor((plot.x - 12) / 6.2), rows = plan.byBirth().filter((row) => scene.v1[row]);
  for (let lane = Math.max(0, Math.floor(v0)); lane <= v1 && lane < rows.length; lane++) {
    addTick(lane, shortened(plan.ids.at(rows[lane]), letters));
  }
  return ticks;
}

export function drawGrid(pen, { plane, scene, look }, { steps, levels }) {
  pen.strokeStyle = look.grid;
  pen.lineWidth = 1;
  for (const { px } of steps) stroke(pen, plane.acrossSteps(sharp(px)));
  if (scene.view === "map") for (const { px } of levels) stroke(pen, plane.acrossLevels(sharp(px)));
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
  pen.fillText(`${leftName} ${plane.up > 0 ? "↓" : "↑"}`, 4, height - 1);
}

function drawFoot(pen, { plot, look }, ticks) {
  const room = ticks.length > 1 ? ticks[1].px - ticks[0].px : 150, floor = plot.y + plot.h;
  let last = -Infinity;
  pen.textBaseline = "top";
  pen.textAlign = "center";
  pen.strokeStyle = look.soft;
  for (const { px, text, more } of [...ticks].sort((a, b) => a.px - b.px)) {
    if (px < plot.x - 1 || px > plot.x + plot.w + 1) continue;
    const letters = Math.max(text.length, Math.floor((room - 10) / 6.2));
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

/** Draw a coloured band per phase beside the step axis, and the name of the phase if there is space. */
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
