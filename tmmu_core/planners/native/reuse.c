/* Placements of least reuse cost, in integers: local search by ruin and recreate, and exhaustive search. The plain
   forms are planners/reuse/local_search.py and cost_bound.py. */
#include "native.h"

/* The next pseudo-random number, 31 bits (Knuth's linear congruential generator, upper half). */
static I draw(struct reuse *r)
{
    r->random = (I)((uint64_t)r->random * 6364136223846793005u + 1442695040888963407u);
    return (I)((uint64_t)r->random >> 33);
}

/* Weight of the active penalties between unit u at `at` and placed units; −1 where a hard edge forbids the place.
   Stops at `most`. */
static I price(const struct reuse *r, I u, I at, I most)
{
    I cost = 0;
    for (I k = 0; k < r->reserved_count; k++)
        if (at < r->reserved[2 * k + 1] && r->reserved[2 * k] < at + r->size[u])
            return -1;
    for (I e = r->first[u]; e < r->first[u + 1]; e++) {
        I there = r->offset[r->other[e]];
        if (there < 0 || at >= there + r->theirs[e] || there >= at + r->mine[e])
            continue;
        if (r->weight[e] < 0)
            return -1;
        cost += r->weight[e];
        if (cost >= most)
            return cost;
    }
    return cost;
}

/* Place unit u and keep the two orders of the placed units. */
static void place(struct reuse *r, I u, I at)
{
    r->offset[u] = at;
    if (!r->swept)
        return;
    I i = r->placed, j = r->placed++;
    for (; i && r->offset[r->by_start[i - 1]] > at; i--)
        r->by_start[i] = r->by_start[i - 1];
    for (; j && r->offset[r->by_end[j - 1]] + r->size[r->by_end[j - 1]] > at + r->size[u]; j--)
        r->by_end[j] = r->by_end[j - 1];
    r->by_start[i] = r->by_end[j] = u;
}

/* Copy both orders to their second halves, without the units that have no offset any more. */
static void drop_removed(struct reuse *r)
{
    I i = 0, j = 0;
    for (I k = 0; k < r->placed; k++) {
        const I u = r->by_start[r->n + k] = r->by_start[k], v = r->by_end[r->n + k] = r->by_end[k];
        r->by_start[i] = u;
        i += r->offset[u] >= 0;
        r->by_end[j] = v;
        j += r->offset[v] >= 0;
    }
    r->placed = r->swept ? i : 0;
}

/* The lowest of the cheapest offsets of unit u, by one pass over its placed neighbours; −1 where none fits. */
static I sweep(const struct reuse *r, I u, I *least)
{
    const I *row = r->matrix + u * r->n, size = r->size[u], grid = r->align[u], last = r->capacity - size, n = r->n;
    I *const begin = r->by_start + 2 * n, *const enters = begin + n, *const end = r->by_end + 2 * n, *const leaves = end + n;
    I starts = 0, ends = 0, hard = 0, cost = 0, entered = 0, left = 0, best = -1;
    for (I k = 0; k < r->placed; k++) {
        const I v = r->by_start[k], w = r->by_end[k];
        begin[starts] = r->offset[v];
        enters[starts] = row[v];
        starts += row[v] != 0;
        end[ends] = r->offset[w] + r->size[w];
        leaves[ends] = row[w];
        ends += row[w] != 0;
    }
    for (I at = 0; at <= last;) {
        for (; entered < starts && begin[entered] < at + size; entered++) {
            hard += enters[entered] < 0;
            cost += enters[entered] > 0 ? enters[entered] : 0;
        }
        for (; left < ends && end[left] <= at; left++) {
            hard -= leaves[left] < 0;
            cost -= leaves[left] > 0 ? leaves[left] : 0;
        }
        if (!hard && (best < 0 || cost < *least)) {
            best = at;
            *least = cost;
            if (!cost)
                break;
        }
        if (left == ends)
            break;
        at = (end[left] + grid - 1) & -grid;
    }
    return best;
}

static void offer(const struct reuse *r, I u, I at, I *cost, I *best)
{
    at = (at + r->align[u] - 1) / r->align[u] * r->align[u];
    if (at > r->capacity - r->size[u])
        return;
    I found = price(r, u, at, *cost + (at < *best));
    if (found >= 0 && (found < *cost || (found == *cost && at < *best))) {
        *cost = found;
        *best = at;
    }
}

/* Place unit u at the lowest of its cheapest offsets; return the cost, or −1 where no offset fits. */
static I put(struct reuse *r, I u)
{
    const I none = (I)1 << 62;
    I cost = none, best = none;
    if (r->pin[u] >= 0) {
        offer(r, u, r->pin[u], &cost, &best);
    } else if (r->swept) {
        best = sweep(r, u, &cost);
    } else {
        offer(r, u, 0, &cost, &best);
        for (I k = 0; k < r->reserved_count; k++)
            offer(r, u, r->reserved[2 * k + 1], &cost, &best);
        for (I e = r->first[u]; e < r->first[u + 1]; e++)
            if (r->offset[r->other[e]] >= 0)
                offer(r, u, r->offset[r->other[e]] + r->theirs[e], &cost, &best);
    }
    if (cost == none)
        return -1;
    place(r, u, best);
    return cost;
}

