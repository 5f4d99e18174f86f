// Shorten names to the available width. Words that many names share are omitted first, so that short names stay
// distinct. "…" replaces omitted words. The other words are not changed, so that a search finds them.

import { shortened } from "../base/formats.js";

const MOST_READ = 4000; // maximum number of names in which common words are counted
const PART = /[A-Za-z0-9]+|[^A-Za-z0-9]/g;

const partsOf = (name) => name.match(PART) ?? [];
const isWord = (part) => /[A-Za-z0-9]/.test(part);

/** Return {brief(name, letters)}, which shortens the names of a plan. */
export function namerOf(plan) {
  const counts = new Map(), every = Math.max(1, Math.ceil(plan.n / MOST_READ)); // word → number of names with it
  for (let row = 0; row < plan.n; row += every) {
    for (const part of new Set(partsOf(plan.ids.at(row)))) counts.set(part, (counts.get(part) ?? 0) + 1);
  }
  return { brief: (name, letters) => brief(name, letters, counts) };
}

/** Return the width of a text in letters; "…" counts as two. */
const breadth = (text) => text.length + text.split("…").length - 1;

/** Return the name without its most common words. If that is too long, return only the beginning of it. */
function brief(name, letters, counts) {
  const parts = partsOf(name), words = [...parts.keys()].filter((k) => isWord(parts[k])), kept = new Set(words);
  const commonFirst = [...words].sort((a, b) => (counts.get(parts[b]) ?? 0) - (counts.get(parts[a]) ?? 0));
  let text = name;
  for (const k of commonFirst.slice(0, -1)) {
    if (breadth(text) <= letters) return text;
    kept.delete(k);
    text = elided(parts, kept);
  }
  if (breadth(text) <= letters) return text;
  if (!text.includes("…")) return shortened(name, letters - 1);
  return `${text.slice(0, Math.max(2, letters - (text.startsWith("…") ? 3 : 2))).replace(/…+$/u, "")}…`;
}

/** Return the words `kept` with their separators, and "…" in place of the other words. */
function elided(parts, kept) {
  let text = "", between = "";
  parts.forEach((part, k) => {
    if (!isWord(part)) between += between === "…" ? "" : part;
    else if (kept.has(k)) [text, between] = [text + between + part, ""];
    else between = "…";
  });
  return text + between;
}
