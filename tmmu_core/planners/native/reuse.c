/* Placements of least reuse cost in C: local search by ruin and recreate (tmmu_core/planners/reuse/local_search.py) and
   exhaustive search (cost_bound.py). local_search.py defines units, edges and rounds. */
#include "native.h"

/* Return 31 random bits: the upper half of Knuth's linear congruential generator. */
static I draw(struct reuse *r)
{
    r->random = (I)((uint64_t)r->random * 6364136223846793005u + 1442695040888963407u);
    return (I)((uint64_t)r->random >> 33);
}

/* Return the cost of unit u at offset `at`; -1 if a hard edge or a reserved range forbids the offset. The loop ends
   when the cost reaches `limit`, and ignores further hard edges. */
static I price(const struct reuse *r, I u, I at, I limit)
{
    I cost = 0;
    for (I k = 0; k < r->reserved_count; k++)
        if (at < r->reserved[2 * k + 1] && r->reserved[2 * k] < at + r->size[u])
            return -1;
    for (I e = r->first[u]; e < r->first[u + 1]; e++) {
        const I other_at = r->offset[r->other[e]];
        if (other_at < 0 || at >= other_at + r->other_size[e] || other_at >= at + r->own_size[e])
            continue;
        if (r->weight[e] < 0)
            return -1;
        cost += r->weight[e];
        if (cost >= limit)
            break;
    }
    return cost;
}

/* Place unit u; if there is a matrix, insert u into by_start and by_end. */
static void place(struct reuse *r, I u, I at)
{
    r->offset[u] = at;
    if (!r->has_matrix)
        return;
    I i = r->placed, j = r->placed++;
    for (; i && r->offset[r->by_start[i - 1]] > at; i--)
        r->by_start[i] = r->by_start[i - 1];
    for (; j && r->offset[r->by_end[j - 1]] + r->size[r->by_end[j - 1]] > at + r->size[u]; j--)
        r->by_end[j] = r->by_end[j - 1];
    r->by_start[i] = r->by_end[j] = u;
}

/* Return the lowest of the cheapest offsets of unit u (-1: none), and set *least to its cost. Needs the matrix. */
static I sweep(const struct reuse *r, I u, I *least)
{
    const I *const row = r->matrix + u * r->n, size = r->size[u], last = r->capacity - size, n = r->n;
    I *const begin = r->by_start + 2 * n, *const begin_weight = begin + n, *const end = r->by_end + 2 * n;
    I *const end_weight = end + n, begins = 0, ends = 0, hard = 0, cost = 0, entered = 0, left = 0, best = -1;
    for (I k = 0; k < r->placed; k++) {
        const I v = r->by_start[k], w = r->by_end[k];
        begin[begins] = r->offset[v];
        begin_weight[begins] = row[v];
        begins += row[v] != 0;
        end[ends] = r->offset[w] + r->size[w];
        end_weight[ends] = row[w];
        ends += row[w] != 0;
    }
    for (I at = 0; at <= last; at = align_up(end[left], r->align[u])) {
        for (; entered < begins && begin[entered] < at + size; entered++) {
            hard += begin_weight[entered] < 0;
            cost += larger(begin_weight[entered], 0);
        }
        for (; left < ends && end[left] <= at; left++) {
            hard -= end_weight[left] < 0;
            cost -= larger(end_weight[left], 0);
        }
        if (!hard && (best < 0 || cost < *least)) {
            best = at;
            *least = cost;
        }
        if (left == ends || (best >= 0 && !*least))
            break;
    }
    return best;
}

/* Try the first aligned offset of unit u from `at` on. It replaces *best if it is cheaper, or as cheap and lower. */
static void offer(const struct reuse *r, I u, I at, I *cost, I *best)
{
    at = align_up(at, r->align[u]);
    if (at > r->capacity - r->size[u])
        return;
    const I found = price(r, u, at, *cost + (at < *best));
    if (found >= 0 && (found < *cost || (found == *cost && at < *best))) {
        *cost = found;
        *best = at;
    }
}

/* Place unit u at the lowest of its cheapest offsets; return the cost, or -1 if no offset fits. */
static I put(struct reuse *r, I u)
{
    I cost = INFINITE, best = INFINITE;
    if (r->pin[u] >= 0) {
        offer(r, u, r->pin[u], &cost, &best);
    } else if (r->has_matrix) {
        best = sweep(r, u, &cost);
    } else {
        offer(r, u, 0, &cost, &best);
        for (I k = 0; k < r->reserved_count; k++)
            offer(r, u, r->reserved[2 * k + 1], &cost, &best);
        for (I e = r->first[u]; e < r->first[u + 1]; e++)
            if (r->offset[r->other[e]] >= 0)
                offer(r, u, r->offset[r->other[e]] + r->other_size[e], &cost, &best);
    }
    if (cost == INFINITE)
        return -1;
    place(r, u, best);
    return cost;
}

/* Remove unit u from the placement and append it to the removed units; return the cost that this saves. */
static I remove_unit(struct reuse *r, I u, I *count)
{
    const I cost = r->offset[u] < 0 ? 0 : price(r, u, r->offset[u], INFINITE);
    r->is_removed[u] = 1;
    r->old[u] = r->offset[u];
    r->offset[u] = -1;
    r->removed[(*count)++] = u;
    return cost;
}

