// One chart of a plan: its state, which the page and the user change, its visible window, and its drawing.

import { drawGrid, drawPhases, drawStrip, drawTicks, levelTicks, stepTicks } from "../drawing/axes.js";
import { colouringOf } from "../base/colours.js";
import { build, fillMenu, legendOf, linesOf, pairText } from "./element.js";
import { ChartInput } from "./chart_input.js";
import { charts, Drawing } from "./drawing.js";
import { drawOverlay } from "../drawing/overlay.js";
import {
  drawBandLabel, drawBoxes, drawGround, drawLines, drawNames, drawOutlines, drawOverLimit, drawReuses, Overview, Raster,
} from "../drawing/picture.js";
import { contains, drawClipped, Plane } from "../base/plane.js";
import { sceneOf, sumOf, VIEWS, searchHits, rowAt } from "../plan/scene.js";
import { counted, grouped, namerOf } from "../base/formats.js";

const MARGIN = { right: 14, bottom: 34, strip: 58, gap: 10 };
const AXIS_OF_VIEW = {
  lifetimes: "one row per tensor, in order of first write",
  slots: "one row per slot",
  map: "offset upwards from 0, same scale for all arenas",
};
// The settings of a chart. A setting that the user has changed keeps its value until the page sends another value.
export const DEFAULTS = {
  plan: null, plan_index: 0, // token of the packed plans; index of the drawn plan: 0, or 1 for the baseline
  view: "map", colour: null, arena: null, // colour null: the default of the view; arena null: all arenas
  show_baseline: true, // outline the tensors that differ in the other plan of a comparison
  memory: null, // {arenas, capacity}: one memory that contains these arenas end to end, the first at the bottom
  reach: 0, // minimum height of each arena in the map in bytes, so that several maps have the same scale
  selected: null, compared: null, search: "", marked: null, // selected, compared: ids; marked: rows to highlight
  step: null, span: null, flags: [], // selected step and half-open range of steps; [step, text] of each flag
  toolbar: true, strip: true, title: true, // strip: the curve of live bytes
  height: 520, room: 0, // pixels; with `room`, the height is that of the window minus `room`, at least `height`
  transposed: false, zoom: null, // zoom: the visible [t0, t1, v0, v1]; null: all
  link: "", // group of drawings that share selection, step, range of steps and window (see follow())
};

/** A chart. The page sets `emit(event, value)`, which receives the events: see draw() in plan_drawing.py. */
export class Chart extends Drawing {
  constructor(parent) {
    super();
    this.state = { ...DEFAULTS };
    this.received = {}; // setting → last value from the page
    this.sent = {}; // setting → values as JSON that were sent to the page and have not come back
    this.selected = this.compared = this.hovered = -1; // rows
    this.overview = new Overview();
    this.tools = { raster: new Raster(), sheet: document.createElement("canvas") }; // for drawBoxes()
    const parts = (this.parts = build(this));
    this.searchField = parts.searchField;
    this.attach(parent, { ...parts, canvases: [parts.base, parts.over] });
    this.input = new ChartInput(this);
  }

  // --- state from the page or the user --------------------------------------------------------------------------

  update(state) {
    const changed = {};
    for (const [name, value] of Object.entries(state)) {
      if (JSON.stringify(this.received[name]) === JSON.stringify(value)) continue;
      this.received[name] = value;
      if (!this.isEcho(name, value)) changed[name] = value;
    }
    const previous = this.selected;
    this.apply(changed);
    // Show a selection that was made outside of this chart.
    if (this.win && this.selected >= 0 && this.selected !== previous) this.reveal(this.selected, true);
  }

  /** Return whether the page sends `value` back. If the user chose 1, then 2, the echo of 1 must not replace the 2. */
  isEcho(name, value) {
    const json = JSON.stringify(value), sent = this.sent[name] ?? [], k = sent.indexOf(json);
    const isNewest = json === JSON.stringify(this.state[name]);
    this.sent[name] = k < 0 || isNewest ? [] : sent.slice(k + 1); // echoes come in order, but the page can skip some
    return k >= 0;
  }

