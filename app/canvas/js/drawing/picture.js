// The picture: background, boxes, names, lines, costly reuses, outlines of the other plan, and the overview.
//
// Each function takes a `pen` (a 2-D context) and fields of Chart.frameState(). `plane` converts coordinates, and
// `shown` has a flag per arena. `hits` is null, or has a flag per row; rows whose flag is 0 are dimmed.

import { CONFLICT, css, luminance, LETTER, RESERVED } from "../base/colours.js";
import { bordered, contains, drawClipped, fillBox, Plane, sharp, stroke, strokeBox } from "../base/plane.js";
import { counted, shortBytes, shortened } from "../base/formats.js";

const MOST_NAMES = 400;
const MOST_OUTLINES = 2000;
const LARGE = 900; // square pixels: only larger boxes can have a name

/** Draw the background of each arena: hatched up to the arena size, plain above it, grey for reserved bytes. */
export function drawGround(pen, { plan, scene, plane, look, ratio }) {
  const pattern = pen.createPattern(look.hatch, "repeat");
  pattern.setTransform(new DOMMatrix().scale(1 / ratio));
  for (const { arena, base, height, extent } of scene.bands) {
    fillBox(pen, plane.box(0, plan.steps, base, base + height), look.panel);
    fillBox(pen, plane.box(0, plan.steps, base, base + extent), pattern);
    for (const [low, high] of scene.view === "map" ? arena.reserved : []) {
      fillBox(pen, plane.visibleBox(0, plan.steps, base + Number(low), base + Math.min(extent, Number(high))), RESERVED);
    }
  }
}

/** Draw all boxes. Return {count, thin, large}: the number of visible rows, the number of boxes thinner than a pixel,
 * and the rows with a box larger than LARGE. `tools`: a Raster and a canvas `sheet`, reused between frames. */
export function drawBoxes(pen, frameState, tools) {
  const { plan, scene, plane, plot, shown, colouring, hits, look, ratio } = frameState;
  // Above 3 million device pixels, a pixel of the raster is a CSS pixel, because it takes 32 bytes (four doubles).
  const scale = plot.w * plot.h * ratio * ratio > 3e6 ? 1 : ratio;
  const W = Math.max(1, Math.round(plot.w * scale)), H = Math.max(1, Math.round(plot.h * scale));
  const { raster, sheet } = tools, { win, sideways } = plane, isFlipped = plane.vSign < 0;
  raster.reset(W, H);
  const [mostT, mostV] = plane.swappedIfSideways(W, H); // lengths of the axes in pixels of the raster
  const perStep = mostT / (win.t1 - win.t0), perLevel = mostV / (win.v1 - win.v0);
  const { arena, isNotHead } = plan, { v0, v1, birth, death } = scene, isPerTensor = scene.view === "lifetimes";
  const { codes, table } = colouring, background = look.solid.map((v) => (look.dark ? v + 28 : v - 16));
  const faint = table.map((colour) => colour.map((v, k) => Math.round(0.16 * v + 0.84 * background[k])));
  // The r, g, b values of all colours, then of the dimmed colours
  const channels = Float64Array.from([...table, ...faint].flat()), dimmed = 3 * table.length;
  const large = [];
  let count = 0, thin = 0;
  for (let i = 0; i < plan.n; i++) {
    if (!shown[arena[i]]) continue;
    let left = (birth[i] - win.t0) * perStep, right = (death[i] - win.t0) * perStep;
    let low = (v0[i] - win.v0) * perLevel, high = (v1[i] - win.v0) * perLevel;
    if (right <= 0 || left >= mostT || high <= 0 || low >= mostV) continue;
    count++;
    const width = right - left, height = high - low;
    if (isNotHead[i] && !isPerTensor) continue; // the head has the box of the whole storage
    if (width >= 3 && height >= 3) {
      left = Math.round(left);
      right = Math.round(right);
      low = Math.round(low);
      high = Math.round(high);
      if (width >= 5 && height >= 5) {
        right -= 1; // a gap of one pixel between neighbours
        high -= 1;
      }
      if (width * height > LARGE * scale * scale) large.push(i);
    } else if (width < 1 || height < 1) thin++;
    if (left < 0) left = 0;
    if (low < 0) low = 0;
    if (right > mostT) right = mostT;
    if (high > mostV) high = mostV;
    if (right <= left || high <= low) continue;
    const at = 3 * codes[i] + (hits && !hits[i] ? dimmed : 0);
    const r = channels[at], g = channels[at + 1], b = channels[at + 2];
    if (isFlipped) [low, high] = [mostV - high, mostV - low];
    if (sideways) raster.add(low, left, high, right, r, g, b);
    else raster.add(left, low, right, high, r, g, b);
  }
  if (sheet.width !== W || sheet.height !== H) Object.assign(sheet, { width: W, height: H });
  sheet.getContext("2d").putImageData(raster.finish(), 0, 0);
  pen.imageSmoothingEnabled = false;
  pen.drawImage(sheet, plot.x, plot.y, W / scale, H / scale);
  return { count, thin, large };
}

