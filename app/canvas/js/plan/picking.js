// Find a row by a pixel or by a text.

const REACH = 3; // pixels

/** Return the row of the smallest box that contains a pixel, else of the nearest box within REACH, else −1. */
export function rowAt({ plan, plane, scene, shown }, x, y) {
  const { t, v } = plane.at(x, y), { pixelsPerStep, pixelsPerLevel } = plane, { v0, v1, birth, death } = scene;
  const reachT = REACH / pixelsPerStep, reachV = REACH / pixelsPerLevel;
  let best = -1, nearest = Infinity, smallest = Infinity;
  for (let i = 0; i < plan.n; i++) {
    if (t < birth[i] - reachT || t > death[i] + reachT || v < v0[i] - reachV || v > v1[i] + reachV) continue;
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

/** Return a flag per row: 1 if its arena is shown, and its id or its producer's id contains the text. */
export function searchHits(plan, text, shown) {
  const hits = new Uint8Array(plan.n), isNodeHit = new Uint8Array(plan.steps);
  plan.ids.find(text, hits);
  plan.nodes.find(text, isNodeHit);
  for (let i = 0; i < plan.n; i++) {
    // No node writes a row that is live at every step.
    if (isNodeHit[plan.birth[i]] && plan.death[i] - plan.birth[i] < plan.steps) hits[i] = 1;
    if (!shown[plan.arena[i]]) hits[i] = 0;
  }
  return hits;
}