  /** Draw a plan of a pack. The visible steps do not change if the plan has as many steps as the previous plan. */
  setPack(pack) {
    if (this.pack === pack) return;
    const isFirst = !this.pack, steps = pack.plans[this.state.plan_index]?.steps;
    const keepsSteps = this.win && steps === this.plan.steps; // `win` is null before the first layout
    this.pack = pack;
    this.plan = pack.plans[this.state.plan_index] ?? pack.plans[0];
    this.isCandidate = this.plan === pack.plans[0];
    if (!this.plan.arenas.some(({ name }) => name === this.state.arena)) this.state.arena = null;
    this.other = this.plan.twin ? pack.plans[this.isCandidate ? 1 : 0] : null;
    this.selected = this.compared = this.hovered = -1;
    this.currentScene = this.colouring = this.hits = this.namer = null;
    this.root.classList.remove("waiting");
    const columns = ["category", "operator", "module"].filter((name) => this.plan[name]);
    const schemes = ["role", "slot", "arena", ...columns, ...(this.other ? ["change"] : [])];
    const menu = schemes.map((name) => [name, name === "module" ? "layer" : name]);
    fillMenu(this.parts.colours, [["", "automatic"], ...menu]);
    fillMenu(this.parts.arenas, [["", "all"], ...this.plan.arenas.map(({ name }) => [name, name])]);
    this.parts.overlay.hidden = !this.other;
    // The zoom of the page applies to the first plan only.
    const { zoom, ...rest } = this.state;
    this.apply(isFirst ? { ...rest, zoom } : rest);
    if (this.win && !keepsSteps) this.win = this.full; // keys and the pointer use `win` before the next layout
  }

  apply(settings) {
    const state = Object.assign(this.state, settings);
    const hasAny = (...names) => names.some((name) => name in settings), { height, room } = state;
    this.stage.style.height = room ? `max(${height}px, 100vh - ${room}px)` : `${height}px`;
    this.parts.bar.hidden = !state.toolbar;
    this.parts.title.hidden = !state.title;
    if (this.searchField.value !== state.search) this.searchField.value = state.search;
    if (!this.plan) return;
    if (hasAny("view", "arena", "transposed", "show_baseline", "reach", "memory")) {
      const hasOtherRows = this.currentScene?.view !== state.view || this.shownArena !== state.arena;
      this.currentScene = null;
      this.shownArena = state.arena;
      if (this.win && hasOtherRows) Object.assign(this.win, { v0: 0, v1: Infinity }); // clamp() reduces v1
    }
    if (hasAny("view", "colour")) this.colouring = null;
    if (hasAny("search", "marked", "arena")) this.search();
    this.setRows(settings);
    if (hasAny("zoom")) this.pendingZoom = { zoom: state.zoom }; // layout() applies it
    this.showState();
    this.scheduleDraw("layout");
  }

  setRows(settings) {
    for (const name of ["selected", "compared"]) {
      if (name in settings) this[name] = this.plan.rowOf(settings[name]);
    }
  }

  /** The positions of the boxes. Requires layout(). */
  get scene() {
    if (this.currentScene) return this.currentScene;
    const { view, reach, memory, transposed: sideways, show_baseline } = this.state;
    const { plan, shown } = this, other = show_baseline ? this.other : null, pixels = this.plot.h;
    const scene = (this.currentScene = sceneOf(plan, { view, shown, sideways, other, reach, pixels, memory }));
    const arenas = plan.arenas.filter((_, k) => shown[k]), names = memory?.arenas ?? arenas.map(({ name }) => name);
    const otherArenas = this.other?.arenas.filter(({ name }) => names.includes(name));
    // The strip shows the live bytes of all shown arenas together. `otherSum` has the live bytes of the other plan.
    scene.stripArena = scene.memory ?? (arenas.length > 1 ? sumOf(arenas, plan.steps, Infinity) : this.arena);
    if (otherArenas) scene.otherSum = sumOf(otherArenas, this.other.steps, Infinity);
    return scene;
  }

  /** The window of the whole plan. */
  get full() {
    return { t0: 0, t1: Math.max(1, this.plan.steps), v0: 0, v1: this.scene.top };
  }

  choose(name, value) {
    this.apply({ [name]: value });
    this.send(name, value);
    this.stage.focus({ preventScroll: true });
  }

