// One chart: its state, which the page or the user changes, its visible window, and its drawing once per frame.

import { drawGrid, drawPhases, drawTicks, levelTicks, stepTicks } from "../drawing/axes.js";
import { css, paint } from "../base/colours.js";
import { build, el, fill } from "./element.js";
import { lookOf } from "../base/theme.js";
import { ChartInput } from "./chart_input.js";
import { charts, Drawing, saveCanvas } from "./drawing.js";
import { legendOf, statusOf } from "./legend.js";
import { namerOf } from "../plan/short_names.js";
import { drawOverlay } from "../drawing/overlay.js";
import { Overview } from "../drawing/overview.js";
import { found, nextInOrder, rowAt } from "../plan/picking.js";
import {
  drawBaseline, drawBoxes, drawGround, drawLines, drawNames, drawOver, drawReuses,
} from "../drawing/picture.js";
import { fillBox, within } from "../drawing/pen.js";
import { contains, Plane } from "../base/plane.js";
import { Raster } from "../base/raster.js";
import { sceneOf, sumOf, VIEWS } from "../plan/scene.js";
import { drawStrip } from "../drawing/live_strip.js";
import { linesOf } from "../plan/tooltip_text.js";
import { counted, grouped } from "../base/formats.js";

const MARGIN = { right: 14, bottom: 34, strip: 58, gap: 10 };
const ROWS = {
  lifetimes: "one row per tensor, in order of first write",
  slots: "one row per slot",
  map: "offset upwards from 0, same scale for all arenas",
};
// The settings of a drawing. A value of the page is applied only when it changes; until then a change by the user stays.
export const DEFAULTS = {
  plan: null, plan_index: 0, // token of the packed plans; index of the drawn plan: 0, or 1 for the baseline
  view: "map", colour: null, arena: null, // null: the default colours of the view; all arenas with the same scale
  show_baseline: true, // outline the tensors that differ from the baseline
  memory: null, // {arenas, capacity}: one memory that contains these arenas end to end, the first at the bottom
  reach: 0, // least bytes on the axis of the map, so that several maps have the same scale
  selected: null, compared: null, search: "", marked: null, // ids; marked: rows to highlight without a search
  step: null, span: null, flags: [], // selected step and half-open range of steps; [step, text] of each flag
  ghost: null, // a storage at a tried place: {id, offset, birth, conflicts, legal, extent}
  toolbar: true, strip: true, title: true, // strip: the curve of live bytes
  height: 520, room: 0, // pixels; room: as high as the window minus `room`, and at least `height`
  transposed: false, zoom: null, // zoom: the visible [t0, t1, v0, v1]; null: all
  link: "", // group of drawings that share selection, step, range of steps and visible steps
};

/** A chart. Its function `emit(event, value)` sends an event to the page: see Events in plan_component.py.
 * `wants(event)`, if set, returns whether the page uses an event. */
export class Chart extends Drawing {
  constructor(parent) {
    super();
    this.state = { ...DEFAULTS };
    this.received = {}; // last state from the page, by name
    this.sent = {}; // values that were sent to the page and are not confirmed, as JSON, by name
    this.selected = this.compared = this.hovered = -1; // rows
    this.overview = new Overview();
    this.tools = { raster: new Raster(), sheet: document.createElement("canvas") };
    const parts = (this.parts = build(this));
    this.find = parts.find;
    this.attach(parent, { ...parts, canvases: [parts.base, parts.over] });
    this.input = new ChartInput(this);
  }

  // --- state from the page or the user --------------------------------------------------------------------------

  /** Apply state from the page. Only fields that the page changed are applied, so that changes by the user stay. */
  update(state) {
    const fresh = {};
    for (const [name, value] of Object.entries(state)) {
      if (JSON.stringify(this.received[name]) === JSON.stringify(value)) continue;
      this.received[name] = value;
      if (this.confirms(name, value)) continue;
      fresh[name] = value;
    }
    const before = this.selected;
    this.apply(fresh);
    // Show a selection that was made outside of this chart.
    if (this.win && this.selected >= 0 && this.selected !== before) this.reveal(this.selected, true);
  }

