// The axes, and the strip of live bytes that shares the steps with the picture.

class Chart extends Picture {
  /** Ticks of both axes: {time: [[px, label]], space: [[px, label, line]]}. */
  ticks(pen, maps) {
    const { plan, win: w, scene: s, plot: p } = this, down = this.state.transposed;
    const time = [], space = [];
    let longest = 0;
    for (let k = 0; k < 24; k++) longest = Math.max(longest, plan.nodes.at(Math.floor(w.t0 + (k / 24) * (w.t1 - w.t0))).length);
    const room = down ? 22 : Math.min(132, Math.max(64, p.w / 14, 6.2 * (longest + grouped(plan.steps).length + 4)));
    const every = tens(room / maps.kt);
    for (let t = Math.max(0, Math.ceil(w.t0 / every - 1e-9) * every); t < Math.min(plan.steps, w.t1); t += every) {
      const px = maps.time(t + (maps.kt > 30 ? 0.5 : 0));
      if (px < (down ? p.y : p.x) - 1 || px > (down ? p.y + p.h : p.x + p.w) + 1) continue;
      time.push([px, stepName(t), plan.nodes.at(t)]);
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
          space.push([maps.space(band.base + k + 0.5), grouped(k), band]);
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
    const name = { lifetimes: "tensor, by birth", slots: plan.slotted ? "slot" : "storage", map: "offset" }[this.scene.view];
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
}
