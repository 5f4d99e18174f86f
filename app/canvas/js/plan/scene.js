// The scene: the position of each box along the steps and along v. A position along v is a line, a slot or a byte.
// rowAt() and searchHits() find a row by a pixel or by a text.

export const VIEWS = { lifetimes: "Lifetimes", slots: "Slots", map: "Arena map" };

// Minimum space for the name of an arena above its band, as a share of the height of all bands and in pixels.
const NAME_SHARE = 0.062;
const NAME_HEIGHT = 20;

/** Return {view, v0, v1, birth, death, bands, overLimit, top, falling, memory}:
 * v0, v1, birth, death: the range of each row in v and in steps
 * bands: one {arena, base, height, extent, otherBase} per arena shown; otherBase: base in the other plan. In the view
 *   "lifetimes", there are none. The first arena is at the top or, with `sideways`, at the left; in one memory at the
 *   bottom.
 * overLimit: the ranges {low, high} of v above a capacity
 * top: the greatest v; falling: whether v runs down
 * memory: only with the option `memory`, the sum of its arenas
 *
 * Options: reach: minimum height of a band in bytes, so that several charts have the same scale; pixels: height of the
 * drawing; memory: null, or {capacity, arenas}: one memory with these arenas end to end; capacity null: unlimited. */
export function sceneOf(plan, { view, shown, sideways, other, reach, pixels, memory }) {
  if (view === "lifetimes") return rowsByBirth(plan, shown);
  if (view === "map" && memory) return oneMemory(plan, { shown, other, memory });
  // A band has space for the extents in both plans and, in a map, for `reach` and for the capacity (see ifAtMost()).
  const heightOf = (arena) => {
    const extent = Math.max(1, extentOf(arena, view));
    const height = Math.max(extent, ifAtMost(3 * extent, extentInOther(other, arena.name, view)));
    return view === "map" ? Math.max(height, reach, ifAtMost(2 * extent, arena.capacity)) : height;
  };
  const arenas = plan.arenas.filter((_, k) => shown[k]);
  const nameShare = sideways ? 0 : NAME_HEIGHT / Math.max(1, pixels - NAME_HEIGHT);
  const sum = arenas.reduce((total, arena) => total + heightOf(arena), 0);
  const nameSpace = Math.min(0.25, Math.max(NAME_SHARE, nameShare)) * sum, bands = [];
  let base = 0;
  for (const arena of sideways ? arenas : arenas.reverse()) {
    const height = heightOf(arena);
    bands.unshift({ arena, base, height, extent: extentOf(arena, view), otherBase: base });
    base += height + nameSpace;
  }
  return { ...boxRanges(plan, bands, view), top: Math.max(base, 1) };
}

function rowsByBirth(plan, shown) {
  const v0 = new Float64Array(plan.n), v1 = new Float64Array(plan.n);
  let lines = 0;
  for (const row of plan.byBirth()) {
    if (!shown[plan.arena[row]]) continue;
    v0[row] = lines++;
    v1[row] = lines;
  }
  const { birth, death } = plan, top = Math.max(lines, 1);
  return { view: "lifetimes", v0, v1, birth, death, bands: [], overLimit: [], top, falling: true };
}

function oneMemory(plan, { shown, other, memory }) {
  const bands = [], capacity = memory.capacity ?? Infinity;
  let base = 0, otherBase = 0;
  for (const name of memory.arenas) {
    const k = plan.arenas.findIndex((arena) => arena.name === name);
    if (shown[k]) {
      const arena = plan.arenas[k], { extent } = arena;
      bands.unshift({ arena, base, height: extent, extent, otherBase });
      base += extent;
    }
    otherBase += extentInOther(other, name, "map");
  }
  const scene = boxRanges(plan, bands, "map");
  if (capacity < base) scene.overLimit.push({ low: capacity, high: base });
  const top = (1 + NAME_SHARE) * Math.max(base, ifAtMost(2 * base, capacity), ifAtMost(3 * base, otherBase), 1);
  return { ...scene, top, memory: sumOf(bands.map(({ arena }) => arena), plan.steps, capacity) };
}

