// The base classes of the plan drawing and the graph drawing (element, size, theme, frames, tooltip) and of their input.

import { lookOf } from "../base/colours.js";
import { el } from "./element.js";

export const charts = new Set(); // every drawing of the page
const mounted = new WeakMap(); // parent element → its drawing
const PRIORITY = { over: 1, base: 2, layout: 3 }; // kinds of redrawing; a later kind includes the earlier kinds

/** Return the drawing in an element, and set its `emit`. If there is none, create a drawing and its style sheet. */
export function mount(parent, Kind, emit) {
  if (!mounted.get(parent)?.root.isConnected) {
    unmount(parent);
    parent.append(el("style", {}, STYLE));
    mounted.set(parent, new Kind(parent));
  }
  return Object.assign(mounted.get(parent), { emit, look: null }); // the theme may have changed
}

export function unmount(parent) {
  mounted.get(parent)?.destroy();
  mounted.delete(parent);
}

const tipLine = ([heading, text]) =>
  heading ? [el("span", { class: "head" }, heading), el("span", {}, text)] : [el("b", {}, text)];

export class Drawing {
  /** Add `root` to the page. Its element `stage` contains the `canvases` and the tooltip `tip`. */
  attach(parent, { root, stage, tip, canvases }) {
    Object.assign(this, { root, stage, tip, canvases, timers: {} });
    parent.append(root);
    root.drawing = this; // for tests and benchmarks
    this.resizes = new ResizeObserver(() => this.scheduleDraw("layout"));
    this.resizes.observe(stage);
    // A change of the theme has no event of its own, but it starts the colour transition of the root element.
    root.addEventListener("transitionend", (event) => {
      if (event.target !== root) return;
      this.look = null;
      this.scheduleDraw("base");
    });
    charts.add(this);
  }

  destroy() {
    charts.delete(this);
    this.resizes.disconnect();
    Object.values(this.timers).forEach(clearTimeout);
    this.root.remove();
  }

  /** Draw in the next frame. `kind`: "over" (overlay), "base" (also the picture) or "layout" (both in a new layout). */
  scheduleDraw(kind) {
    if (PRIORITY[kind] > (PRIORITY[this.due] ?? 0)) this.due = kind;
    this.frame ??= requestAnimationFrame(() => {
      const { due } = this;
      this.frame = this.due = null;
      if (this.stage.clientWidth) this.draw(due);
    });
  }

  fitCanvases() {
    const { clientWidth: width, clientHeight: height } = this.stage, ratio = window.devicePixelRatio || 1;
    const size = { width: Math.round(width * ratio), height: Math.round(height * ratio) };
    for (const canvas of this.canvases) {
      if (canvas.width !== size.width || canvas.height !== size.height) Object.assign(canvas, size);
    }
    if (ratio !== this.ratio) this.look = null;
    Object.assign(this, { width, height, ratio });
  }

  currentLook() {
    return (this.look ??= lookOf(this.root, this.ratio));
  }

  at(event) {
    const { left, top } = this.stage.getBoundingClientRect();
    return [event.clientX - left, event.clientY - top];
  }

  /** Show [heading, text] pairs in the tooltip, as text and never as HTML; null hides it. */
  fillTip(lines) {
    this.tip.hidden = !lines;
    if (lines) this.tip.replaceChildren(...lines.flatMap(tipLine));
  }

  placeTip([x, y]) {
    const { offsetWidth: w, offsetHeight: h } = this.tip, left = x + 16 + w > this.width ? x - 12 - w : x + 16;
    this.tip.style.left = `${Math.max(2, left)}px`;
    this.tip.style.top = `${Math.max(2, Math.min(this.height - h - 2, y + 14))}px`;
  }
}

// Keys that work while no drawing has the focus: KEYS_ANYWHERE while another element has the focus (no form field),
// KEYS_WITHOUT_FOCUS while no element has the focus. The first drawing with an action for the key handles the key.
const KEYS_ANYWHERE = /^[/pst[\]]$/, KEYS_WITHOUT_FOCUS = /^([/pst[\]]|Escape|ArrowLeft|ArrowRight)$/;

document.addEventListener("keydown", (event) => {
  const target = event.composedPath()[0];
  const typing = target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName ?? "");
  if (typing || !(target === document.body ? KEYS_WITHOUT_FOCUS : KEYS_ANYWHERE).test(event.key)) return;
  const hasAction = ({ root, input }) => root.isConnected && root.offsetParent && input.keys(event)[event.key];
  [...charts].find(hasAction)?.input.onKey(event);
});

const CLICK = 4; // pixels that a pointer may move during a click
const WHEEL = 0.0018; // exponent of the zoom per unit of the wheel (a notch is about 100)

