// What stands below the picture: what colours and lines mean, and how much of the plan is drawn.

import { CONFLICT, css } from "./colours.js";
import { el } from "./element.js";
import { counted, grouped, shortBytes } from "./words.js";

const LINES = [["solid", "extent"], ["dotted", "lower bound"], ["dashed", "capacity"]];

/** The legend's entries as elements. */
export function legendOf({ paints, scene }) {
  const items = [el("span", { class: "note" }, paints.note)];
  const entry = (mark, name) => items.push(el("span", {}, mark, name));
  for (const [name, colour] of paints.legend) entry(el("i", { style: `background:${colour}` }), name);
  if (paints.ramp) {
    const [low, high] = paints.ramp, shades = paints.table.map(css).join();
    const ramp = el("i", { class: "ramp", style: `background:linear-gradient(90deg,${shades})` });
    items.push(el("span", {}, shortBytes(low), ramp, shortBytes(high)));
  }
  if (scene.view !== "lifetimes") {
    entry(el("i", { class: "hatch" }), scene.view === "slots" ? "slot free" : "free inside the extent");
  }
  if (scene.over.length) entry(el("i", { style: `background:${CONFLICT}` }), "above the capacity");
  if (scene.view === "map") {
    for (const [kind, name] of LINES) entry(el("i", { class: "rule", style: `border-top-style:${kind}` }), name);
  }
  return items;
}

/** `count` tensors are seen, `thin` of them thinner than a pixel; `outlined` of how many changed, or null. */
export function statusOf(total, { count, thin, outlined }) {
  const said = [`${grouped(count)} of ${counted(total, "tensor")} drawn`];
  if (thin) said.push(`${grouped(thin)} thinner than a pixel, shaded by occupancy`);
  if (outlined) said.push(`${grouped(outlined[0])} of ${grouped(outlined[1])} changed outlined`);
  return said.join("; ");
}
