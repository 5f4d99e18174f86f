// How a name is cut to the room it has: what names have in common goes first, what tells them apart stays.

import { shortened } from "./words.js";

const MOST_READ = 4000; // names that are looked at to learn what is common
const PART = /[A-Za-z0-9]+|[^A-Za-z0-9]/g;

/** {brief(name, letters)} that has learnt what the names of a plan have in common. */
export function namerOf(plan) {
  const counts = new Map(), every = Math.max(1, Math.ceil(plan.n / MOST_READ));
  for (let row = 0; row < plan.n; row += every) {
    for (const part of new Set(partsOf(plan.ids.at(row)))) counts.set(part, (counts.get(part) ?? 0) + 1);
  }
  return { brief: (name, letters) => brief(name, letters, counts) };
}

const partsOf = (name) => name.match(PART) ?? [];
const isWord = (part) => /[A-Za-z0-9]/.test(part);

/** The name without its commonest parts, as many of them as must go; cut in its middle where even that is too long. */
function brief(name, letters, counts) {
  if (name.length <= letters) return name;
  const parts = partsOf(name), kept = parts.map(() => true);
  const words = parts.map((_, k) => k).filter((k) => isWord(parts[k]));
  const common = words.sort((a, b) => (counts.get(parts[b]) ?? 0) - (counts.get(parts[a]) ?? 0) || a - b);
  for (const k of common.slice(0, -1)) {
    kept[k] = false;
    const rest = joined(parts, kept);
    if (rest.length <= letters) return rest;
  }
  return shortened(joined(parts, kept), letters);
}

/** What is kept, with the separators between what is kept; those at the ends say nothing. */
function joined(parts, kept) {
  let text = "", between = "";
  parts.forEach((part, k) => {
    if (!isWord(part)) between ||= part;
    else if (kept[k]) {
      text += (text && between) + part;
      between = "";
    }
  });
  return text;
}
