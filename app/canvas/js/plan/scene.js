// The position of each box along v, which is a row, a slot or a byte. The position along the steps is its live range.

export const VIEWS = { lifetimes: "Lifetimes", slots: "Slots", map: "Arena map" };

/** Minimum space for the name of an arena above its band, as a fraction of the height of all bands. */
const NAME_ROOM = 0.062;
const NAME_HEIGHT = 20; // pixels

/** Return {view, v0, v1, birth, death, bands, over, top, falling}: the ranges in v and steps of each row, a band per
 * arena shown, the ranges {low, high} above a capacity (`over`), the greatest v, and whether v runs down. A band is
 * {arena, base, height, extent, otherBase}; `otherBase`: base of the arena in the other plan. For one memory, `memory`
 * is the sum of its arenas. Arenas have the same scale and are stacked, the first at the top (sideways: at the left).
 * Arguments: `reach`: minimum bytes of each band, so that several charts have the same scale. `pixels`: height of the
 * drawing. `memory`: {capacity, arenas} of one memory that contains these arenas end to end, the first at the bottom;
 * a null capacity is unlimited. */
export function sceneOf(plan, { view, shown, sideways, other, reach = 0, pixels = 400, memory = null }) {
  if (view === "lifetimes") return rowsByBirth(plan, shown);
  if (view === "map" && memory) return oneMemory(plan, { shown, other, memory });
  return stacked(plan, { view, shown, sideways, other, reach, pixels });
}

function rowsByBirth(plan, shown) {
  const v0 = new Float64Array(plan.n), v1 = new Float64Array(plan.n);
  let lane = 0;
  for (const row of plan.byBirth()) {
    if (!shown[plan.arena[row]]) continue;
    v0[row] = lane++;
    v1[row] = lane;
  }
  return { view: "lifetimes", v0, v1, birth: plan.birth, death: plan.death, bands: [], over: [], top: Math.max(lane, 1), falling: true };
}

function stacked(plan, { view, shown, sideways, other, reach, pixels }) {
  const bands = [], bases = new Float64Array(plan.arenas.length), order = plan.arenas.map((_, k) => k);
  const heights = plan.arenas.map((arena) => bandHeight(arena, view, other, reach));
  const share = sideways ? 0 : NAME_HEIGHT / Math.max(1, pixels - NAME_HEIGHT);
  const room = Math.min(0.25, Math.max(NAME_ROOM, share)) * heights.reduce((sum, h, k) => sum + (shown[k] ? h : 0), 0);
  let base = 0;
  for (const k of sideways ? order : order.reverse()) {
    if (!shown[k]) continue;
    bases[k] = base;
    const extent = used(plan.arenas[k], view);
    bands.unshift({ arena: plan.arenas[k], base, height: heights[k], extent, otherBase: base });
    base += heights[k] + room;
  }
  const limited = bands.filter(({ arena }) => view === "map" && arena.capacity !== null);
  const over = limited
    .map((band) => ({ low: band.base + Number(band.arena.capacity), high: band.base + band.extent }))
    .filter(({ low, high }) => low < high);
  return { view, ...boxRanges(plan, bases, view), bands, over, top: Math.max(base, 1), falling: false };
}

function oneMemory(plan, { shown, other, memory }) {
  const bands = [], bases = new Float64Array(plan.arenas.length);
  let base = 0, otherBase = 0;
  for (const name of memory.arenas) {
    const k = plan.arenas.findIndex((arena) => arena.name === name);
    if (k >= 0 && shown[k]) {
      const extent = used(plan.arenas[k], "map");
      bands.unshift({ arena: plan.arenas[k], base, height: extent, extent, otherBase });
      bases[k] = base;
      base += extent;
    }
    otherBase += usedInOther(other, name, "map");
  }
  const { capacity } = memory, room = capacity !== null && capacity <= 2 * base ? capacity : 0;
  const over = capacity !== null && capacity < base ? [{ low: capacity, high: base }] : [];
  const top = (1 + NAME_ROOM) * Math.max(base, room, otherBase <= 3 * base ? otherBase : 0, 1);
  const sum = sumOf(bands.map(({ arena }) => arena), plan.steps, capacity);
  return { view: "map", ...boxRanges(plan, bases, "map"), bands, over, top, falling: false, memory: sum };
}

/** Return arenas of one memory as one arena. */
export function sumOf(arenas, steps, capacity) {
  const total = (name) => arenas.reduce((sum, arena) => sum + Number(arena[name]), 0);
  const live = Float64Array.from({ length: steps }, (_, t) => arenas.reduce((sum, arena) => sum + arena.live[t], 0));
  const peak_step = live.reduce((best, bytes, t) => (bytes > live[best] ? t : best), 0), peak = live[peak_step] ?? 0;
  return { name: "all arenas", live, extent: total("extent"), bound: total("bound"), peak, peak_step, capacity };
}

/** Return {v0, v1, birth, death} of the rows, if the arena k begins at bases[k]. The box of the first tensor of a
 * storage contains the whole storage, which is held from its first write until its last tensor is freed. */
function boxRanges(plan, bases, view) {
  const v0 = new Float64Array(plan.n), v1 = new Float64Array(plan.n), start = view === "slots" ? plan.slot : plan.offset;
  for (let i = 0; i < plan.n; i++) {
    v0[i] = bases[plan.arena[i]] + start[i];
    v1[i] = v0[i] + (view === "slots" ? 1 : Math.max(1, plan.size[i]));
  }
  const birth = plan.birth.slice(), death = plan.death.slice();
  for (const [head, rows] of plan.members) {
    ({ birth: birth[head], death: death[head] } = plan.held(head));
    for (const row of rows) [v0[head], v1[head]] = [Math.min(v0[head], v0[row]), Math.max(v1[head], v1[row])];
  }
  return { v0, v1, birth, death };
}

/** Return the size of an arena along v, in slots or bytes; 0 without an arena. */
const used = (arena, view) => (!arena ? 0 : view === "slots" ? arena.slots : Number(arena.extent));
const usedInOther = (other, name, view) => used(other?.arenas.find((arena) => arena.name === name), view);

/** Return the height of an arena's band: the largest of its size, `reach`, its capacity and its size in the other
 * plan. `reach` is for the map only. A capacity, or size in the other plan, that would make the boxes illegible is
 * ignored. */
function bandHeight(arena, view, other, reach) {
  const extent = Math.max(1, used(arena, view)), atMost = (size, factor) => (size <= factor * extent ? size : 0);
  const [capacity, least] = view === "map" ? [Number(arena.capacity ?? 0), reach] : [0, 0];
  return Math.max(extent, least, atMost(capacity, 2), atMost(usedInOther(other, arena.name, view), 3));
}