  /** Return whether the page confirms a value that this chart sent. It must not undo a newer value. */
  confirms(name, value) {
    const json = JSON.stringify(value), sent = this.sent[name] ?? [], k = sent.indexOf(json);
    // The page may omit values between two equal ones. They must not hide a later change by the page.
    const isCurrent = json === JSON.stringify(this.state[name]);
    this.sent[name] = k < 0 || isCurrent ? [] : sent.slice(k + 1);
    return k >= 0;
  }

  /** Draw a plan of a pack. If the previous plan has as many steps, the visible steps stay. */
  setPack(pack) {
    if (this.pack === pack) return;
    const isFirst = !this.pack, steps = pack.plans[this.state.plan_index]?.steps;
    const keepsSteps = this.win && steps === this.plan.steps; // there is no window before the first layout
    this.pack = pack;
    this.plan = pack.plans[this.state.plan_index] ?? pack.plans[0];
    if (!this.plan.arenas.some(({ name }) => name === this.state.arena)) this.state.arena = null;
    this.other = this.plan.twin ? pack.plans[this.candidate ? 1 : 0] : null;
    this.selected = this.compared = this.hovered = -1;
    this.currentScene = this.paints = this.hits = this.namer = null;
    if (!keepsSteps) this.win = null;
    this.root.classList.remove("waiting");
    this.fillMenus();
    // The first plan gets the zoom of the page; a later plan shows the full range of v.
    const { zoom, ...rest } = this.state;
    this.apply(isFirst ? { ...rest, zoom } : rest);
    this.root.dataset.ready = pack.token;
  }

  /** Whether the drawn plan is the candidate, which is the first plan of a pack. */
  get candidate() {
    return this.pack.plans[0] === this.plan;
  }

  apply(fresh) {
    const state = Object.assign(this.state, fresh);
    const hasAny = (...names) => names.some((name) => name in fresh), { height, room } = state;
    this.stage.style.height = room ? `max(${height}px, 100vh - ${room}px)` : `${height}px`;
    this.parts.bar.hidden = !state.toolbar;
    this.parts.title.hidden = !state.title;
    if (this.find.value !== state.search) this.find.value = state.search;
    if (!this.plan) return;
    if (hasAny("view", "arena", "transposed", "show_baseline", "reach", "memory")) this.newScene();
    if (hasAny("view", "colour", "arena")) this.paints = null;
    if (hasAny("search", "marked", "arena")) this.search();
    if (hasAny("selected")) this.selected = this.rowOf(state.selected);
    if (hasAny("compared")) this.compared = this.rowOf(state.compared);
    if (hasAny("ghost", "selected")) {
      const row = this.rowOf(state.ghost?.id);
      this.ghost = row < 0 ? null : { ...state.ghost, row };
    }
    if (hasAny("zoom")) this.pendingZoom = { zoom: state.zoom }; // layout() applies it
    this.showState();
    this.soon("layout");
  }

  /** Discard the scene. After a change of plan, view or arena, the window has all of v and keeps its steps. */
  newScene() {
    const { view, arena } = this.state, isOther = this.currentScene?.view !== view || this.shownArena !== arena;
    this.currentScene = null;
    this.shownArena = arena;
    if (this.win && isOther) Object.assign(this.win, { v0: 0, v1: Infinity }); // clamp() limits it
  }

  /** The positions of the boxes. There must have been a layout. */
  get scene() {
    if (this.currentScene) return this.currentScene;
    const { view, reach, memory, transposed: sideways, show_baseline } = this.state;
    const other = show_baseline ? this.other : null, pixels = this.plot.h;
    const names = memory?.arenas ?? [this.arena?.name], before = this.other?.arenas.filter(({ name }) => names.includes(name));
    this.currentScene = sceneOf(this.plan, { view, shown: this.shown, sideways, other, reach, pixels, memory });
    if (before) this.currentScene.before = sumOf(before, this.other.steps, null); // the baseline's curve in the strip
    return this.currentScene;
  }