/** Draw the parts of the boxes above a limit again, in the colour of conflicts. `sheet` has the boxes of drawBoxes().
 * This function overwrites their colours. */
export function drawOverLimit(pen, { plan, scene, plane, plot, look }, { sheet }) {
  const ranges = scene.overLimit.map(({ low, high }) => plane.visibleBox(0, plan.steps, low, high));
  const visible = ranges.filter(([x0, y0, x1, y1]) => x1 > x0 && y1 > y0);
  if (!visible.length) return;
  const sheetPen = sheet.getContext("2d"), hatch = sheetPen.createPattern(look.hatch, "repeat");
  for (const [operation, style] of [["source-in", CONFLICT], ["source-atop", hatch]]) {
    sheetPen.globalCompositeOperation = operation;
    fillBox(sheetPen, [0, 0, sheet.width, sheet.height], style);
  }
  sheetPen.globalCompositeOperation = "source-over";
  for (const [x, y, right, bottom] of visible) {
    drawClipped(pen, { x, y, w: right - x, h: bottom - y }, () => pen.drawImage(sheet, plot.x, plot.y, plot.w, plot.h));
  }
}

/** Draw a name in each of the MOST_NAMES largest boxes of `rows` with space for the whole name or 44 pixels of it: the
 * name of the first tensor in the box, and the number of other tensors. In the view "lifetimes", a box is one tensor.
 * Equal names are drawn once. A name that would be shortened to one or two letters is not drawn. */
export function drawNames(pen, { plan, scene, plane, colouring, hits, look, namer }, rows) {
  const boxes = [], used = new Set(), isPerTensor = scene.view === "lifetimes";
  for (const row of rows) {
    const box = plane.visibleBox(scene.birth[row], scene.death[row], scene.v0[row], scene.v1[row]);
    const w = box[2] - box[0], h = box[3] - box[1], head = isPerTensor ? row : plan.head(row);
    const hasSuffix = head !== row || plan.members.has(row);
    const leastWidth = hasSuffix ? 44 : Math.min(44, LETTER * plan.id(row).length + 9);
    if (w >= leastWidth && h >= 13) boxes.push({ area: w * h, row, head, box });
  }
  boxes.sort((a, b) => b.area - a.area || a.row - b.row);
  Object.assign(pen, { textBaseline: "middle", textAlign: "left" });
  for (const { row, head, box: [x0, y0, x1, y1] } of boxes.slice(0, MOST_NAMES)) {
    const others = isPerTensor ? 0 : (plan.members.get(head)?.length ?? 1) - 1;
    const letters = Math.floor((x1 - x0 - 9) / LETTER);
    const suffix = others > 0 ? ` +${letters < 24 ? others : counted(others, "tensor")}` : "";
    const name = namer.brief(plan.id(head), letters - suffix.length);
    const keys = [head, name, `${x0}/${y0}`]; // one name per position: tensors of 0 bytes may share it
    if (keys.some((key) => used.has(key)) || (name.includes("…") && name.replaceAll("…", "").length < 3)) continue;
    keys.forEach((key) => used.add(key));
    if (hits && !hits[row]) pen.fillStyle = look.soft;
    else pen.fillStyle = luminance(colouring.table[colouring.codes[row]]) > 0.22 ? "#000" : "#fff";
    pen.fillText(name + suffix, x0 + 4, Math.min((y0 + y1) / 2, y0 + 60) + 0.5);
  }
}

