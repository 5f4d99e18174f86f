// The base class of the input of a drawing: hover, drag, click, pinch and keys on its stage.

const CLICK = 4; // pixels that a pointer may move during a click
const WHEEL = 0.0018; // exponent of the zoom per unit of the wheel (a notch is about 100)
const LEAST_DISTANCE = 20; // pixels between two fingers, so that the zoom factor stays small

const distance = ([x0, y0], [x1, y1]) => Math.max(LEAST_DISTANCE, Math.hypot(x1 - x0, y1 - y0));
const middle = ([x0, y0], [x1, y1]) => [(x0 + x1) / 2, (y0 + y1) / 2];

/** A subclass has these methods. A point is [x, y] on the stage; a factor above 1 zooms in.
 *
 * hover(point or null), press(point, event), drag(now, last, began), drop(), click(point, event)
 * wheel(factor, point, event)
 * pinch(factor, from, to, distances): last and new midpoint of two fingers; their first distance along x and along y
 * keys(event): key → action */
export class Input {
  constructor(chart) {
    Object.assign(this, { chart, pointers: new Map() }); // pointers: id of a pressed pointer → its point
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
    const { chart, pointers } = this, point = chart.at(event);
    if (event.button || !chart.width) return; // without a width, nothing is drawn yet
    chart.stage.focus({ preventScroll: true });
    chart.stage.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, point);
    const [first, second] = pointers.values();
    this.isDrag = pointers.size > 1; // a tap with two fingers is no click
    if (!this.isDrag) this.press((this.began = point), event);
    else this.distances = [Math.abs(second[0] - first[0]), Math.abs(second[1] - first[1])];
  }

  onMove(event) {
    const { pointers, began, distances } = this, now = this.chart.at(event), last = pointers.get(event.pointerId);
    if (!last) {
      this.hover(now);
      return;
    }
    this.isDrag ||= Math.hypot(now[0] - began[0], now[1] - began[1]) > CLICK;
    if (!this.isDrag) return;
    pointers.set(event.pointerId, now);
    const other = [...pointers].find(([id]) => id !== event.pointerId)?.[1];
    if (!other) this.drag(now, last, began);
    else this.pinch(distance(now, other) / distance(last, other), middle(last, other), middle(now, other), distances);
  }

  onUp(event) {
    if (!this.pointers.delete(event.pointerId)) return;
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