  /** Set `arena`, the arena of the title, and show the state in toolbar, title and labels. */
  showState() {
    const { state, plan, parts } = this;
    for (const tab of parts.tabs) tab.setAttribute("aria-pressed", String(tab.dataset.view === state.view));
    parts.colours.value = state.colour ?? "";
    if (!parts.colours.value) parts.colours.value = ""; // "automatic" if the menu lacks the scheme
    parts.arenas.value = state.arena ?? "";
    parts.views.hidden = Boolean(state.memory); // a memory has only the view "map"
    parts.arenas.parentElement.hidden = plan.arenas.length < 2 || Boolean(state.memory);
    parts.outlines.checked = state.show_baseline;
    const chosen = plan.arenas.findIndex((a) => a.name === state.arena);
    const arena = (this.arena = plan.arenas[state.arena === null ? plan.main : Math.max(0, chosen)]);
    const text = arena ? `${arena.name}: ${arena.title}` : "This plan has no arena.";
    parts.title.textContent = text;
    const keys = "Arrow keys change the step, p goes to the peak, slash searches.";
    const axes = `Steps against ${AXIS_OF_VIEW[state.view]}`;
    this.stage.setAttribute("aria-label", `${VIEWS[state.view]}. ${text}. ${axes}. ${keys}`);
    this.root.dataset.view = state.view;
  }

  /** A flag per arena: whether it is shown. */
  get shown() {
    const { arena, memory } = this.state, names = arena === null ? memory?.arenas : [arena];
    return this.plan.arenas.map(({ name }) => !names || names.includes(name));
  }

  /** The chosen colour scheme, or the default: "slot" for the view slots, else default_scheme() in app/texts/palette.py. */
  get scheme() {
    const { plan, state } = this, layerCount = new Set(plan.module?.names.filter(Boolean)).size;
    const defaultOfPlan = plan.category ? "category" : layerCount > 1 ? "module" : "operator";
    return state.colour ?? (state.view === "slots" ? "slot" : defaultOfPlan);
  }

  // --- coordinates -----------------------------------------------------------------------------------------------

  /** Fit canvases and window to the size of the stage and to the scene. Set the rectangles `plot` (of the picture) and
   * `strip` (of the live bytes; null if it is hidden). */
  layout() {
    this.fitCanvases();
    const previousHeight = this.plot?.h, isWhole = this.win && !this.isZoomed;
    // All views have the same margins, so that the steps of charts below each other are aligned.
    const { transposed, strip } = this.state, forStrip = strip ? MARGIN.strip + MARGIN.gap : 0;
    const x = this.width > 800 ? 108 : 80, y = transposed ? 10 : 8 + forStrip;
    const w = Math.max(40, this.width - x - MARGIN.right - (transposed ? forStrip : 0));
    const h = Math.max(40, this.height - MARGIN.bottom - y);
    const right = { x: x + w + MARGIN.gap, y, w: MARGIN.strip, h }, above = { x, y: 8, w, h: MARGIN.strip };
    Object.assign(this, { plot: { x, y, w, h }, strip: strip ? (transposed ? right : above) : null });
    if (h !== previousHeight) {
      this.currentScene = null; // the space for names depends on the height
      if (isWhole) this.win = null;
    }
    this.win ??= this.full;
    if (this.pendingZoom) {
      const [t0, t1, v0, v1] = this.pendingZoom.zoom ?? Object.values(this.full);
      Object.assign(this.win, { t0, t1, v0, v1 });
      this.pendingZoom = null;
    }
    this.clamp();
    this.emitZoom();
  }

  get isZoomed() {
    const { win: w, full: f } = this, isPart = (low, high) => (w[high] - w[low]) / (f[high] - f[low]) < 0.999;
    return isPart("t0", "t1") || isPart("v0", "v1");
  }

  /** Send a changed window to the page once it has been stable for 400 ms; null is the window of the whole plan. */
  emitZoom() {
    const { t0, t1, v0, v1 } = this.win;
    const zoom = this.isZoomed ? [t0, t1, v0, v1].map((edge) => Math.round(edge * 1000) / 1000) : null;
    if (JSON.stringify(zoom) === JSON.stringify(this.state.zoom)) return;
    this.state.zoom = zoom;
    this.send("zoom", zoom, 400);
  }

  get plane() {
    return new Plane(this.plot, this.win, { sideways: this.state.transposed, falling: this.scene.falling });
  }