/** Return the sum of arenas as an arena. */
export function sumOf(arenas, steps, capacity) {
  const total = (name) => arenas.reduce((sum, arena) => sum + arena[name], 0);
  const live = Float64Array.from({ length: steps }, (_, t) => arenas.reduce((sum, arena) => sum + arena.live[t], 0));
  const peak_step = live.reduce((best, bytes, t) => (bytes > live[best] ? t : best), 0), peak = live[peak_step] ?? 0;
  return { name: "all arenas", live, extent: total("extent"), bound: total("bound"), peak, peak_step, capacity };
}

/** Return the scene without `top`. The first tensor of a storage has the box of the whole storage, which is in use from
 * the first write until the last tensor of the storage is freed. */
function boxRanges(plan, bands, view) {
  const bases = plan.arenas.map((arena) => bands.find((band) => band.arena === arena)?.base ?? 0);
  const start = view === "slots" ? plan.slot : plan.offset;
  const v0 = Float64Array.from(start, (value, i) => bases[plan.arena[i]] + value);
  const v1 = v0.map((low, i) => low + (view === "slots" ? 1 : Math.max(1, plan.size[i])));
  const birth = plan.birth.slice(), death = plan.death.slice();
  for (const [head, rows] of plan.members) {
    ({ birth: birth[head], death: death[head] } = plan.held(head));
    for (const row of rows) [v0[head], v1[head]] = [Math.min(v0[head], v0[row]), Math.max(v1[head], v1[row])];
  }
  const overLimit = bands.flatMap(({ arena: { capacity }, base, extent }) => {
    return view === "map" && capacity < extent ? [{ low: base + capacity, high: base + extent }] : [];
  });
  return { view, v0, v1, birth, death, bands, overLimit, falling: false };
}

/** Return the extent of an arena along v, in slots or bytes; 0 without an arena. */
const extentOf = (arena, view) => (view === "slots" ? arena?.slots : arena?.extent) ?? 0;
const extentInOther = (other, name, view) => extentOf(other?.arenas.find((arena) => arena.name === name), view);

/** Return a size, or 0 if it exceeds a limit: a much larger scale would make the boxes too small. */
const ifAtMost = (limit, size) => (size <= limit ? size : 0);

const TOLERANCE = 3; // pixels

/** Return the row of the smallest box that contains a pixel, else of the nearest box within TOLERANCE, else −1. */
export function rowAt({ plan, plane, scene, shown }, x, y) {
  const { t, v } = plane.at(x, y), { pixelsPerStep, pixelsPerLevel } = plane, { v0, v1, birth, death } = scene;
  const marginT = TOLERANCE / pixelsPerStep, marginV = TOLERANCE / pixelsPerLevel;
  let best = -1, nearest = Infinity, smallest = Infinity;
  for (let i = 0; i < plan.n; i++) {
    if (t < birth[i] - marginT || t > death[i] + marginT || v < v0[i] - marginV || v > v1[i] + marginV) continue;
    if (!shown[plan.arena[i]]) continue;
    const dx = Math.max(birth[i] - t, 0, t - death[i]) * pixelsPerStep;
    const dy = Math.max(v0[i] - v, 0, v - v1[i]) * pixelsPerLevel;
    const distance = dx * dx + dy * dy, area = (v1[i] - v0[i]) * (death[i] - birth[i]);
    if (distance < nearest || (distance === nearest && area < smallest)) {
      best = i;
      nearest = distance;
      smallest = area;
    }
  }
  return best;
}

const lowerCase = (text) => text.replace(/[A-Z]+/g, (letters) => letters.toLowerCase());

/** Return a flag per row: 1 if its arena is shown, and its id or its producer's id contains the text. The case of the
 * letters A to Z is ignored. */
export function searchHits(plan, text, shown) {
  const searched = lowerCase(text), contains = (name) => lowerCase(name).includes(searched);
  const isNodeHit = plan.nodes.map(contains);
  return Uint8Array.from(plan.ids, (id, i) => {
    // No node writes a row that is live at every step.
    const isWrittenByHit = isNodeHit[plan.birth[i]] && plan.death[i] - plan.birth[i] < plan.steps;
    return shown[plan.arena[i]] && (isWrittenByHit || contains(id));
  });
}
