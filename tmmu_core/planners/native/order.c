/* Peak memory of execution orders, and orders that lower it, in C: the functions of
   tmmu_core/fitting/order/order_loops.py. All sums of sizes are below 2^60 (OrderModel). */
#include "native.h"

/* Set `left` and `born` as before the first node; return the live bytes. */
static I start(const struct order *p)
{
    I live = 0;
    for (I s = 0; s < p->storages; s++) {
        p->left[s] = p->touched_by[s];
        p->born[s] = p->starts_live[s] && (p->stays_live[s] || p->left[s] > 0);
        if (p->born[s])
            live += p->size[s];
    }
    return live;
}

/* The storage that the output of a node reuses in place, or -1. */
static I reused_by(const struct order *p, I node)
{
    if (p->out[node] < 0 || p->born[p->out[node]])
        return -1;
    for (I c = p->cand_ptr[node]; c < p->cand_ptr[node + 1]; c++)
        if (p->left[p->cand_idx[c]] == 1)
            return p->cand_idx[c];
    return -1;
}

/* Run a unit: change `live` to the live bytes after it, and return the peak while it runs. */
static I run_unit(const struct order *p, I unit, I *live)
{
    I peak = 0, now = *live;
    for (I u = p->unit_ptr[unit]; u < p->unit_ptr[unit + 1]; u++) {
        const I node = p->unit_nodes[u], reused = reused_by(p, node);
        I freed = 0;
        for (I t = p->touch_ptr[node]; t < p->touch_ptr[node + 1]; t++) {
            const I s = p->touch_idx[t];
            if (!p->born[s]) {
                p->born[s] = 1;
                now += p->size[s];
            }
            p->left[s]--;
            if (p->left[s] == 0 && !p->stays_live[s])
                freed += p->size[s];
        }
        peak = larger(peak, now - (reused >= 0 ? p->size[reused] : 0));
        now -= freed;
    }
    *live = now;
    return peak;
}

/* Undo the last unit that ran; return the bytes by which the live bytes change. */
static I undo_unit(const struct order *p, I unit)
{
    I change = 0;
    for (I u = p->unit_ptr[unit]; u < p->unit_ptr[unit + 1]; u++) {
        const I node = p->unit_nodes[u];
        for (I t = p->touch_ptr[node]; t < p->touch_ptr[node + 1]; t++) {
            const I s = p->touch_idx[t];
            if (p->left[s] == 0 && !p->stays_live[s])
                change += p->size[s];
            p->left[s]++;
            if (p->left[s] == p->touched_by[s] && !p->starts_live[s]) {
                p->born[s] = 0;
                change -= p->size[s];
            }
        }
    }
    return change;
}

/* one: the peak of each arena; two: the first place in the order that has this peak, -1: before the first unit. Places
   in [skip_from, skip_to) do not count. */
SHARED I tmmu_order_measure(const struct order *p)
{
    I *const live = p->live, *const peaks = p->one, *const where = p->two;
    start(p);
    for (I a = 0; a < p->arenas; a++) {
        live[a] = peaks[a] = 0;
        where[a] = -1;
    }
    for (I s = 0; s < p->storages; s++) {
        if (p->starts_live[s])
            peaks[p->arena[s]] += p->size[s];
        if (p->born[s])
            live[p->arena[s]] += p->size[s];
    }
    for (I place = 0; place < p->n; place++) {
        const I unit = p->order[place];
        const int counts = place < p->skip_from || place >= p->skip_to;
        for (I u = p->unit_ptr[unit]; u < p->unit_ptr[unit + 1]; u++) {
            const I node = p->unit_nodes[u], reused = reused_by(p, node);
            for (I t = p->touch_ptr[node]; t < p->touch_ptr[node + 1]; t++) {
                const I s = p->touch_idx[t];
                if (!p->born[s]) {
                    p->born[s] = 1;
                    live[p->arena[s]] += p->size[s];
                }
            }
            if (reused >= 0)
                live[p->arena[reused]] -= p->size[reused];
            for (I a = 0; counts && a < p->arenas; a++)
                if (live[a] > peaks[a]) {
                    peaks[a] = live[a];
                    where[a] = place;
                }
            if (reused >= 0)
                live[p->arena[reused]] += p->size[reused];
            for (I t = p->touch_ptr[node]; t < p->touch_ptr[node + 1]; t++) {
                const I s = p->touch_idx[t];
                p->left[s]--;
                if (p->left[s] == 0 && !p->stays_live[s])
                    live[p->arena[s]] -= p->size[s];
            }
        }
    }
    return DONE;
}

/* one, two: the live bytes that each unit adds while it runs, and after it has run. */
SHARED I tmmu_order_alone(const struct order *p)
{
    I live = start(p);
    for (I place = 0; place < p->n; place++) {
        const I unit = p->order[place], before = live;
        p->one[unit] = run_unit(p, unit, &live) - before;
        p->two[unit] = live - before;
    }
    return DONE;
}

