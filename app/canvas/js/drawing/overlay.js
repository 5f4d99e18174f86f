// The overlay: frames of the selected, compared and hovered tensor, moves from the baseline, flags, selected
// step and range. It has its own canvas, so that a new selection does not redraw the picture.

import { LETTER } from "../base/colours.js";
import { arrowHead, bordered, drawClipped, fillBox, Plane, stroke, strokeBox } from "../base/plane.js";
import { rangeText, shortBytes, shortened, stepName } from "../base/formats.js";

const LEAST_FRAME = 5; // minimum width and height of a frame in pixels
const FLAG_ROWS = 4;
const MOST_MOVES = 12;
const FLAG = "#7A3E9D";

/** Draw the overlay of a chart. The row numbers `selected`, `compared` and `hovered` of the chart are −1 for none. */
export function drawOverlay(pen, frameState, chart) {
  const { selected, compared, hovered, state } = chart, { x, y, w, h } = frameState.plot;
  drawClipped(pen, { x: x - 3, y: y - 3, w: w + 6, h: h + 6 }, () => {
    if (chart.other && state.show_baseline && frameState.scene.view === "map") {
      const rows = movedRows(frameState.plan, chart);
      chart.root.dataset.moves = rows.size;
      for (const row of rows) drawMove(pen, frameState, row, chart.isCandidate);
    }
    if (hovered >= 0) drawFrame(pen, frameState, hovered, [], 1);
    if (compared >= 0) drawFrame(pen, frameState, compared, [5, 3], 2);
    if (selected >= 0) drawFrame(pen, frameState, selected, [], 2);
  });
  if (state.span) {
    const { plan, plane: { win }, look } = frameState, [first, end] = state.span;
    const box = planeWithStrip(frameState).visibleBox(first, end, win.v0, win.v1), [left, top, right, bottom] = box;
    if (right > left && bottom > top) {
      fillBox(pen, box, look.dark ? "rgba(255,255,255,0.14)" : "rgba(0,0,0,0.10)");
      label(pen, look, rangeText(plan.stepAt(first), plan.stepAt(end)), left + 3, top + 2);
    }
  }
  drawFlags(pen, frameState, state.flags);
  if (state.step !== null) drawStep(pen, frameState, state.step);
}

/** Return a plane of the picture and the strip together, for converting steps. Its v has no meaning. */
function planeWithStrip({ plane, plot, strip }) {
  if (!strip) return plane;
  const x = Math.min(plot.x, strip.x), y = Math.min(plot.y, strip.y);
  const w = Math.max(plot.x + plot.w, strip.x + strip.w) - x, h = Math.max(plot.y + plot.h, strip.y + strip.h) - y;
  return new Plane({ x, y, w, h }, plane.win, plane);
}

/** Draw each flag [step, text]: a line at the step, and the text in the first of FLAG_ROWS rows that is free there. */
function drawFlags(pen, { plane, plot, strip, look }, flags) {
  if (plane.sideways) return;
  const drawn = [];
  for (const [step, text] of flags) {
    const x = plane.step(step + 0.5), top = (strip ?? plot).y;
    if (x < plot.x || x > plot.x + plot.w) continue;
    fillBox(pen, [x - 0.75, top, x + 0.75, plot.y + plot.h], FLAG);
    const shownText = shortened(text, 28), width = textWidth(pen, look, shownText);
    const left = Math.min(x, plot.x + plot.w - width), right = left + width;
    const rows = new Set(drawn.filter((other) => other.left < right && left < other.right).map(({ row }) => row));
    let row = 0;
    while (rows.has(row)) row++;
    if (row >= FLAG_ROWS) continue;
    drawn.push({ left, right, row });
    label(pen, look, shownText, left, top + 2 + 18 * row, FLAG);
  }
}

function textWidth(pen, look, text) {
  pen.font = look.font;
  return pen.measureText(text).width + 10;
}