/** The base class of the input of a drawing: hover, drag, click, wheel and keys on its stage.
 *
 * Methods of a subclass; press() and drop() are optional. A point is [x, y] on the stage; a factor above 1 zooms in.
 *
 * hover(point or null), press(point), drag(point, last point), drop(), click(point, event)
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

  onDown(event) {
    const { chart } = this;
    if (event.button || !event.isPrimary || !chart.width) return; // without a width, nothing is drawn yet
    chart.stage.focus({ preventScroll: true });
    chart.stage.setPointerCapture(event.pointerId);
    this.began = this.last = chart.at(event);
    this.isDrag = false;
    this.press?.(this.began);
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
    this.drag(now, last);
  }

  onUp(event) {
    if (!this.last || !event.isPrimary) return;
    this.last = null;
    if (this.isDrag) this.drop?.();
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

// The style of the canvas. It is part of the script, because reports and notebooks have no other style sheet.
const STYLE = `
.tmmu-canvas {
  color: var(--st-text-color, inherit); background-color: var(--st-background-color, transparent);
  transition: color 1ms, background-color 1ms;
  font: 13px/1.35 var(--st-font, system-ui, sans-serif);
  :is(.chart-title, .foot, .bar, .overlay, .tip)[hidden] { display: none; }
  .chart-title { font-weight: 600; font-size: 14px; margin: 0 0 6px; overflow-wrap: anywhere; }
  .bar { display: flex; flex-wrap: wrap; gap: 6px 10px; align-items: center; margin-bottom: 6px; }
  .bar label { opacity: 0.9; white-space: nowrap; }
  .grow { flex: 1; }
  button, select, input[type=search] {
    font: inherit; color: inherit; background: var(--st-secondary-background-color, rgba(128,128,128,0.12));
    border: 1px solid rgba(128,128,128,0.35); border-radius: 5px; padding: 3px 9px; min-height: 28px; box-sizing: border-box;
  }
  select option { color: #111; background: #fff; }
  button { cursor: pointer; white-space: nowrap; }
  .tabs { display: inline-flex; }
  .tabs button { border-radius: 0; margin-left: -1px; background: transparent; }
  .tabs button:first-child { border-radius: 5px 0 0 5px; }
  .tabs button:last-child { border-radius: 0 5px 5px 0; }
  .tabs button[aria-pressed=true] { background: #0072B2; border-color: #0072B2; color: #fff; }
  input[type=search] { flex: 1 1 90px; max-width: 150px; min-width: 64px; }
  .count { opacity: 0.75; margin-left: auto; }
  .count, .status, .tip { font-variant-numeric: tabular-nums; }
  .stage { position: relative; touch-action: pan-y pinch-zoom; user-select: none; outline: none; border-radius: 4px; cursor: crosshair; }
  .stage:focus-visible { box-shadow: 0 0 0 2px #0072B2; }
  canvas { position: absolute; inset: 0; width: 100%; height: 100%; }
  .over { pointer-events: none; }
  .tip {
    position: absolute; z-index: 3; pointer-events: none; max-width: min(430px, 92%); display: grid;
    grid-template-columns: auto 1fr; gap: 1px 10px; padding: 7px 10px; font-size: 12px; overflow-wrap: anywhere;
    color: #f4f4f4; background: #16181d; border: 1px solid rgba(255,255,255,0.25); border-radius: 6px;
  }
  .tip b { grid-column: 1 / -1; }
  .tip .head { opacity: 0.65; white-space: nowrap; }
  .foot { display: flex; flex-wrap: wrap; justify-content: space-between; gap: 2px 18px; font-size: 12px; margin-top: 4px; }
  .legend { display: flex; flex-wrap: wrap; gap: 2px 12px; }
  .legend > span { display: inline-flex; align-items: center; gap: 5px; }
  .note { opacity: 0.7; }
  .status { opacity: 0.8; }
  i { display: inline-block; width: 12px; height: 12px; border-radius: 2px; }
  i.rule { height: 0; width: 20px; border-top-width: 2px; border-radius: 0; border-color: currentColor; }
  i:is(.dashed, .dotted) { border: 1px dashed; box-sizing: border-box; }
  i.dotted { border-style: dotted; }
  i.hatch {
    background: repeating-linear-gradient(135deg, rgba(128,128,128,0.15) 0 2px, rgba(128,128,128,0.7) 2px 3px);
    border: 1px solid rgba(128,128,128,0.4); box-sizing: border-box;
  }
  .unseen { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
  &.waiting .stage::after { content: "waiting for the plan…"; position: absolute; inset: 45% 0 0; text-align: center; opacity: 0.7; }
}
@media print {
  .tmmu-canvas .bar { display: none; }
  .tmmu-canvas .stage { break-inside: avoid; height: auto !important; }
  /* the picture keeps its aspect ratio on every paper size */
  .tmmu-canvas canvas.base { position: static; height: auto; display: block; }
}
`;
