// Input for the graph drawing: drag, pinch, wheel, click, hover and keys.

const CLICK_RADIUS = 4; // pixels that the pointer may move during a click

export class GraphInput {
  constructor(chart) {
    this.chart = chart;
    this.down = new Map(); // pressed pointer → [x, y]
    const { stage } = chart;
    const on = (name, action) => stage.addEventListener(name, action.bind(this), { passive: false });
    on("pointerdown", this.press);
    on("pointermove", this.move);
    on("pointerup", this.release);
    on("pointercancel", this.release);
    on("pointerleave", () => this.hover(null));
    on("wheel", this.wheel);
    on("dblclick", (event) => chart.itemAt(...chart.at(event)) ?? chart.fit());
    on("keydown", this.key);
    stage.style.touchAction = "none";
  }

  press(event) {
    if (event.button) return;
    this.began = this.chart.at(event);
    this.down.set(event.pointerId, this.began);
    this.moved = this.down.size > 1; // a tap with two fingers is no click
    this.chart.stage.setPointerCapture(event.pointerId);
  }

  /** Handle a movement: hover without a pressed pointer, drag with one, pinch with two. */
  move(event) {
    const now = this.chart.at(event), last = this.down.get(event.pointerId), { chart } = this;
    if (!last) {
      this.hover(chart.itemAt(...now), now);
      return;
    }
    const other = [...this.down].find(([id]) => id !== event.pointerId)?.[1];
    this.moved ||= distance(now, this.began) > CLICK_RADIUS;
    if (!this.moved) return;
    this.down.set(event.pointerId, now);
    const moves = other ? 2 : 1; // two fingers move their midpoint by half of the movement of each
    chart.view.x += (now[0] - last[0]) / moves;
    chart.view.y += (now[1] - last[1]) / moves;
    this.hover(null);
    const [x, y] = other ?? now, factor = other ? distance(now, other) / Math.max(1, distance(last, other)) : 1;
    chart.zoom(factor, (now[0] + x) / 2, (now[1] + y) / 2);
  }

  release(event) {
    const wasDown = this.down.delete(event.pointerId);
    if (wasDown && !this.moved && event.type === "pointerup") this.chart.act(this.chart.itemAt(...this.chart.at(event)));
  }

  wheel(event) {
    event.preventDefault();
    const step = event.deltaMode ? event.deltaY * 30 : event.deltaY;
    this.chart.zoom(Math.exp(-step / 500), ...this.chart.at(event));
  }

  /** Highlight an item and show its tooltip at the point [x, y]; for null, remove highlight and tooltip. */
  hover(item, point = [0, 0]) {
    const { chart } = this;
    if (JSON.stringify(item) !== JSON.stringify(chart.hovered)) {
      chart.hovered = item;
      chart.stage.style.cursor = item ? "pointer" : "grab";
      chart.fillTip(item && tipOf(chart.data, item));
      chart.soon("base");
    }
    chart.placeTip(point);
  }

  key(event) {
    const { chart } = this, { marks } = chart.data ?? { marks: {} };
    if (event.ctrlKey || event.metaKey || event.altKey || !chart.layout) return;
    const action = {
      ArrowDown: () => this.along(0, 1),
      ArrowUp: () => this.along(1, 0),
      ArrowRight: () => this.beside(1),
      ArrowLeft: () => this.beside(-1),
      Enter: () => chart.act({ vertex: chart.cursor }),
      " ": () => chart.act({ vertex: chart.cursor }),
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
    action();
  }

  /** Move the cursor along an edge from its end `from` (0: source, 1: target) to its end `to`, to the nearest box. */
  along(from, to) {
    const { chart } = this, here = this.here();
    const ends = chart.data.edges.filter((edge) => edge[from] === here).map((edge) => edge[to]);
    this.moveCursor(nearest(chart.layout.boxes, here, ends), "no box in this direction");
  }

  /** Move the cursor to the nearest box on the left (direction −1) or right (1) whose range of y overlaps. */
  beside(direction) {
    const { boxes } = this.chart.layout, here = this.here(), [x, y, w, h] = boxes[here];
    const candidates = [...boxes.keys()].filter((k) => {
      const [bx, by, bw, bh] = boxes[k];
      return by < y + h && by + bh > y && direction * (bx + bw / 2 - x - w / 2) > 0;
    });
    this.moveCursor(nearest(boxes, here, candidates), "no box on this side");
  }

  /** Return the box at the cursor; without a cursor, the selection, the peak or the first box. */
  here() {
    const { marks, vertices } = this.chart.data, { cursor } = this.chart;
    return [cursor, marks.selected, marks.peak, 0].find((k) => k >= 0 && k < vertices.length);
  }

  /** Move the cursor to a box and announce the box. For −1, announce the text `otherwise` and keep the cursor; without
   * a cursor, begin at here(). */
  moveCursor(vertex, otherwise) {
    const { chart } = this, isAtEnd = vertex < 0 && chart.cursor >= 0;
    chart.cursor = vertex >= 0 ? vertex : this.here();
    const lines = tipOf(chart.data, { vertex: chart.cursor }).map((pair) => pair.join(" ").trim());
    chart.live.textContent = isAtEnd ? otherwise : lines.join(", ");
    const box = chart.layout.boxes[chart.cursor], { view, stage } = chart;
    const left = view.x + box[0] * view.scale, top = view.y + box[1] * view.scale;
    const right = left + box[2] * view.scale, bottom = top + box[3] * view.scale;
    if (left < 0 || top < 0 || right > stage.clientWidth || bottom > stage.clientHeight) chart.centre(box);
    chart.soon("base");
  }

  /** Close the module that contains the cursor. */
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
  const distanceTo = (k) => distance(middle(boxes[k]), middle(boxes[here]));
  return candidates.reduce((best, k) => (best < 0 || distanceTo(k) < distanceTo(best) ? k : best), -1);
}

/** Return the tooltip of an item as [heading, text] pairs. */
function tipOf({ vertices, edges, levels }, { vertex, edge, frame }) {
  if (vertex >= 0) return [["", vertices[vertex].name], ...vertices[vertex].tip];
  if (edge >= 0) return [["", edges[edge][2]], ...edges[edge][3]];
  return [["", levels[frame][2]], ["open", "click to close"]];
}
