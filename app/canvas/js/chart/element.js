// The element of a chart: title, toolbar, a canvas for the picture, a canvas for the overlay, and a legend.

import { VIEWS } from "../plan/scene.js";

/** Return a DOM element with attributes, listeners (`onclick`) and children. Strings become text, never HTML. */
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

export const button = (text, title, onclick) => el("button", { type: "button", title, "aria-label": title, onclick }, text);

/** Return the elements of one chart by name. Its controls call `choose`, `toPeak` and `fit` of the chart. */
export function build(chart) {
  const menu = (label, name) => {
    return el("select", { "aria-label": label, onchange: (e) => chart.choose(name, e.target.value || null) });
  };
  const tabs = Object.entries(VIEWS).map(([view, name]) => {
    return el("button", { type: "button", "data-view": view, onclick: () => chart.choose("view", view) }, name);
  });
  const views = el("span", { class: "tabs" }, ...tabs);
  const base = el("canvas", { class: "base" }), over = el("canvas", { class: "over" });
  const tip = el("div", { class: "tip", hidden: "" }), title = el("div", { class: "claim" });
  const colours = menu("colour by", "colour"), arenas = menu("arena", "arena");
  const searchField = el("input", { type: "search", placeholder: "search  /", "aria-label": "search tensors and nodes", spellcheck: "false" });
  const outlines = el("input", { type: "checkbox", onchange: (e) => chart.choose("show_baseline", e.target.checked) });
  const overlay = el("label", { class: "overlay", hidden: "" }, outlines, " Outline changes");
  const count = el("span", { class: "count" }), legend = el("span", { class: "legend" });
  const status = el("span", { class: "status" }), live = el("span", { class: "unseen", "aria-live": "polite" });
  const stage = el("div", { class: "stage", tabindex: "0", role: "application" }, base, over, tip);
  const bar = el(
    "div",
    { class: "bar", role: "toolbar", "aria-label": "the drawing of the plan" },
    views,
    el("label", {}, "Colour ", colours),
    el("label", {}, "Arena ", arenas),
    overlay,
    count,
    searchField,
    button("⇄", "Swap axes (t)", () => chart.choose("transposed", !chart.state.transposed)),
    button("Go to peak", "Go to peak (p)", () => chart.toPeak()),
    button("Show all", "Show all (f, double-click)", () => chart.fit()),
  );
  const root = el("div", { class: "tmmu-canvas" }, title, bar, stage, el("div", { class: "foot" }, legend, status), live);
  return { root, title, bar, views, tabs, colours, arenas, overlay, outlines, count, searchField, stage, base, over, tip, legend, status, live };
}

export function fillMenu(menu, pairs) {
  menu.replaceChildren(...pairs.map(([value, name]) => el("option", { value }, name)));
}
