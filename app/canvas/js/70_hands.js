// What a person does on the chart: hover, click, drag, wheel, keys, search; and what is drawn on top because of it.

Object.assign(Chart.prototype, {
  // --- the overlay: selection, comparison, hover, the chosen step ------------------------------------------------------

  drawOver() {
    const { plot: p, plan, ratio } = this, look = this.look(), maps = this.maps(), pen = this.over.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, this.width, this.height);
    pen.save();
    pen.beginPath();
    pen.rect(p.x - 3, p.y - 3, p.w + 6, p.h + 6);
    pen.clip();
    if (this.selected >= 0) this.drawHandoffs(pen, look, maps);
    if (this.hovered >= 0) this.frameOf(pen, maps, this.hovered, [], 1);
    if (this.compared >= 0) this.frameOf(pen, maps, this.compared, [5, 3], 2);
    if (this.selected >= 0) this.frameOf(pen, maps, this.selected, [], 2);
    pen.restore();
    if (this.step !== null && this.step !== undefined) this.drawStep(pen, look, maps);
    this.root.dataset.selected = this.selected >= 0 ? plan.ids.at(this.selected) : "";
    this.root.dataset.compared = this.compared >= 0 ? plan.ids.at(this.compared) : "";
  },

  /** A black frame with a white halo, so that it shows on every colour and on either theme; never smaller than it can be seen. */
  frameOf(pen, maps, row, dash, width) {
    if (!this.shownArenas()[this.plan.arena[row]]) return;
    let [x0, y0, x1, y1] = this.clipped(maps.box(this.plan.birth[row], this.plan.death[row], this.scene.v0[row], this.scene.v1[row]));
    if (x1 < x0 || y1 < y0) return;
    if (x1 - x0 < 5) { const c = (x0 + x1) / 2; x0 = c - 2.5; x1 = c + 2.5; }
    if (y1 - y0 < 5) { const c = (y0 + y1) / 2; y0 = c - 2.5; y1 = c + 2.5; }
    const at = [Math.round(x0), Math.round(y0), Math.round(x1 - x0), Math.round(y1 - y0)];
    pen.setLineDash([]);
    pen.strokeStyle = "rgba(255,255,255,0.9)";
    pen.lineWidth = width + 2;
    pen.strokeRect(...at);
    pen.setLineDash(dash);
    pen.strokeStyle = "#000";
    pen.lineWidth = width;
    pen.strokeRect(...at);
    pen.setLineDash([]);
  },

  /** Hand-offs of the selected tensor: a line from the giver's end to the taker's beginning. */
  drawHandoffs(pen, look, maps) {
    for (const [step, from, to] of this.plan.handoffs) {
      if (from !== this.selected && to !== this.selected) continue;
      const middle = (row) => maps.space((this.scene.v0[row] + this.scene.v1[row]) / 2), t = maps.time(step);
      const down = this.state.transposed, a = middle(from), b = middle(to);
      pen.strokeStyle = look.line;
      pen.lineWidth = 1.5;
      pen.beginPath();
      if (down) { pen.moveTo(a, t - 6); pen.lineTo(b, t + 6); } else { pen.moveTo(t - 6, a); pen.lineTo(t + 6, b); }
      pen.stroke();
      pen.beginPath();
      pen.arc(down ? b : t + 6, down ? t + 6 : b, 3, 0, 7);
      pen.fillStyle = look.line;
      pen.fill();
    }
  },

  drawStep(pen, look, maps) {
    const { plot: p, plan, strip } = this, down = this.state.transposed, at = maps.time(this.step + 0.5);
    const low = down ? p.y : p.x, high = low + (down ? p.h : p.w);
    if (at < low || at > high) return;
    pen.strokeStyle = "#fff";
    pen.lineWidth = 3;
    const line = () => {
      pen.beginPath();
      if (down) { pen.moveTo(p.x, at); pen.lineTo(strip ? strip.x + strip.w : p.x + p.w, at); } else { pen.moveTo(at, strip ? strip.y : p.y); pen.lineTo(at, p.y + p.h); }
      pen.stroke();
    };
    line();
    pen.strokeStyle = "#000";
    pen.lineWidth = 1.5;
    line();
    const arena = plan.arenas[this.curve];
    const text = `${stepName(this.step, shortened(plan.nodes.at(this.step), 30))}${arena ? ` · ${shortBytes(arena.rawLive[this.step] ?? 0)} live in ${arena.name}` : ""}`;
    pen.font = look.font;
    const width = pen.measureText(text).width + 10;
    const x = down ? p.x + 4 : Math.max(p.x, Math.min(p.x + p.w - width, at + 4)), y = down ? Math.max(p.y, at - 20) : (strip ? strip.y : p.y) + 1;
    pen.fillStyle = "#111";
    pen.fillRect(x, y, width, 17);
    pen.fillStyle = "#fff";
    pen.textAlign = "left";
    pen.textBaseline = "middle";
    pen.fillText(text, x + 5, y + 9);
  },

  // --- picking ---------------------------------------------------------------------------------------------------------

  /**
   * The row under a pixel of the stage, −1 where there is none. Boxes are tested exactly, so that one among thousands in a
   * pixel can be meant once one zooms; within three pixels the nearest counts, and inside several the smallest.
   */
  pick(x, y) {
    const { plan, plot: p, scene: s } = this;
    if (x < p.x || x > p.x + p.w || y < p.y || y > p.y + p.h) return -1;
    const { t, v } = this.dataAt(x, y), { kt, kv } = this.maps(), seen = this.shownArenas();
    const reachT = 3 / kt, reachV = 3 / kv, { birth, death, arena } = plan, { v0, v1 } = s;
    let best = -1, nearest = Infinity, smallest = Infinity;
    for (let i = 0; i < plan.n; i++) {
      if (t < birth[i] - reachT || t > death[i] + reachT || v < v0[i] - reachV || v > v1[i] + reachV || !seen[arena[i]]) continue;
      const dt = Math.max(birth[i] - t, 0, t - death[i]) * kt, dv = Math.max(v0[i] - v, 0, v - v1[i]) * kv;
      const far = dt * dt + dv * dv, area = (v1[i] - v0[i]) * (death[i] - birth[i]);
      if (far < nearest || (far === nearest && area < smallest)) { best = i; nearest = far; smallest = area; }
    }
    return best;
  },

  /** The middle of what is visible of a tensor, in pixels of the page; null where it cannot be seen. For tests and tours. */
  pixelOf(id) {
    const row = this.plan ? this.plan.rowOf(id) : -1;
    if (row < 0 || !this.win || !this.shownArenas()[this.plan.arena[row]]) return null;
    const [x0, y0, x1, y1] = this.clipped(this.maps().box(this.plan.birth[row], this.plan.death[row], this.scene.v0[row], this.scene.v1[row]));
    if (x1 < x0 || y1 < y0) return null;
    const box = this.stage.getBoundingClientRect();
    return { x: box.left + (x0 + x1) / 2, y: box.top + (y0 + y1) / 2 };
  },

  at(event) {
    const box = this.stage.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  },

  // --- the pointer -------------------------------------------------------------------------------------------------------

  onMove(event) {
    if (!this.plan || !this.win) return;
    const [x, y] = this.at(event);
    if (this.fingers?.has(event.pointerId)) this.fingers.set(event.pointerId, [x, y]);
    if (this.pinch) return this.onPinch();
    if (this.drag) {
      const d = this.drag;
      if (!d.moved && Math.hypot(x - d.x, y - d.y) < 4) return;
      d.moved = true;
      const down = this.state.transposed, { kt, kv } = this.maps();
      const along = (down ? y - d.y : x - d.x) / kt, across = ((down ? x - d.x : y - d.y) / kv) * (down || this.scene.down ? 1 : -1);
      Object.assign(this.win, { t0: d.win.t0 - along, t1: d.win.t1 - along, v0: d.win.v0 - across, v1: d.win.v1 - across });
      this.tip.hidden = true;
      this.moved();
      return;
    }
    this.pointer = [x, y];
    if (this.hovering) return;
    this.hovering = requestAnimationFrame(() => {
      this.hovering = null;
      const row = this.pick(...this.pointer);
      if (row !== this.hovered || this.tip.hidden !== row < 0) { this.hovered = row; this.soon("over"); this.fillTip(row); }
      this.placeTip(...this.pointer);
    });
  },

  onDown(event) {
    if (event.button !== 0 || !this.win) return;
    this.stage.focus({ preventScroll: true });
    this.root.classList.remove("keyed"); // the ring is for those who came by keyboard
    const [x, y] = this.at(event);
    this.stage.setPointerCapture(event.pointerId);
    (this.fingers ??= new Map()).set(event.pointerId, [x, y]);
    if (this.fingers.size === 2) return this.beginPinch();
    this.drag = { x, y, win: { ...this.win }, moved: false };
  },

  /** Two fingers: apart zooms in, together out, about what lies between them; in steps or in v alone where they lie along one axis. */
  beginPinch() {
    const { middle, apart, along, across } = this.spread();
    const upright = across > 2 * along, level = along > 2 * across, down = this.state.transposed;
    this.pinch = { win: { ...this.win }, apart: Math.max(20, apart), under: this.dataAt(...middle), time: down ? !level : !upright, space: down ? !upright : !level };
    this.drag = null;
  },

  onPinch() {
    const { middle, apart } = this.spread(), { win, under, time, space, apart: before } = this.pinch, factor = before / Math.max(20, apart);
    const { t, v } = under;
    Object.assign(this.win, win);
    if (time) Object.assign(this.win, { t0: t + (win.t0 - t) * factor, t1: t + (win.t1 - t) * factor });
    if (space) Object.assign(this.win, { v0: v + (win.v0 - v) * factor, v1: v + (win.v1 - v) * factor });
    const now = this.dataAt(...middle), w = this.win;
    Object.assign(w, { t0: w.t0 + t - now.t, t1: w.t1 + t - now.t, v0: w.v0 + v - now.v, v1: w.v1 + v - now.v });
    this.moved();
  },

  /** The middle of two fingers, and how far they are apart: in all, along x, along y. */
  spread() {
    const [[x0, y0], [x1, y1]] = this.fingers.values();
    return { middle: [(x0 + x1) / 2, (y0 + y1) / 2], apart: Math.hypot(x1 - x0, y1 - y0), along: Math.abs(x1 - x0), across: Math.abs(y1 - y0) };
  },

  /** A finger leaves; one that stays after a pinch goes on panning, and its end is no click. */
  letGo(event) {
    this.fingers?.delete(event.pointerId);
    const drag = this.drag, pinched = this.pinch, rest = this.fingers?.values().next().value;
    this.drag = this.pinch = null;
    if (pinched && rest) this.drag = { x: rest[0], y: rest[1], win: { ...this.win }, moved: true };
    return drag;
  },

  onUp(event) {
    const [x, y] = this.at(event), drag = this.letGo(event);
    if (!drag || drag.moved) return;
    const q = this.strip;
    if (q && x >= q.x && x <= q.x + q.w && y >= q.y && y <= q.y + q.h) {
      const t = Math.floor(this.dataAt(x, y).t);
      this.goStep(t, true);
      return;
    }
    const row = this.pick(x, y);
    if (event.shiftKey) { if (row >= 0 && row !== this.selected) this.compare(row); } else if (row >= 0) this.select(row, "click");
  },

  onWheel(event) {
    if (!this.win) return;
    event.preventDefault();
    const [x, y] = this.at(event), p = this.plot, lines = event.deltaMode === 1 ? 16 : 1;
    const delta = (event.deltaY || event.deltaX) * lines, factor = Math.exp(Math.max(-300, Math.min(300, delta)) * 0.0018);
    const cx = Math.max(p.x, Math.min(p.x + p.w, x)), cy = Math.max(p.y, Math.min(p.y + p.h, y));
    const inStrip = this.strip && (this.state.transposed ? x > p.x + p.w : y < p.y);
    const onTime = this.state.transposed ? x < p.x : y > p.y + p.h, onSpace = this.state.transposed ? y > p.y + p.h : x < p.x;
    this.zoom(factor, this.dataAt(cx, cy), !onSpace && !event.altKey, !onTime && !inStrip && !event.shiftKey);
  },

  zoom(factor, { t, v }, time, space) {
    const w = this.win;
    if (time) Object.assign(w, { t0: t + (w.t0 - t) * factor, t1: t + (w.t1 - t) * factor });
    if (space) Object.assign(w, { v0: v + (w.v0 - v) * factor, v1: v + (w.v1 - v) * factor });
    this.moved();
  },

  /** Keep the window inside the data, neither wider than everything nor narrower than a step or a unit of v. */
  clamp() {
    const { win: w, full: f } = this;
    const hold = (a, b, least) => {
      const span = Math.min(f[b] - f[a], Math.max(least, w[b] - w[a]));
      const middle = (w[a] + w[b]) / 2, low = Math.min(f[b] - span, Math.max(f[a], middle - span / 2));
      w[a] = low;
      w[b] = low + span;
    };
    hold("t0", "t1", Math.min(2, f.t1));
    hold("v0", "v1", Math.min(f.v1, this.scene.view === "map" ? 64 : 2));
    // One finger moves the page up and down as long as the whole height is seen; after zooming in it moves the picture.
    const [low, high] = this.state.transposed ? ["t0", "t1"] : ["v0", "v1"];
    this.stage.style.touchAction = w[high] - w[low] < (f[high] - f[low]) * 0.999 ? "none" : "pan-y";
  },

  moved(quiet = false) {
    this.clamp();
    this.soon("base");
    this.tip.hidden = true;
    if (quiet) return;
    this.share({ window: [this.win.t0, this.win.t1] });
    if (this.state.report_window) this.tellSoon("window", [Math.max(0, Math.floor(this.win.t0)), Math.min(this.plan.steps, Math.ceil(this.win.t1))], 300);
  },

  fit() {
    if (!this.full) return;
    this.win = { ...this.full };
    this.moved();
  },

  // --- selecting ---------------------------------------------------------------------------------------------------------

  select(row, how) {
    this.selected = row;
    const id = row >= 0 ? this.plan.ids.at(row) : null;
    if (row < 0) { this.compared = -1; this.state.compared = null; }
    this.state.selected = id;
    (this.sent ??= []).push(id);
    if (how !== "click") this.tip.hidden = true;
    if (how !== "click" && row >= 0) this.reveal(row);
    this.live.textContent = row >= 0 ? this.lines(row).map(([a, b]) => `${a} ${b}`).join(", ") : "selection cleared";
    this.share({ selected: id });
    this.emit("select", { id, row, how });
    this.soon("over");
  },

  compare(row) {
    this.compared = row;
    this.state.compared = this.plan.ids.at(row);
    this.share({ compared: this.state.compared });
    this.emit("compare", { id: this.state.compared, row });
    this.soon("over");
  },

  /** Bring a row into the window without changing how far one has zoomed. */
  reveal(row, quiet = false) {
    const { win: w, plan, scene: s } = this;
    const bring = (a, b, low, high) => {
      const span = w[b] - w[a];
      if (high > w[a] && low < w[b]) return;
      const middle = (low + high) / 2;
      w[a] = middle - span / 2;
      w[b] = middle + span / 2;
    };
    bring("t0", "t1", plan.birth[row], plan.death[row]);
    bring("v0", "v1", s.v0[row], s.v1[row]);
    this.moved(quiet);
  },

  goStep(step, tell) {
    const t = Math.max(0, Math.min(this.plan.steps - 1, step)), w = this.win, span = w.t1 - w.t0;
    this.step = this.state.step = t;
    if (t < w.t0 || t + 1 > w.t1) { w.t0 = t + 0.5 - span / 2; w.t1 = w.t0 + span; this.moved(); }
    this.share({ step: t });
    if (tell) this.tellSoon("step", t, 150);
    this.soon("over");
  },

  toPeak() {
    const arena = this.plan?.arenas[this.curve];
    if (arena) this.goStep(arena.peak_step, true);
  },

  /** The next tensor alive at the chosen step (or anywhere, where none is chosen), in the order of v. */
  neighbour(direction) {
    const { plan, scene: s } = this, seen = this.shownArenas(), step = this.step ?? null;
    const here = this.selected, from = here >= 0 ? s.v0[here] : direction > 0 ? -Infinity : Infinity;
    let best = -1;
    for (let i = 0; i < plan.n; i++) {
      if (i === here || !seen[plan.arena[i]] || (step !== null && !(plan.birth[i] <= step && step < plan.death[i]))) continue;
      if (step === null && here >= 0 && !(plan.birth[i] < plan.death[here] && plan.birth[here] < plan.death[i])) continue;
      const past = direction > 0 ? s.v0[i] > from || (s.v0[i] === from && i > here) : s.v0[i] < from || (s.v0[i] === from && i < here);
      if (!past) continue;
      if (best < 0 || (direction > 0 ? s.v0[i] < s.v0[best] || (s.v0[i] === s.v0[best] && i < best) : s.v0[i] > s.v0[best] || (s.v0[i] === s.v0[best] && i > best))) best = i;
    }
    if (best >= 0) this.select(best, "arrow");
  },

  walkSlot(direction) {
    if (this.selected < 0) return;
    const root = this.plan.baseOf.get(this.selected) ?? this.selected, tenants = this.plan.tenants(root);
    const next = tenants[tenants.indexOf(root) + direction];
    if (next !== undefined) this.select(next, "slot");
  },

  onKey(event) {
    if (!this.win || event.ctrlKey || event.metaKey || event.altKey) return;
    const up = this.scene.down || this.state.transposed ? -1 : 1, far = event.shiftKey ? 10 : 1;
    const now = this.step ?? (this.selected >= 0 ? this.plan.birth[this.selected] : Math.floor((this.win.t0 + this.win.t1) / 2));
    const middle = { t: (this.win.t0 + this.win.t1) / 2, v: (this.win.v0 + this.win.v1) / 2 };
    const actions = {
      Escape: () => { this.step = this.state.step = null; this.share({ step: null }); this.tellSoon("step", null, 0); this.select(-1, "clear"); },
      "/": () => (this.state.toolbar ? this.find.focus() : this.emit("focus_search", true)),
      Enter: () => this.nextHit(event.shiftKey ? -1 : 1),
      p: () => this.toPeak(), t: () => this.choose("transposed", !this.state.transposed), f: () => this.fit(), 0: () => this.fit(),
      "[": () => this.walkSlot(-1), "]": () => this.walkSlot(1),
      "+": () => this.zoom(1 / 1.4, middle, true, true), "=": () => this.zoom(1 / 1.4, middle, true, true), "-": () => this.zoom(1.4, middle, true, true),
      ArrowLeft: () => (this.state.transposed ? this.neighbour(-1) : this.goStep(now - far, true)),
      ArrowRight: () => (this.state.transposed ? this.neighbour(1) : this.goStep(now + far, true)),
      ArrowUp: () => (this.state.transposed ? this.goStep(now - far, true) : this.neighbour(up)),
      ArrowDown: () => (this.state.transposed ? this.goStep(now + far, true) : this.neighbour(-up)),
    };
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    event.stopPropagation();
    action();
  },

  // --- searching -----------------------------------------------------------------------------------------------------------

  /** Finds tensors whose id holds the text, or whose writing node does, or else those that the page marks; the rest is
   * dimmed, not hidden. */
  search() {
    const text = this.state.search ?? "", { plan } = this;
    this.hits = this.hitRows = null;
    if (text) {
      const hits = new Uint8Array(plan.n), nodes = new Uint8Array(plan.steps);
      plan.ids.find(text, hits);
      plan.nodes.find(text, nodes);
      for (let i = 0; i < plan.n; i++) if (nodes[plan.birth[i]] && plan.death[i] - plan.birth[i] < plan.steps) hits[i] = 1;
      this.hits = hits;
      this.hitRows = plan.byBirth().filter((row) => hits[row]);
    } else if (this.state.marked?.length) {
      const hits = (this.hits = new Uint8Array(plan.n));
      for (const row of this.state.marked) if (row < plan.n) hits[row] = 1;
      this.hitRows = plan.byBirth().filter((row) => hits[row]);
    }
    this.count.textContent = this.hitRows ? `${grouped(this.hitRows.length)} ${text ? "found" : "marked"}` : "";
    this.root.dataset.hits = this.hitRows ? this.hitRows.length : "";
    this.soon("base");
  },

  nextHit(direction) {
    const rows = this.hitRows;
    if (!rows?.length) return;
    const at = rows.indexOf(this.selected);
    const next = at < 0 ? (direction > 0 ? 0 : rows.length - 1) : (at + direction + rows.length) % rows.length;
    this.select(rows[next], "search");
    this.count.textContent = `${grouped(next + 1)} of ${grouped(rows.length)} found`;
  },

  // --- telling -----------------------------------------------------------------------------------------------------------------

  tellSoon(event, value, wait) {
    clearTimeout((this.timers ??= {})[event]);
    this.timers[event] = setTimeout(() => this.emit(event, value), wait);
  },

  /** Charts of the same link follow at once, without a trip to the server. */
  share(part) {
    if (!this.state.link) return;
    for (const chart of charts) {
      if (chart === this || chart.state.link !== this.state.link || !chart.win) continue;
      if ("window" in part) { [chart.win.t0, chart.win.t1] = part.window; chart.moved(true); }
      if ("selected" in part) { chart.state.selected = part.selected; chart.selected = chart.rowOf(part.selected); if (chart.selected >= 0) chart.soon("over"); }
      if ("compared" in part) { chart.state.compared = part.compared; chart.compared = chart.rowOf(part.compared); }
      if ("step" in part) chart.step = chart.state.step = part.step;
      chart.soon("over");
    }
  },
});