  /** The window of the whole plan. */
  get full() {
    return { t0: 0, t1: Math.max(1, this.plan.steps), v0: 0, v1: this.scene.top };
  }

  rowOf(id) {
    return id === null || id === undefined ? -1 : this.plan.rowOf(id);
  }

  /** Return {row, offset, birth} of the box that a drag from a pixel moves: the ghost, or with alt the selected box. */
  draggedBox(x, y, alt) {
    const row = this.ghost?.row ?? (alt ? this.selected : -1);
    if (row < 0 || this.scene.view !== "map" || !this.wants?.("ghost")) return null;
    const { offset, birth } = this.ghost ?? { offset: this.plan.offset[row], birth: this.plan.held(row).birth };
    const [x0, y0, x1, y1] = this.plane.box(...this.ghostBox({ row, offset, birth }));
    return contains({ x: x0, y: y0, w: x1 - x0, h: y1 - y0 }, x, y) ? { row, offset, birth } : null;
  }

  /** Return the box of a tried place: [t0, t1, v0, v1]. */
  ghostBox({ row, offset, birth }) {
    const { plan, scene } = this, held = plan.held(row), v0 = scene.v0[row] - plan.offset[row] + offset;
    return [birth, birth + held.death - held.birth, v0, v0 + scene.v1[row] - scene.v0[row]];
  }

  /** Move the ghost by `t` steps and `v` bytes from the place `from`. The page then returns its conflicts. */
  moveGhost(from, { t, v }) {
    const held = this.plan.held(from.row), last = this.plan.steps - (held.death - held.birth);
    const offset = Math.max(0, Math.round(from.offset + v)), birth = Math.round(from.birth + t);
    this.ghost = { row: from.row, offset, birth: Math.max(0, Math.min(last, birth)), conflicts: null };
    this.send("ghost", { id: this.plan.ids.at(from.row), offset, birth: this.ghost.birth }, 120);
    this.soon("over");
  }

  /** Apply a setting of the user and send it to the page. */
  choose(name, value) {
    this.apply({ [name]: value });
    this.send(name, value);
    this.stage.focus({ preventScroll: true });
  }

  fillMenus() {
    const { plan, parts } = this;
    const columns = ["category", "operator", "module", "phase"].filter((name) => plan[name]);
    const schemes = ["role", "slot", "arena", ...columns, "size", ...(this.other ? ["change"] : [])];
    fill(parts.colours, [["", "automatic"], ...schemes.map((name) => [name, name === "module" ? "layer" : name])]);
    fill(parts.arenas, [["", "all"], ...plan.arenas.map(({ name }) => [name, name])]);
    parts.overlay.hidden = !this.other;
  }

  /** Show the state in the toolbar, in the title and for screen readers, and choose the arena of the title. */
  showState() {
    const { state, plan, parts } = this;
    for (const tab of parts.tabs) tab.setAttribute("aria-pressed", String(tab.dataset.view === state.view));
    parts.colours.value = state.colour ?? "";
    if (!parts.colours.value) parts.colours.value = ""; // the new plan may lack the previous scheme
    parts.arenas.value = state.arena ?? "";
    parts.views.hidden = Boolean(state.memory); // one memory has only a map
    parts.arenas.parentElement.hidden = plan.arenas.length < 2 || Boolean(state.memory);
    parts.outlines.checked = state.show_baseline;
    const chosen = plan.arenas.findIndex((a) => a.name === state.arena);
    const arena = (this.arena = plan.arenas[state.arena === null ? plan.main : Math.max(0, chosen)]);
    const claim = arena ? `${arena.name}: ${arena.claim}` : "This plan has no arena.";
    parts.title.textContent = claim;
    const keys = "Arrow keys change the step, p goes to the peak, slash searches.";
    const about = `${VIEWS[state.view]}. ${claim}. Steps against ${ROWS[state.view]}. ${keys}`;
    this.stage.setAttribute("aria-label", about);
    this.root.dataset.view = state.view;
  }

