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
  const made = cutsOf(name), least = made.at(-1), fitting = made.find((cut) => breadth(cut) <= letters);
  if (fitting !== undefined) return fitting;
  if (!least.includes("…")) return shortened(name, letters - 1);
  const before = least.startsWith("…") ? "…" : "", room = Math.max(1, letters - breadth(before) - 2);
  return `${before}${least.slice(before.length, before.length + room).replace(/…+$/u, "")}…`;
}

/** Return versions of the name with fewer and fewer words, common words removed first. No other name gets shared. */
function cuts(name, holders) {
  const parts = partsOf(name), kept = parts.map(() => true), made = [name];
  const words = parts.map((_, k) => k).filter((k) => isWord(parts[k]));
  const common = words.sort((a, b) => count(holders, parts[b]) - count(holders, parts[a]) || a - b);
  const meant = () => sharing(wordsOf(parts.filter((_, k) => kept[k])), holders), all = meant();
  for (const k of common.slice(0, -1)) {
    kept[k] = false;
    if (meant() > all) kept[k] = true;
    else made.push(elided(parts, kept));
  }
  return made;
}

const count = (holders, word) => holders.get(word)?.size ?? 0;

/** Return the number of counted names that contain all these words. */
function sharing(words, holders) {
  const sets = Array.from(words, (word) => holders.get(word) ?? new Set()).sort((a, b) => a.size - b.size);
  let found = 0;
  for (const row of sets[0] ?? []) if (sets.every((set) => set.has(row))) found++;
  return found;
}

/** Return the kept words with their separators, and "…" in place of removed words. */
function elided(parts, kept) {
  let text = "", between = "", gone = false;
  parts.forEach((part, k) => {
    if (!isWord(part)) between += part;
    else if (kept[k]) {
      text += (gone ? "…" : between) + part;
      between = "";
      gone = false;
    } else gone = true;
  });
  return text + (gone ? "…" : between);
}
