// The line below the picture: the legend, and a status text with the number of drawn tensors.

import { CONFLICT, css, rgbOf } from "../base/colours.js";
import { el } from "./element.js";
import { counted, grouped } from "../base/formats.js";

export function legendOf({ plan, shown, colouring, scene, strip, isCandidate }) {
  const items = [el("span", { class: "note" }, colouring.note)];
  const entry = (mark, ...name) => items.push(el("span", {}, mark, ...name));
  for (const [name, colour] of usedEntries(colouring, plan, shown)) {
    entry(colour === "transparent" ? "" : el("i", { style: `background:${colour}` }), name);
  }
  if (scene.view !== "lifetimes") entry(el("i", { class: "hatch" }), scene.view === "slots" ? "slot free" : "free");
  if (scene.overLimit.length) entry(el("i", { style: `background:${CONFLICT}` }), "above the limit");
  const compared = isCandidate ? "baseline" : "candidate";
  if (scene.otherSum) entry(el("i", { class: "rule", style: "border-top:1px dashed" }), `live bytes of the ${compared}`);
  const lines = strip || scene.view === "map" ? [["solid", "arena size"], ["dotted", "lower bound"]] : [];
  if (scene.view === "map") {
    if (plan.reuses.some(([, written]) => shown[plan.arena[written]])) entry(el("i", { style: `background:${CONFLICT}` }), "costly reuse, + its cost");
    const bands = scene.memory ? [...scene.bands, { arena: scene.memory, height: scene.top }] : scene.bands;
    const hasLimit = bands.some(({ arena: { capacity }, height }) => capacity !== null && capacity <= height);
    if (hasLimit) lines.push(["dashed", "limit"]);
  }
  for (const [kind, name] of lines) entry(el("i", { class: "rule", style: `border-top-style:${kind}` }), name);
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
  if (thin) parts.push(`${grouped(thin)} thinner than a pixel, drawn as a shade`);
  if (outlined) parts.push(`${grouped(outlined[0])} of ${grouped(outlined[1])} changed tensors outlined`);
  return parts.join("; ");
}