/* Remove up to `most` units. Draw the first unit up to six times, until it is unplaced or has an active penalty.
   Further units are mostly neighbours of removed units. Then add all unplaced units to `removed`, and set `count` to
   the number of units in `removed`. Return the saved cost. */
static I ruin(struct reuse *r, I most, I *count)
{
    I saved = 0, from = 0;
    *count = 0;
    for (I tries = 0; tries < 6; tries++) {
        from = draw(r) % r->n;
        if (r->offset[from] < 0 || price(r, from, r->offset[from], 1) > 0)
            break;
    }
    for (I tries = 0; *count < most && tries < 4 * most; tries++) {
        I u = from;
        if (*count) {
            const I near = r->removed[draw(r) % *count], edges = r->first[near + 1] - r->first[near];
            u = edges && draw(r) % 8 ? r->other[r->first[near] + draw(r) % edges] : draw(r) % r->n;
        }
        if (!r->is_removed[u])
            saved += remove_unit(r, u, count);
    }
    for (I u = 0; u < r->n; u++)
        if (r->offset[u] < 0 && !r->is_removed[u])
            remove_unit(r, u, count);
    return saved;
}

static void swap(I *units, I k, I j)
{
    const I unit = units[k];
    units[k] = units[j];
    units[j] = unit;
}

/* Shuffle the removed units; with probability 1/2, sort them by size, largest first. */
static void arrange(struct reuse *r, I count)
{
    const I by_size = draw(r) % 2;
    for (I k = count - 1; k > 0; k--)
        swap(r->removed, k, draw(r) % (k + 1));
    for (I k = 1; by_size && k < count; k++)
        for (I j = k; j > 0 && r->size[r->removed[j]] > r->size[r->removed[j - 1]]; j--)
            swap(r->removed, j, j - 1);
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
        const I slack = r->threshold * (r->rounds - round) / r->rounds, placed = r->placed;
        I count, unplaced = 0, unplaced_before = 0, new_cost = cost - ruin(r, 1 + draw(r) % r->most_removed, &count);
        I i = 0, j = 0;
        for (I k = 0; k < placed; k++) { /* copy row 0 of both tables to row 1; drop removed units from row 0 */
            const I u = r->by_start[r->n + k] = r->by_start[k], v = r->by_end[r->n + k] = r->by_end[k];
            r->by_start[i] = u;
            i += r->offset[u] >= 0;
            r->by_end[j] = v;
            j += r->offset[v] >= 0;
        }
        r->placed = i;
        arrange(r, count);
        for (I k = 0; k < count; k++) {
            const I found = put(r, r->removed[k]);
            unplaced_before += r->old[r->removed[k]] < 0;
            unplaced += found < 0;
            new_cost += larger(found, 0);
        }
        const int is_accepted = unplaced < unplaced_before ||
            (unplaced == unplaced_before && new_cost <= cost + (slack ? draw(r) % (slack + 1) : 0));
        for (I k = 0; k < count; k++) {
            if (!is_accepted)
                r->offset[r->removed[k]] = r->old[r->removed[k]];
            r->is_removed[r->removed[k]] = 0;
        }
        if (!is_accepted) {
            r->placed = placed;
            for (I k = 0; k < placed; k++) {
                r->by_start[k] = r->by_start[r->n + k];
                r->by_end[k] = r->by_end[r->n + k];
            }
            continue;
        }
        cost = new_cost;
        missing += unplaced - unplaced_before;
        if (missing < r->missing || (missing == r->missing && cost < r->cost)) {
            r->missing = missing;
            r->cost = cost;
            for (I u = 0; u < r->n; u++)
                r->best[u] = r->offset[u];
        }
    }
    return DONE;
}

/* Try all offsets of unit k and of the units after it, and lower `best` to the least cost found. `paid` is the cost of
   the units before k. Return 0 if the limit of nodes is reached. */
static int descend(struct least_cost *s, I k, I paid)
{
    if (k == s->n) {
        s->best = paid;
        return 1;
    }
    if (--s->nodes < 0)
        return 0;
    const I *const cost = s->cost + k * s->total, twin = s->twin[k];
    const I from = s->start[k] + (twin >= s->first ? s->trail[twin] - s->start[twin] : 0);
    I *const cost_ahead = s->cost + (k + 1) * s->total, *const order = s->order + s->start[k], count = 0;
    for (I x = from; x < (k == s->first ? s->limit : s->start[k + 1]); x++) {
        I j = count++;
        for (; j && cost[order[j - 1]] > cost[x]; j--)
            order[j] = order[j - 1];
        order[j] = x;
    }
    for (I i = 0; i < count; i++) {
        const I *const row = s->table + order[i] * s->total, now = paid + cost[order[i]];
        I bound = now + s->least[k + 1];
        if (bound >= s->best)
            break;
        for (I v = k + 1; v < s->n && bound < s->best; v++) {
            I least = INFINITE;
            for (I y = s->start[v]; y < s->start[v + 1]; y++) {
                cost_ahead[y] = cost[y] + row[y];
                least = smaller(least, cost_ahead[y]);
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
