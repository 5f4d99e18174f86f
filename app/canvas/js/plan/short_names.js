// Shorten names to the available width: "…" replaces words. The words that most names share are replaced first, so that
// short names stay distinct. Other words are not changed, so that a search for them finds the tensor.

import { shortened } from "../base/formats.js";

const SAMPLE_SIZE = 4000; // maximum number of names in which words are counted
const WORD = /([A-Za-z0-9]+)/; // split() returns the words of a name at the odd positions

/** Return {brief(name, letters)}, which shortens the names of a plan. */
export function namerOf(plan) {
  const counts = new Map(); // word → number of names of the sample that contain it
  for (let row = 0; row < plan.n; row += Math.max(1, Math.ceil(plan.n / SAMPLE_SIZE))) {
    const words = plan.ids.at(row).split(WORD).filter((_, k) => k % 2);
    for (const word of new Set(words)) counts.set(word, (counts.get(word) ?? 0) + 1);
  }
  return { brief: (name, letters) => brief(name, letters, counts) };
}

/** Return the width of a text in letters; "…" is as wide as two letters. */
const widthOf = (text) => text.length + text.split("…").length - 1;

/** Omit words of a name, the most common first, until it fits. If the rarest word alone is too long, shorten it. */
function brief(name, letters, counts) {
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
