// Input for a chart: hover, click, drag, pinch, wheel and keys.

import { contains } from "../base/plane.js";

const CLICK = 4; // pixels: a smaller movement counts as a click
const FINGERS = 20; // pixels: a smaller distance of two fingers counts as this
const WHEEL = 0.0018; // exponent of the zoom per unit of the wheel (a notch is about 100)

const preventPageZoom = (e) => e.touches.length > 1 && e.cancelable && e.preventDefault();

export class ChartInput {
  constructor(chart) {
    this.chart = chart;
    this.fingers = new Map(); // id of a pressed pointer → [x, y]
    const { stage, find } = chart;
    const on = (type, action, options) => stage.addEventListener(type, action, options);
    on("pointermove", (e) => this.onMove(e));
    on("pointerleave", () => this.hover(-1, -1));
    on("pointerdown", (e) => this.onDown(e));
    on("pointerup", (e) => this.onUp(e));
    on("pointercancel", (e) => this.endTouch(e));
    for (const type of ["touchstart", "touchmove"]) on(type, preventPageZoom, { passive: false });
    on("wheel", (e) => this.onWheel(e), { passive: false });
    on("dblclick", () => chart.fit());
    on("keydown", (e) => this.onKey(e));
    find.addEventListener("input", () => this.onSearch(300));
    find.addEventListener("keydown", (e) => this.onSearchKey(e));
  }

  onMove(event) {
    const { chart } = this;
    if (!chart.plan || !chart.win) return;
    const [x, y] = chart.at(event);
    if (this.fingers.has(event.pointerId)) this.fingers.set(event.pointerId, [x, y]);
    if (this.pinch) this.onPinch();
    else if (this.drag) this.onDrag(x, y);
    else this.hover(x, y);
  }

  /** Update the hovered row and the tooltip. A browser sends at most one movement per frame. */
  hover(x, y) {
    const { chart } = this, row = chart.pick(x, y);
    if (row !== chart.hovered || chart.tip.hidden !== row < 0) {
      chart.hovered = row;
      chart.soon("over");
      chart.fillTip(row < 0 ? null : chart.lines(row));
    }
    chart.placeTip([x, y]);
  }

  onDown(event) {
    const { chart } = this;
    if (event.button !== 0 || !chart.win) return;
    chart.stage.focus({ preventScroll: true });
    const [x, y] = chart.at(event);
    chart.stage.setPointerCapture(event.pointerId);
    this.fingers.set(event.pointerId, [x, y]);
    if (this.fingers.size === 2) this.beginPinch();
    else this.drag = { x, y, win: { ...chart.win }, moved: false, ghost: chart.draggedBox(x, y, event.altKey) };
    if (this.drag && chart.strip && contains(chart.strip, x, y)) this.drag.from = chart.plane.at(x, y).t;
  }

  onDrag(x, y) {
    const { chart, drag } = this, dx = x - drag.x, dy = y - drag.y;
    if (!drag.moved && Math.hypot(dx, dy) < CLICK) return;
    drag.moved = true;
    if (drag.from !== undefined) {
      const ends = [drag.from, chart.plane.at(x, y).t], last = chart.plan.steps;
      chart.state.span = [Math.max(0, Math.floor(Math.min(...ends))), Math.min(last, Math.ceil(Math.max(...ends)))];
      chart.soon("over");
      return;
    }
    const distance = chart.plane.delta(dx, dy);
    if (drag.ghost) chart.moveGhost(drag.ghost, distance);
    else chart.pan(drag.win, distance);
  }