/** Draw the peak step (dotted), and the start and end of each arena (solid). In the view "map", also draw the lower
 * bounds (dotted) and capacities (dashed). For one memory, draw its capacity too, but no bounds. */
export function drawLines(pen, frameState) {
  const { plan, scene, plane, look } = frameState, { stripArena } = scene;
  const level = (v, dash) => stroke(pen, plane.levelLine(v, 0, plan.steps), dash);
  if (stripArena && plan.steps) {
    Object.assign(pen, { strokeStyle: look.line, lineWidth: 1 });
    stroke(pen, plane.across(sharp(plane.step(stripArena.peak_step + 0.5))), [1, 4]);
  }
  for (const { arena, base, height, extent } of scene.bands) {
    Object.assign(pen, { lineWidth: 1.5, strokeStyle: look.soft });
    level(base, []);
    pen.strokeStyle = look.line;
    level(base + extent, []);
    if (scene.view === "map") {
      pen.lineWidth = 2;
      if (arena.capacity <= height) level(base + arena.capacity, [7, 5]);
      if (!scene.memory) level(base + arena.bound, [2, 3]);
    }
  }
  if (scene.memory?.capacity < Infinity) level(scene.memory.capacity, [7, 5]);
}

/** Draw the name of an arena above its band, and its sizes if they fit; in one memory, in the band on the right. */
export function drawBandLabel(pen, { plan, scene, plane, plot, look }, { arena, base, height }) {
  const { t0, t1 } = plane.win, [left, top, right, bottom] = plane.box(t0, t1, base, base + height);
  const above = top - 9, isInside = scene.memory || above < plot.y + 9; // no space above the band
  const y = isInside ? Math.max(plot.y, top) + 10 : above, end = Math.min(plot.x + plot.w, right) - 6;
  let x = Math.max(plot.x, left) + 6;
  const width = end - x;
  if (width < 50 || bottom <= plot.y || top - 4 >= plot.y + plot.h || (scene.memory && bottom - top < 18)) return;
  pen.font = `600 ${look.font}`;
  const name = shortened(arena.name, Math.max(4, Math.floor(width / 6.6))), nameWidth = pen.measureText(name).width;
  pen.font = look.font;
  const { slots, storages, bound, extent, capacity } = arena, buffers = counted(storages, "buffer");
  const inSlots = plan.slotted ? `${counted(slots, "slot")} for ${buffers}` : `${buffers}, one row each: no slots`;
  const limit = capacity === Infinity ? "" : ` · limit ${shortBytes(capacity)}`;
  const inBytes = `lower bound ${shortBytes(bound)} · arena size ${shortBytes(extent)}${limit}`;
  const allSizes = `  ${scene.memory ? shortBytes(extent) : scene.view === "slots" ? inSlots : inBytes}`;
  const sizes = nameWidth + 10 + pen.measureText(allSizes).width <= width ? allSizes : "";
  if (scene.memory) x = end - nameWidth - pen.measureText(sizes).width;
  pen.globalAlpha = 0.86;
  fillBox(pen, [x - 3, y - 8, x + nameWidth + pen.measureText(sizes).width + 3, y + 8], css(look.solid));
  pen.globalAlpha = 1;
  Object.assign(pen, { textAlign: "left", textBaseline: "middle", fillStyle: look.soft });
  pen.fillText(sizes, x + nameWidth, y);
  Object.assign(pen, { font: `600 ${look.font}`, fillStyle: look.ink });
  pen.fillText(name, x, y);
  pen.font = look.font;
}

/** Draw each costly reuse: a bar over the shared bytes at the first write of the second tensor, and the cost. Costs in
 * the same cell of 6 × 14 pixels are added. Return the number of drawn costs. */
