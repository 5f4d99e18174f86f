// The element of a chart: title, toolbar, canvases for the picture and the overlay, legend and status.

import { VIEWS } from "../plan/scene.js";
import { CONFLICT, css, RESERVED, rgbOf } from "../base/colours.js";
import { counted, grouped } from "../base/formats.js";

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

/** Return name → element of one chart. The controls call `choose`, `toPeak` and `fit` of the chart. */
export function build(chart) {
  const menu = (label, name) => {
    return el("select", { "aria-label": label, onchange: (e) => chart.choose(name, e.target.value || null) });
  };
  const tabs = Object.entries(VIEWS).map(([view, name]) => {
    return el("button", { type: "button", "data-view": view, onclick: () => chart.choose("view", view) }, name);
  });
  const views = el("span", { class: "tabs" }, ...tabs);
  const base = el("canvas", { class: "base" }), over = el("canvas", { class: "over" });
  const tip = el("div", { class: "tip", hidden: "" }), title = el("div", { class: "chart-title" });
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

export function legendOf({ plan, other, shown, colouring, scene, strip, isCandidate, hasOutlines }) {
  const items = [el("span", { class: "note" }, colouring.note)];
  const entry = (mark, ...name) => items.push(el("span", {}, mark, ...name));
  for (const [name, colour] of usedEntries(colouring, plan, shown)) {
    entry(colour === "transparent" ? "" : el("i", { style: `background:${colour}` }), name);
  }
  if (scene.view !== "lifetimes") entry(el("i", { class: "hatch" }), scene.view === "slots" ? "slot free" : "free");
  if (scene.overLimit.length) entry(el("i", { style: `background:${CONFLICT}` }), "above the limit");
  const compared = isCandidate ? "baseline" : "candidate";
  if (scene.otherSum) entry(el("i", { class: "rule", style: "border-top:1px dashed" }), `live bytes of the ${compared}`);
  const outlines = [["dashed", `place in the ${compared}`], ["dotted", `only in the ${compared}`]];
  const isDrawn = [hasOutlines && other.changes.some((kinds, j) => kinds && other.twin[j]), hasOutlines && other.twin.includes(0)];
  for (const [style, name] of outlines.filter((_, k) => isDrawn[k])) entry(el("i", { class: style }), name);
  if (isDrawn[0] && scene.view === "map") entry("", "→ move to the candidate (if many: only of the selected tensor)");
  const lines = strip || scene.view === "map" ? [["solid", "arena size"], ["dotted", "lower bound"]] : [];
  if (scene.view === "map") {
    if (scene.bands.some(({ arena }) => arena.reserved.length)) entry(el("i", { style: `background:${RESERVED}` }), "reserved");
    if (plan.reuses.some(([, written]) => shown[plan.arena[written]])) entry(el("i", { style: `background:${CONFLICT}` }), "costly reuse, + its cost");
    const bands = scene.memory ? [...scene.bands, { arena: scene.memory, height: scene.top }] : scene.bands;
    const hasLimit = bands.some(({ arena: { capacity }, height }) => capacity <= height);
    if (hasLimit) lines.push(["dashed", "limit"]);
  }
  for (const [kind, name] of lines) entry(el("i", { class: "rule", style: `border-top-style:${kind}` }), name);
  if (scene.stripArena) entry("", "▼ peak");
  return items;
}

/** Return the legend entries. Without `listsUnusedColours`, omit each colour that no row of a shown arena has. */
function usedEntries({ legend, table, codes, listsUnusedColours }, plan, shown) {
  if (listsUnusedColours) return legend;
  const used = new Set();
  for (let i = 0; i < plan.n; i++) if (shown[plan.arena[i]]) used.add(codes[i]);
  const colours = new Set(Array.from(used, (code) => css(table[code])));
  return legend.filter(([, colour]) => colour === "transparent" || colours.has(css(rgbOf(colour))));
}

/** Return the status text. `total`: number of rows of the plan; second argument: the result of drawPicture(). */
export function statusOf(total, { count, thin, outlined }) {
  const parts = [`${grouped(count)} of ${counted(total, "tensor")} drawn`];
  if (thin) parts.push(`${grouped(thin)} smaller than a pixel, drawn merged`);
  if (outlined) parts.push(`${grouped(outlined[0])} of ${grouped(outlined[1])} changed tensors of the baseline outlined`);
  return parts.join("; ");
}
