// The picture: background, boxes, names, lines, costly reuses, outlines of the baseline.
//
// Each function takes a `pen` (a 2-D context) and the object that Chart.sight() returns. `plane` converts coordinates,
// `shown` has a flag per arena, `hits` is null or has a flag per row: rows without the flag are dimmed.

import { CONFLICT, css, luminance } from "../base/colours.js";
import { sharp } from "../base/plane.js";
import { LETTER } from "../base/theme.js";
import { counted, shortBytes, shortened } from "../base/formats.js";
import { fillBox, stroke, strokeBox, within } from "./pen.js";

const MOST_NAMES = 400;
const MOST_OUTLINES = 2000;
const LARGE = 900; // square pixels: only larger boxes may have a name

/** Draw the background of each arena: hatched up to its size, plain above its size. */
export function drawGround(pen, { plan, scene, plane, look, ratio }) {
  const pattern = pen.createPattern(look.hatch, "repeat");
  pattern.setTransform(new DOMMatrix().scale(1 / ratio));
  for (const { base, height, extent } of scene.bands) {
    fillBox(pen, plane.box(0, plan.steps, base, base + height), look.panel);
    fillBox(pen, plane.box(0, plan.steps, base, base + extent), pattern);
  }
}

/** Draw all boxes. Return {count, thin, big}: the number of visible boxes, of those the number thinner than a pixel,
 * and the rows of boxes large enough for a name. `tools`: {raster, sheet}, reused between frames. */
export function drawBoxes(pen, sight, tools) {
  const { plan, scene, plane, plot, shown, paints, hits, look, ratio } = sight;
  // More than 3 million device pixels are drawn as CSS pixels: the raster has four doubles (32 bytes) per pixel.
  const scale = plot.w * plot.h * ratio * ratio > 3e6 ? 1 : ratio;
  const W = Math.max(1, Math.round(plot.w * scale)), H = Math.max(1, Math.round(plot.h * scale));
  const { raster, sheet } = tools, { win, sideways } = plane, flip = plane.vSign < 0;
  raster.resize(W, H);
  raster.clear();
  const [along, across] = plane.turned(W, H);
  const perStep = along / (win.t1 - win.t0), perLevel = across / (win.v1 - win.v0), { t0, v0: low } = win;
  const { arena, isPart } = plan, { v0, v1, birth, death } = scene, each = scene.view === "lifetimes";
  const { inks, dim } = inksOf(paints.table, look), { codes } = paints;
  const large = LARGE * scale * scale, big = [];
  let count = 0, thin = 0;
  for (let i = 0; i < plan.n; i++) {
    if (!shown[arena[i]]) continue;
    let a = (birth[i] - t0) * perStep, b = (death[i] - t0) * perStep;
    let c = (v0[i] - low) * perLevel, d = (v1[i] - low) * perLevel;
    if (b <= 0 || a >= along || d <= 0 || c >= across) continue;
    count++;
    const wide = b - a, high = d - c;
    if (isPart[i] && !each) continue; // the box of the storage contains it
    if (wide >= 3 && high >= 3) {
      a = Math.round(a);
      b = Math.round(b);
      c = Math.round(c);
      d = Math.round(d);
      if (wide >= 5 && high >= 5) {
        b -= 1; // a gap of one pixel between neighbours
        d -= 1;
      }
      if (wide * high > large) big.push(i);
    } else if (wide < 1 || high < 1) thin++;
    if (a < 0) a = 0;
    if (c < 0) c = 0;
    if (b > along) b = along;
    if (d > across) d = across;
    if (b <= a || d <= c) continue;
    const ink = 3 * codes[i] + (hits && !hits[i] ? dim : 0);
    const red = inks[ink], green = inks[ink + 1], blue = inks[ink + 2];
    if (flip) [c, d] = [across - d, across - c];
    if (sideways) raster.add(c, a, d, b, red, green, blue);
    else raster.add(a, c, b, d, red, green, blue);
  }
  if (sheet.width !== W || sheet.height !== H) {
    sheet.width = W;
    sheet.height = H;
  }
  sheet.getContext("2d").putImageData(raster.finish(), 0, 0);
  pen.imageSmoothingEnabled = false;
  pen.drawImage(sheet, plot.x, plot.y, W / scale, H / scale);
  return { count, thin, big };
}

/** Draw the part of the boxes above a limit again, in the colour of conflicts. This changes the colours of `sheet`. */
export function drawOver(pen, sight, { sheet }) {
  const { plan, scene, plane, plot, look } = sight;
  const zones = scene.over.map(({ low, high }) => plane.seenBox(0, plan.steps, low, high));
  const seen = zones.filter(([x0, y0, x1, y1]) => x1 > x0 && y1 > y0);
  if (!seen.length) return;
  const stain = sheet.getContext("2d"), hatch = stain.createPattern(look.hatch, "repeat");
  for (const [operation, style] of [["source-in", CONFLICT], ["source-atop", hatch]]) {
    stain.globalCompositeOperation = operation;
    fillBox(stain, [0, 0, sheet.width, sheet.height], style);
  }
  stain.globalCompositeOperation = "source-over";
  for (const [x, y, right, bottom] of seen) {
    within(pen, { x, y, w: right - x, h: bottom - y }, () => pen.drawImage(sheet, plot.x, plot.y, plot.w, plot.h));
  }
}

