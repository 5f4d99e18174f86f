// The frame: one element, a title that states its claim, a toolbar, a canvas for the picture and one for what moves on it;
// the state that the page or the person sets; and the mapping between data and pixels.

const MARGIN = { right: 14, bottom: 34, strip: 58, gap: 10 };
const FONT = "11px ";
const charts = new Set();

/** A DOM element with attributes and children; texts are only ever set as text. */
function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

const DEFAULTS = {
  plan: null, view: "map", colour: null, selected: null, compared: null, search: "", marked: null, step: null, arena: null, baseline: true,
  transposed: false, toolbar: true, strip: true, height: 520, link: "", window: null, reach: 0, heading: true, report_window: false, plan_index: 0,
};

class Frame {
  /** `emit(event, value)` tells the page: select, compare, step, search, window, view, colour, arena. */
  constructor(parent, emit) {
    this.emit = emit;
    this.state = { ...DEFAULTS };
    this.told = {};
    this.raster = new Raster();
    this.build(parent);
    this.listen();
    charts.add(this);
  }

  // --- the element -------------------------------------------------------------------------------------------------

  build(parent) {
    this.base = el("canvas", { class: "base" });
    this.over = el("canvas", { class: "over" });
    this.tip = el("div", { class: "tip", hidden: "" });
    this.stage = el("div", { class: "stage", tabindex: "0", role: "application" }, this.base, this.over, this.tip);
    this.title = el("div", { class: "claim" });
    this.tabs = Object.entries(VIEWS).map(([view, name]) => el("button", { type: "button", "data-view": view, onclick: () => this.choose("view", view) }, name));
    this.colours = el("select", { "aria-label": "colour by", onchange: (e) => this.choose("colour", e.target.value || null) });
    this.arenas = el("select", { "aria-label": "arena", onchange: (e) => this.choose("arena", e.target.value || null) });
    this.find = el("input", { type: "search", placeholder: "search  /", "aria-label": "search tensors and nodes", spellcheck: "false" });
    this.count = el("span", { class: "count" });
    const button = (text, title, action) => el("button", { type: "button", title, "aria-label": title, onclick: action }, text);
    this.overlay = el("label", { class: "overlay", hidden: "" }, el("input", { type: "checkbox" }), " baseline outlines");
    this.overlay.firstChild.addEventListener("change", (e) => this.choose("baseline", e.target.checked));
    this.bar = el("div", { class: "bar", role: "toolbar" },
      el("span", { class: "tabs" }, ...this.tabs), el("label", {}, "colour ", this.colours), el("label", {}, "arena ", this.arenas), this.overlay,
      el("span", { class: "grow" }), this.count, this.find,
      button("⇄", "swap the axes (t)", () => this.choose("transposed", !this.state.transposed)),
      button("peak", "go to the peak (p)", () => this.toPeak()), button("fit", "show everything (double click)", () => this.fit()));
    this.legend = el("span", { class: "legend" });
    this.status = el("span", { class: "status" });
    this.live = el("span", { class: "unseen", "aria-live": "polite" });
    this.foot = el("div", { class: "foot" }, this.legend, this.status);
    this.root = el("div", { class: "tmmu-canvas" }, this.title, this.bar, this.stage, this.foot, this.live);
    this.root.tmmuPixelOf = (id) => this.pixelOf(id);
    parent.append(this.root);
  }

  listen() {
    new ResizeObserver(() => this.soon("layout")).observe(this.stage);
    const on = (type, action, options) => this.stage.addEventListener(type, action, options);
    on("pointermove", (e) => this.onMove(e));
    on("pointerleave", () => { this.hovered = -1; this.tip.hidden = true; this.soon("over"); });
    on("pointerdown", (e) => this.onDown(e));
    on("pointerup", (e) => this.onUp(e));
    on("pointercancel", (e) => this.letGo(e));
    // Two fingers are ours; one that moves along the page is the page's where there is nothing to pan.
    for (const type of ["touchstart", "touchmove"]) on(type, (e) => { if (e.touches.length > 1 && e.cancelable) e.preventDefault(); }, { passive: false });
    on("wheel", (e) => this.onWheel(e), { passive: false });
    on("dblclick", () => this.fit());
    on("keydown", (e) => { this.root.classList.add("keyed"); this.onKey(e); });
    this.find.addEventListener("input", () => { this.apply({ search: this.find.value }); this.tellSoon("search", this.find.value, 300); });
    this.find.addEventListener("keydown", (e) => {
      if (e.key === "Enter") { e.preventDefault(); this.nextHit(e.shiftKey ? -1 : 1); }
      if (e.key === "Escape") { this.find.value = ""; this.apply({ search: "" }); this.tellSoon("search", "", 0); this.stage.focus(); }
      e.stopPropagation();
    });
    // A change of theme shows as a transition of the root's colour; nothing else tells of it.
    this.root.addEventListener("transitionend", (e) => { if (e.target === this.root) { this.theme = null; this.soon("base"); } });
  }