function label(pen, look, text, x, y, background = "#111") {
  const width = textWidth(pen, look, text);
  Object.assign(pen, { textAlign: "left", textBaseline: "middle" });
  fillBox(pen, [x, y, x + width, y + 17], background);
  pen.fillStyle = "#fff";
  pen.fillText(text, x + 5, y + 9);
}

function drawFrame(pen, { plan, scene, plane, shown }, row, dash, width) {
  if (!shown[plan.arena[row]]) return;
  const [x0, y0, x1, y1] = plane.visibleBox(scene.birth[row], scene.death[row], scene.v0[row], scene.v1[row]);
  if (x1 < x0 || y1 < y0) return;
  const [left, right] = widened(x0, x1), [top, bottom] = widened(y0, y1);
  const frame = [left, top, right, bottom].map(Math.round);
  bordered(pen, width, (isInner) => strokeBox(pen, frame, isInner ? dash : []));
}

/** Return the moved rows to draw: all if there are at most MOST_MOVES, else only the selected and the hovered row. */
function movedRows(plan, chart) {
  if (chart.moves?.plan !== plan) {
    const rows = [];
    for (let i = 0; i < plan.n && rows.length <= MOST_MOVES; i++) if (hasMoved(plan, chart.other, i)) rows.push(i);
    chart.moves = { plan, rows: rows.length > MOST_MOVES ? [] : rows };
  }
  const inFocus = [chart.selected, chart.hovered].filter((row) => row >= 0 && hasMoved(plan, chart.other, row));
  return new Set([...chart.moves.rows, ...inFocus]);
}

function hasMoved(plan, other, row) {
  const twin = plan.twin[row] - 1;
  if (twin < 0 || plan.isView[row]) return false;
  if (plan.arenas[plan.arena[row]].name !== other.arenas[other.arena[twin]].name) return false;
  return plan.offset[row] !== other.offset[twin];
}

/** Draw an arrow from the centre of a tensor's box in the baseline to the centre of its box in the candidate. */
function drawMove(pen, { plan, other, scene, plane }, row, isCandidate) {
  const band = scene.bands.find(({ arena }) => arena === plan.arenas[plan.arena[row]]);
  if (!band) return; // the arena is not drawn
  const twin = plan.twin[row] - 1, half = plan.size[row] / 2;
  const here = plane.point((plan.birth[row] + plan.death[row]) / 2, scene.v0[row] + half);
  const there = plane.point((other.birth[twin] + other.death[twin]) / 2, band.otherBase + other.offset[twin] + half);
  const line = isCandidate ? [...there, ...here] : [...here, ...there];
  bordered(pen, 1.5, () => {
    stroke(pen, line);
    arrowHead(pen, line, 8);
  });
}

function widened(a, b) {
  const margin = Math.max(0, LEAST_FRAME - (b - a)) / 2;
  return [a - margin, b + margin];
}

function drawStep(pen, frameState, step) {
  const { plan, plot, look, scene: { stripArena } } = frameState, plane = planeWithStrip(frameState);
  if (step + 0.5 < plane.win.t0 || step + 0.5 > plane.win.t1) return;
  const line = plane.across(plane.step(step + 0.5));
  bordered(pen, 1.5, () => stroke(pen, line));
  const letters = Math.floor(plot.w / LETTER) - 9; // without the number of the step
  const arena = shortened(stripArena?.name ?? "", Math.max(8, letters - 24));
  const live = stripArena ? ` · ${shortBytes(stripArena.live[step] ?? 0)} live in ${arena}` : "";
  const node = shortened(plan.node(step), Math.min(30, letters - live.length));
  const text = stepName(plan.stepAt(step), node) + live;
  const x = Math.max(plot.x, Math.min(plot.x + plot.w - textWidth(pen, look, text), line[0] + 4));
  label(pen, look, text, x, Math.max(plane.rect.y + 1, line[1] - 20));
}
