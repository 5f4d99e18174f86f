// Shorten names to the available width. Words that many names share are omitted first, so that short names stay
// distinct. "…" replaces omitted words. The other words are not changed, so that a search finds them.

import { shortened } from "../base/formats.js";

const MOST_READ = 4000; // number of names above which common words are counted in a sample of the names
const WORD = /([A-Za-z0-9]+)/; // split() returns the words of a name at the odd positions

/** Return {brief(name, letters)}, which shortens the names of a plan. */
export function namerOf(plan) {
  const counts = new Map(), every = Math.max(1, Math.ceil(plan.n / MOST_READ)); // word → number of names with it
  for (let row = 0; row < plan.n; row += every) {
    const words = plan.ids.at(row).split(WORD).filter((_, k) => k % 2);
    for (const word of new Set(words)) counts.set(word, (counts.get(word) ?? 0) + 1);
  }
  return { brief: (name, letters) => brief(name, letters, counts) };
}

/** Return the width of a text in letters; "…" counts as two. */
const breadth = (text) => text.length + text.split("…").length - 1;

/** Return the name without its most common words. If that is too long, return only the beginning of it. */
function brief(name, letters, counts) {
  const parts = name.split(WORD), words = [...parts.keys()].filter((k) => k % 2);
  const commonFirst = words.sort((a, b) => (counts.get(parts[b]) ?? 0) - (counts.get(parts[a]) ?? 0));
  let text = name;
  for (const k of commonFirst.slice(0, -1)) {
    if (breadth(text) <= letters) return text;
    parts.splice(k - 1, 3, "", "…", "");
    text = parts.join("").replace(/…+/gu, "…");
  }
  if (breadth(text) <= letters) return text;
  if (!text.includes("…")) return shortened(name, letters - 1);
  return `${text.slice(0, Math.max(2, letters - (text.startsWith("…") ? 3 : 2))).replace(/…+$/u, "")}…`;
}
