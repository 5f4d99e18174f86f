// What a colour means. Every scheme is a code per row and a small table; the legend reads the same table.

const ROLE_COLOURS = {
  activation: "#0072B2", input: "#56B4E9", output: "#009E73", workspace: "#E69F00", gradient: "#CC79A7", persistent: "#999999",
};
const PERSISTENT = new Set(["parameter", "buffer", "constant", "optimizer_state"]);
const CATEGORIES = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#8C6BB1", "#B8860B", "#4D9221", "#A6611A", "#5E7FA3"];
const OTHER = "#8A8F98";
// What changed, in the words of tmmu_core/plan/compare.py; of several the first here gives the colour.
const CHANGES = [
  ["unchanged", "#A8ADB5"], ["added", "#009E73"], ["removed", "#A6611A"], ["other_arena", "#CC79A7"], ["resized", "#E69F00"],
  ["retimed", "#56B4E9"], ["moved", "#0072B2"], ["redescribed", "#8C6BB1"],
];

/** A code per row. */
function coded(n, code) {
  const codes = new Uint8Array(n);
  for (let i = 0; i < n; i++) codes[i] = code(i);
  return codes;
}

const rgbOf = (hex) => [1, 3, 5].map((k) => parseInt(hex.slice(k, k + 2), 16));

/** A colour of even lightness: lightness 0…1, chroma, hue in degrees → [r, g, b] (Oklab to sRGB, clipped). */
function even(lightness, chroma, hue) {
  const a = chroma * Math.cos((hue * Math.PI) / 180), b = chroma * Math.sin((hue * Math.PI) / 180);
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  return [4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s, -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s].map((c) => {
    const v = c <= 0.0031308 ? 12.92 * c : 1.055 * Math.max(c, 0) ** (1 / 2.4) - 0.055;
    return Math.round(255 * Math.min(1, Math.max(0, v)));
  });
}

/** {codes, table: [[r, g, b]], legend: [[name, css]], note} for a plan under a scheme. */
function paint(plan, scheme) {
  const n = plan.n;
  if (scheme === "slot") {
    const codes = coded(n, (i) => plan.slot[i] % 24);
    const table = Array.from({ length: 24 }, (_, k) => even(0.66 + 0.08 * (k % 2), 0.12, (k * 137.508 + 245) % 360));
    return { codes, table, legend: table.slice(0, 6).map((c, k) => [String(k), css(c)]), note: "colour = slot; 24 colours, then again" };
  }
  if (scheme === "arena") {
    const table = plan.arenas.map((_, k) => rgbOf(CATEGORIES[k % CATEGORIES.length]));
    return { codes: plan.arena, table, legend: plan.arenas.map((a, k) => [a.name, css(table[k])]), note: "colour = arena" };
  }
  if (scheme === "operator" && plan.operator) {
    const counts = new Map(plan.operator.names.map((name, code) => [code, 0]));
    for (const code of plan.operator.codes) counts.set(code, counts.get(code) + 1);
    const first = [...counts.keys()].filter((code) => plan.operator.names[code])
      .sort((a, b) => counts.get(b) - counts.get(a) || a - b).slice(0, CATEGORIES.length);
    const rank = plan.operator.names.map((_, code) => (first.indexOf(code) < 0 ? CATEGORIES.length : first.indexOf(code)));
    const legend = first.map((code, k) => [plan.operator.names[code], CATEGORIES[k]]);
    const rest = plan.operator.names.length - first.length;
    if (rest) legend.push([plan.operator.names.includes("") && rest === 1 ? "no operator" : "all others", OTHER]);
    return { codes: coded(n, (i) => rank[plan.operator.codes[i]]), table: [...CATEGORIES, OTHER].map(rgbOf), legend, note: "colour = operator" };
  }
  if (scheme === "size") {
    let low = Infinity, high = 0;
    for (let i = 0; i < n; i++) { const s = Math.max(1, plan.size[i]); low = Math.min(low, s); high = Math.max(high, s); }
    const span = Math.max(1e-9, Math.log2(high) - Math.log2(low));
    const table = Array.from({ length: 32 }, (_, k) => even(0.88 - 0.5 * (k / 31), 0.09 + 0.05 * (k / 31), 215 + 70 * (k / 31)));
    const codes = coded(n, (i) => Math.round((31 * (Math.log2(Math.max(1, plan.size[i])) - Math.log2(low))) / span));
    const ramp = n ? [low, high] : null;
    return { codes, table, legend: [], ramp, note: "colour = bytes, logarithmic" };
  }
  if (scheme === "change" && plan.changes) {
    return { codes: changes(plan), table: CHANGES.map(([, hex]) => rgbOf(hex)), legend: CHANGES.map(([name, hex]) => [name.replace("_", " "), hex]), note: "colour = change, baseline → candidate" };
  }
  const keys = Object.keys(ROLE_COLOURS), seen = new Set();
  const code = plan.role.names.map((name) => (PERSISTENT.has(name) ? 5 : Math.max(0, keys.indexOf(name))));
  const codes = coded(n, (i) => code[plan.role.codes[i]]);
  for (const c of code) seen.add(c);
  return { codes, table: keys.map((k) => rgbOf(ROLE_COLOURS[k])), legend: keys.map((k) => [k, ROLE_COLOURS[k]]).filter((_, k) => seen.has(k)), note: "colour = role" };
}

/** Per row, which of CHANGES tells it from its twin: the first that holds. */
function changes(plan) {
  const bits = CHANGES.map(([name]) => 1 << plan.kinds.indexOf(name));
  return coded(plan.n, (i) => (plan.changes[i] ? bits.findIndex((bit, k) => k > 0 && plan.changes[i] & bit) : 0));
}

const css = ([r, g, b]) => `rgb(${r},${g},${b})`;
const luminance = ([r, g, b]) => (0.2126 * r ** 2.2 + 0.7152 * g ** 2.2 + 0.0722 * b ** 2.2) / 255 ** 2.2;
