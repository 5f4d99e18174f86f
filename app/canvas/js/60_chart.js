// The chart: one element, a title that states its claim, a toolbar, a canvas for the picture and one for what moves on it.

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
  plan: null, view: "map", colour: null, selected: null, compared: null, search: "", step: null, arena: null, baseline: true,
  transposed: false, toolbar: true, strip: true, height: 520, link: "", window: null, reach: 0, heading: true, report_window: false, plan_index: 0,
};

class Chart {
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
    on("pointercancel", () => { this.drag = null; });
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
    if ("search" in fresh) this.search();
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

  drawBase() {
    const began = performance.now();
    const { plot: p, plan, scene: s, ratio } = this, look = this.look(), maps = this.maps();
    const pen = this.base.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, this.width, this.height);
    pen.font = look.font;
    const inPlot = (draw) => { pen.save(); pen.beginPath(); pen.rect(p.x, p.y, p.w, p.h); pen.clip(); draw(); pen.restore(); };
    inPlot(() => this.drawGround(pen, look, maps));
    const ticks = this.ticks(pen, maps);
    inPlot(() => this.drawGrid(pen, look, ticks));
    const drawn = this.drawBoxes(pen, look, maps);
    inPlot(() => {
      this.drawViews(pen, look, maps);
      this.drawNames(pen, look, maps, drawn.big);
      this.drawLines(pen, look, maps);
      this.drawBaseline(pen, look, maps);
    });
    this.drawTicks(pen, look, ticks);
    if (this.strip) this.drawStrip(pen, look, maps);
    pen.strokeStyle = look.soft;
    pen.lineWidth = 1;
    pen.strokeRect(p.x - 0.5, p.y - 0.5, p.w + 1, p.h + 1);
    if (!plan.n) { pen.fillStyle = look.ink; pen.textAlign = "center"; pen.fillText("This plan places no tensor.", p.x + p.w / 2, p.y + p.h / 2); }
    this.showFoot(drawn);
    Object.assign(this.root.dataset, { drawn: drawn.count, total: plan.n, window: [this.win.t0, this.win.t1].join(","), paintMs: (performance.now() - began).toFixed(1) });
    this.paintings = (this.paintings ?? 0) + 1;
    this.root.dataset.paintings = this.paintings;
    // From the bytes to the first picture of them, for whoever measures.
    if (this.painted !== this.pack) this.root.dataset.firstMs = (performance.now() - this.pack.began).toFixed(1);
    this.painted = this.pack;
  }

  /** What lies under the boxes: free bytes inside an extent are hatched, the room up to a capacity is plain. */
  drawGround(pen, look, maps) {
    const pattern = pen.createPattern(look.hatch, "repeat");
    pattern.setTransform(new DOMMatrix().scale(1 / this.ratio));
    for (const band of this.scene.bands) {
      const all = maps.box(0, this.plan.steps, band.base, band.base + band.height);
      pen.fillStyle = look.panel;
      pen.fillRect(all[0], all[1], all[2] - all[0], all[3] - all[1]);
      const [x0, y0, x1, y1] = maps.box(0, this.plan.steps, band.base, band.base + band.extent);
      pen.fillStyle = pattern;
      pen.fillRect(x0, y0, x1 - x0, y1 - y0);
    }
  }

  drawBoxes(pen, look, maps) {
    const { plan, scene: s, plot: p, ratio, win: w } = this;
    // A very large screen is rastered at single resolution: four doubles a pixel must stay below 100 MB.
    const scale = p.w * p.h * ratio * ratio > 3e6 ? 1 : ratio;
    const W = Math.max(1, Math.round(p.w * scale)), H = Math.max(1, Math.round(p.h * scale));
    this.raster.resize(W, H);
    this.raster.clear();
    const paints = this.paints ?? (this.paints = paint(plan, this.scheme()));
    const { codes, table } = paints, ground = look.solid;
    const faint = table.map((c) => c.map((v, k) => Math.round(0.16 * v + 0.84 * (look.dark ? ground[k] + 28 : ground[k] - 16))));
    const inks = Float64Array.from([...table, ...faint].flat()), dim = 3 * table.length;
    const hits = this.hits, raster = this.raster, { birth, death, arena, isView } = plan, { v0, v1 } = s, map = s.view === "map", seen = this.shownArenas(), down = this.state.transposed;
    const sx = (down ? W : H) / (w.v1 - w.v0), st = (down ? H : W) / (w.t1 - w.t0), flip = !down && !s.down, across = down ? W : H, along = down ? H : W;
    let count = 0, thin = 0;
    const big = [];
    for (let i = 0; i < plan.n; i++) {
      if (!seen[arena[i]]) continue;
      let a = (birth[i] - w.t0) * st, b = (death[i] - w.t0) * st, c = (v0[i] - w.v0) * sx, d = (v1[i] - w.v0) * sx;
      if (b <= 0 || a >= along || d <= 0 || c >= across) continue;
      count++;
      const wide = b - a, high = d - c;
      if (map && isView[i]) {
        if (wide * high > 900 * scale * scale) big.push(i);
        continue;
      }
      if (wide >= 3 && high >= 3) {
        a = Math.round(a); b = Math.round(b); c = Math.round(c); d = Math.round(d);
        if (wide >= 5 && high >= 5) { b -= 1; d -= 1; } // a hairline tells neighbours apart
        if (wide * high > 900 * scale * scale) big.push(i);
      } else if (wide < 1 || high < 1) thin++;
      if (a < 0) a = 0;
      if (c < 0) c = 0;
      if (b > along) b = along;
      if (d > across) d = across;
      if (b <= a || d <= c) continue;
      const ink = 3 * codes[i] + (hits && !hits[i] ? dim : 0), r = inks[ink], g = inks[ink + 1], bl = inks[ink + 2];
      if (flip) { const up = H - d; d = H - c; c = up; }
      if (down) raster.add(c, a, d, b, r, g, bl);
      else raster.add(a, c, b, d, r, g, bl);
    }
    const sheet = this.sheet ?? (this.sheet = document.createElement("canvas"));
    if (sheet.width !== W || sheet.height !== H) { sheet.width = W; sheet.height = H; }
    sheet.getContext("2d").putImageData(this.raster.finish(), 0, 0);
    pen.imageSmoothingEnabled = false;
    pen.drawImage(sheet, p.x, p.y, W / scale, H / scale);
    return { count, thin, big };
  }

  shownArenas() {
    const arena = this.state.arena;
    return this.plan.arenas.map((a) => arena === null || a.name === arena);
  }
  scheme() { return this.state.colour ?? (this.state.view === "slots" ? "slot" : "role"); }

  /** Views lie inside their base: a lighter inset with a dashed frame, once they are large enough to be told apart. */
  drawViews(pen, look, maps) {
    if (this.scene.view !== "map") return;
    const seen = this.shownArenas();
    pen.lineWidth = 1;
    for (const row of this.plan.viewRows) {
      if (!seen[this.plan.arena[row]]) continue;
      const [x0, y0, x1, y1] = this.clipped(maps.box(this.plan.birth[row], this.plan.death[row], this.scene.v0[row], this.scene.v1[row]));
      if (x1 - x0 < 1 || y1 - y0 < 1) continue;
      const [r, g, b] = this.paints.table[this.paints.codes[row]];
      pen.globalAlpha = this.hits && !this.hits[row] ? 0.15 : 1;
      pen.fillStyle = css([r, g, b]);
      pen.fillRect(x0, y0, x1 - x0 - 1, y1 - y0 - 1);
      pen.fillStyle = "rgba(255,255,255,0.35)";
      pen.fillRect(x0, y0, x1 - x0 - 1, y1 - y0 - 1);
      if (x1 - x0 > 7 && y1 - y0 > 5) {
        pen.setLineDash([3, 2]);
        pen.strokeStyle = css([r * 0.45, g * 0.45, b * 0.45].map(Math.round));
        pen.strokeRect(Math.round(x0) + 1.5, Math.round(y0) + 1.5, Math.round(x1 - x0) - 4, Math.round(y1 - y0) - 4);
        pen.setLineDash([]);
      }
    }
    pen.globalAlpha = 1;
  }

  clipped([x0, y0, x1, y1]) {
    const p = this.plot;
    return [Math.max(x0, p.x), Math.max(y0, p.y), Math.min(x1, p.x + p.w), Math.min(y1, p.y + p.h)];
  }

  /** Names inside the boxes that have room for them, the largest first. */
  drawNames(pen, look, maps, rows) {
    const { plan, scene: s } = this, letter = 6.1;
    const places = [];
    for (const row of rows) {
      const at = this.clipped(maps.box(plan.birth[row], plan.death[row], s.v0[row], s.v1[row]));
      const w = at[2] - at[0], h = at[3] - at[1];
      if (w >= 44 && h >= 13 && !(s.view === "slots" && plan.isView[row])) places.push([w * h, row, at]);
    }
    places.sort((a, b) => b[0] - a[0] || a[1] - b[1]);
    const twins = new Map(); // tensors of one storage may have one box: the first is named, the others are counted
    const placeOf = ([x0, y0, x1, y1]) => [x0, y0, x1, y1].map(Math.round).join();
    for (const [, , at] of places) twins.set(placeOf(at), (twins.get(placeOf(at)) ?? 0) + 1);
    pen.textBaseline = "middle";
    pen.textAlign = "left";
    for (const [, row, at] of places.slice(0, 400)) {
      const [x0, y0, x1, y1] = at, same = twins.get(placeOf(at));
      if (!same) continue;
      twins.set(placeOf(at), 0);
      const more = same > 1 ? ` +${same - 1}` : "";
      const colour = this.paints.table[this.paints.codes[row]];
      if (this.hits && !this.hits[row]) pen.fillStyle = look.soft;
      else pen.fillStyle = luminance(colour) > 0.22 ? "#000" : "#fff";
      const y = Math.min((y0 + y1) / 2, y0 + 60), text = shortened(plan.ids.at(row), Math.floor((x1 - x0 - 9) / letter) - more.length) + more;
      // A view's name stands at the right, its base's at the left.
      const view = s.view === "map" && plan.isView[row];
      if (view) pen.fillStyle = "#111";
      pen.textAlign = view ? "right" : "left";
      pen.fillText(text, view ? x1 - 5 : x0 + 4, y + 0.5);
    }
  }

  /** Extent (full), lower bound (dotted), capacity (dashed), and each arena's name and figures above its band. */
  drawLines(pen, look, maps) {
    const { plot: p, scene: s, plan } = this, down = this.state.transposed;
    const level = (v, dash, colour) => {
      const at = Math.round(maps.space(v)) + 0.5;
      pen.setLineDash(dash);
      pen.strokeStyle = colour;
      pen.beginPath();
      if (down) { pen.moveTo(at, maps.time(0)); pen.lineTo(at, maps.time(plan.steps)); } else { pen.moveTo(maps.time(0), at); pen.lineTo(maps.time(plan.steps), at); }
      pen.stroke();
      pen.setLineDash([]);
    };
    const arena = plan.arenas[this.curve];
    if (arena && plan.steps) {
      const at = Math.round(maps.time(arena.peak_step + 0.5)) + 0.5;
      pen.strokeStyle = look.line;
      pen.lineWidth = 1;
      pen.setLineDash([1, 4]);
      pen.beginPath();
      if (down) { pen.moveTo(p.x, at); pen.lineTo(p.x + p.w, at); } else { pen.moveTo(at, p.y); pen.lineTo(at, p.y + p.h); }
      pen.stroke();
      pen.setLineDash([]);
    }
    for (const band of s.bands) {
      const { arena, base } = band;
      pen.lineWidth = 1.5;
      level(base, [], look.soft);
      level(base + band.extent, [], look.line);
      if (s.view === "map") {
        pen.lineWidth = 2;
        if (arena.capacity !== null && Number(arena.capacity) <= band.height) level(base + Number(arena.capacity), [7, 5], look.line);
        level(base + Number(arena.bound), [2, 3], look.line);
      }
      if (down) this.bandName(pen, look, band, Math.max(p.x + 4, maps.space(base) + 4), p.y + 12, Math.min(p.x + p.w, maps.space(base + band.height)) - Math.max(p.x, maps.space(base)) - 8);
      else {
        const top = maps.space(base + band.height), bottom = maps.space(base);
        if (bottom > p.y && top - 4 < p.y + p.h) this.bandName(pen, look, band, p.x + 6, Math.max(p.y + 10, top - 9), p.w - 12);
      }
    }
  }

  bandName(pen, look, { arena }, x, y, room) {
    if (room < 50) return;
    const figures = this.scene.view === "slots"
      ? `${counted(arena.slots, "slot")} for ${counted(arena.storages, "storage")}`
      : `bound ${shortBytes(arena.bound)} · extent ${shortBytes(arena.extent)} · capacity ${arena.capacity === null ? "unlimited" : shortBytes(arena.capacity)}`;
    const bold = `600 ${look.font}`;
    pen.font = bold;
    const name = shortened(arena.name, Math.max(4, Math.floor(room / 6.6)));
    const first = pen.measureText(name).width;
    pen.font = look.font;
    const second = first + 10 + pen.measureText(figures).width <= room ? `  ${figures}` : "";
    const width = first + pen.measureText(second).width;
    pen.fillStyle = look.paper === "rgba(0, 0, 0, 0)" ? css(look.solid) : look.paper;
    pen.globalAlpha = 0.86;
    pen.fillRect(x - 3, y - 8, width + 6, 16);
    pen.globalAlpha = 1;
    pen.textAlign = "left";
    pen.textBaseline = "middle";
    pen.fillStyle = look.ink;
    pen.font = bold;
    pen.fillText(name, x, y);
    pen.font = look.font;
    pen.fillStyle = look.soft;
    pen.fillText(second, x + first, y);
  }

  /** Where the tensors that differ lie in the baseline: dashed outlines, the largest 2,000. */
  drawBaseline(pen, look, maps) {
    this.outlined = null;
    if (!this.other || !this.state.baseline) return;
    const { plan, other, scene: s } = this, outlines = [];
    const bands = new Map(s.bands.map((band) => [band.arena.name, band]));
    const lane = s.view === "lifetimes";
    let changed = 0;
    for (let j = 0; j < other.n; j++) {
      const i = other.twin[j] ? other.twin[j] - 1 : -1;
      const band = bands.get(other.arenas[other.arena[j]].name);
      if (!other.changes[j]) continue;
      changed++;
      if (lane ? i < 0 || !s.v1[i] : !band) continue;
      const low = lane ? s.v0[i] : band.base + (s.view === "slots" ? other.slot[j] : other.offset[j]);
      const at = this.clipped(maps.box(other.birth[j], other.death[j], low, low + (s.view === "map" ? Math.max(1, other.size[j]) : 1)));
      const w = at[2] - at[0], h = at[3] - at[1];
      if (w >= 3 && h >= 3) outlines.push([w * h, j, i < 0, at]);
    }
    outlines.sort((a, b) => b[0] - a[0] || a[1] - b[1]);
    pen.lineWidth = 1.2;
    for (const [, , removed, [x0, y0, x1, y1]] of outlines.slice(0, 2000)) {
      pen.strokeStyle = look.line;
      pen.setLineDash(removed ? [1, 2] : [4, 3]);
      pen.strokeRect(x0 + 0.5, y0 + 0.5, x1 - x0 - 1, y1 - y0 - 1);
    }
    pen.setLineDash([]);
    this.outlined = [Math.min(2000, outlines.length), changed];
  }

  // --- axes ----------------------------------------------------------------------------------------------------------

  /** Ticks of both axes: {time: [[px, label]], space: [[px, label, line]]}. */
  ticks(pen, maps) {
    const { plan, win: w, scene: s, plot: p } = this, down = this.state.transposed;
    const time = [], space = [];
    let longest = 0;
    for (let k = 0; k < 24; k++) longest = Math.max(longest, plan.nodes.at(Math.floor(w.t0 + (k / 24) * (w.t1 - w.t0))).length);
    const room = down ? 22 : Math.min(132, Math.max(64, p.w / 14, 6.2 * (longest + String(plan.steps).length + 4)));
    const every = tens(room / maps.kt);
    for (let t = Math.max(0, Math.ceil(w.t0 / every - 1e-9) * every); t < Math.min(plan.steps, w.t1); t += every) {
      const px = maps.time(t + (maps.kt > 30 ? 0.5 : 0));
      if (px < (down ? p.y : p.x) - 1 || px > (down ? p.y + p.h : p.x + p.w) + 1) continue;
      time.push([px, `#${t}`, plan.nodes.at(t)]);
    }
    if (s.view === "map") {
      for (const band of s.bands) {
        const every = twos((down ? 84 : 34) / maps.kv);
        for (let k = Math.max(0, Math.ceil((w.v0 - band.base) / every)); k * every <= band.height && band.base + k * every <= w.v1; k++) {
          space.push([maps.space(band.base + k * every), tickBytes(k * every), band]);
        }
      }
    } else if (s.view === "slots") {
      for (const band of s.bands) {
        const every = tens((down ? 26 : 15) / maps.kv);
        for (let k = Math.max(0, Math.ceil((w.v0 - band.base - 0.5) / every) * every); k < band.height && band.base + k <= w.v1; k += every) {
          space.push([maps.space(band.base + k + 0.5), String(k), band]);
        }
      }
    } else {
      const every = tens((down ? 60 : 15) / maps.kv), order = plan.byBirth();
      if (every === 1 && !down) {
        const lanes = new Map();
        for (let k = 0, lane = 0; k < order.length; k++) if (s.v1[order[k]]) { if (lane >= w.v0 - 1 && lane <= w.v1) lanes.set(lane, order[k]); lane++; }
        for (const [lane, row] of lanes) space.push([maps.space(lane + 0.5), null, null, row]);
      } else for (let k = Math.ceil(Math.max(0, w.v0) / every) * every; k <= Math.min(s.top - 1, w.v1); k += every) space.push([maps.space(k + 0.5), grouped(k), null]);
    }
    return { time, space };
  }

  drawGrid(pen, look, ticks) {
    const p = this.plot, down = this.state.transposed;
    pen.strokeStyle = look.grid;
    pen.lineWidth = 1;
    pen.beginPath();
    const across = (px) => { pen.moveTo(p.x, Math.round(px) + 0.5); pen.lineTo(p.x + p.w, Math.round(px) + 0.5); };
    const upright = (px) => { pen.moveTo(Math.round(px) + 0.5, p.y); pen.lineTo(Math.round(px) + 0.5, p.y + p.h); };
    for (const [px] of ticks.time) (down ? across : upright)(px);
    if (this.scene.view === "map") for (const [px] of ticks.space) (down ? upright : across)(px);
    pen.stroke();
  }

  drawTicks(pen, look, ticks) {
    const { plot: p, plan } = this, down = this.state.transposed;
    const name = { lifetimes: "tensor, by birth", slots: "slot", map: "offset" }[this.scene.view];
    pen.fillStyle = look.soft;
    const side = (px, text) => { pen.textAlign = "right"; pen.textBaseline = "middle"; pen.fillText(text, p.x - 7, px); };
    const foot = (px, text) => { pen.textAlign = "center"; pen.textBaseline = "top"; pen.fillText(text, px, p.y + p.h + 6); };
    let last = -Infinity;
    if (down) {
      for (const [px, step, node] of ticks.time) if (px >= p.y + 4 && px <= p.y + p.h) side(px, shortened(`${step} ${node}`.trim(), Math.floor((p.x - 14) / 6.2)));
      for (const [px, text] of [...ticks.space].sort((a, b) => a[0] - b[0])) {
        if (text === null || px < p.x - 1 || px > p.x + p.w + 1 || px - last < 46) continue;
        foot(Math.max(p.x + 18, Math.min(p.x + p.w - 18, px)), text);
        last = px;
      }
    } else {
      const times = ticks.time, room = times.length > 1 ? times[1][0] - times[0][0] : 150;
      pen.textBaseline = "top";
      for (const [px, step, node] of times) {
        const text = room >= 70 && node ? shortened(`${step} ${node}`, Math.max(step.length, Math.floor((room - 10) / 6.2))) : step;
        const half = pen.measureText(text).width / 2, x = Math.max(p.x - 30 + half, Math.min(p.x + p.w + 10 - half, px));
        if (x - half < last + 6) continue;
        pen.strokeStyle = look.soft;
        pen.beginPath(); pen.moveTo(Math.round(px) + 0.5, p.y + p.h); pen.lineTo(Math.round(px) + 0.5, p.y + p.h + 4); pen.stroke();
        pen.textAlign = "center";
        pen.fillText(text, x, p.y + p.h + 6);
        last = x + half;
      }
      last = Infinity;
      for (const [px, text, , row] of [...ticks.space].sort((a, b) => b[0] - a[0])) {
        if (px < p.y - 1 || px > p.y + p.h + 1 || last - px < 12) continue;
        side(Math.min(p.y + p.h - 4, Math.max(p.y + 5, px)), text ?? shortened(plan.ids.at(row), Math.floor((p.x - 12) / 6.2)));
        last = px;
      }
    }
    pen.textBaseline = "bottom";
    pen.textAlign = "right";
    pen.fillText(down ? name : "step", p.x + p.w, this.height - 1);
    pen.textAlign = "left";
    pen.fillText(down ? "step ↓" : `${name} ${this.scene.down ? "↓" : "↑"}`, 4, this.height - 1);
  }

  /** Live bytes of one arena over the same window of steps, as steps; where many steps share a pixel, their highest. */
  drawStrip(pen, look, maps) {
    const { strip: q, plan, win: w } = this, arena = plan.arenas[this.curve], down = this.state.transposed;
    if (!arena || !plan.steps) return;
    const extent = Number(arena.extent), capacity = arena.capacity === null ? 0 : Number(arena.capacity);
    const top = Math.max(1, extent, Number(arena.peak), capacity <= 1.5 * extent ? capacity : 0) * 1.17;
    const size = down ? q.w : q.h, length = down ? q.h : q.w, kb = size / top;
    pen.save();
    pen.beginPath();
    pen.rect(q.x, q.y, q.w, q.h);
    pen.clip();
    pen.fillStyle = look.panel;
    pen.fillRect(q.x, q.y, q.w, q.h);
    pen.fillStyle = look.dark ? "rgba(86,180,233,0.75)" : "rgba(0,114,178,0.70)";
    const bar = (a, b, bytes) => (down ? pen.fillRect(q.x, q.y + a, bytes * kb, b - a) : pen.fillRect(q.x + a, q.y + q.h - bytes * kb, b - a, bytes * kb));
    const kt = length / (w.t1 - w.t0), from = Math.max(0, Math.floor(w.t0)), to = Math.min(plan.steps, Math.ceil(w.t1));
    if (kt >= 1) for (let t = from; t < to; t++) bar((t - w.t0) * kt, (t + 1 - w.t0) * kt + 0.3, arena.live[t]);
    else {
      for (let px = 0; px < length; px++) {
        let most = 0;
        const first = Math.max(from, Math.floor(w.t0 + px / kt)), last = Math.min(to, Math.max(first + 1, Math.ceil(w.t0 + (px + 1) / kt)));
        for (let t = first; t < last; t++) if (arena.live[t] > most) most = arena.live[t];
        if (most) bar(px, px + 1, most);
      }
    }
    const level = (bytes, dash) => {
      pen.strokeStyle = look.line;
      pen.setLineDash(dash);
      pen.lineWidth = 1.2;
      pen.beginPath();
      if (down) { pen.moveTo(q.x + bytes * kb, q.y); pen.lineTo(q.x + bytes * kb, q.y + q.h); } else { const y = q.y + q.h - bytes * kb; pen.moveTo(q.x, y); pen.lineTo(q.x + q.w, y); }
      pen.stroke();
      pen.setLineDash([]);
    };
    level(extent, []);
    level(Number(arena.bound), [2, 3]);
    if (capacity && capacity <= top) level(capacity, [7, 5]);
    const peak = maps.time(arena.peak_step + 0.5), high = Number(arena.peak) * kb;
    pen.fillStyle = look.line;
    pen.beginPath();
    if (down) { pen.moveTo(q.x + high, peak); pen.lineTo(q.x + high + 7, peak - 4); pen.lineTo(q.x + high + 7, peak + 4); } else { const y = q.y + q.h - high; pen.moveTo(peak, y); pen.lineTo(peak - 4, y - 7); pen.lineTo(peak + 4, y - 7); }
    pen.fill();
    pen.restore();
    pen.fillStyle = look.soft;
    pen.font = look.font;
    if (!down) {
      pen.textAlign = "right";
      pen.textBaseline = "middle";
      pen.fillText(shortBytes(arena.extent), q.x - 7, q.y + q.h - extent * kb);
      pen.fillText("0 B", q.x - 7, q.y + q.h - 4);
      pen.fillText("live bytes", q.x - 7, q.y + q.h / 2 + 6);
    } else {
      pen.textAlign = "center";
      pen.textBaseline = "top";
      pen.fillText("live bytes", q.x + q.w / 2, q.y + q.h + 6);
    }
  }

  showFoot({ count, thin }) {
    const key = [this.scheme(), this.pack.token, this.state.view, this.theme.dark].join();
    if (this.legendKey !== key) {
      this.legendKey = key;
      const paints = this.paints, items = [];
      items.push(el("span", { class: "note" }, paints.note));
      for (const [name, colour] of paints.legend) items.push(el("span", {}, el("i", { style: `background:${colour}` }), name));
      if (paints.ramp) items.push(el("span", {}, shortBytes(paints.ramp[0]), el("i", { class: "ramp", style: `background:linear-gradient(90deg,${paints.table.map(css).join()})` }), shortBytes(paints.ramp[1])));
      if (this.state.view !== "lifetimes") items.push(el("span", {}, el("i", { class: "hatch" }), this.state.view === "slots" ? "slot free" : "free inside the extent"));
      if (this.state.view === "map") for (const [kind, name] of [["solid", "extent"], ["dotted", "lower bound"], ["dashed", "capacity"]]) items.push(el("span", {}, el("i", { class: "rule", style: `border-top-style:${kind}` }), name));
      this.legend.replaceChildren(...items);
    }
    const total = this.plan.n;
    let text = `${grouped(count)} of ${counted(total, "tensor")} drawn`;
    if (thin) text += `; ${grouped(thin)} thinner than a pixel, shaded by occupancy`;
    if (this.outlined) text += `; ${grouped(this.outlined[0])} of ${grouped(this.outlined[1])} changed outlined`;
    this.status.textContent = text;
  }
}
