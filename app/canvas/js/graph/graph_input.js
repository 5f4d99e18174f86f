// Input for the graph drawing: drag, pinch, wheel, click, hover and keys.

import { el } from "../chart/element.js";

const STILL = 4; // pixels of movement that still count as a click

export class GraphInput {
  constructor(chart) {
    this.chart = chart;
    this.down = new Map(); // pointer → [x, y]
    const { stage } = chart;
    const on = (name, action) => stage.addEventListener(name, action.bind(this), { passive: false });
    on("pointerdown", this.press);
    on("pointermove", this.move);
    on("pointerup", this.release);
    on("pointercancel", this.release);
    on("pointerleave", () => this.hover(null));
    on("wheel", this.wheel);
    on("dblclick", this.twice);
    on("keydown", this.key);
    stage.style.touchAction = "none";
  }

  point(event) {
    const rect = this.chart.stage.getBoundingClientRect();
    return [event.clientX - rect.x, event.clientY - rect.y];
  }

  press(event) {
    if (event.button) return;
    this.down.set(event.pointerId, this.point(event));
    this.began = this.point(event);
    this.moved = false;
    this.chart.stage.setPointerCapture(event.pointerId);
    this.chart.root.classList.remove("keyed");
  }

  move(event) {
    const now = this.point(event), last = this.down.get(event.pointerId), { chart } = this;
    if (!last) return this.hover(chart.at(...now), now);
    const other = [...this.down].find(([id]) => id !== event.pointerId)?.[1];
    this.moved ||= other !== undefined || distance(now, this.began) > STILL;
    if (!this.moved) return undefined;
    this.down.set(event.pointerId, now);
    if (other) {
      const factor = distance(now, other) / Math.max(1, distance(last, other));
      return chart.zoom(factor, (now[0] + other[0]) / 2, (now[1] + other[1]) / 2);
    }
    chart.view = { ...chart.view, x: chart.view.x + now[0] - last[0], y: chart.view.y + now[1] - last[1] };
    this.hover(null);
    return chart.paint();
  }

  release(event) {
    const wasDown = this.down.delete(event.pointerId);
    if (wasDown && !this.moved && event.type === "pointerup") this.chart.act(this.chart.at(...this.point(event)));
  }

  wheel(event) {
    event.preventDefault();
    const step = event.deltaMode ? event.deltaY * 30 : event.deltaY;
    this.chart.zoom(Math.exp(-step / 500), ...this.point(event));
  }

  twice(event) {
    if (!this.chart.at(...this.point(event))) this.chart.fit();
  }

  hover(found, at = [0, 0]) {
    const { chart } = this, { tip, stage } = chart, same = JSON.stringify(found) === JSON.stringify(chart.under);
    if (!same) {
      chart.under = found;
      tip.hidden = !found;
      stage.style.cursor = found ? "pointer" : "grab";
      if (found) tip.replaceChildren(...tipOf(chart.data, found));
      chart.paint();
    }
    if (!found) return;
    const left = Math.min(at[0] + 14, stage.clientWidth - tip.offsetWidth - 4);
    tip.style.left = `${Math.max(0, left)}px`;
    const below = at[1] + 18, above = at[1] - tip.offsetHeight - 10;
    tip.style.top = `${below + tip.offsetHeight > stage.clientHeight ? above : below}px`;
  }

  key(event) {
    const { chart } = this, { marks } = chart.data ?? { marks: {} };
    if (event.ctrlKey || event.metaKey || event.altKey || !chart.layout) return;
    const action = {
      ArrowDown: () => this.along(0, 1),
      ArrowUp: () => this.along(1, 0),
      ArrowRight: () => this.beside(1),
      ArrowLeft: () => this.beside(-1),
      Enter: () => chart.act(chart.cursor >= 0 ? { vertex: chart.cursor } : null),
      " ": () => chart.act(chart.cursor >= 0 ? { vertex: chart.cursor } : null),
      Backspace: () => this.closeAround(),
      Escape: () => chart.emit("select", ""),
      "+": () => chart.zoom(1.3),
      "=": () => chart.zoom(1.3),
      "-": () => chart.zoom(1 / 1.3),
      0: () => chart.fit(),
      s: () => chart.goTo(marks.selected),
      p: () => chart.goTo(marks.peak),
    }[event.key];
    if (!action) return;
    event.preventDefault();
    chart.root.classList.add("keyed");
    action();
  }

