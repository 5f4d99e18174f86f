// Colours of the theme, and colour schemes. A scheme assigns a code to each row, and a colour to each code.

import { counted } from "./formats.js";
import { CATEGORIES, CATEGORY_COLOURS, HUES, OTHER, ROLE_COLOURS } from "./palette.js";

// Colour of each kind of change (KINDS in tmmu_core/formats/planfile/compare_plans.py) and of unchanged rows. If a row
// has several kinds of changes, the first kind in this list sets its colour.
const CHANGES = Object.entries({
  unchanged: "#A8ADB5", added: "#009E73", removed: "#A6611A", other_arena: "#CC79A7", resized: "#E69F00",
  retimed: "#56B4E9", moved: "#0072B2", redescribed: "#8C6BB1", renumbered: "#4D9221",
});
export const CONFLICT = "#D55E00";
export const RESERVED = "#88888880"; // in both themes

/** Return the colours of a plan's rows: {codes: a code per row, table: [r, g, b] of each code, legend: [[name, css]],
 * note, listsUnusedColours}. Without data for `scheme`, use "role". A row with a conflict gets the colour CONFLICT. */
export function colouringOf(plan, scheme) {
  const hasData = ["slot", "arena"].includes(scheme) || plan[scheme === "change" ? "changes" : scheme];
  const colouring = (hasData ? SCHEMES[scheme] : SCHEMES.role)(plan), { codes, table, legend } = colouring;
  if (!plan.conflict) return colouring;
  return {
    ...colouring,
    codes: Uint16Array.from(codes, (code, i) => (plan.conflict[i] ? table.length : code)),
    table: [...table, rgbOf(CONFLICT)],
    legend: [["conflict", CONFLICT], ...legend],
  };
}

/** Colour the rows by the name in a column. `labelOf(name)` is the label in the legend; `colours`: label → colour. */
function byName({ names, codes }, colours, note, labelOf = (name) => name) {
  const entries = names.map((name) => [labelOf(name), colours[labelOf(name)] ?? OTHER]);
  return { codes, table: entries.map(([, colour]) => rgbOf(colour)), legend: [...new Map(entries)], note };
}

const SCHEMES = {
  role(plan) {
    return byName(plan.role, ROLE_COLOURS, "colour = role", (role) => {
      if (!Object.hasOwn(ROLE_COLOURS, role)) return "activation";
      return ROLE_COLOURS[role] === OTHER ? "persistent" : role;
    });
  },

  slot(plan) {
    const slots = Math.max(0, ...plan.arenas.map((arena) => arena.slots));
    return {
      codes: codesOf(plan.n, (i) => plan.slot[i] % HUES.length),
      table: HUES.map(rgbOf),
      legend: HUES.slice(0, Math.min(6, slots)).map((colour, k) => [String(k), colour]),
      note: `colour = slot; ${HUES.length} colours, repeated`,
    };
  },

  arena(plan) {
    const names = plan.arenas.map(({ name }) => name);
    const colours = Object.fromEntries(names.map((name, k) => [name, CATEGORIES[k % CATEGORIES.length]]));
    return byName({ names, codes: plan.arena }, colours, "colour = arena");
  },

  /** Colour the operators of `plan.ranked`, which write the most bytes. A view has the colour of its base. */
  operator(plan) {
    const { names, codes } = plan.operator, writingCodes = new Set();
    for (let i = 0; i < plan.n; i++) if (!plan.isView[i] && plan.size[i]) writingCodes.add(codes[i]);
    const colourOf = names.map((name) => (plan.ranked.includes(name) ? plan.ranked.indexOf(name) : CATEGORIES.length));
    const legend = plan.ranked.map((name, k) => [name, CATEGORIES[k]]);
    const others = names.filter((name, code) => writingCodes.has(code) && !plan.ranked.includes(name));
    if (others.length) legend.push([others.some(Boolean) ? "other operators" : "no operator", OTHER]);
    return {
      codes: codesOf(plan.n, (i) => colourOf[codes[plan.rootOf(i)]]),
      table: [...CATEGORIES, OTHER].map(rgbOf),
      legend,
      note: "colour = operator, for the operators that write the most bytes",
    };
  },

  /** Repeat the hues over the layers. The legend lists the largest layer of each hue. */
  module(plan) {
    const { names, codes } = plan.module, bytes = names.map(() => 0);
    for (let i = 0; i < plan.n; i++) if (!plan.isView[i]) bytes[codes[i]] += plan.size[i];
    const hue = (code) => (names[code] ? code % HUES.length : HUES.length);
    const layers = [...names.keys()].filter((code) => names[code] && bytes[code]);
    layers.sort((a, b) => bytes[b] - bytes[a] || a - b);
    const listed = layers.filter((code, k) => layers.findIndex((other) => hue(other) === hue(code)) === k);
    listed.sort((a, b) => a - b);
    const legend = listed.map((code) => [names[code], css(rgbOf(HUES[hue(code)]))]);
    const unlisted = layers.length - listed.length;
    if (unlisted) legend.push([counted(unlisted, "more layer"), "transparent"]);
    return {
      codes: codesOf(plan.n, (i) => hue(codes[plan.rootOf(i)])),
      table: [...HUES, OTHER].map(rgbOf),
      legend,
      note: unlisted ? `colour = layer; ${HUES.length} colours, repeated` : "colour = layer",
    };
  },

  change(plan) {
    const bits = CHANGES.map(([name]) => (name === "unchanged" ? 0 : 1 << plan.kinds.indexOf(name)));
    return {
      codes: codesOf(plan.n, (i) => (plan.changes[i] ? bits.findIndex((bit) => plan.changes[i] & bit) : 0)),
      table: CHANGES.map(([, hex]) => rgbOf(hex)),
      legend: CHANGES.map(([name, hex]) => [name.replace("_", " "), hex]),
      note: "colour = change, baseline → candidate",
      listsUnusedColours: true, // "removed" occurs in the baseline only, "added" in the candidate only
    };
  },

  category: (plan) => byName(plan.category, CATEGORY_COLOURS, "colour = category"),
};

