// The base class of the input of a drawing: hover, drag, click, wheel and keys on its stage.

const CLICK = 4; // pixels that a pointer may move during a click
const WHEEL = 0.0018; // exponent of the zoom per unit of the wheel (a notch is about 100)

/** Methods of a subclass; press() and drop() are optional. A point is [x, y] on the stage; a factor above 1 zooms in.
 *
 * hover(point or null), press(point, event), drag(point, last point, first point), drop(), click(point, event)
 * wheel(factor, point, event)
 * keys(event): key → action */
export class Input {
  constructor(chart) {
    Object.assign(this, { chart, last: null }); // last: the point of a pressed pointer; null while none is pressed
    const on = (type, action) => chart.stage.addEventListener(type, action.bind(this), { passive: false });
    on("pointerdown", this.onDown);
    on("pointermove", this.onMove);
    on("pointerup", this.onUp);
    on("pointercancel", this.onUp);
    on("pointerleave", () => this.hover(null));
    on("wheel", this.onWheel);
    on("keydown", this.onKey);
  }

  press() {}
  drop() {}

  onDown(event) {
    const { chart } = this;
    if (event.button || !event.isPrimary || !chart.width) return; // without a width, nothing is drawn yet
    chart.stage.focus({ preventScroll: true });
    chart.stage.setPointerCapture(event.pointerId);
    this.began = this.last = chart.at(event);
    this.isDrag = false;
    this.press(this.began, event);
  }

  onMove(event) {
    const { began, last } = this, now = this.chart.at(event);
    if (!event.isPrimary) return;
    if (!last) {
      this.hover(now);
      return;
    }
    this.isDrag ||= Math.hypot(now[0] - began[0], now[1] - began[1]) > CLICK;
    if (!this.isDrag) return;
    this.last = now;
    this.drag(now, last, began);
  }

  onUp(event) {
    if (!this.last || !event.isPrimary) return;
    this.last = null;
    if (this.isDrag) this.drop();
    else if (event.type === "pointerup") this.click(this.chart.at(event), event);
  }

  onWheel(event) {
    if (!this.chart.width) return;
    event.preventDefault();
    const delta = (event.deltaY || event.deltaX) * (event.deltaMode === 1 ? 16 : 1);
    this.wheel(Math.exp(-WHEEL * Math.max(-300, Math.min(300, delta))), this.chart.at(event), event);
  }

  onKey(event) {
    if (!this.chart.width || event.ctrlKey || event.metaKey || event.altKey) return;
    const action = this.keys(event)[event.key];
    if (!action) return;
    event.preventDefault();
    event.stopPropagation();
    action();
  }
}
