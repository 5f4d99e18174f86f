// Find a row by a pixel, as the neighbour of another row, or by a text.

const REACH = 3; // pixels

/** Return the row of the smallest box that contains a pixel; without one, of the nearest box within REACH, or −1.
 * Boxes are not rounded to pixels, so that zooming in separates boxes. */
export function rowAt({ plan, plane, scene, shown }, x, y) {
  const { t, v } = plane.at(x, y), { perStep, perLevel } = plane, { arena } = plan, { v0, v1, birth, death } = scene;
  const reachT = REACH / perStep, reachV = REACH / perLevel;
  let best = -1, nearest = Infinity, smallest = Infinity;
  for (let i = 0; i < plan.n; i++) {
    if (t < birth[i] - reachT || t > death[i] + reachT || v < v0[i] - reachV || v > v1[i] + reachV) continue;
    if (!shown[arena[i]]) continue;
    const dt = Math.max(birth[i] - t, 0, t - death[i]) * perStep, dv = Math.max(v0[i] - v, 0, v - v1[i]) * perLevel;
    const far = dt * dt + dv * dv, area = (v1[i] - v0[i]) * (death[i] - birth[i]);
    if (far < nearest || (far === nearest && area < smallest)) {
      best = i;
      nearest = far;
      smallest = area;
    }
  }
  return best;
}

/** Return the next row after the row `here` in the order of v, or −1. `direction`: 1 for a greater v, −1 for a smaller
 * v. If `here` is −1, return the first row in that direction. Only rows that are live at `step` count; if `step` is
 * null, only rows that overlap `here` in time. */
export function nextInOrder({ plan, scene, shown }, here, direction, step) {
  const { birth, death, arena } = plan, from = here >= 0 ? scene.v0[here] : -direction * Infinity;
  const further = (v, i, thanV, than) => direction * (v - thanV) > 0 || (v === thanV && direction * (i - than) > 0);
  const isCandidate = (i) => {
    if (step !== null) return birth[i] <= step && step < death[i];
    return here < 0 || (birth[i] < death[here] && birth[here] < death[i]);
  };
  let best = -1;
  for (let i = 0; i < plan.n; i++) {
    if (i === here || !shown[arena[i]] || !isCandidate(i) || !further(scene.v0[i], i, from, here)) continue;
    if (best < 0 || further(scene.v0[best], best, scene.v0[i], i)) best = i;
  }
  return best;
}

/** Return a flag per row: whether its id or the id of its producer contains the text; 0 in the arenas not shown. */
export function found(plan, text, shown) {
  const hits = new Uint8Array(plan.n), nodes = new Uint8Array(plan.steps);
  plan.ids.find(text, hits);
  plan.nodes.find(text, nodes);
  for (let i = 0; i < plan.n; i++) {
    // A row that is live at every step is persistent: no node of the first step writes it.
    if (nodes[plan.birth[i]] && plan.death[i] - plan.birth[i] < plan.steps) hits[i] = 1;
    if (!shown[plan.arena[i]]) hits[i] = 0;
  }
  return hits;
}
