// Where each box lies: time is the same in every view; v is the row, the slot or the byte.

const VIEWS = { lifetimes: "Lifetimes", slots: "Slots", map: "Arena map" };

/**
 * {v0, v1, bands, top, down}: per row its half-open range in v; per arena a band {arena, base, height, extent}.
 * Arenas are stacked on one scale, the first on top (sideways: first on the left), each with its own zero at its bottom
 * and room for its name above. A band is as high as what it must show: the extent, a capacity or the other plan's extent
 * unless they are so much greater that the plan itself would be small; never lower than `reach`, so that several charts
 * can stand on one scale.
 */
function scene(plan, view, shown, sideways, other, reach = 0) {
  const n = plan.n, v0 = new Float64Array(n), v1 = new Float64Array(n), bands = [];
  if (view === "lifetimes") {
    let lane = 0;
    for (const row of plan.byBirth()) {
      if (!shown[plan.arena[row]]) continue;
      v0[row] = lane++;
      v1[row] = lane;
    }
    return { view, v0, v1, bands, top: Math.max(lane, 1), down: true };
  }
  const heights = plan.arenas.map((arena) => {
    const twin = other?.arenas.find(({ name }) => name === arena.name);
    const used = (a) => (!a ? 0 : view === "slots" ? a.slots : Number(a.extent));
    const extent = Math.max(1, used(arena)), capacity = view === "slots" || arena.capacity === null ? 0 : Number(arena.capacity);
    return Math.max(extent, capacity <= 2 * extent ? capacity : 0, used(twin) <= 3 * extent ? used(twin) : 0, view === "map" ? reach : 0);
  });
  const total = heights.reduce((sum, h, k) => sum + (shown[k] ? h : 0), 0);
  const room = 0.062 * total;
  const bases = new Float64Array(plan.arenas.length);
  let base = 0;
  const order = plan.arenas.map((_, k) => k);
  for (const k of sideways ? order : order.reverse()) {
    if (!shown[k]) continue;
    bases[k] = base;
    const extent = view === "slots" ? plan.arenas[k].slots : Number(plan.arenas[k].extent);
    bands.unshift({ index: k, arena: plan.arenas[k], base, height: heights[k], extent, room });
    base += heights[k] + room;
  }
  const from = view === "slots" ? plan.slot : plan.offset;
  for (let i = 0; i < n; i++) {
    v0[i] = bases[plan.arena[i]] + from[i];
    v1[i] = v0[i] + (view === "slots" ? 1 : Math.max(1, plan.size[i]));
  }
  return { view, v0, v1, bands, top: Math.max(base, 1), down: false };
}

/** The arena whose live bytes change most: the one the curve shows when nobody chose. */
function liveliest(plan) {
  let best = 0, most = -1;
  plan.arenas.forEach((arena, k) => {
    let low = Infinity, high = 0;
    for (const bytes of arena.live) { if (bytes < low) low = bytes; if (bytes > high) high = bytes; }
    if (high - low > most) { most = high - low; best = k; }
  });
  return best;
}

/** Steps of 1, 2, 5 × 10^k, at least `least`. */
function tens(least) {
  const power = 10 ** Math.floor(Math.log10(Math.max(least, 1)));
  for (const factor of [1, 2, 5, 10]) if (factor * power >= least) return factor * power;
  return 10 * power;
}
/** Powers of two, at least `least`. */
const twos = (least) => 2 ** Math.max(0, Math.ceil(Math.log2(Math.max(least, 1))));
