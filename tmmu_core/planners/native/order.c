/* Peak memory of execution orders, and orders that lower it: the loops of tmmu_core/fitting/order in C. All sums stay
   below 2^60 (OrderModel). */
#include "native.h"

/* Initialise the counters before the first node; return the live bytes. */
static I start(const struct order *p)
{
    I live = 0;
    for (I s = 0; s < p->storages; s++) {
        p->left[s] = p->touched_by[s];
        p->born[s] = p->initial[s] && (p->held[s] || p->left[s] > 0);
        if (p->born[s])
            live += p->size[s];
    }
    return live;
}

/* The storage that the node's output reuses in place, or -1. */
static I reused(const struct order *p, I node)
{
    if (p->out[node] < 0 || p->born[p->out[node]])
        return -1;
    for (I c = p->cand_ptr[node]; c < p->cand_ptr[node + 1]; c++)
        if (p->left[p->cand_idx[c]] == 1)
            return p->cand_idx[c];
    return -1;
}

/* Run a unit from `live` bytes: set `live` to the bytes after it, return the peak of its steps. */
static I run_unit(const struct order *p, I unit, I *live)
{
    I most = 0, now = *live;
    for (I u = p->unit_ptr[unit]; u < p->unit_ptr[unit + 1]; u++) {
        const I node = p->unit_nodes[u], given = reused(p, node);
        I freed = 0;
        for (I t = p->touch_ptr[node]; t < p->touch_ptr[node + 1]; t++) {
            const I s = p->touch_idx[t];
            if (!p->born[s]) {
                p->born[s] = 1;
                now += p->size[s];
            }
            p->left[s]--;
            if (p->left[s] == 0 && !p->held[s])
                freed += p->size[s];
        }
        most = larger(most, now - (given >= 0 ? p->size[given] : 0));
        now -= freed;
    }
    *live = now;
    return most;
}

static void undo_unit(const struct order *p, I unit)
{
    for (I u = p->unit_ptr[unit]; u < p->unit_ptr[unit + 1]; u++) {
        const I node = p->unit_nodes[u];
        for (I t = p->touch_ptr[node]; t < p->touch_ptr[node + 1]; t++) {
            const I s = p->touch_idx[t];
            p->left[s]++;
            if (p->left[s] == p->touched_by[s] && !p->initial[s])
                p->born[s] = 0;
        }
    }
}

/* one: the peak of each arena; two: the first place in the order that has it, or -1. Places in [skip_from, skip_to)
   do not count. */
SHARED I tmmu_order_measure(const struct order *p)
{
    I *const live = p->live, *const peaks = p->one, *const where = p->two;
    start(p);
    for (I a = 0; a < p->arenas; a++) {
        live[a] = peaks[a] = 0;
        where[a] = -1;
    }
    for (I s = 0; s < p->storages; s++) {
        if (p->initial[s])
            peaks[p->arena[s]] += p->size[s];
        if (p->born[s])
            live[p->arena[s]] += p->size[s];
    }
    for (I place = 0; place < p->n; place++) {
        const I unit = p->given[place];
        const int counts = place < p->skip_from || place >= p->skip_to;
        for (I u = p->unit_ptr[unit]; u < p->unit_ptr[unit + 1]; u++) {
            const I node = p->unit_nodes[u], given = reused(p, node);
            for (I t = p->touch_ptr[node]; t < p->touch_ptr[node + 1]; t++) {
                const I s = p->touch_idx[t];
                if (!p->born[s]) {
                    p->born[s] = 1;
                    live[p->arena[s]] += p->size[s];
                }
            }
            if (given >= 0)
                live[p->arena[given]] -= p->size[given];
            for (I a = 0; counts && a < p->arenas; a++)
                if (live[a] > peaks[a]) {
                    peaks[a] = live[a];
                    where[a] = place;
                }
            if (given >= 0)
                live[p->arena[given]] += p->size[given];
            for (I t = p->touch_ptr[node]; t < p->touch_ptr[node + 1]; t++) {
                const I s = p->touch_idx[t];
                p->left[s]--;
                if (p->left[s] == 0 && !p->held[s])
                    live[p->arena[s]] -= p->size[s];
            }
        }
    }
    return DONE;
}

/* one, two: what each unit adds to the live bytes while it runs, and after it. */
SHARED I tmmu_order_alone(const struct order *p)
{
    I live = start(p);
    for (I place = 0; place < p->n; place++) {
        const I unit = p->given[place], before = live;
        p->one[unit] = run_unit(p, unit, &live) - before;
        p->two[unit] = live - before;
    }
    return DONE;
}

/* Fill `ready` with the units that wait for no other, ascending; return how many. */
static I begin(const struct order *p, I *ready, I *waits)
{
    I many = 0;
    for (I unit = 0; unit < p->n; unit++) {
        p->done[unit] = 0;
        waits[unit] = p->waits_for[unit];
        if (waits[unit] == 0)
            ready[many++] = unit;
    }
    return many;
}

