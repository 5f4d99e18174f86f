// Input for the graph drawing: drag, wheel, click, hover and keys.

import { Input } from "../chart/input.js";

export class GraphInput extends Input {
  constructor(chart) {
    super(chart);
    chart.stage.addEventListener("dblclick", (event) => chart.itemAt(...chart.at(event)) ?? chart.fit());
    chart.stage.style.touchAction = "pinch-zoom";
  }

  drag(now, last) {
    const { view } = this.chart;
    view.x += now[0] - last[0];
    view.y += now[1] - last[1];
    this.highlight(null);
    this.chart.soon("base");
  }

  click(point) {
    this.chart.act(this.chart.itemAt(...point));
  }

  hover(point) {
    this.highlight(point && this.chart.itemAt(...point), point);
  }

  wheel(factor, point) {
    this.chart.zoom(factor, ...point);
  }

  /** Highlight an item and show its tooltip at the point [x, y]; for null, remove highlight and tooltip. */
  highlight(item, point) {
    const { chart } = this;
    if (JSON.stringify(item) !== JSON.stringify(chart.hovered)) {
      chart.hovered = item;
      chart.stage.style.cursor = item ? "pointer" : "grab";
      chart.fillTip(item && tipOf(chart.data, item));
      chart.soon("base");
    }
    if (point) chart.placeTip(point);
  }

  keys() {
    const { chart } = this, { marks } = chart.data;
    return {
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
    };
  }

  /** Move the cursor along the edge to the nearest box. `from` and `to`: ends of the edge (0: source, 1: target). */
  along(from, to) {
    const { chart } = this, here = this.cursorOrStart();
    const ends = chart.data.edges.filter((edge) => edge[from] === here).map((edge) => edge[to]);
    this.moveCursor(nearest(chart.layout.boxes, here, ends), "no box in this direction");
  }

  /** Move the cursor to the nearest box on the left (−1) or right (1) of its box, at an overlapping height. */
  beside(direction) {
    const { boxes } = this.chart.layout, here = this.cursorOrStart(), [x, y, w, h] = boxes[here];
    const candidates = [...boxes.keys()].filter((k) => {
      const [bx, by, bw, bh] = boxes[k];
      return by < y + h && by + bh > y && direction * (bx + bw / 2 - x - w / 2) > 0;
    });
    this.moveCursor(nearest(boxes, here, candidates), "no box on this side");
  }

  /** Return the vertex at the cursor or, without a cursor, the selection, the peak or the first vertex. */
  cursorOrStart() {
    const { marks, vertices } = this.chart.data, { cursor } = this.chart;
    return [cursor, marks.selected, marks.peak, 0].find((k) => k >= 0 && k < vertices.length);
  }

  /** Move the cursor to a vertex and announce the vertex; −1: announce `notFound`, or begin at cursorOrStart(). */
  moveCursor(vertex, notFound) {
    const { chart } = this, isUnchanged = vertex < 0 && chart.cursor >= 0;
    chart.cursor = vertex >= 0 ? vertex : this.cursorOrStart();
    const lines = tipOf(chart.data, { vertex: chart.cursor }).map((pair) => pair.join(" ").trim());
    chart.live.textContent = isUnchanged ? notFound : lines.join(", ");
    const box = chart.layout.boxes[chart.cursor], { view, stage } = chart;
    const left = view.x + box[0] * view.scale, top = view.y + box[1] * view.scale;
    const right = left + box[2] * view.scale, bottom = top + box[3] * view.scale;
    if (left < 0 || top < 0 || right > stage.clientWidth || bottom > stage.clientHeight) chart.centre(box);
    chart.soon("base");
  }

  closeAround() {
    const { chart } = this, { vertices, levels } = chart.data;
    const frame = levels.findIndex(([number]) => number === vertices[this.cursorOrStart()].level);
    if (frame >= 0) chart.act({ frame });
  }
}

const middle = ([x, y, w, h]) => [x + w / 2, y + h / 2];

/** Return the box among `candidates` whose middle is nearest to the middle of the box `here`; −1 for no candidate. */
function nearest(boxes, here, candidates) {
  const [x, y] = middle(boxes[here]);
  const distanceTo = (k) => Math.hypot(middle(boxes[k])[0] - x, middle(boxes[k])[1] - y);
  return candidates.reduce((best, k) => (best < 0 || distanceTo(k) < distanceTo(best) ? k : best), -1);
}

function tipOf({ vertices, edges, levels }, { vertex, edge, frame }) {
  if (vertex >= 0) return [["", vertices[vertex].name], ...vertices[vertex].tip];
  if (edge >= 0) return [["", edges[edge][2]], ...edges[edge][3]];
  return [["", levels[frame][2]], ["open", "click to close"]];
}