  /** Whether each arena is shown. */
  get shown() {
    const { arena, memory } = this.state, names = arena === null ? memory?.arenas : [arena];
    return this.plan.arenas.map(({ name }) => !names || names.includes(name));
  }

  /** The arena, or the sum of arenas, whose live bytes are above the picture. There must have been a layout. */
  get curve() {
    return this.scene.memory || this.arena;
  }

  /** The colour scheme; without a choice the default as in app/texts/palette.py, and "slot" in the view slots. */
  get scheme() {
    const { plan, state } = this, layers = new Set(plan.module?.names.filter(Boolean)).size;
    const ofPlan = plan.category ? "category" : layers > 1 ? "module" : "operator";
    return state.colour ?? (state.view === "slots" ? "slot" : ofPlan);
  }

  // --- coordinates -----------------------------------------------------------------------------------------------

  /** Fit canvases, rectangles and window to the size of the stage and to the scene. */
  layout() {
    this.fitCanvases();
    Object.assign(this, rectangles(this.width, this.height, this.state));
    this.win ??= this.full;
    if (this.pendingZoom) {
      const [t0, t1, v0, v1] = this.pendingZoom.zoom ?? Object.values(this.full);
      Object.assign(this.win, { t0, t1, v0, v1 });
      this.pendingZoom = null;
    }
    this.clamp();
    this.emitZoom();
  }

  /** Whether the window is smaller than the whole plan. */
  get zoomed() {
    const { win: w, full: f } = this, part = (low, high) => (w[high] - w[low]) / (f[high] - f[low]) < 0.999;
    return part("t0", "t1") || part("v0", "v1");
  }

  /** Send the visible window (null: the whole) to the page after it stops changing, if the page has another window. */
  emitZoom() {
    const { t0, t1, v0, v1 } = this.win;
    const zoom = this.zoomed ? [t0, t1, v0, v1].map((edge) => Math.round(edge * 1000) / 1000) : null;
    if (JSON.stringify(zoom) === JSON.stringify(this.state.zoom)) return;
    this.state.zoom = zoom;
    this.send("zoom", zoom, 400);
  }

  get plane() {
    return new Plane(this.plot, this.win, { sideways: this.state.transposed, falling: this.scene.falling });
  }

  /** Return the arguments of the drawing functions for one frame. */
  sight() {
    const { plan, other, scene, plane, plot, strip, shown, hits, curve, ratio, width, height } = this;
    const look = this.currentLook(), paints = (this.paints ??= paint(plan, this.scheme, shown));
    const namer = (this.namer ??= namerOf(plan));
    return { plan, other, scene, plane, plot, strip, shown, hits, curve, ratio, width, height, look, paints, namer };
  }

  /** Return the row at a pixel of the stage, or −1. */
  pick(x, y) {
    return this.win && contains(this.plot, x, y) && !this.overview.at(x, y) ? rowAt(this, x, y) : -1;
  }

  // --- drawing, at most once per frame ---------------------------------------------------------------------------

  draw(due) {
    if (!this.plan) return;
    if (due === "layout") this.layout();
    if (due !== "over") this.drawBase();
    this.drawOver();
  }

  /** Return a cleared context of a canvas, in CSS pixels. */
  pen(canvas) {
    const pen = canvas.getContext("2d");
    pen.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    pen.clearRect(0, 0, this.width, this.height);
    return pen;
  }

  drawBase() {
    const began = performance.now(), pen = this.pen(this.parts.base), sight = this.sight();
    const drawn = this.drawPicture(pen, sight);
    if (this.zoomed) this.overview.draw(pen, sight, this.full);
    else this.overview.plane = null;
    this.showFoot(sight, drawn);
    // For tests and benchmarks; firstMs is the time from the bytes to their first picture.
    const { dataset } = this.root, { t0, t1, v0, v1 } = this.win, now = performance.now();
    const overview = this.zoomed ? "shown" : "", paintings = Number(dataset.paintings ?? 0) + 1;
    Object.assign(dataset, { overview, paintings, drawn: drawn.count, total: this.plan.n, paintMs: (now - began).toFixed(1) });
    Object.assign(dataset, { window: [t0, t1].join(), levels: [v0, v1].join() });
    if (this.painted !== this.pack) dataset.firstMs = (now - this.pack.began).toFixed(1);
    this.painted = this.pack;
  }