/* Remove the units that are done from `ready`, and append those that waited for `chosen` alone; return how many. */
static I advance(const struct order *p, I *ready, I *waits, I many, I chosen)
{
    I kept = 0;
    for (I r = 0; r < many; r++)
        if (!p->done[ready[r]])
            ready[kept++] = ready[r];
    for (I e = p->edge_ptr[chosen]; e < p->edge_ptr[chosen + 1]; e++)
        if (--waits[p->edge_idx[e]] == 0)
            ready[kept++] = p->edge_idx[e];
    return kept;
}

/* one: least peak memory first (fitting/order/baselines.py). */
SHARED I tmmu_order_lpmf(const struct order *p)
{
    const I n = p->n, far = (I)1 << 60;
    I *const ready = p->work, *const waits = p->work + n, *const follower = p->work + 2 * n;
    I *const takes = p->work + 3 * n, *const leaves = p->work + 4 * n;
    I live = start(p), many = begin(p, ready, waits), most = 0;
    for (I s = 0; s < p->storages; s++)
        if (p->held[s])
            most += p->size[s];
    most = larger(most, live);
    for (I unit = 0; unit < n; unit++) {
        follower[unit] = n;
        for (I e = p->edge_ptr[unit]; e < p->edge_ptr[unit + 1]; e++)
            if (p->edge_idx[e] < follower[unit])
                follower[unit] = p->edge_idx[e];
    }
    for (I place = 0; place < n; place++) {
        const I gap = most - live;
        I smallest = far, best = 0;
        for (I r = 0; r < many; r++) {
            const I unit = ready[r];
            I after = live;
            takes[unit] = run_unit(p, unit, &after) - live;
            leaves[unit] = after - live;
            undo_unit(p, unit);
            smallest = smaller(smallest, larger(takes[unit], 0));
        }
        const int by_follower = p->threshold > 0 && smallest > p->threshold;
        for (I r = 1; r < many; r++) {
            const I one = ready[r], other = ready[best];
            I less = follower[one] - follower[other];
            if (!by_follower) {
                less = larger(takes[one], gap) - larger(takes[other], gap);
                less = less ? less : leaves[one] - leaves[other];
            }
            if (less < 0 || (less == 0 && one < other))
                best = r;
        }
        const I unit = ready[best], during = run_unit(p, unit, &live);
        most = larger(most, during);
        p->done[unit] = 1;
        p->one[place] = unit;
        many = advance(p, ready, waits, many, unit);
    }
    return DONE;
}

/* one: `given` with every unit that frees more than it takes, and does not raise the peak, as early as possible. */
SHARED I tmmu_order_eager(const struct order *p)
{
    const I n = p->n;
    I *const ready = p->work, *const waits = p->work + n;
    I live = start(p), many = begin(p, ready, waits), cursor = 0, most = live;
    for (I place = 0; place < n; place++) {
        while (p->done[p->given[cursor]])
            cursor++;
        I chosen = p->given[cursor];
        for (I r = 0; r < many; r++) {
            const I unit = ready[r];
            I after = live;
            const I during = run_unit(p, unit, &after);
            undo_unit(p, unit);
            if (after < live && during <= most) {
                chosen = unit;
                break;
            }
        }
        const I during = run_unit(p, chosen, &live);
        most = larger(most, during);
        p->done[chosen] = 1;
        p->one[place] = chosen;
        many = advance(p, ready, waits, many, chosen);
    }
    return DONE;
}

/* Live bytes before a unit less those after it, when it is the last of those that have not been taken back. */
static I taken_back(const struct order *p, I unit)
{
    I change = 0;
    for (I u = p->unit_ptr[unit]; u < p->unit_ptr[unit + 1]; u++) {
        const I node = p->unit_nodes[u];
        for (I t = p->touch_ptr[node]; t < p->touch_ptr[node + 1]; t++) {
            const I s = p->touch_idx[t];
            if (p->left[s] == 0 && !p->held[s])
                change += p->size[s];
            p->left[s]++;
            if (p->left[s] == p->touched_by[s] && !p->initial[s])
                change -= p->size[s];
        }
    }
    return change;
}

/* one: `given` with every unit that takes more than it frees as late as possible; edges lead to predecessors. */
SHARED I tmmu_order_late(const struct order *p)
{
    const I n = p->n;
    I *const ready = p->work, *const waits = p->work + n;
    I many = begin(p, ready, waits), cursor = n - 1;
    for (I s = 0; s < p->storages; s++)
        p->left[s] = 0;
    for (I place = n - 1; place >= 0; place--) {
        while (p->done[p->given[cursor]])
            cursor--;
        I chosen = p->given[cursor];
        for (I r = 0; r < many; r++) {
            const I unit = ready[r];
            if (unit == chosen)
                continue;
            const I change = taken_back(p, unit);
            for (I u = p->unit_ptr[unit]; u < p->unit_ptr[unit + 1]; u++)
                for (I t = p->touch_ptr[p->unit_nodes[u]]; t < p->touch_ptr[p->unit_nodes[u] + 1]; t++)
                    p->left[p->touch_idx[t]]--;
            if (change < 0) {
                chosen = unit;
                break;
            }
        }
        taken_back(p, chosen);
        p->done[chosen] = 1;
        p->one[place] = chosen;
        many = advance(p, ready, waits, many, chosen);
    }
    return DONE;
}
