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
    this.chart.scheduleDraw("base");
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
      chart.scheduleDraw("base");
    }
    if (point) chart.placeTip(point);
  }

  keys() {
    const { chart } = this, { marks } = chart.data, zoomIn = () => chart.zoom(1.3);
    return {
      Escape: () => chart.emit("select", ""),
      "+": zoomIn, "=": zoomIn, "-": () => chart.zoom(1 / 1.3),
      0: () => chart.fit(),
      s: () => chart.goTo(marks.selected),
      p: () => chart.goTo(marks.peak),
    };
  }
}

function tipOf({ vertices, levels }, { vertex, frame }) {
  if (vertex >= 0) return [["", vertices[vertex].name], ...vertices[vertex].tip];
  return [["", levels[frame][2]], ["open", "click to close"]];
}