  destroy() {
    charts.delete(this);
    this.root.remove();
  }

  // --- state: what Python (or the person) asks for -----------------------------------------------------------------

  /** State from outside: only what changed there since the last time is taken, so that a choice made here stays. */
  update(state) {
    const fresh = {};
    for (const [name, value] of Object.entries(state)) {
      if (JSON.stringify(this.told[name]) === JSON.stringify(value)) continue;
      this.told[name] = value;
      // An answer to an older click must not undo a newer one.
      if (name === "selected" && this.sent?.length) {
        const k = this.sent.indexOf(value);
        if (k >= 0 && k < this.sent.length - 1) { this.sent.splice(0, k + 1); continue; }
        this.sent = [];
      }
      fresh[name] = value;
    }
    const before = this.selected;
    this.apply(fresh);
    // What was chosen elsewhere on the page must be seen here.
    if ("selected" in fresh && this.selected >= 0 && this.selected !== before && this.scene && this.win) this.reveal(this.selected, true);
  }

  setPack(pack) {
    if (this.pack === pack) return;
    const keep = this.pack && this.plan && pack.plans[this.state.plan_index]?.steps === this.plan.steps;
    this.pack = pack;
    this.plan = pack.plans[this.state.plan_index] ?? pack.plans[0];
    this.other = this.plan.twin ? pack.plans[pack.plans.indexOf(this.plan) ? 0 : 1] : null;
    this.selected = this.compared = this.hovered = -1;
    this.scene = this.paints = this.hits = null;
    if (!keep) this.win = null;
    else this.win.v0 = this.win.v1 = NaN; // the same steps, but other slots and bytes
    this.root.classList.remove("waiting");
    this.fillMenus();
    this.apply({ ...this.state });
    this.root.dataset.ready = pack.token;
  }

  apply(fresh) {
    const state = Object.assign(this.state, fresh);
    if ("height" in fresh) this.stage.style.height = `${state.height}px`;
    if ("toolbar" in fresh) this.bar.hidden = !state.toolbar;
    if ("heading" in fresh) this.title.hidden = this.foot.hidden = !state.heading;
    if ("search" in fresh && this.find.value !== (state.search ?? "")) this.find.value = state.search ?? "";
    if (!this.plan) return;
    if ("view" in fresh || "arena" in fresh || "transposed" in fresh || "baseline" in fresh || "reach" in fresh) {
      const before = this.scene?.view, arena = this.shownArena;
      this.scene = null;
      if (this.win && (before !== state.view || arena !== state.arena)) this.win.v0 = this.win.v1 = NaN;
      this.shownArena = state.arena;
    }
    if ("view" in fresh || "colour" in fresh) this.paints = null;
    if ("search" in fresh || "marked" in fresh) this.search();
    if ("selected" in fresh) this.selected = this.rowOf(state.selected);
    if ("compared" in fresh) this.compared = this.rowOf(state.compared);
    if ("step" in fresh) this.step = state.step;
    if ("window" in fresh && state.window && this.win) [this.win.t0, this.win.t1] = state.window;
    this.showState();
    this.soon("layout");
  }

  rowOf(id) { return id === null || id === undefined ? -1 : this.plan.rowOf(id); }

  choose(name, value) {
    this.apply({ [name]: value });
    this.emit(name, value);
    this.stage.focus({ preventScroll: true });
  }

  fillMenus() {
    const plan = this.plan;
    const schemes = [["", "automatic"], ["role", "role"], ["slot", "slot"], ["arena", "arena"], ...(plan.operator ? [["operator", "operator"]] : []), ["size", "size"],
      ...(this.other ? [["change", "change"]] : [])];
    this.colours.replaceChildren(...schemes.map(([value, name]) => el("option", { value }, name)));
    this.arenas.replaceChildren(el("option", { value: "" }, "all, one scale"), ...plan.arenas.map((a) => el("option", { value: a.name }, a.name)));
    this.overlay.hidden = !this.other;
  }

  showState() {
    const { state, plan } = this;
    for (const tab of this.tabs) tab.setAttribute("aria-pressed", String(tab.dataset.view === state.view));
    this.colours.value = state.colour ?? "";
    this.arenas.value = state.arena ?? "";
    this.overlay.firstChild.checked = state.baseline;
    this.curve = state.arena === null ? liveliest(plan) : Math.max(0, plan.arenas.findIndex((a) => a.name === state.arena));
    const arena = plan.arenas[this.curve];
    this.title.textContent = arena ? `${arena.name}: ${arena.claim}` : "This plan has no arena.";
    const rows = { lifetimes: "a row per tensor in order of birth", slots: "a row per slot", map: "offset upwards from 0, all arenas on one byte scale" }[state.view];
    this.stage.setAttribute("aria-label", `${VIEWS[state.view]}. ${this.title.textContent}. Steps against ${rows}. Arrow keys step, p goes to the peak, slash searches.`);
    this.root.dataset.view = state.view;
    this.root.dataset.selected = this.selected >= 0 ? plan.ids.at(this.selected) : "";
  }