/** Return {inks, dim}: the r, g, b values of all colours in one array; the dimmed colours begin at index `dim`. */
function inksOf(table, look) {
  const ground = look.solid.map((v) => (look.dark ? v + 28 : v - 16));
  const faint = table.map((c) => c.map((v, k) => Math.round(0.16 * v + 0.84 * ground[k])));
  return { inks: Float64Array.from([...table, ...faint].flat()), dim: 3 * table.length };
}

/** Draw names inside at most MOST_NAMES boxes with enough space, the largest first: the name of the first tensor of
 * the storage and the number of further tensors; in the view lifetimes, the name of the tensor. If two shortened names
 * are equal, only the larger box gets the name. */
export function drawNames(pen, sight, rows) {
  const { plan, scene, paints, hits, look, namer } = sight, each = scene.view === "lifetimes", drawn = new Set();
  pen.textBaseline = "middle";
  pen.textAlign = "left";
  for (const { row, head, box: [x0, y0, x1, y1] } of roomForNames(sight, rows).slice(0, MOST_NAMES)) {
    const others = (plan.members.get(head)?.length ?? 1) - 1, more = !each && others > 0 ? ` +${others}` : "";
    const name = namer.brief(plan.ids.at(head), Math.floor((x1 - x0 - 9) / LETTER) - more.length);
    const claims = [head, name, `${x0}/${y0}`]; // tensors of 0 bytes may be at the same place
    if (claims.some((claim) => drawn.has(claim))) continue;
    claims.forEach((claim) => drawn.add(claim));
    if (hits && !hits[row]) pen.fillStyle = look.soft;
    else pen.fillStyle = luminance(paints.table[paints.codes[row]]) > 0.22 ? "#000" : "#fff";
    pen.fillText(name + more, x0 + 4, Math.min((y0 + y1) / 2, y0 + 60) + 0.5);
  }
}

/** Return the boxes with space for a shortened name or for a short whole name, the largest box first. */
function roomForNames({ plan, scene, plane }, rows) {
  const places = [];
  for (const row of rows) {
    const box = plane.seenBox(scene.birth[row], scene.death[row], scene.v0[row], scene.v1[row]);
    const w = box[2] - box[0], h = box[3] - box[1];
    const head = scene.view === "lifetimes" ? row : plan.head(row), alone = head === row && !plan.members.has(row);
    const least = alone ? Math.min(44, LETTER * plan.ids.at(row).length + 9) : 44;
    if (w >= least && h >= 13) places.push({ area: w * h, row, head, box });
  }
  return places.sort((a, b) => b.area - a.area || a.row - b.row);
}

/** Draw the peak step (dotted), and for each arena its start and size (solid), lower bound (dotted), capacity
 * (dashed), name and figures. */
export function drawLines(pen, sight) {
  const { plan, scene, plane, look, curve } = sight;
  const level = (v, dash) => stroke(pen, plane.levelLine(v, 0, plan.steps), dash);
  if (curve && plan.steps) {
    pen.strokeStyle = look.line;
    pen.lineWidth = 1;
    stroke(pen, plane.across(sharp(plane.step(curve.peak_step + 0.5))), [1, 4]);
  }
  for (const band of scene.bands) {
    const { base, height, extent } = band;
    pen.lineWidth = 1.5;
    pen.strokeStyle = look.soft;
    level(base, []);
    pen.strokeStyle = look.line;
    level(base + extent, []);
    if (scene.view === "map" && !scene.memory) {
      const { capacity, bound } = band.arena;
      pen.lineWidth = 2;
      if (capacity !== null && Number(capacity) <= height) level(base + Number(capacity), [7, 5]);
      level(base + Number(bound), [2, 3]);
    }
    if (!scene.memory) bandName(pen, sight, band); // the arenas of one memory have no space between
  }
  if (scene.memory && scene.memory.capacity !== null) level(scene.memory.capacity, [7, 5]);
}

