// The position of each box along v, which is a row, a slot or a byte. The position along the steps is its live range.

export const VIEWS = { lifetimes: "Lifetimes", slots: "Slots", map: "Arena map" };

/** Minimum space for the name of an arena above its band, as a fraction of the height of all bands. */
const NAME_ROOM = 0.062;
const NAME_HEIGHT = 20; // pixels

/**
 * Return {view, v0, v1, bands, over, top, falling}: the half-open range in v of each row, a band {arena, base, height,
 * extent} per arena, and the ranges {low, high} above a capacity (`over`).
 *
 * Arenas have the same scale and are stacked, the first at the top (sideways: at the left). Arguments: `reach`: minimum
 * bytes of each band, so that several charts have the same scale. `pixels`: height of the drawing. `memory`: {capacity,
 * arenas} of one memory that contains these arenas end to end, the first at the bottom; a null capacity is unlimited.
 */
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
  return { view: "lifetimes", v0, v1, bands: [], over: [], top: Math.max(lane, 1), falling: true };
}

function stacked(plan, { view, shown, sideways, other, reach, pixels }) {
  const n = plan.n, v0 = new Float64Array(n), v1 = new Float64Array(n), bands = [];
  const heights = plan.arenas.map((arena) => bandHeight(arena, view, other, reach));
  const share = sideways ? 0 : NAME_HEIGHT / Math.max(1, pixels - NAME_HEIGHT);
  const room = Math.min(0.25, Math.max(NAME_ROOM, share)) * heights.reduce((sum, h, k) => sum + (shown[k] ? h : 0), 0);
  const bases = new Float64Array(plan.arenas.length), order = plan.arenas.map((_, k) => k);
  let base = 0;
  for (const k of sideways ? order : order.reverse()) {
    if (!shown[k]) continue;
    bases[k] = base;
    const extent = used(plan.arenas[k], view);
    bands.unshift({ index: k, arena: plan.arenas[k], base, height: heights[k], extent, otherBase: base });
    base += heights[k] + room;
  }
  const slots = view === "slots", from = slots ? plan.slot : plan.offset;
  for (let i = 0; i < n; i++) {
    v0[i] = bases[plan.arena[i]] + from[i];
    v1[i] = v0[i] + (slots ? 1 : Math.max(1, plan.size[i]));
  }
  const limited = bands.filter(({ arena }) => view === "map" && arena.capacity !== null);
  const over = limited
    .map((band) => ({ low: band.base + Number(band.arena.capacity), high: band.base + band.extent }))
    .filter(({ low, high }) => low < high);
  return { view, v0, v1, bands, over, top: Math.max(base, 1), falling: false };
}

function oneMemory(plan, { shown, other, memory }) {
  const n = plan.n, v0 = new Float64Array(n), v1 = new Float64Array(n), bands = [], bases = [];
  let base = 0, otherBase = 0;
  for (const name of memory.arenas) {
    const k = plan.arenas.findIndex((arena) => arena.name === name);
    otherBase += used(other?.arenas.find((arena) => arena.name === name), "map");
    if (k < 0 || !shown[k]) continue;
    const extent = used(plan.arenas[k], "map"), theirs = used(other?.arenas.find((a) => a.name === name), "map");
    bands.unshift({ index: k, arena: plan.arenas[k], base, height: extent, extent, otherBase: otherBase - theirs });
    bases[k] = base;
    base += extent;
  }
  for (let i = 0; i < n; i++) {
    if (bases[plan.arena[i]] === undefined) continue;
    v0[i] = bases[plan.arena[i]] + plan.offset[i];
    v1[i] = v0[i] + Math.max(1, plan.size[i]);
  }
  const { capacity } = memory, room = capacity !== null && capacity <= 2 * base ? capacity : 0;
  const over = capacity !== null && capacity < base ? [{ low: capacity, high: base }] : [];
  const top = (1 + NAME_ROOM) * Math.max(base, room, otherBase <= 3 * base ? otherBase : 0, 1);
  return { view: "map", v0, v1, bands, over, top, falling: false, limit: capacity, memory: true };
}

const used = (arena, view) => (!arena ? 0 : view === "slots" ? arena.slots : Number(arena.extent));

/**
 * Return the height of an arena's band: the largest of its size, `reach`, its capacity and its size in the other plan.
 * Capacity and size in the other plan are ignored if they are so large that the boxes could not be read.
 */
function bandHeight(arena, view, other, reach) {
  const extent = Math.max(1, used(arena, view));
  const theirs = used(other?.arenas.find(({ name }) => name === arena.name), view);
  const capacity = view === "slots" || arena.capacity === null ? 0 : Number(arena.capacity);
  const wanted = [extent, view === "map" ? reach : 0];
  if (capacity <= 2 * extent) wanted.push(capacity);
  if (theirs <= 3 * extent) wanted.push(theirs);
  return Math.max(...wanted);
}

/** Return the index of the arena whose live bytes change most, the default arena of the curve. */
export function liveliest(plan) {
  let best = 0, most = -1;
  plan.arenas.forEach((arena, k) => {
    let low = Infinity, high = 0;
    for (const bytes of arena.live) {
      if (bytes < low) low = bytes;
      if (bytes > high) high = bytes;
    }
    if (high - low > most) {
      most = high - low;
      best = k;
    }
  });
  return best;
}