  /** Move the cursor along an edge from its end `from` (0: source, 1: target) to its end `to`, to the nearest box. */
  along(from, to) {
    const { chart } = this, here = this.here();
    const ends = chart.data.edges.filter((edge) => edge[from] === here).map((edge) => edge[to]);
    this.moveCursor(nearest(chart.layout.boxes, here, ends), "no box in this direction");
  }

  /** Move the cursor to the nearest box on the left (way −1) or right (way 1) at about the same height. */
  beside(way) {
    const { chart } = this, here = this.here(), { boxes } = chart.layout, [x, y, w, h] = boxes[here];
    const level = boxes.map((_, k) => k).filter((k) => {
      const [bx, by, bw, bh] = boxes[k];
      return k !== here && by < y + h && by + bh > y && way * (bx + bw / 2 - x - w / 2) > 0;
    });
    this.moveCursor(nearest(boxes, here, level), "no box on this side");
  }

  here() {
    const { marks, vertices } = this.chart.data, { cursor } = this.chart;
    return [cursor, marks.selected, marks.peak, 0].find((k) => k >= 0 && k < vertices.length) ?? 0;
  }

  /** Move the cursor to a box; for −1 keep the cursor and announce the text `otherwise`. */
  moveCursor(vertex, otherwise) {
    const { chart } = this, before = chart.cursor;
    chart.cursor = vertex >= 0 ? vertex : this.here();
    chart.live.textContent = vertex >= 0 || before < 0 ? describe(chart.data, chart.cursor) : otherwise;
    const [x, y, w, h] = chart.layout.boxes[chart.cursor], { view, stage } = chart;
    const left = view.x + x * view.scale, top = view.y + y * view.scale;
    const right = left + w * view.scale, bottom = top + h * view.scale;
    const out = left < 0 || top < 0 || right > stage.clientWidth || bottom > stage.clientHeight;
    if (out) chart.centre(chart.layout.boxes[chart.cursor]);
    chart.paint();
  }

  closeAround() {
    const { chart } = this, { vertices, levels } = chart.data;
    const frame = levels.findIndex(([number]) => number === vertices[this.here()].level);
    if (frame >= 0) chart.act({ frame });
  }
}

const distance = ([x0, y0], [x1, y1]) => Math.hypot(x1 - x0, y1 - y0);
const middle = ([x, y, w, h]) => [x + w / 2, y + h / 2];

/** Return the box among `candidates` whose middle is nearest to the middle of the box `here`; −1 for no candidate. */
function nearest(boxes, here, candidates) {
  const far = (k) => distance(middle(boxes[k]), middle(boxes[here]));
  return candidates.reduce((best, k) => (best < 0 || far(k) < far(best) ? k : best), -1);
}

const describe = ({ vertices }, k) => [vertices[k].name, ...vertices[k].tip.map((pair) => pair.join(" "))].join(", ");

/** Return the elements of the tooltip of an item. Names from files become text, never HTML. */
function tipOf({ vertices, edges, levels }, { vertex, edge, frame }) {
  let [title, rows] = frame >= 0 ? [levels[frame][2], [["open", "click to close"]]] : [];
  if (vertex >= 0) [title, rows] = [vertices[vertex].name, vertices[vertex].tip];
  if (edge >= 0) [title, rows] = [edges[edge][2], edges[edge][3]];
  return [
    el("b", {}, title),
    ...rows.flatMap(([head, text]) => [el("span", { class: "head" }, head), el("span", {}, text)]),
  ];
}