export function drawReuses(pen, { plan, scene, plane, plot, shown, look }) {
  if (scene.view !== "map") return 0;
  const costs = new Map(); // cell → [x, y, sum of its costs]
  for (const [freed, written, cost] of plan.reuses) {
    const low = Math.max(scene.v0[freed], scene.v0[written]), high = Math.min(scene.v1[freed], scene.v1[written]);
    if (!shown[plan.arena[written]] || low >= high) continue;
    const [x0, y0, x1, y1] = plane.box(plan.birth[written], plan.birth[written], low, high);
    const x = (x0 + x1) / 2, y = (y0 + y1) / 2;
    if (x < plot.x || y < plot.y || x > plot.x + plot.w || y > plot.y + plot.h) continue;
    fillBox(pen, [x0 - 1.5, y0 - 1.5, x1 + 1.5, y1 + 1.5], CONFLICT);
    const cell = `${Math.round(x / 6)}/${Math.round(y / 14)}`, sum = costs.get(cell)?.[2] ?? 0;
    costs.set(cell, [x, y, sum + cost]);
  }
  Object.assign(pen, { font: look.font, textAlign: "left", textBaseline: "middle" });
  for (const [x, y, sum] of costs.values()) {
    const text = `+${sum.toLocaleString("en")}`, width = pen.measureText(text).width + 6;
    const left = Math.max(plot.x, x - width);
    fillBox(pen, [left, y - 7, left + width, y + 7], CONFLICT);
    pen.fillStyle = "#000";
    pen.fillText(text, left + 3, y + 0.5);
  }
  return costs.size;
}

/** Outline the changed tensors at their positions in the other plan. Lines are dashed, or dotted for tensors that only
 * the other plan has. Return [number of outlined tensors, number of changed tensors]. */
export function drawOutlines(pen, { other, scene, plane, look }) {
  const bands = new Map(scene.bands.map((band) => [band.arena.name, band])), outlines = [];
  const isPerTensor = scene.view === "lifetimes", hasSlots = scene.view === "slots";
  let changed = 0;
  for (let j = 0; j < other.n; j++) {
    if (!other.changes[j]) continue;
    changed++;
    const i = other.twin[j] - 1, band = bands.get(other.arenas[other.arena[j]].name); // i: row in this plan, or −1
    if (isPerTensor ? i < 0 || !scene.v1[i] : !band) continue;
    const low = isPerTensor ? scene.v0[i] : band.otherBase + (hasSlots ? other.slot[j] : other.offset[j]);
    const high = low + (isPerTensor || hasSlots ? 1 : Math.max(1, other.size[j]));
    const [x0, y0, x1, y1] = plane.visibleBox(other.birth[j], other.death[j], low, high), w = x1 - x0, h = y1 - y0;
    if (w < 3 || h < 3) continue;
    outlines.push({ area: w * h, j, dash: i < 0 ? [1, 2] : [4, 3], box: [x0 + 0.5, y0 + 0.5, x1 - 0.5, y1 - 0.5] });
  }
  outlines.sort((a, b) => b.area - a.area || a.j - b.j);
  Object.assign(pen, { lineWidth: 1.2, strokeStyle: look.line });
  for (const { dash, box } of outlines.slice(0, MOST_OUTLINES)) strokeBox(pen, box, dash);
  return [Math.min(MOST_OUTLINES, outlines.length), changed];
}

// The overview after zooming in: a small picture of the whole plan with a frame around the visible part.
const SHARE = 0.17; // width and height, relative to the plot
const INSET = 8; // distance to the edges of the plot in pixels

export class Overview {
  tools = { raster: new Raster(), sheet: document.createElement("canvas") }; // for drawBoxes()
  canvas = document.createElement("canvas");
  plane = null; // coordinate system of the overview; null while the overview is hidden

  /** Draw the overview in the upper right corner of the plot; `full` is the window of the whole plan. */
  draw(pen, frameState, full) {
    const { plot, plane, look } = frameState, { t0, t1, v0, v1 } = plane.win;
    const w = Math.round(plot.w * SHARE), h = Math.round(plot.h * SHARE), x = plot.x + plot.w - w - INSET, y = plot.y + INSET;
    this.plane = new Plane({ x, y, w, h }, full, plane);
    this.drawContent(frameState, full, w, h);
    fillBox(pen, [x - 3, y - 3, x + w + 3, y + h + 3], css(look.solid));
    pen.drawImage(this.canvas, x, y, w, h);
    Object.assign(pen, { lineWidth: 1, strokeStyle: look.soft });
    strokeBox(pen, [x - 3.5, y - 3.5, x + w + 3.5, y + h + 3.5]);
    const [left, top, right, bottom] = this.plane.visibleBox(t0, t1, v0, v1);
    const frame = [left, top, Math.max(left + 2, right), Math.max(top + 2, bottom)];
    bordered(pen, 1.5, () => strokeBox(pen, frame));
  }