/** Draw the name of an arena above its band, and its figures if they fit. */
function bandName(pen, { plan, scene, plane, plot, look }, { arena, base, height }) {
  const { t0, t1 } = plane.win, [left, top, right, bottom] = plane.box(t0, t1, base, base + height);
  const x = Math.max(plot.x, left) + 6, above = top - 9; // beside the line, not on it
  const y = above < plot.y + 9 ? Math.max(plot.y, top) + 10 : above;
  const room = Math.min(plot.x + plot.w, right) - x - 6;
  if (room < 50 || bottom <= plot.y || top - 4 >= plot.y + plot.h) return;
  pen.font = `600 ${look.font}`;
  const name = shortened(arena.name, Math.max(4, Math.floor(room / 6.6))), first = pen.measureText(name).width;
  pen.font = look.font;
  const { slots, storages, bound, extent, capacity } = arena, buffers = counted(storages, "buffer");
  const ofSlots = plan.slotted ? `${counted(slots, "slot")} for ${buffers}` : `${buffers}, one row each: no slots`;
  const limit = capacity === null ? "" : ` · limit ${shortBytes(capacity)}`;
  const ofBytes = `lower bound ${shortBytes(bound)} · arena size ${shortBytes(extent)}${limit}`;
  const figures = `  ${scene.view === "slots" ? ofSlots : ofBytes}`;
  const second = first + 10 + pen.measureText(figures).width <= room ? figures : "";
  pen.globalAlpha = 0.86;
  fillBox(pen, [x - 3, y - 8, x + first + pen.measureText(second).width + 3, y + 8], css(look.solid));
  pen.globalAlpha = 1;
  pen.textAlign = "left";
  pen.textBaseline = "middle";
  pen.fillStyle = look.soft;
  pen.fillText(second, x + first, y);
  pen.font = `600 ${look.font}`;
  pen.fillStyle = look.ink;
  pen.fillText(name, x, y);
  pen.font = look.font;
}

/** Draw a bar over the shared bytes of each costly reuse, at the first write of its second tensor, with the cost.
 * Costs of close bars are added. Return the number of drawn costs. */
export function drawReuses(pen, { plan, scene, plane, plot, shown, look }) {
  if (scene.view !== "map") return 0;
  const costs = new Map(); // cell of 6 × 14 pixels → [x, y, sum of the costs in it]
  for (const [first, second, cost] of plan.reuses) {
    const low = Math.max(scene.v0[first], scene.v0[second]), high = Math.min(scene.v1[first], scene.v1[second]);
    if (!shown[plan.arena[second]] || low >= high) continue;
    const [x0, y0, x1, y1] = plane.box(plan.birth[second], plan.birth[second], low, high);
    const x = (x0 + x1) / 2, y = (y0 + y1) / 2;
    if (x < plot.x || y < plot.y || x > plot.x + plot.w || y > plot.y + plot.h) continue;
    fillBox(pen, [x0 - 1.5, y0 - 1.5, x1 + 1.5, y1 + 1.5], CONFLICT);
    const cell = `${Math.round(x / 6)}/${Math.round(y / 14)}`, sum = costs.get(cell)?.[2] ?? 0;
    costs.set(cell, [x, y, sum + cost]);
  }
  pen.font = look.font;
  pen.textAlign = "left";
  pen.textBaseline = "middle";
  for (const [x, y, sum] of costs.values()) {
    const text = `+${sum.toLocaleString("en")}`, wide = pen.measureText(text).width + 6;
    const left = Math.max(plot.x, x - wide);
    fillBox(pen, [left, y - 7, left + wide, y + 7], CONFLICT);
    pen.fillStyle = "#000";
    pen.fillText(text, left + 3, y + 0.5);
  }
  return costs.size;
}

/** Draw outlines of the changed tensors at their place in the other plan: dashed, or dotted for tensors that only the
 * other plan has. Return [number of outlined tensors, number of changed tensors]. */
export function drawBaseline(pen, { other, scene, plane, look }) {
  const bands = new Map(scene.bands.map((band) => [band.arena.name, band])), outlines = [];
  const rows = scene.view === "lifetimes", slots = scene.view === "slots";
  let changed = 0;
  for (let j = 0; j < other.n; j++) {
    if (!other.changes[j]) continue;
    changed++;
    const i = other.twin[j] ? other.twin[j] - 1 : -1, band = bands.get(other.arenas[other.arena[j]].name);
    if (rows ? i < 0 || !scene.v1[i] : !band) continue;
    const low = rows ? scene.v0[i] : band.otherBase + (slots ? other.slot[j] : other.offset[j]);
    const high = low + (rows || slots ? 1 : Math.max(1, other.size[j]));
    const [x0, y0, x1, y1] = plane.seenBox(other.birth[j], other.death[j], low, high), w = x1 - x0, h = y1 - y0;
    if (w < 3 || h < 3) continue;
    outlines.push({ area: w * h, j, dash: i < 0 ? [1, 2] : [4, 3], box: [x0 + 0.5, y0 + 0.5, x1 - 0.5, y1 - 0.5] });
  }
  outlines.sort((a, b) => b.area - a.area || a.j - b.j);
  pen.lineWidth = 1.2;
  pen.strokeStyle = look.line;
  for (const { dash, box } of outlines.slice(0, MOST_OUTLINES)) strokeBox(pen, box, dash);
  return [Math.min(MOST_OUTLINES, outlines.length), changed];
}