  /** Draw the whole picture. Return {count, thin, outlined}. */
  drawPicture(pen, sight) {
    const { plan, plot, look } = sight;
    const ticks = { steps: stepTicks(sight), levels: levelTicks(sight) };
    let outlined = null;
    pen.font = look.font;
    within(pen, plot, () => drawGround(pen, sight));
    within(pen, plot, () => drawGrid(pen, sight, ticks));
    const drawn = drawBoxes(pen, sight, this.tools);
    within(pen, plot, () => {
      drawOver(pen, sight, this.tools);
      drawNames(pen, sight, drawn.big);
      drawLines(pen, sight);
      this.root.dataset.reuses = drawReuses(pen, sight);
      if (this.other && this.state.show_baseline) outlined = drawBaseline(pen, sight);
    });
    drawPhases(pen, sight);
    drawTicks(pen, sight, ticks);
    if (sight.strip) drawStrip(pen, sight);
    pen.strokeStyle = look.soft;
    pen.lineWidth = 1;
    pen.strokeRect(plot.x - 0.5, plot.y - 0.5, plot.w + 1, plot.h + 1);
    if (!plan.n) {
      pen.fillStyle = look.ink;
      pen.textAlign = "center";
      pen.fillText("This plan has no tensors.", plot.x + plot.w / 2, plot.y + plot.h / 2);
    }
    return { ...drawn, outlined };
  }

  /** Download the visible picture as a PNG, at twice its size in CSS pixels. */
  save() {
    if (!this.plan || !this.win) return;
    const sheet = el("canvas", { width: 2 * this.width, height: 2 * this.height }), pen = sheet.getContext("2d");
    const sight = { ...this.sight(), ratio: 2, look: lookOf(this.root, 2) };
    pen.setTransform(2, 0, 0, 2, 0, 0);
    fillBox(pen, [0, 0, this.width, this.height], css(sight.look.solid));
    this.drawPicture(pen, sight);
    drawOverlay(pen, sight, this);
    saveCanvas(sheet, `${this.plan.name || "plan"}.${this.plan.planner}.${this.state.view}.png`);
  }

  drawOver() {
    drawOverlay(this.pen(this.parts.over), this.sight(), this);
    const { dataset } = this.root, { ids } = this.plan;
    Object.assign(dataset, { selected: ids.at(this.selected), compared: ids.at(this.compared) });
  }

  showFoot(sight, drawn) {
    const { view, memory, arena, plan_index } = this.state, { dark } = sight.look;
    const key = [this.scheme, this.pack.token, view, dark, JSON.stringify([memory, arena, plan_index])].join();
    if (this.legendKey !== key) this.parts.legend.replaceChildren(...legendOf(sight));
    this.legendKey = key;
    this.parts.status.textContent = statusOf(this.plan.n, drawn);
  }

  // --- the window ------------------------------------------------------------------------------------------------

  /** Multiply the width of the window along the steps, along v or both; the point (t, v) keeps its pixel. */
  zoom(factor, { t, v }, { steps, levels }) {
    const w = this.win, limited = (a, b) => Math.max(factor, Math.min(1, this.least(b) / (w[b] - w[a])));
    const [along, across] = [limited("t0", "t1"), limited("v0", "v1")];
    if (steps) Object.assign(w, { t0: t + (w.t0 - t) * along, t1: t + (w.t1 - t) * along });
    if (levels) Object.assign(w, { v0: v + (w.v0 - v) * across, v1: v + (w.v1 - v) * across });
    this.moved();
  }

  /** Return the least width of the window along the axis of `edge` ("t1" or "v1"): one unit, or 2^−40 of the axis. */
  least(edge) {
    return Math.max(1, this.full[edge] / 2 ** 40);
  }