  frameState() {
    const { plan, other, scene, plane, plot, strip, shown, hits, ratio, width, height, isCandidate } = this;
    const look = this.currentLook(), colouring = (this.colouring ??= colouringOf(plan, this.scheme));
    const namer = (this.namer ??= namerOf(plan));
    const layout = { plane, plot, strip, ratio, width, height };
    const hasOutlines = Boolean(other && this.state.show_baseline);
    return { ...layout, plan, other, scene, shown, hits, look, colouring, namer, isCandidate, hasOutlines };
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
    drawOverlay(this.pen(this.parts.over), this.frameState(), this);
    const { selected, compared, plan, parts: { status } } = this;
    Object.assign(this.root.dataset, { selected: plan.id(selected), compared: plan.id(compared) });
    const text = (Math.min(selected, compared) < 0 ? "" : `${pairText(plan, selected, compared)}; `) + this.drawnText;
    if (status.textContent !== text) status.textContent = text;
  }

  /** Return a cleared context of a canvas, in CSS pixels. */
  pen(canvas) {
    const pen = canvas.getContext("2d");
    pen.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    pen.clearRect(0, 0, this.width, this.height);
    return pen;
  }

  drawBase() {
    const began = performance.now(), pen = this.pen(this.parts.base), frameState = this.frameState();
    const drawn = this.drawPicture(pen, frameState);
    if (this.isZoomed) this.overview.draw(pen, frameState, this.full);
    else this.overview.plane = null;
    const { view, memory, arena, plan_index, show_baseline } = this.state, { dark } = frameState.look;
    const key = [this.scheme, this.pack.token, view, dark, JSON.stringify([memory, arena, plan_index, show_baseline])].join();
    if (this.legendKey !== key) this.parts.legend.replaceChildren(...legendOf(frameState));
    this.legendKey = key;
    const parts = [`${grouped(drawn.count)} of ${counted(this.plan.n, "tensor")} drawn`], { thin, outlined } = drawn;
    const side = this.isCandidate ? "baseline" : "candidate"; // the plan whose boxes are outlined
    if (thin) parts.push(`${grouped(thin)} smaller than a pixel, drawn merged`);
    if (outlined) parts.push(`${grouped(outlined[0])} of ${grouped(outlined[1])} changed tensors of the ${side} outlined`);
    this.drawnText = parts.join("; ");
    // For tests and benchmarks. firstMs is the time from the arrival of a pack to its first picture.
    const { dataset } = this.root, { t0, t1, v0, v1 } = this.win, now = performance.now();
    const painted = { paintings: Number(dataset.paintings ?? 0) + 1, paintMs: (now - began).toFixed(1) };
    const rows = { drawn: drawn.count, total: this.plan.n };
    Object.assign(dataset, { ...painted, ...rows, window: [t0, t1].join(), levels: [v0, v1].join() });
    if (this.painted !== this.pack) dataset.firstMs = (now - this.pack.began).toFixed(1);
    this.painted = this.pack;
  }

  /** Draw everything but overlay and overview. Return the results of drawBoxes(), and of drawOutlines() as `outlined`. */
  drawPicture(pen, frameState) {
    const { plan, plot, look } = frameState;
    const ticks = { steps: stepTicks(frameState), levels: levelTicks(frameState) };
    let outlined = null;
    pen.font = look.font;
    drawClipped(pen, plot, () => drawGround(pen, frameState));
    drawClipped(pen, plot, () => drawGrid(pen, frameState, ticks));
    const drawn = drawBoxes(pen, frameState, this.tools);
    drawClipped(pen, plot, () => {
      drawOverLimit(pen, frameState, this.tools);
      drawLines(pen, frameState);
      if (frameState.hasOutlines) outlined = drawOutlines(pen, frameState);
      drawNames(pen, frameState, drawn.large);
      for (const band of frameState.scene.bands) drawBandLabel(pen, frameState, band);
      this.root.dataset.reuses = drawReuses(pen, frameState);
    });
    drawPhases(pen, frameState);
    drawTicks(pen, frameState, ticks);
    if (frameState.strip) drawStrip(pen, frameState);
    Object.assign(pen, { strokeStyle: look.soft, lineWidth: 1 });
    pen.strokeRect(plot.x - 0.5, plot.y - 0.5, plot.w + 1, plot.h + 1);
    if (!plan.n) {
      Object.assign(pen, { fillStyle: look.ink, textAlign: "center" });
      pen.fillText("This plan has no tensors.", plot.x + plot.w / 2, plot.y + plot.h / 2);
    }
    return { ...drawn, outlined };
  }

