// Formats of numbers and names, equal to app/texts/numbers.py (tests/app/canvas/test_chart.py compares them).

export const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/** Format a number of bytes in the largest unit that it reaches: "1.50 MiB". From 1 KiB on, round half up to 3 or 4 digits. */
export function shortBytes(count) {
  const n = BigInt(count);
  if (n < 1024n) return `${n} B`;
  let unit = 0, hundredths = 0n;
  do {
    unit++;
    const scale = 1n << BigInt(10 * unit);
    hundredths = (n * 100n + scale / 2n) / scale;
  } while (hundredths >= 102400n && unit < 6);
  if (hundredths >= 10000n) return `${(hundredths + 50n) / 100n} ${UNITS[unit]}`;
  if (hundredths >= 1000n) return `${(hundredths + 5n) / 100n}.${((hundredths + 5n) / 10n) % 10n} ${UNITS[unit]}`;
  return `${hundredths / 100n}.${String(hundredths % 100n).padStart(2, "0")} ${UNITS[unit]}`;
}

export const grouped = (n) => BigInt(n).toLocaleString("en-US");
export const fullBytes = (n) => (BigInt(n) < 1024n ? `${grouped(n)} B` : `${shortBytes(n)} (${grouped(n)} B)`);
export const offsetText = (n) => `${grouped(n)} (0x${BigInt(n).toString(16).toUpperCase()})`;
/** Format a step and its node: "#1,104 conv_12". */
export const stepName = (t, node = "") => `#${grouped(t)} ${node}`.trimEnd();
export const rangeText = (a, b) => `[${a}, ${b})`;

/** Shorten a name to at most `letters` letters. If `letters` ≥ 3, "…" replaces the middle, where names differ least. */
export function shortened(text, letters) {
  if (text.length <= letters) return text;
  if (letters < 3) return text.slice(0, Math.max(0, letters));
  const kept = letters - 1, before = kept >> 1;
  return `${text.slice(0, before)}…${text.slice(text.length - (kept - before))}`;
}
export const counted = (n, noun) => `${grouped(n)} ${noun}${BigInt(n) === 1n ? "" : "s"}`;

/** Return the width of a text in letters; "…" is as wide as two letters. */
const widthOf = (text) => text.length + text.split("…").length - 1;

const SAMPLE_SIZE = 4000; // maximum number of names in which words are counted
const WORD = /([A-Za-z0-9]+)/; // split() returns the words of a name at the odd positions

/** Return {brief(name, letters)}, which replaces words in the names of a plan by "…", first the words that most names
 * share, so that short names stay distinct. Other words are not changed, so that a search for them finds the tensor. */
export function namerOf(plan) {
  const counts = new Map(); // word → number of names of the sample that contain it
  for (let row = 0; row < plan.n; row += Math.max(1, Math.ceil(plan.n / SAMPLE_SIZE))) {
    const words = plan.id(row).split(WORD).filter((_, k) => k % 2);
    for (const word of new Set(words)) counts.set(word, (counts.get(word) ?? 0) + 1);
  }
  return { brief };

  /** Omit words of a name, the most common first, until it fits. If the rarest word alone is too long, shorten it. */
  function brief(name, letters) {
    const parts = name.split(WORD), words = [...parts.keys()].filter((k) => k % 2);
    const commonFirst = words.sort((a, b) => (counts.get(parts[b]) ?? 0) - (counts.get(parts[a]) ?? 0));
    let text = name;
    for (const k of commonFirst.slice(0, -1)) {
      if (widthOf(text) <= letters) return text;
      parts.splice(k - 1, 3, "", "…", ""); // the word and the separators beside it
      text = parts.join("").replace(/…+/gu, "…");
    }
    if (widthOf(text) <= letters) return text;
    if (!text.includes("…")) return shortened(name, letters - 1);
    const kept = letters - (text.startsWith("…") ? 3 : 2);
    return `${text.slice(0, Math.max(2, kept)).replace(/…+$/u, "")}…`;
  }
}