/* Fill `ready` with the units that wait for no other, ascending; return their number. */
static I first_ready(const struct order *p, I *ready, I *waits)
{
    I count = 0;
    for (I unit = 0; unit < p->n; unit++) {
        p->done[unit] = 0;
        waits[unit] = p->waits_for[unit];
        if (waits[unit] == 0)
            ready[count++] = unit;
    }
    return count;
}

/* Put `unit` at a place of the result; replace it in `ready` by the units that waited for it alone. Return the number
   of ready units. */
static I schedule(const struct order *p, I *ready, I *waits, I count, I unit, I place)
{
    I kept = 0;
    p->done[unit] = 1;
    p->one[place] = unit;
    for (I r = 0; r < count; r++)
        if (ready[r] != unit)
            ready[kept++] = ready[r];
    for (I e = p->edge_ptr[unit]; e < p->edge_ptr[unit + 1]; e++)
        if (--waits[p->edge_idx[e]] == 0)
            ready[kept++] = p->edge_idx[e];
    return kept;
}

/* one: the order "least peak memory first" (baselines.py). work: ready units, number of units that each waits for, its
   first successor, and the live bytes that it adds while and after it runs. */
SHARED I tmmu_order_lpmf(const struct order *p)
{
    const I n = p->n;
    I *const ready = p->work, *const waits = p->work + n, *const successor = p->work + 2 * n;
    I *const during = p->work + 3 * n, *const after = p->work + 4 * n;
    I live = start(p), count = first_ready(p, ready, waits), peak = 0;
    for (I s = 0; s < p->storages; s++)
        peak += p->stays_live[s] ? p->size[s] : 0;
    peak = larger(peak, live);
    for (I unit = 0; unit < n; unit++) {
        successor[unit] = n;
        for (I e = p->edge_ptr[unit]; e < p->edge_ptr[unit + 1]; e++)
            successor[unit] = smaller(successor[unit], p->edge_idx[e]);
    }
    for (I place = 0; place < n; place++) {
        const I room = peak - live;
        I smallest = (I)1 << 60, best = 0;
        for (I r = 0; r < count; r++) {
            const I unit = ready[r];
            I bytes = live;
            during[unit] = run_unit(p, unit, &bytes) - live;
            after[unit] = bytes - live;
            undo_unit(p, unit);
            smallest = smaller(smallest, larger(during[unit], 0));
        }
        const int by_successor = p->threshold > 0 && smallest > p->threshold;
        for (I r = 1; r < count; r++) {
            const I one = ready[r], other = ready[best];
            I less = successor[one] - successor[other];
            if (!by_successor) {
                less = larger(during[one], room) - larger(during[other], room);
                less = less ? less : after[one] - after[other];
            }
            if (less < 0 || (less == 0 && one < other))
                best = r;
        }
        const I unit = ready[best];
        peak = larger(peak, run_unit(p, unit, &live));
        count = schedule(p, ready, waits, count, unit, place);
    }
    return DONE;
}

/* one: `order` with units that free more than they allocate as early as the peak so far permits. */
SHARED I tmmu_order_eager(const struct order *p)
{
    I *const ready = p->work, *const waits = p->work + p->n;
    I live = start(p), count = first_ready(p, ready, waits), next = 0, peak = live;
    for (I place = 0; place < p->n; place++) {
        while (p->done[p->order[next]])
            next++;
        I chosen = p->order[next];
        for (I r = 0; r < count; r++) {
            I after = live;
            const I during = run_unit(p, ready[r], &after);
            undo_unit(p, ready[r]);
            if (after < live && during <= peak) {
                chosen = ready[r];
                break;
            }
        }
        peak = larger(peak, run_unit(p, chosen, &live));
        count = schedule(p, ready, waits, count, chosen, place);
    }
    return DONE;
}

/* one: `order` with units that allocate more than they free as late as possible, from the last unit to the first; edges
   lead to predecessors. */
SHARED I tmmu_order_late(const struct order *p)
{
    I *const ready = p->work, *const waits = p->work + p->n;
    I count = first_ready(p, ready, waits), next = p->n - 1;
    start(p);
    for (I s = 0; s < p->storages; s++)
        p->left[s] = 0;
    for (I place = p->n - 1; place >= 0; place--) {
        while (p->done[p->order[next]])
            next--;
        I chosen = p->order[next];
        for (I r = 0; r < count; r++) {
            if (ready[r] == p->order[next])
                continue;
            I live = 0;
            const I change = undo_unit(p, ready[r]);
            run_unit(p, ready[r], &live);
            if (change < 0) {
                chosen = ready[r];
                break;
            }
        }
        undo_unit(p, chosen);
        count = schedule(p, ready, waits, count, chosen, place);
    }
    return DONE;
}