  /** Move the window inside the data, and widen it to the minimum width. */
  clamp() {
    const { win: w, full: f } = this;
    for (const [a, b] of [["t0", "t1"], ["v0", "v1"]]) {
      const width = w[b] - w[a], span = Math.min(f[b] - f[a], Math.max(this.least(b), width));
      w[a] = Math.min(f[b] - span, Math.max(f[a], w[a] - (span - width) / 2)); // exact for linked charts, if span is width
      w[b] = w[a] + span;
    }
    // One finger scrolls the page while the whole height is visible, and moves the picture after zooming in.
    const [, upright] = this.plane.turned("t", "v"), low = `${upright}0`, high = `${upright}1`;
    this.stage.style.touchAction = w[high] - w[low] < (f[high] - f[low]) * 0.999 ? "none" : "pan-y";
  }

  /** Redraw after a change of the window. `quiet`: do not change the linked charts. */
  moved(quiet = false) {
    this.clamp();
    this.soon("base");
    this.tip.hidden = true;
    this.emitZoom();
    if (quiet) return;
    const { t0, t1, v0, v1 } = this.win;
    this.share({ window: [t0, t1], levels: [v0, v1], scene: this.scene });
  }

  /** Move the picture by `t` steps and `v` along the other axis. */
  pan({ t, v }) {
    const { t0, t1, v0, v1 } = this.win;
    Object.assign(this.win, { t0: t0 - t, t1: t1 - t, v0: v0 - v, v1: v1 - v });
    this.moved();
  }

  fit() {
    if (!this.win) return;
    this.win = this.full;
    this.moved();
  }

  /** Centre the window on a row along each axis on which it is not visible. `quiet`: do not move the linked charts. */
  reveal(row, quiet = false) {
    const { win: w, plan, scene } = this;
    const steps = ["t0", "t1", plan.birth[row], plan.death[row]];
    for (const [a, b, low, high] of [steps, ["v0", "v1", scene.v0[row], scene.v1[row]]]) {
      const span = w[b] - w[a], middle = (low + high) / 2;
      if (high <= w[a] || low >= w[b]) Object.assign(w, { [a]: middle - span / 2, [b]: middle + span / 2 });
    }
    this.moved(quiet);
  }

  // --- selecting -------------------------------------------------------------------------------------------------

  /** Return the tooltip of a row as [heading, text] pairs. */
  lines(row) {
    return linesOf(this.plan, row, this);
  }

  /** Select a row, or none for −1. `how`: click, arrow, slot, search or clear, for the page. */
  select(row, how) {
    const id = row >= 0 ? this.plan.ids.at(row) : null;
    this.set({ selected: id, compared: row >= 0 ? this.state.compared : null });
    if (how !== "click") {
      this.tip.hidden = true;
      if (row >= 0) this.reveal(row);
    }
    const lines = row >= 0 ? this.lines(row).map((line) => line.join(" ")).join(", ") : "";
    this.parts.live.textContent = lines || "selection cleared";
    this.send("select", { id, row, how });
  }

  /** Select a step, limited to the plan, and show it. */
  goStep(step) {
    const t = Math.max(0, Math.min(this.plan.steps - 1, step)), w = this.win, span = w.t1 - w.t0;
    if (t < w.t0 || t + 1 > w.t1) {
      w.t0 = t + 0.5 - span / 2;
      w.t1 = w.t0 + span;
      this.moved();
    }
    this.set({ step: t });
    this.send("step", t, 150);
  }

  /** Select a range of steps as [first, after the last], or null. */
  goSpan(span) {
    this.set({ span });
    this.send("span", span);
  }

  toPeak() {
    if (this.win && this.curve) this.goStep(this.curve.peak_step);
  }

  /** Clear selection, comparison, step and range of steps. */
  clear() {
    this.set({ step: null });
    this.send("step", null);
    if (this.state.span) this.goSpan(null);
    this.select(-1, "clear");
  }

  /** Select the next tensor towards a greater v (1) or a smaller v (−1). */
  neighbour(direction) {
    const row = nextInOrder(this, this.selected, direction, this.state.step);
    if (row >= 0) this.select(row, "arrow");
  }

