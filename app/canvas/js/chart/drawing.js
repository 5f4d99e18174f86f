// The base class of the plan drawing and the graph drawing: element, size, theme, frames and tooltip.

import { lookOf } from "../base/colours.js";
import { STYLE } from "../base/style.js";
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

// Keys that the first drawing with an action for them receives although it has no focus: while another element that is
// no text field has the focus (KEYS_ANYWHERE), or while no element has it (KEYS_WITHOUT_FOCUS).
const KEYS_ANYWHERE = /^[/pst[\]]$/, KEYS_WITHOUT_FOCUS = /^([/pst[\]]|Escape|ArrowLeft|ArrowRight)$/;

document.addEventListener("keydown", (event) => {
  const target = event.composedPath()[0];
  const typing = target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName ?? "");
  if (typing || !(target === document.body ? KEYS_WITHOUT_FOCUS : KEYS_ANYWHERE).test(event.key)) return;
  const hasAction = ({ root, input }) => root.isConnected && root.offsetParent && input.keys(event)[event.key];
  [...charts].find(hasAction)?.input.onKey(event);
});
