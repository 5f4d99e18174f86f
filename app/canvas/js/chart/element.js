// The element of a chart (title, toolbar, canvases, legend, status), and texts about tensors: for the tooltip, for screen
// readers and for the report.

import { VIEWS } from "../plan/scene.js";
import { CONFLICT, css, RESERVED, rgbOf } from "../base/colours.js";
import { counted, fullBytes, offsetText, rangeText, shortBytes, shortened, stepName } from "../base/formats.js";

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

/** Return the elements of the legend. Without `listsUnusedColours`, omit each colour that no row of a shown arena has. */
export function legendOf({ plan, other, shown, colouring, scene, strip, isCandidate, hasOutlines }) {
  const used = new Set();
  for (let i = 0; i < plan.n; i++) if (shown[plan.arena[i]]) used.add(colouring.codes[i]);
  const usedColours = new Set(Array.from(used, (code) => css(colouring.table[code])));
  const items = [el("span", { class: "note" }, colouring.note)];
  const entry = (mark, ...name) => items.push(el("span", {}, mark, ...name));
  for (const [name, colour] of colouring.legend) {
    if (colour === "transparent") entry("", name);
    else if (colouring.listsUnusedColours || usedColours.has(css(rgbOf(colour)))) {
      entry(el("i", { style: `background:${colour}` }), name);
    }
  }
  if (scene.view !== "lifetimes") entry(el("i", { class: "hatch" }), scene.view === "slots" ? "slot free" : "free");
  if (scene.overLimit.length) entry(el("i", { style: `background:${CONFLICT}` }), "above the limit");
  const compared = isCandidate ? "baseline" : "candidate";
  if (scene.otherSum) entry(el("i", { class: "rule", style: "border-top:1px dashed" }), `live bytes of the ${compared}`);
  const outlines = [["dashed", `place in the ${compared}`], ["dotted", `only in the ${compared}`]];
  const isDrawn = [hasOutlines && other.changes.some((kinds, j) => kinds && other.twin[j]), hasOutlines && other.twin.includes(0)];
  for (const [style, name] of outlines.filter((_, k) => isDrawn[k])) entry(el("i", { class: style }), name);
  if (isDrawn[0] && scene.view === "map") entry("", "→ move from the baseline (select a tensor to see its move)");
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

/** Return [heading, text] pairs about a row of the plan of a chart. */
export function linesOf({ plan, other, isCandidate }, row) {
  const birth = plan.birth[row], death = plan.rangeEnd(row);
  const kind = ["role", "dtype", "shape", "operator"].map((column) => plan.text(column, row)).filter(Boolean);
  const arena = plan.arenas[plan.arena[row]].name, layer = plan.text("module", row);
  const head = plan.head(row), members = plan.members.get(head), buffer = [];
  if (members) {
    const held = plan.held(row), freedLast = members.filter((i) => plan.death[i] === held.death);
    const lastIds = freedLast.slice(0, 3).map((i) => plan.id(i)).join(", ");
    buffer.push(["buffer", `${plan.id(head)} and ${counted(members.length - 1, "more tensor")}`]);
    buffer.push(["memory held", `${rangeAndLength(plan, held.birth, held.death)}, last by ${lastIds}`]);
  }
  const lines = [
    ["", plan.id(row)],
    ["size", fullBytes(plan.exact("size", row))],
    ["offset", offsetText(plan.exact("offset", row))],
    ["place", plan.slotted ? `${arena}, slot ${plan.slot[row]}, order ${Number(plan.generation[row]) + 1}` : arena],
    ["tensor live", rangeAndLength(plan, birth, death)],
    ["written by", stepAndNode(plan, birth)],
    ...buffer,
    ["kind", kind.join(" · ")],
    ...(layer ? [["layer", layer]] : []),
  ];
  if (plan.baseOf.has(row)) lines.push(["view of", plan.id(plan.baseOf.get(row))]);
  for (const [step, from, to] of plan.handoffs) {
    if (from === row) lines.push(["memory reused by", `${plan.id(to)} at ${stepName(plan.stepAt(step))}`]);
    if (to === row) lines.push(["reuses memory of", `${plan.id(from)} at ${stepName(plan.stepAt(step))}`]);
  }
  if (plan.stillRead.has(row)) {
    lines.push(["last read", `${stepAndNode(plan, death)}; the plan does not reuse the memory in place`]);
  }
  if (other) lines.push(...comparison(plan, other, row, isCandidate));
  return lines;
}

/** Return the common steps of two rows' buffers and the common bytes of the rows, as text. */
export function pairText(plan, a, b) {
  const names = [a, b].map((row) => shortened(plan.id(row), 32)).join(" and ");
  if (plan.head(a) === plan.head(b)) return `${names}: tensors of one buffer`;
  const [first, second] = [a, b].map((row) => plan.held(row)), [low, otherLow] = [a, b].map((row) => plan.exact("offset", row));
  const birth = Math.max(first.birth, second.birth), death = Math.min(first.death, second.death);
  const steps = birth < death ? `common steps ${range(plan, birth, death)}` : "no common steps";
  if (plan.arena[a] !== plan.arena[b]) return `${names}: ${steps}, different arenas`;
  const end = low + plan.exact("size", a), otherEnd = otherLow + plan.exact("size", b);
  const bytes = (end < otherEnd ? end : otherEnd) - (low > otherLow ? low : otherLow);
  return `${names}: ${steps}, ${bytes > 0n ? `${shortBytes(bytes)} in common` : "no common bytes"}`;
}

const stepAndNode = (plan, t) => stepName(plan.stepAt(t), plan.node(t));
const range = (plan, from, to) => rangeText(plan.stepAt(from), plan.stepAt(to));
const liveRange = (plan, row) => range(plan, plan.birth[row], plan.rangeEnd(row));

function rangeAndLength(plan, from, to) {
  return `${range(plan, from, to)} · ${counted(plan.stepAt(to) - plan.stepAt(from), "step")}`;
}

/** Return [heading, "baseline → candidate"] per changed field; one pair "compared" without a change or without a twin. */
function comparison(plan, other, row, isCandidate) {
  if (!plan.twin[row]) return [["compared", isCandidate ? "not in the baseline" : "not in the candidate"]];
  const twin = plan.twin[row] - 1, lines = [];
  const addIfChanged = (heading, value, otherValue) => {
    if (value === otherValue) return;
    lines.push([heading, isCandidate ? `${otherValue} → ${value}` : `${value} → ${otherValue}`]);
  };
  addIfChanged("size", shortBytes(plan.exact("size", row)), shortBytes(other.exact("size", twin)));
  addIfChanged("offset", offsetText(plan.exact("offset", row)), offsetText(other.exact("offset", twin)));
  addIfChanged("tensor live", liveRange(plan, row), liveRange(other, twin));
  if (plan.slotted && other.slotted) addIfChanged("slot", String(plan.slot[row]), String(other.slot[twin]));
  return lines.length ? lines : [["compared", "unchanged"]];
}