  /** Select the next (1) or previous (−1) tensor in the slot of the selected tensor. */
  walkSlot(direction) {
    if (this.selected < 0) return;
    const root = this.plan.rootOf(this.selected), tenants = this.plan.tenants(root);
    const next = tenants[tenants.indexOf(root) + direction];
    if (next !== undefined) this.select(next, "slot");
  }

  // --- searching -------------------------------------------------------------------------------------------------

  /** Highlight the tensors that the search finds or that the page marks, and dim all other tensors. */
  search() {
    const { plan } = this, { marked } = this.state, text = this.state.search.trim();
    this.hits = text || marked?.length ? found(plan, text, this.shown) : null; // an empty text is not found
    if (!text) for (const row of marked ?? []) this.hits[row] = 1;
    const rows = (this.hitRows = this.hits && plan.byBirth().filter((row) => this.hits[row]));
    for (const row of rows ?? []) this.hits[plan.head(row)] = 1; // the map draws one box per storage
    const buffers = new Set(Array.from(rows ?? [], (row) => plan.head(row))).size;
    const label = text ? `${grouped(rows.length)} found` : `${counted(buffers, "buffer")} marked`;
    this.parts.count.textContent = rows ? label : "";
    this.root.dataset.hits = rows?.length ?? "";
    this.soon("base");
  }

  /** Select the next (1) or previous (−1) hit; after the last hit the first one. */
  nextHit(direction) {
    const rows = this.hitRows;
    if (!rows?.length) return;
    const current = rows.indexOf(this.selected), start = direction > 0 ? 0 : rows.length - 1;
    const next = current < 0 ? start : (current + direction + rows.length) % rows.length;
    this.select(rows[next], "search");
    this.parts.count.textContent = `${grouped(next + 1)} of ${grouped(rows.length)} found`;
  }

  // --- events ----------------------------------------------------------------------------------------------------

  /** Send an event now or after `wait` milliseconds; a later event of the same name replaces it. */
  send(event, value, wait = 0) {
    clearTimeout(this.timers[event]);
    if (wait) {
      this.timers[event] = setTimeout(() => this.send(event, value), wait);
      return;
    }
    const [name, set] = event === "select" ? ["selected", value.id] : [event, value];
    (this.sent[name] ??= []).push(JSON.stringify(set));
    this.emit(event, value);
  }

  /** Set fields of the state in this chart and in the linked charts. */
  set(part) {
    this.follow(part);
    this.share(part);
  }

  /** Apply a change of this chart to the linked charts. */
  share(part) {
    const { link } = this.state;
    for (const chart of link ? charts : []) {
      if (chart !== this && chart.state.link === link && chart.win) chart.follow(part);
    }
  }

  follow({ window, levels, scene, ...state }) {
    Object.assign(this.state, state);
    if ("selected" in state) this.selected = this.rowOf(state.selected);
    if ("compared" in state) this.compared = this.rowOf(state.compared);
    if (window) {
      [this.win.t0, this.win.t1] = window;
      // Only charts with the same view and the same range of v share the visible part of v.
      if (scene.view === this.scene.view && scene.top === this.scene.top) [this.win.v0, this.win.v1] = levels;
      this.moved(true);
    }
    this.soon("over");
  }
}

/** Return {plot, strip}: the rectangles of picture and live-bytes strip on the stage; strip is null if it is hidden.
 * All views have the same margins, so that the steps of charts below each other are aligned. */
function rectangles(width, height, { transposed, strip }) {
  const x = width > 800 ? 108 : 80, beside = strip ? MARGIN.strip + MARGIN.gap : 0, y = transposed ? 10 : 8 + beside;
  const w = Math.max(40, width - x - MARGIN.right - (transposed ? beside : 0)), h = Math.max(40, height - MARGIN.bottom - y);
  const right = { x: x + w + MARGIN.gap, y, w: MARGIN.strip, h }, above = { x, y: 8, w, h: MARGIN.strip };
  return { plot: { x, y, w, h }, strip: strip ? (transposed ? right : above) : null };
}