  // --- the window ------------------------------------------------------------------------------------------------

  /** Multiply the size of the window along the steps, along v or both. The point (t, v) stays at its pixel. */
  zoom(factor, { t, v }, { steps, levels }) {
    const w = this.win, limited = (a, b) => Math.max(factor, Math.min(1, this.minimumSize(b) / (w[b] - w[a])));
    const stepFactor = limited("t0", "t1"), levelFactor = limited("v0", "v1");
    if (steps) Object.assign(w, { t0: t + (w.t0 - t) * stepFactor, t1: t + (w.t1 - t) * stepFactor });
    if (levels) Object.assign(w, { v0: v + (w.v0 - v) * levelFactor, v1: v + (w.v1 - v) * levelFactor });
    this.windowChanged();
  }

  /** Return the minimum size of the window along the axis of `edge` ("t1" or "v1"). */
  minimumSize(edge) {
    return Math.max(1, this.full[edge] / 2 ** 40);
  }

  /** Enlarge the window to its minimum size, and keep it inside the plan. */
  clamp() {
    const { win: w, full: f } = this;
    for (const [a, b] of [["t0", "t1"], ["v0", "v1"]]) {
      const size = w[b] - w[a], newSize = Math.min(f[b] - f[a], Math.max(this.minimumSize(b), size));
      // An unchanged size keeps the exact edges, so that linked charts have equal windows.
      w[a] = Math.min(f[b] - newSize, Math.max(f[a], w[a] - (newSize - size) / 2));
      w[b] = w[a] + newSize;
    }
  }

  /** Redraw after a change of the window, and apply the window to the linked charts unless `quiet`. */
  windowChanged(quiet = false) {
    this.clamp();
    this.scheduleDraw("base");
    this.tip.hidden = true;
    this.emitZoom();
    if (quiet) return;
    const { t0, t1, v0, v1 } = this.win;
    this.share({ window: [t0, t1], levels: [v0, v1], scene: this.scene });
  }

  pan({ t, v }) {
    const { t0, t1, v0, v1 } = this.win;
    Object.assign(this.win, { t0: t0 - t, t1: t1 - t, v0: v0 - v, v1: v1 - v });
    this.windowChanged();
  }

  fit() {
    if (!this.win) return;
    this.win = this.full;
    this.windowChanged();
  }

  /** Centre the window on a row, on each axis where the row is not visible. If `quiet`, linked charts do not follow. */
  reveal(row, quiet = false) {
    const { win: w, plan, scene } = this;
    const centreOn = (low, high, a, b) => {
      const half = (w[b] - w[a]) / 2, middle = (low + high) / 2;
      if (high <= w[a] || low >= w[b]) Object.assign(w, { [a]: middle - half, [b]: middle + half });
    };
    centreOn(plan.birth[row], plan.death[row], "t0", "t1");
    centreOn(scene.v0[row], scene.v1[row], "v0", "v1");
    this.windowChanged(quiet);
  }

  // --- selecting -------------------------------------------------------------------------------------------------

  lines(row) {
    return linesOf(this, row);
  }

  /** Select a row, or none for −1. `how` is sent to the page: click, slot, search or clear. */
  select(row, how) {
    const id = row >= 0 ? this.plan.id(row) : null;
    this.set({ selected: id, compared: row >= 0 ? this.state.compared : null });
    if (how !== "click") {
      this.tip.hidden = true;
      if (row >= 0) this.reveal(row);
    }
    const lines = row >= 0 ? this.lines(row).map((line) => line.join(" ")).join(", ") : "";
    this.parts.live.textContent = lines || "selection cleared";
    this.send("select", { id, row, how });
  }

  /** Select the step of the plan that is nearest to `step`, and show it. */
  goStep(step) {
    const t = Math.max(0, Math.min(this.plan.steps - 1, step)), w = this.win, size = w.t1 - w.t0;
    if (t < w.t0 || t + 1 > w.t1) {
      w.t0 = t + 0.5 - size / 2;
      w.t1 = w.t0 + size;
      this.windowChanged();
    }
    this.setAndSend("step", t, 150);
  }

