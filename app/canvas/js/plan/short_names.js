// Shorten names to the available width. Words that many names share are removed first, so that short names stay
// distinct. "…" replaces removed words. The other words are not changed, so that a search finds them.

import { shortened } from "../base/formats.js";

const MOST_READ = 4000; // maximum number of names in which common words are counted
const MOST_KEPT = 20000; // maximum number of cached results
const PART = /[A-Za-z0-9]+|[^A-Za-z0-9]/g;

/** Return {brief(name, letters)}, which shortens the names of a plan. */
export function namerOf(plan) {
  const holders = new Map(), every = Math.max(1, Math.ceil(plan.n / MOST_READ)); // word → rows that contain it
  for (let row = 0; row < plan.n; row += every) {
    for (const part of wordsOf(partsOf(plan.ids.at(row)))) {
      if (!holders.has(part)) holders.set(part, new Set());
      holders.get(part).add(row);
    }
  }
  const known = new Map();
  const cutsOf = (name) => {
    if (known.size > MOST_KEPT) known.clear();
    if (!known.has(name)) known.set(name, cuts(name, holders));
    return known.get(name);
  };
  return { brief: (name, letters) => brief(name, letters, cutsOf) };
}

const partsOf = (name) => name.match(PART) ?? [];
const isWord = (part) => /[A-Za-z0-9]/.test(part);
const wordsOf = (parts) => new Set(parts.filter(isWord));

/** Return the width of a text in letters; "…" counts as two. */
const breadth = (text) => text.length + text.split("…").length - 1;

/** Return the name without its most common words. If that is too long, return only the beginning of it. */
function brief(name, letters, cutsOf) {
  if (name.length <= letters) return name;
  const versions = cutsOf(name), shortest = versions.at(-1), fitting = versions.find((cut) => breadth(cut) <= letters);
  if (fitting !== undefined) return fitting;
  if (!shortest.includes("…")) return shortened(name, letters - 1);
  const before = shortest.startsWith("…") ? "…" : "", room = Math.max(1, letters - breadth(before) - 2);
  return `${before}${shortest.slice(before.length, before.length + room).replace(/…+$/u, "")}…`;
}

/** Return versions of a name with fewer and fewer words. A word stays if the version without it fits more names. */
function cuts(name, holders) {
  const parts = partsOf(name), stays = parts.map(() => true), versions = [name];
  const count = (k) => holders.get(parts[k])?.size ?? 0, words = parts.map((_, k) => k).filter((k) => isWord(parts[k]));
  const commonFirst = words.sort((a, b) => count(b) - count(a) || a - b);
  const namesWithWords = () => sharing(wordsOf(parts.filter((_, k) => stays[k])), holders), all = namesWithWords();
  for (const k of commonFirst.slice(0, -1)) {
    stays[k] = false;
    if (namesWithWords() > all) stays[k] = true;
    else versions.push(elided(parts, stays));
  }
  return versions;
}

/** Return the number of counted names that contain all these words. */
function sharing(words, holders) {
  const sets = Array.from(words, (word) => holders.get(word) ?? new Set()).sort((a, b) => a.size - b.size);
  return Array.from(sets[0] ?? []).filter((row) => sets.every((set) => set.has(row))).length;
}

/** Return the words that stay with their separators, and "…" in place of other words. */
function elided(parts, stays) {
  let text = "", separator = "", isCut = false;
  parts.forEach((part, k) => {
    if (!isWord(part)) separator += part;
    else if (stays[k]) {
      text += (isCut ? "…" : separator) + part;
      separator = "";
      isCut = false;
    } else isCut = true;
  });
  return text + (isCut ? "…" : separator);
}