  // --- drawing, once a frame at most ---------------------------------------------------------------------------------

  soon(what) {
    const rank = { over: 1, base: 2, layout: 3 };
    this.due = rank[what] > (rank[this.due] ?? 0) ? what : this.due;
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      const due = this.due;
      this.frame = this.due = null;
      if (!this.plan || !this.stage.clientWidth) return;
      if (due === "layout") this.layout();
      if (due !== "over") this.drawBase();
      this.drawOver();
    });
  }

  layout() {
    const width = this.stage.clientWidth, height = this.stage.clientHeight, ratio = window.devicePixelRatio || 1;
    for (const canvas of [this.base, this.over]) {
      if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
        canvas.width = Math.round(width * ratio);
        canvas.height = Math.round(height * ratio);
      }
    }
    const { state, plan } = this;
    // One margin for all views: charts above one another share their steps, and switching views moves nothing.
    const left = width > 800 ? 108 : 80;
    const strip = state.strip ? MARGIN.strip + MARGIN.gap : 0;
    const down = state.transposed;
    this.plot = { x: left, y: down ? 10 : 8 + strip, w: Math.max(40, width - left - MARGIN.right - (down ? strip : 0)), h: Math.max(40, height - MARGIN.bottom - (down ? 10 : 8 + strip)) };
    const p = this.plot;
    this.strip = !state.strip ? null : down ? { x: p.x + p.w + MARGIN.gap, y: p.y, w: MARGIN.strip, h: p.h } : { x: p.x, y: 8, w: p.w, h: MARGIN.strip };
    Object.assign(this, { width, height, ratio });
    if (!this.scene) this.scene = scene(plan, state.view, this.shownArenas(), state.transposed, state.baseline ? this.other : null, state.reach);
    this.full = { t0: 0, t1: Math.max(1, plan.steps), v0: 0, v1: this.scene.top };
    if (!this.win) this.win = { ...this.full };
    if (Number.isNaN(this.win.v0)) Object.assign(this.win, { v0: this.full.v0, v1: this.full.v1 });
    this.clamp();
  }

  /** Functions from data to pixels of the stage. `time` and `space` give one coordinate each; `box` a rectangle. */
  maps() {
    const { plot: p, win: w } = this, down = this.state.transposed;
    const kt = (down ? p.h : p.w) / (w.t1 - w.t0), kv = (down ? p.w : p.h) / (w.v1 - w.v0);
    const time = down ? (t) => p.y + (t - w.t0) * kt : (t) => p.x + (t - w.t0) * kt;
    const space = down ? (v) => p.x + (v - w.v0) * kv : this.scene.down ? (v) => p.y + (v - w.v0) * kv : (v) => p.y + p.h - (v - w.v0) * kv;
    const box = (t0, t1, v0, v1) => {
      const a = time(t0), b = time(t1), c = space(v0), d = space(v1);
      return down ? [Math.min(c, d), a, Math.max(c, d), b] : [a, Math.min(c, d), b, Math.max(c, d)];
    };
    return { kt, kv, time, space, box };
  }

  /** Pixel of the stage → {t, v}. */
  dataAt(x, y) {
    const { plot: p, win: w } = this, down = this.state.transposed;
    const along = down ? (y - p.y) / p.h : (x - p.x) / p.w;
    const across = down ? (x - p.x) / p.w : this.scene.down ? (y - p.y) / p.h : 1 - (y - p.y) / p.h;
    return { t: w.t0 + along * (w.t1 - w.t0), v: w.v0 + across * (w.v1 - w.v0) };
  }

  look() {
    if (this.theme) return this.theme;
    const style = getComputedStyle(this.root), ink = style.color, paper = style.backgroundColor;
    const channels = (paper.match(/[\d.]+/g) ?? [255, 255, 255]).map(Number);
    const solid = channels.length < 4 || channels[3] > 0.5 ? channels.slice(0, 3) : [255, 255, 255];
    const dark = luminance(solid) < 0.3;
    const hatch = document.createElement("canvas");
    hatch.width = hatch.height = 8 * this.ratio;
    const pen = hatch.getContext("2d");
    pen.scale(this.ratio, this.ratio);
    pen.strokeStyle = dark ? "rgba(255,255,255,0.20)" : "rgba(0,0,0,0.16)";
    pen.lineWidth = 1;
    pen.beginPath();
    for (const k of [-8, 0, 8]) { pen.moveTo(k - 1, 9); pen.lineTo(k + 9, -1); }
    pen.stroke();
    return (this.theme = { ink, paper, solid, dark, hatch, font: FONT + style.fontFamily, soft: dark ? "rgba(255,255,255,0.62)" : "rgba(0,0,0,0.60)",
      grid: dark ? "rgba(255,255,255,0.10)" : "rgba(0,0,0,0.08)", line: dark ? "rgba(255,255,255,0.85)" : "rgba(0,0,0,0.85)", panel: dark ? "rgba(255,255,255,0.035)" : "rgba(0,0,0,0.018)" });
  }
}