const codesOf = (n, codeOf) => Uint8Array.from({ length: n }, (_, row) => codeOf(row));

/** Parse "#0072B2" or "rgb(0,114,178)" to [r, g, b]. */
export function rgbOf(colour) {
  if (!colour.startsWith("#")) return colour.match(/\d+/g).map(Number);
  return [1, 3, 5].map((k) => parseInt(colour.slice(k, k + 2), 16));
}
export const css = ([r, g, b]) => `rgb(${r},${g},${b})`;
export const luminance = ([r, g, b]) => (0.2126 * r ** 2.2 + 0.7152 * g ** 2.2 + 0.0722 * b ** 2.2) / 255 ** 2.2;

/** Approximate width of a letter in the font of lookOf(), in pixels. */
export const LETTER = 6.1;

/** Return the look of an element. `ink` is the CSS colour of its text. `solid` is its background as [r, g, b], or white
 * if its opacity is at most 0.5. `dark` is true for a dark background. `hatch` is a canvas with diagonal lines. The
 * other fields are the font and CSS colours of lines and areas. `ratio`: device pixels per CSS pixel. */
export function lookOf(element, ratio) {
  const style = getComputedStyle(element);
  const channels = (style.backgroundColor.match(/[\d.]+/g) ?? [255, 255, 255]).map(Number);
  const solid = channels.length < 4 || channels[3] > 0.5 ? channels.slice(0, 3) : [255, 255, 255];
  const dark = luminance(solid) < 0.3;
  const tone = (alphaDark, alphaLight) => (dark ? `rgba(255,255,255,${alphaDark})` : `rgba(0,0,0,${alphaLight})`);
  const hatch = document.createElement("canvas"), pen = hatch.getContext("2d");
  hatch.width = hatch.height = 8 * ratio;
  pen.scale(ratio, ratio);
  pen.strokeStyle = tone(0.2, 0.16);
  pen.stroke(new Path2D("M-9 9 L1 -1 M-1 9 L9 -1 M7 9 L17 -1"));
  return {
    ink: style.color,
    solid,
    dark,
    font: `11px ${style.fontFamily}`,
    soft: tone(0.62, 0.6), // less contrast than `ink`
    grid: tone(0.1, 0.08),
    line: tone(0.85, 0.85),
    panel: tone(0.035, 0.018), // background of arenas, frames and the live-bytes strip
    live: dark ? "rgba(86,180,233,0.75)" : "rgba(0,114,178,0.70)",
    hatch,
  };
}
