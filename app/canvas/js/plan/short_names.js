// How a name is cut to the room it has: what names have in common goes first, what tells them apart stays. Where
// something went stands "…", so that what stands between is found as it stands.

import { shortened } from "../base/formats.js";

const MOST_READ = 4000; // names that are looked at to learn what is common
const MOST_KEPT = 20000; // names whose cuts are remembered
const PART = /[A-Za-z0-9]+|[^A-Za-z0-9]/g;

/** {brief(name, letters)} that has learnt what the names of a plan have in common. */
export function namerOf(plan) {
  const holders = new Map(), every = Math.max(1, Math.ceil(plan.n / MOST_READ)); // word → the rows that have it
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

/** Letters of room that a text takes: "…" is as wide as two. */
const breadth = (text) => text.length + text.split("…").length - 1;

/** The name without as many of its commonest words as must go; where even that is too long, how it begins. */
function brief(name, letters, cutsOf) {
  if (name.length <= letters) return name;
  const made = cutsOf(name), least = made.at(-1), fitting = made.find((cut) => breadth(cut) <= letters);
  if (fitting !== undefined) return fitting;
  if (!least.includes("…")) return shortened(name, letters - 1);
  const before = least.startsWith("…") ? "…" : "", room = Math.max(1, letters - breadth(before) - 2);
  return `${before}${least.slice(before.length, before.length + room).replace(/…+$/u, "")}…`;
}

/** The name with fewer and fewer words, the commonest gone first; one without which other names are meant too stays. */
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

/** How many of the names that were looked at have all these words. */
function sharing(words, holders) {
  const sets = Array.from(words, (word) => holders.get(word) ?? new Set()).sort((a, b) => a.size - b.size);
  let found = 0;
  for (const row of sets[0] ?? []) if (sets.every((set) => set.has(row))) found++;
  return found;
}

/** What is kept, as it stands in the name, and "…" for what is between. */
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