  drawContent(frameState, full, w, h) {
    const { scene, colouring, hits, look, ratio } = frameState, content = [scene, colouring, hits, look, w, h];
    if (this.content?.every((part, k) => part === content[k])) return;
    this.content = content;
    Object.assign(this.canvas, { width: w * ratio, height: h * ratio }); // this also clears the canvas
    const pen = this.canvas.getContext("2d"), plot = { x: 0, y: 0, w, h };
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    drawBoxes(pen, { ...frameState, plot, plane: new Plane(plot, full, frameState.plane) }, this.tools);
  }

  /** Return the {t, v} at a pixel; null outside of the overview. */
  at(x, y) {
    return this.plane && contains(this.plane.rect, x, y) ? this.plane.at(x, y) : null;
  }
}

// A raster draws boxes in O(boxes + pixels). The opacity of a pixel grows with the covered share of its area.
//
// `sums` is a two-dimensional difference array: a box adds its colour with weight 1 or −1 at each of its corners. A
// corner inside a pixel is split over two columns and two rows. The prefix sums over rows and columns give the covered
// share and the mean colour of every pixel. So a box thinner than a pixel is a faint shade, and no box hides another.
export class Raster {
  reset(width, height) {
    if (this.width === width && this.height === height) this.sums.fill(0);
    else {
      Object.assign(this, { width, height, stride: 4 * (width + 2) });
      this.sums = new Float64Array(this.stride * (height + 2));
      this.columnSums = new Float64Array(this.stride);
      this.image = new ImageData(width, height);
      this.pixels = new Uint32Array(this.image.data.buffer);
    }
  }

  /** Add a box in pixels. The box must be inside [0, width] × [0, height]. */
  add(x0, y0, x1, y1, r, g, b) {
    this.addEdge(x0, x1, y0, r, g, b, 1);
    this.addEdge(x0, x1, y1, r, g, b, -1);
  }
  addEdge(x0, x1, y, r, g, b, sign) {
    const row = Math.floor(y), part = y - row;
    this.addCorners(x0, x1, row, r, g, b, sign * (1 - part));
    if (part) this.addCorners(x0, x1, row + 1, r, g, b, sign * part);
  }
  addCorners(x0, x1, row, r, g, b, weight) {
    const begin = row * this.stride, left = Math.floor(x0), right = Math.floor(x1);
    this.addColour(begin + 4 * left, weight * (1 - x0 + left), r, g, b);
    if (x0 !== left) this.addColour(begin + 4 * left + 4, weight * (x0 - left), r, g, b);
    this.addColour(begin + 4 * right, -weight * (1 - x1 + right), r, g, b);
    if (x1 !== right) this.addColour(begin + 4 * right + 4, -weight * (x1 - right), r, g, b);
  }
  addColour(index, weight, r, g, b) {
    const sums = this.sums;
    sums[index] += weight * r;
    sums[index + 1] += weight * g;
    sums[index + 2] += weight * b;
    sums[index + 3] += weight;
  }

  /** Return the picture as ImageData. A covered pixel has an opacity of at least 1/8, so that thin boxes are visible. */
  finish() {
    const { sums, columnSums, width, height, stride, pixels } = this;
    columnSums.fill(0);
    let pixel = 0;
    for (let y = 0; y < height; y++) {
      let r = 0, g = 0, b = 0, weight = 0, at = y * stride; // the sums of the row up to x
      for (let x = 0, k = 0; x < width; x++, k += 4, at += 4) {
        r += sums[at];
        g += sums[at + 1];
        b += sums[at + 2];
        weight += sums[at + 3];
        columnSums[k] += r;
        columnSums[k + 1] += g;
        columnSums[k + 2] += b;
        const cover = (columnSums[k + 3] += weight);
        if (cover < 1e-5) {
          pixels[pixel++] = 0;
          continue;
        }
        const alpha = cover >= 1 ? 255 : (32 + 223 * cover) | 0;
        const red = (columnSums[k] / cover) & 255, green = (columnSums[k + 1] / cover) & 255;
        const blue = (columnSums[k + 2] / cover) & 255;
        pixels[pixel++] = (alpha << 24) | (blue << 16) | (green << 8) | red;
      }
    }
    return this.image;
  }
}
