// The picture: ground, boxes, views, names, lines, the baseline's outlines, and what is said below.

class Picture extends Frame {
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
        if (wide >= scale && high >= scale) continue; // drawn as views are
        a = (plan.aloneFrom.get(i) - w.t0) * st; // too thin for that: it shades what its base has left
        if (a >= b) continue;
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
      ? this.plan.slotted ? `${counted(arena.slots, "slot")} for ${counted(arena.storages, "storage")}` : `${counted(arena.storages, "storage")}, a row each: this planner fills no slots`
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
