// The element of a chart: title, toolbar, a canvas for the picture, a canvas for the overlay, and a legend.

import { STYLE } from "../base/style.js";
import { VIEWS } from "../plan/scene.js";

/** Return a DOM element with attributes and children. Strings become text, never HTML. */
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

export const button = (text, title, onclick) => {
  return el("button", { type: "button", title, "aria-label": title, onclick }, text);
};

const mounted = new WeakMap(); // parent element → chart

/** Return the chart in an element; create the chart and its style sheet if the element has none. */
export function mount(parent, ChartType) {
  if (!mounted.get(parent)?.root.isConnected) {
    const sheet = el("style");
    sheet.textContent = STYLE;
    parent.append(sheet);
    mounted.set(parent, new ChartType(parent));
  }
  return mounted.get(parent);
}

export function unmount(parent) {
  mounted.get(parent)?.destroy();
  mounted.delete(parent);
}

/**
 * Return the elements of one chart by name. `actions` has the functions of its controls: choose(name, value), toPeak(),
 * fit(), swap(), save().
 */
export function build(actions) {
  const menu = (label, name) => {
    return el("select", { "aria-label": label, onchange: (e) => actions.choose(name, e.target.value || null) });
  };
  const parts = {
    base: el("canvas", { class: "base" }),
    over: el("canvas", { class: "over" }),
    tip: el("div", { class: "tip", hidden: "" }),
    title: el("div", { class: "claim" }),
    tabs: Object.entries(VIEWS).map(([view, name]) => {
      return el("button", { type: "button", "data-view": view, onclick: () => actions.choose("view", view) }, name);
    }),
    colours: menu("colour by", "colour"),
    arenas: menu("arena", "arena"),
    find: el("input", {
      type: "search",
      placeholder: "search  /",
      "aria-label": "search tensors and nodes",
      spellcheck: "false",
    }),
    count: el("span", { class: "count" }),
    outlines: el("input", { type: "checkbox", onchange: (e) => actions.choose("baseline", e.target.checked) }),
    legend: el("span", { class: "legend" }),
    status: el("span", { class: "status" }),
    live: el("span", { class: "unseen", "aria-live": "polite" }),
  };
  const { base, over, tip, title, tabs, colours, arenas, find, count, outlines, legend, status, live } = parts;
  const stage = el("div", { class: "stage", tabindex: "0", role: "application" }, base, over, tip);
  const overlay = el("label", { class: "overlay", hidden: "" }, outlines, " baseline outlines");
  const bar = el("div", { class: "bar", role: "toolbar" });
  bar.append(
    el("span", { class: "tabs" }, ...tabs),
    el("label", {}, "colour ", colours),
    el("label", {}, "arena ", arenas),
    overlay,
    el("span", { class: "grow" }),
    count,
    find,
    button("⇄", "swap axes (t)", () => actions.swap()),
    button("peak", "go to the peak (p)", () => actions.toPeak()),
    button("show all", "show everything (f, double-click)", () => actions.fit()),
    button("PNG", "save as PNG, at double size or at the size set on Export", () => actions.save()),
  );
  const foot = el("div", { class: "foot" }, legend, status);
  const root = el("div", { class: "tmmu-canvas" }, title, bar, stage, foot, live);
  return { ...parts, stage, overlay, bar, foot, root };
}

/** Fill a menu with [value, name] pairs. */
export function fill(menu, pairs) {
  menu.replaceChildren(...pairs.map(([value, name]) => el("option", { value }, name)));
}
