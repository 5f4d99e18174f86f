// Input for a chart: hover, click, drag, wheel and keys.

import { contains } from "../base/plane.js";
import { Input } from "./drawing.js";

export class ChartInput extends Input {
  constructor(chart) {
    super(chart);
    const { stage, searchField } = chart;
    stage.addEventListener("dblclick", () => chart.fit());
    searchField.addEventListener("input", () => this.onSearch(300));
    searchField.addEventListener("keydown", (event) => {
      event.stopPropagation();
      if (event.key === "Enter") {
        event.preventDefault();
        chart.nextHit(event.shiftKey ? -1 : 1);
      } else if (event.key === "Escape") {
        searchField.value = "";
        this.onSearch(0);
        stage.focus();
      }
    });
  }

  hover(point) {
    const { chart } = this, row = point ? chart.pick(...point) : -1;
    if (row !== chart.hovered || chart.tip.hidden !== row < 0) {
      chart.hovered = row;
      chart.scheduleDraw("over");
      chart.fillTip(row < 0 ? null : chart.lines(row));
    }
    if (point) chart.placeTip(point);
  }

  /** In the strip, start a range of steps, whose end the drag moves. Elsewhere, the drag moves the picture. */
  press([x, y]) {
    this.spanStart = this.isInStrip(x, y) ? this.chart.plane.at(x, y).t : null;
  }

  isInStrip(x, y) {
    return this.chart.strip && contains(this.chart.strip, x, y);
  }

  drag([x, y], last) {
    const { chart, spanStart } = this, { plane } = chart;
    if (spanStart !== null) {
      const ends = [spanStart, plane.at(x, y).t], end = Math.min(chart.plan.steps, Math.ceil(Math.max(...ends)));
      chart.state.span = [Math.max(0, Math.floor(Math.min(...ends))), end];
      chart.scheduleDraw("over");
    } else chart.pan(plane.delta(x - last[0], y - last[1]));
  }

  drop() {
    if (this.spanStart !== null) this.chart.setAndSend("span", this.chart.state.span);
    this.spanStart = null;
  }

  click([x, y], event) {
    const { chart } = this;
    if (this.spanStart !== null) {
      if (chart.state.span) chart.setAndSend("span", null);
      chart.goStep(Math.floor(chart.plane.at(x, y).t));
      return;
    }
    const centre = chart.overview.at(x, y), row = chart.pick(x, y), { t0, t1, v0, v1 } = chart.win;
    if (centre) chart.pan({ t: (t0 + t1) / 2 - centre.t, v: (v0 + v1) / 2 - centre.v });
    if (row < 0) return;
    if (!event.shiftKey) chart.select(row, "click");
    else if (row !== chart.selected) chart.set({ compared: chart.plan.id(row) });
  }

  /** Zoom at the pointer. Shift, the step axis and the strip zoom only the steps; alt and the v axis zoom only v. */
  wheel(factor, [x, y], event) {
    const { chart } = this, { plot, plane } = chart;
    const cx = Math.max(plot.x, Math.min(plot.x + plot.w, x)), cy = Math.max(plot.y, Math.min(plot.y + plot.h, y));
    const [isOnStepAxis, isOnLevelAxis] = plane.swappedIfSideways(y > plot.y + plot.h, x < plot.x);
    const levels = !isOnStepAxis && !event.shiftKey && !this.isInStrip(x, y);
    chart.zoom(1 / factor, plane.at(cx, cy), { steps: !isOnLevelAxis && !event.altKey, levels });
  }

  keys({ shiftKey }) {
    const { chart } = this, { win, state } = chart, stepsPerKey = shiftKey ? 10 : 1;
    if (!win) return {}; // nothing is drawn yet
    const middle = { t: (win.t0 + win.t1) / 2, v: (win.v0 + win.v1) / 2 };
    const zoom = (factor) => chart.zoom(factor, middle, { steps: true, levels: true });
    const fit = () => chart.fit(), zoomIn = () => zoom(1 / 1.4);
    const back = () => this.moveStep(-stepsPerKey), forward = () => this.moveStep(stepsPerKey);
    return {
      Escape: () => chart.clear(),
      ...(state.toolbar && { "/": () => chart.searchField.focus() }),
      Enter: () => chart.nextHit(shiftKey ? -1 : 1),
      p: () => chart.toPeak(),
      t: () => chart.choose("transposed", !state.transposed),
      f: fit, 0: fit,
      "[": () => chart.selectInSlot(-1),
      "]": () => chart.selectInSlot(1),
      "+": zoomIn, "=": zoomIn, "-": () => zoom(1.4),
      ArrowLeft: back, ArrowUp: back, ArrowRight: forward, ArrowDown: forward,
    };
  }

  moveStep(steps) {
    const { win, selected, plan, state } = this.chart;
    const defaultStep = selected >= 0 ? plan.birth[selected] : Math.floor((win.t0 + win.t1) / 2);
    this.chart.goStep((state.step ?? defaultStep) + steps);
  }

  onSearch(wait) {
    const { chart } = this;
    chart.apply({ search: chart.searchField.value });
    chart.send("search", chart.searchField.value.trim(), wait);
  }
}
