// Input for a chart: hover, click, drag, pinch, wheel and keys.

import { contains } from "../base/plane.js";
import { Input } from "./input.js";

const preventPageZoom = (e) => e.touches.length > 1 && e.cancelable && e.preventDefault();

export class ChartInput extends Input {
  constructor(chart) {
    super(chart);
    const { stage, find } = chart;
    for (const type of ["touchstart", "touchmove"]) stage.addEventListener(type, preventPageZoom, { passive: false });
    stage.addEventListener("dblclick", () => chart.fit());
    find.addEventListener("input", () => this.onSearch(300));
    find.addEventListener("keydown", (e) => this.onSearchKey(e));
  }

  /** Update the hovered row and the tooltip. A browser sends at most one movement per frame. */
  hover(point) {
    const { chart } = this, row = point ? chart.pick(...point) : -1;
    if (row !== chart.hovered || chart.tip.hidden !== row < 0) {
      chart.hovered = row;
      chart.soon("over");
      chart.fillTip(row < 0 ? null : chart.lines(row));
    }
    if (point) chart.placeTip(point);
  }

  /** Begin to drag the ghost, a range of steps in the strip, or the picture. */
  press([x, y], { altKey }) {
    const { chart } = this;
    this.ghost = chart.draggedBox(x, y, altKey);
    this.span = this.isInStrip(x, y) ? [chart.plane.at(x, y).t] : null;
  }

  isInStrip(x, y) {
    return this.chart.strip && contains(this.chart.strip, x, y);
  }

  drag([x, y], last, began) {
    const { chart, span, ghost } = this, { plane } = chart;
    if (span) {
      const ends = [span[0], plane.at(x, y).t], end = Math.min(chart.plan.steps, Math.ceil(Math.max(...ends)));
      chart.state.span = [Math.max(0, Math.floor(Math.min(...ends))), end];
      chart.soon("over");
    } else if (ghost) chart.moveGhost(ghost, plane.delta(x - began[0], y - began[1]));
    else chart.pan(plane.delta(x - last[0], y - last[1]));
  }

  drop() {
    if (this.span) this.chart.goSpan(this.chart.state.span);
    this.span = null;
  }

  click([x, y], event) {
    const { chart } = this;
    if (this.span) {
      if (chart.state.span) chart.goSpan(null);
      chart.goStep(Math.floor(chart.plane.at(x, y).t));
      return;
    }
    const target = chart.overview.at(x, y), row = chart.pick(x, y), { t0, t1, v0, v1 } = chart.win;
    if (target) chart.pan({ t: (t0 + t1) / 2 - target.t, v: (v0 + v1) / 2 - target.v });
    if (row < 0) return;
    if (!event.shiftKey) chart.select(row, "click");
    else if (row !== chart.selected) {
      const id = chart.plan.ids.at(row);
      chart.set({ compared: id });
      chart.send("compare", { id, row });
    }
  }

  /** Zoom at the midpoint of two fingers; along one axis only if they are along about that axis. */
  pinch(factor, from, to, across) {
    const { chart } = this, under = chart.plane.at(...from), [onSteps, onLevels] = chart.plane.turned(...across);
    this.ghost = this.span = null; // a finger that remains moves the picture
    chart.zoom(1 / factor, under, { steps: onLevels <= 2 * onSteps, levels: onSteps <= 2 * onLevels });
    const now = chart.plane.at(...to);
    chart.pan({ t: now.t - under.t, v: now.v - under.v });
  }

  /** Zoom at the pointer. Only steps: with shift, over their axis or the strip. Only v: with alt or over its axis. */
  wheel(factor, [x, y], event) {
    const { chart } = this, { plot, plane } = chart;
    const cx = Math.max(plot.x, Math.min(plot.x + plot.w, x)), cy = Math.max(plot.y, Math.min(plot.y + plot.h, y));
    const [onSteps, onLevels] = plane.turned(y > plot.y + plot.h, x < plot.x);
    const levels = !onSteps && !event.shiftKey && !this.isInStrip(x, y);
    chart.zoom(1 / factor, plane.at(cx, cy), { steps: !onLevels && !event.altKey, levels });
  }

  keys({ shiftKey }) {
    const { chart } = this, { win, state } = chart, far = shiftKey ? 10 : 1;
    const middle = { t: (win.t0 + win.t1) / 2, v: (win.v0 + win.v1) / 2 };
    const zoom = (factor) => chart.zoom(factor, middle, { steps: true, levels: true });
    return {
      Escape: () => chart.clear(),
      ...(state.toolbar && { "/": () => chart.find.focus() }),
      Enter: () => chart.nextHit(shiftKey ? -1 : 1),
      p: () => chart.toPeak(),
      t: () => chart.choose("transposed", !state.transposed),
      f: () => chart.fit(),
      0: () => chart.fit(),
      "[": () => chart.walkSlot(-1),
      "]": () => chart.walkSlot(1),
      "+": () => zoom(1 / 1.4),
      "=": () => zoom(1 / 1.4),
      "-": () => zoom(1.4),
      ArrowLeft: () => this.walk(-1, 0, far),
      ArrowRight: () => this.walk(1, 0, far),
      ArrowUp: () => this.walk(0, -1, far),
      ArrowDown: () => this.walk(0, 1, far),
    };
  }

  /** Handle an arrow key: along the axis of steps select a step, else select the neighbouring tensor. */
  walk(dx, dy, far) {
    const { chart } = this, { t, v } = chart.plane.delta(dx, dy), { win, selected, plan, state } = chart;
    const here = selected >= 0 ? plan.birth[selected] : Math.floor((win.t0 + win.t1) / 2);
    if (v) chart.neighbour(Math.sign(v));
    else chart.goStep((state.step ?? here) + Math.sign(t) * far);
  }

  /** Apply the text of the search field; send it to the page after `wait` milliseconds. */
  onSearch(wait) {
    const { chart } = this;
    chart.apply({ search: chart.find.value });
    chart.send("search", chart.find.value.trim(), wait);
  }

  onSearchKey(event) {
    const { chart } = this;
    event.stopPropagation();
    if (event.key === "Enter") {
      event.preventDefault();
      chart.nextHit(event.shiftKey ? -1 : 1);
    } else if (event.key === "Escape") {
      chart.find.value = "";
      this.onSearch(0);
      chart.stage.focus();
    }
  }
}
