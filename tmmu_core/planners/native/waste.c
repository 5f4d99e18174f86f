/* Alignment gaps and the top of an arena at every step: the loop of tmmu_core/plans/analysis/waste_ledger.py in C.
 *
 * Freestanding: 64-bit integers, no library, no recursion, no allocation.
 */
#include "native.h"

/* The bytes between two neighbouring blocks up to the alignment of the upper one. */
static uint64_t alignment_gap(const struct waste *p, I lower, I upper)
{
    if (lower < 0 || upper < 0 || p->start[upper] <= p->end[lower])
        return 0;
    const uint64_t grid = p->alignment[upper], to_grid = (grid - p->end[lower] % grid) % grid;
    const uint64_t distance = p->start[upper] - p->end[lower];
    return to_grid < distance ? to_grid : distance;
}

/* Block `place` has one tenant more or less; update the path from its leaf to the root. */
static void change_tenants(const struct waste *p, I place, I change)
{
    p->tenants[place] += change;
    I k = p->leaves + place;
    const I block = p->tenants[place] > 0 ? place : -1;
    if (p->first[k] == block)
        return;
    p->first[k] = p->last[k] = block;
    for (k /= 2; k; k /= 2) {
        const I left = 2 * k, right = left + 1;
        p->first[k] = p->first[left] >= 0 ? p->first[left] : p->first[right];
        p->last[k] = p->last[right] >= 0 ? p->last[right] : p->last[left];
        p->inside[k] = p->inside[left] + p->inside[right] + alignment_gap(p, p->last[left], p->first[right]);
    }
}

SHARED I tmmu_waste(const struct waste *p)
{
    I b = 0, d = 0;
    for (I t = 0; t < p->steps; t++) {
        for (;;) {
            if (d < p->events && p->deaths[d] == t)
                change_tenants(p, p->place[p->gone[d++]], -1);
            else if (b < p->events && p->births[b] == t)
                change_tenants(p, p->place[p->born[b++]], 1);
            else
                break;
        }
        p->gaps[t] = p->inside[1];
        p->top[t] = p->last[1] >= 0 ? p->end[p->last[1]] : 0;
    }
    return DONE;
}