  toPeak() {
    if (this.win && this.scene.stripArena) this.goStep(this.scene.stripArena.peak_step);
  }

  clear() {
    this.setAndSend("step", null);
    if (this.state.span) this.setAndSend("span", null);
    this.select(-1, "clear");
  }

  /** Select the next (1) or previous (−1) tensor in the slot of the selected tensor. */
  selectInSlot(direction) {
    if (this.selected < 0) return;
    const { slot, arena, isView, generation, birth } = this.plan, root = this.plan.rootOf(this.selected);
    const rows = [...slot.keys()].filter((i) => slot[i] === slot[root] && arena[i] === arena[root] && !isView[i]);
    rows.sort((a, b) => generation[a] - generation[b] || birth[a] - birth[b] || a - b); // the order of their use
    const next = rows[rows.indexOf(root) + direction];
    if (next !== undefined) this.select(next, "slot");
  }

  // --- searching -------------------------------------------------------------------------------------------------

  /** Highlight the tensors that match the search text or, without a text, those that the page marks. */
  search() {
    const { plan } = this, marked = this.state.marked ?? [], text = this.state.search.trim();
    this.hits = text ? searchHits(plan, text, this.shown) : marked.length ? new Uint8Array(plan.n) : null;
    if (!text) for (const row of marked) this.hits[row] = 1;
    const rows = (this.hitRows = this.hits && plan.byBirth().filter((row) => this.hits[row]));
    const heads = new Set(Array.from(rows ?? [], (row) => plan.head(row)));
    for (const head of heads) this.hits[head] = 1; // map and slots have one box per storage
    const inAll = text && !rows.length ? searchHits(plan, text, plan.arenas.map(() => true)).filter(Boolean).length : 0;
    const found = inAll ? `0 found, ${grouped(inAll)} in other arenas` : `${grouped(rows?.length ?? 0)} found`;
    const label = text ? found : `${counted(heads.size, "buffer")} marked`;
    this.parts.count.textContent = rows ? label : "";
    this.root.dataset.hits = rows?.length ?? "";
    this.scheduleDraw("base");
  }

  /** Select the next (1) or previous (−1) hit. The first hit follows the last one. */
  nextHit(direction) {
    const rows = this.hitRows;
    if (!rows?.length) return;
    const current = rows.indexOf(this.selected), firstHit = direction > 0 ? 0 : rows.length - 1;
    const next = current < 0 ? firstHit : (current + direction + rows.length) % rows.length;
    this.select(rows[next], "search");
    this.parts.count.textContent = `${grouped(next + 1)} of ${grouped(rows.length)} found`;
  }

  // --- events ----------------------------------------------------------------------------------------------------

  /** Send an event to the page after `wait` milliseconds. Until then, a newer event of the same name replaces it. */
  send(event, value, wait = 0) {
    clearTimeout(this.timers[event]);
    if (wait) {
      this.timers[event] = setTimeout(() => this.send(event, value), wait);
      return;
    }
    const [name, setting] = event === "select" ? ["selected", value.id] : [event, value];
    (this.sent[name] ??= []).push(JSON.stringify(setting));
    this.emit(event, value);
  }

  setAndSend(name, value, wait) {
    this.set({ [name]: value });
    this.send(name, value, wait);
  }

  set(settings) {
    this.follow(settings);
    this.share(settings);
  }

  share(change) {
    const { link } = this.state;
    for (const chart of link ? charts : []) {
      if (chart !== this && chart.state.link === link && chart.win) chart.follow(change);
    }
  }

  /** Apply a change of a linked chart: settings, or `window` (visible steps) and `levels` (visible range of v). */
  follow({ window, levels, scene, ...state }) {
    Object.assign(this.state, state);
    this.setRows(state);
    if (window) {
      [this.win.t0, this.win.t1] = window;
      // The range of v has the same meaning only in charts with the same view and the same greatest v.
      if (scene.view === this.scene.view && scene.top === this.scene.top) [this.win.v0, this.win.v1] = levels;
      this.windowChanged(true);
    }
    this.scheduleDraw("over");
  }
}