/* Take `count` related units out, beginning with one that pays; return the cost that they paid. */
static I ruin(struct reuse *r, I count, I *taken)
{
    I *out = r->work, paid = 0, n = 0, from = 0;
    for (I tries = 0; tries < 6; tries++) {
        from = draw(r) % r->n;
        if (r->offset[from] < 0 || price(r, from, r->offset[from], 1) > 0)
            break;
    }
    for (I tries = 0; n < count && tries < 4 * count; tries++) {
        I u = from;
        if (n > 0) {
            I near = out[draw(r) % n], edges = r->first[near + 1] - r->first[near];
            u = edges && draw(r) % 8 ? r->other[r->first[near] + draw(r) % edges] : draw(r) % r->n;
        }
        if (r->out[u])
            continue;
        r->out[u] = 1;
        r->old[u] = r->offset[u];
        if (r->offset[u] >= 0)
            paid += price(r, u, r->offset[u], (I)1 << 62);
        r->offset[u] = -1;
        out[n++] = u;
    }
    for (I u = 0; u < r->n; u++)  /* what has no place is tried again */
        if (r->offset[u] < 0 && !r->out[u]) {
            r->out[u] = 1;
            r->old[u] = -1;
            out[n++] = u;
        }
    *taken = n;
    return paid;
}

static void arrange(struct reuse *r, I n)
{
    I *out = r->work, by_size = draw(r) % 2;
    for (I k = n - 1; k > 0; k--) {
        I j = draw(r) % (k + 1), swap = out[k];
        out[k] = out[j];
        out[j] = swap;
    }
    for (I k = 1; by_size && k < n; k++)
        for (I j = k; j > 0 && r->size[out[j]] > r->size[out[j - 1]]; j--) {
            I swap = out[j];
            out[j] = out[j - 1];
            out[j - 1] = swap;
        }
}

SHARED I tmmu_reuse(struct reuse *r)
{
    I missing = 0, cost = r->cost;
    for (I u = 0; u < r->n; u++) {
        r->best[u] = r->offset[u];
        missing += r->offset[u] < 0;
        if (r->offset[u] >= 0)
            place(r, u, r->offset[u]);
    }
    r->missing = missing;
    for (I round = 0; round < r->rounds && (r->missing || r->cost > r->bound); round++) {
        I n, room = r->threshold * (r->rounds - round) / r->rounds;
        I paid = ruin(r, 1 + draw(r) % r->most_out, &n), now = cost - paid, lost = 0, before = 0;
        const I placed = r->placed;
        drop_removed(r);
        arrange(r, n);
        for (I k = 0; k < n; k++) {
            I found = put(r, r->work[k]);
            before += r->old[r->work[k]] < 0;
            lost += found < 0;
            now += found > 0 ? found : 0;
        }
        int taken = lost < before || (lost == before && now <= cost + (room ? draw(r) % (room + 1) : 0));
        for (I k = 0; k < n; k++) {
            if (!taken)
                r->offset[r->work[k]] = r->old[r->work[k]];
            r->out[r->work[k]] = 0;
        }
        if (!taken) {
            r->placed = placed;
            for (I k = 0; k < placed; k++) {
                r->by_start[k] = r->by_start[r->n + k];
                r->by_end[k] = r->by_end[r->n + k];
            }
            continue;
        }
        cost = now;
        missing += lost - before;
        if (missing < r->missing || (missing == r->missing && cost < r->cost)) {
            r->missing = missing;
            r->cost = cost;
            for (I u = 0; u < r->n; u++)
                r->best[u] = r->offset[u];
        }
    }
    return DONE;
}

/* Place unit k and all after it; return 0 where the nodes do not suffice. */
static int descend(struct least_cost *s, I k, I paid)
{
    if (k == s->n) {
        s->best = paid;
        return 1;
    }
    if (--s->nodes < 0)
        return 0;
    const I *cost = s->cost + k * s->total, twin = s->twin[k];
    I *ahead = s->cost + (k + 1) * s->total, *order = s->order + s->start[k], count = 0;
    I from = s->start[k] + (twin >= s->first ? s->trail[twin] - s->start[twin] : 0);
    for (I x = from; x < (k == s->first ? s->limit : s->start[k + 1]); x++) {
        I j = count++;
        for (; j && cost[order[j - 1]] > cost[x]; j--)
            order[j] = order[j - 1];
        order[j] = x;
    }
    for (I i = 0; i < count; i++) {
        const I *row = s->table + order[i] * s->total;
        I now = paid + cost[order[i]], bound = now + s->least[k + 1];
        if (bound >= s->best)
            break;
        for (I v = k + 1; v < s->n && bound < s->best; v++) {
            I least = (I)1 << 62;
            for (I y = s->start[v]; y < s->start[v + 1]; y++) {
                ahead[y] = cost[y] + row[y];
                least = ahead[y] < least ? ahead[y] : least;
            }
            bound += least;
        }
        s->trail[k] = order[i];
        if (bound < s->best && !descend(s, k + 1, now))
            return 0;
    }
    return 1;
}

SHARED I tmmu_least_cost(struct least_cost *s)
{
    descend(s, s->first, 0);
    return DONE;
}