  onUp(event) {
    const { chart } = this, [x, y] = chart.at(event), drag = this.endTouch(event);
    if (drag?.moved && drag.from !== undefined) chart.goSpan(chart.state.span);
    if (!drag || drag.moved) return;
    if (chart.strip && contains(chart.strip, x, y)) {
      if (chart.state.span) chart.goSpan(null);
      chart.goStep(Math.floor(chart.plane.at(x, y).t));
      return;
    }
    const target = chart.overview.at(x, y), row = chart.pick(x, y), { t0, t1, v0, v1 } = chart.win;
    if (target) chart.pan(chart.win, { t: (t0 + t1) / 2 - target.t, v: (v0 + v1) / 2 - target.v });
    if (row < 0) return;
    if (!event.shiftKey) chart.select(row, "click");
    else if (row !== chart.selected) {
      const id = chart.plan.ids.at(row);
      chart.set({ compared: id });
      chart.send("compare", { id, row });
    }
  }

  /** Start a pinch. It zooms at the midpoint of two fingers; along one axis only if they are along about that axis. */
  beginPinch() {
    const { middle, apart, across } = this.spread(), { plane, win } = this.chart;
    const [onSteps, onLevels] = plane.turned(...across);
    const axes = { steps: onLevels <= 2 * onSteps, levels: onSteps <= 2 * onLevels };
    this.drag = null;
    this.pinch = { win: { ...win }, apart: Math.max(FINGERS, apart), under: plane.at(...middle), axes };
  }

  onPinch() {
    const { chart, pinch } = this, { middle, apart } = this.spread(), { win, under, axes } = pinch;
    Object.assign(chart.win, win);
    chart.zoom(pinch.apart / Math.max(FINGERS, apart), under, axes);
    const now = chart.plane.at(...middle);
    chart.pan(chart.win, { t: now.t - under.t, v: now.v - under.v });
  }

  /** Return the midpoint of two fingers, their distance, and their distance along x and y. */
  spread() {
    const [[x0, y0], [x1, y1]] = this.fingers.values(), across = [Math.abs(x1 - x0), Math.abs(y1 - y0)];
    return { middle: [(x0 + x1) / 2, (y0 + y1) / 2], apart: Math.hypot(...across), across };
  }

  /** End a touch and return its drag. A finger that remains after a pinch moves the picture and does not click. */
  endTouch(event) {
    this.fingers.delete(event.pointerId);
    const { drag, pinch } = this, [rest] = this.fingers.values();
    this.drag = this.pinch = null;
    if (pinch && rest) this.drag = { x: rest[0], y: rest[1], win: { ...this.chart.win }, moved: true };
    return drag;
  }

  /** Zoom at the pointer. Only steps: with shift, over their axis or the strip. Only v: with alt or over its axis. */
  onWheel(event) {
    const { chart } = this;
    if (!chart.win) return;
    event.preventDefault();
    const [x, y] = chart.at(event), { plot, plane, strip } = chart, lines = event.deltaMode === 1 ? 16 : 1;
    const delta = (event.deltaY || event.deltaX) * lines;
    const factor = Math.exp(Math.max(-300, Math.min(300, delta)) * WHEEL);
    const cx = Math.max(plot.x, Math.min(plot.x + plot.w, x)), cy = Math.max(plot.y, Math.min(plot.y + plot.h, y));
    const [onSteps, onLevels] = plane.turned(y > plot.y + plot.h, x < plot.x);
    const levels = !onSteps && !event.shiftKey && !(strip && contains(strip, x, y));
    chart.zoom(factor, plane.at(cx, cy), { steps: !onLevels && !event.altKey, levels });
  }

  onKey(event) {
    const { chart } = this;
    if (!chart.win || event.ctrlKey || event.metaKey || event.altKey) return;
    const { win, state } = chart, far = event.shiftKey ? 10 : 1;
    const middle = { t: (win.t0 + win.t1) / 2, v: (win.v0 + win.v1) / 2 };
    const zoom = (factor) => chart.zoom(factor, middle, { steps: true, levels: true });
    const actions = {
      Escape: () => chart.clear(),
      ...(state.toolbar && { "/": () => chart.find.focus() }),
      Enter: () => chart.nextHit(event.shiftKey ? -1 : 1),
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
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    event.stopPropagation();
    action();
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
