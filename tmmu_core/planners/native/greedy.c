/* Greedy placement (tmmu_core/planners/greedy.py) and skyline runs (auto.py) in C. */
#include "native.h"

enum { NEVER, HANDOFF }; /* kinds of extra conflicts (columns.py) */

/* Search for a gap of `size` bytes. Occupied ranges are added in the order of their starts. `edge`: the largest end so
   far; `best`: the offset in the chosen gap (-1: none yet); `smallest`: the bytes of the chosen gap. */
struct gap {
    I size, align, tightest, edge, best, smallest;
};

/* Add the occupied range [start, end). Unless `tightest`, return 1 at the first gap that fits: it ends the search. */
static inline int add_range(struct gap *g, I start, I end)
{
    if (start > g->edge) {
        const I at = align_up(g->edge, g->align);
        if (at + g->size <= start && (g->smallest < 0 || start - g->edge < g->smallest)) {
            g->best = at;
            g->smallest = start - g->edge;
            if (!g->tightest)
                return 1;
        }
    }
    g->edge = larger(g->edge, end);
    return 0;
}

static inline I chosen_offset(const struct gap *g)
{
    return g->best >= 0 ? g->best : align_up(g->edge, g->align);
}

/* A placed storage: its address range and its live range. A scan keeps its rows sorted by start. */
struct placed {
    I start, end, lo, hi;
};

/* Compute the offsets of one run by a scan of all placed storages. */
SHARED I tmmu_scan(const struct scan *p)
{
    const I n = p->n;
    struct placed *const row = p->placed;
    for (I position = 0; position < n; position++) {
        const I i = p->sequence[position];
        const I from = p->lo[i], until = p->hi[i];
        struct gap g = {p->size[i], p->align[i], p->tightest, 0, -1, -1};
        for (I k = 0; k < position && p->fixed[i] < 0; k++)
            if (row[k].lo < until && from < row[k].hi && add_range(&g, row[k].start, row[k].end))
                break;
        const I at = p->offset[i] = p->fixed[i] >= 0 ? p->fixed[i] : chosen_offset(&g);
        I k = position;
        for (; k > 0 && row[k - 1].start > at; k--)
            row[k] = row[k - 1];
        row[k] = (struct placed){at, at + p->size[i], from, until};
    }
    return DONE;
}

/* Return how many of `count` ascending values are <= x. */
static inline I upper_bound(const I *values, I count, I x)
{
    I lo = 0;
    while (count > 0) { /* no branch on the value: the CPU would mispredict it */
        const I half = (count + 1) >> 1;
        lo += values[lo + half - 1] <= x ? half : 0;
        count -= half;
    }
    return lo;
}

/* Upper limit of a live range's covering nodes, and of the ancestors of these nodes: two per level of the tree. */
enum { MOST_NODES = 140 };

/* Nodes of the tree: the `covering` covering nodes of a live range, then their ancestors; `count` nodes in all. */
struct nodes {
    I node[2 * MOST_NODES], covering, count;
};

/* Find the covering nodes of the live range [lo, hi), which are the largest nodes inside it, and their ancestors. */
static void find_nodes(I lo, I hi, I leaves, struct nodes *found)
{
    I left = lo + leaves, right = hi + leaves, n = 0;
    for (; left < right; left >>= 1, right >>= 1) {
        if (left & 1)
            found->node[n++] = left++;
        if (right & 1)
            found->node[n++] = --right;
    }
    found->covering = n;
    I first = lo + leaves, last = hi - 1 + leaves;
    for (I width = 1; first; first >>= 1, last >>= 1, width <<= 1) {
        if (lo > first * width - leaves || hi < (first + 1) * width - leaves)
            found->node[n++] = first;
        if (last != first && hi < (last + 1) * width - leaves)
            found->node[n++] = last;
    }
    found->count = n;
}

/* The `count` sources of occupied ranges that one storage must avoid. Source k is the list blocked[k] of the tree for
   k < `lists`, and the storage placed[k - lists] for all other k. */
struct sources {
    I lists, count;
};

/* Find the first range of a source that ends after `at`; return whether there is one. */
static inline int range_after(const struct tree *p, const struct sources *b, I source, I at, I *start, I *end)
{
    if (source >= b->lists) {
        const I j = p->placed[source - b->lists];
        *start = p->offset[j];
        *end = *start + p->size[j];
        return *end > at;
    }
    const I list = p->blocked[source], begin = p->begin[list], row = upper_bound(p->ends + begin, p->count[list], at);
    if (row == p->count[list])
        return 0;
    *start = p->starts[begin + row];
    *end = p->ends[begin + row];
    return 1;
}

static inline I lowest_offset(const struct tree *p, const struct sources *b, I size, I grid)
{
    I at = 0, free_count = 0, source = 0, start, end; /* free_count: successive sources that do not block `at` */
    while (free_count < b->count) {
        if (range_after(p, b, source, at, &start, &end) && start < at + size) {
            at = align_up(end, grid);
            free_count = 0;
        } else {
            free_count++;
            source = source + 1 < b->count ? source + 1 : 0;
        }
    }
    return at;
}

static inline I tightest_offset(const struct tree *p, const struct sources *b, I size, I grid)
{
    struct gap g = {size, grid, 1, 0, -1, -1};
    for (;;) {
        I next = -1, start, end; /* start of the first range after the edge */
        for (I moved = 1; moved;) { /* move the edge past the ranges that contain it */
            moved = 0;
            next = -1;
            for (I source = 0; source < b->count; source++) {
                if (!range_after(p, b, source, g.edge, &start, &end))
                    continue;
                if (start <= g.edge) {
                    g.edge = end;
                    moved = 1;
                } else if (next < 0 || start < next)
                    next = start;
            }
        }
        if (next < 0)
            return chosen_offset(&g);
        add_range(&g, next, next); /* check the gap that ends at `next` */
    }
}

/* Return whether `size` bytes at `at` overlap no occupied range, except storage j, which is reused in place. */
static inline int is_free(const struct tree *p, const struct sources *b, I j, I at, I size)
{
    I start, end;
    for (I source = 0; source < b->count; source++) {
        const int is_reused = source >= b->lists && p->placed[source - b->lists] == j;
        if (!is_reused && range_after(p, b, source, at, &start, &end) && start < at + size)
            return 0;
    }
    return 1;
}

static I choose_offset(const struct tree *p, I i, struct nodes *found)
{
    const I size = p->size[i], grid = p->align[i];
    struct sources b = {0, 0};
    for (I row = p->part_of[i]; row < p->part_of[i + 1]; row++) {
        find_nodes(p->part_lo[row], p->part_hi[row], p->leaves, found);
        for (I v = 0; v < found->count; v++) {
            const I list = 2 * found->node[v] + (v < found->covering);
            if (p->count[list])
                p->blocked[b.lists++] = list;
        }
    }
    b.count = b.lists;
    for (I row = p->extra_of[i]; row < p->extra_of[i + 1]; row++)
        if (p->offset[p->extra_other[row]] >= 0)
            p->placed[b.count++ - b.lists] = p->extra_other[row];
    I at = p->tightest ? tightest_offset(p, &b, size, grid) : lowest_offset(p, &b, size, grid);
    for (I row = p->extra_of[i]; row < p->extra_of[i + 1]; row++) {
        const I j = p->extra_other[row], offset = p->offset[j];
        if (p->extra_kind[row] != HANDOFF || offset < 0 || (offset & (grid - 1)) || (!p->tightest && offset >= at))
            continue;
        if (is_free(p, &b, j, offset, size)) {
            at = offset;
            if (p->tightest)
                break;
        }
    }
    return at;
}

/* Merge a range into a list. A full list first moves to unused rows of the pool and gets twice as many rows. Return
   whether the pool has enough rows. */
static int merge(struct tree *p, I list, I start, I end)
{
    const I n = p->count[list];
    if (n == p->room[list]) {
        const I from = p->begin[list], to = p->used, room = n ? 2 * n : 2;
        if (to + room > p->pool)
            return 0;
        for (I k = 0; k < n; k++) {
            p->starts[to + k] = p->starts[from + k];
            p->ends[to + k] = p->ends[from + k];
        }
        p->begin[list] = to;
        p->room[list] = (int32_t)room;
        p->used += room;
    }
    I *const starts = p->starts + p->begin[list], *const ends = p->ends + p->begin[list];
    const I i = upper_bound(ends, n, start - 1), j = upper_bound(starts, n, end);
    const I shift = j - i - 1; /* the ranges i to j - 1 touch the new range; shift is -1 if no range does */
    if (shift >= 0) {
        start = smaller(start, starts[i]);
        end = larger(end, ends[j - 1]);
        for (I k = j; shift && k < n; k++) {
            starts[k - shift] = starts[k];
            ends[k - shift] = ends[k];
        }
    } else {
        for (I k = n; k > i; k--) {
            starts[k] = starts[k - 1];
            ends[k] = ends[k - 1];
        }
    }
    p->count[list] = (int32_t)(n - shift);
    starts[i] = start;
    ends[i] = end;
    return 1;
}

/* Compute the offsets of one run; return whether the pool has enough rows. */
SHARED I tmmu_tree(struct tree *p)
{
    struct nodes found;
    for (I position = 0; position < p->n; position++) {
        const I i = p->sequence[position], at = p->fixed[i] >= 0 ? p->fixed[i] : choose_offset(p, i, &found);
        p->offset[i] = at;
        for (I part = p->part_of[i]; part < p->part_of[i + 1]; part++) {
            find_nodes(p->part_lo[part], p->part_hi[part], p->leaves, &found);
            for (I k = -found.covering; k < found.count; k++) { /* lists 2 v of covering nodes, 2 v + 1 of all */
                const I list = k < 0 ? 2 * found.node[k + found.covering] : 2 * found.node[k] + 1;
                if (!merge(p, list, at, at + p->size[i]))
                    return 0;
            }
        }
    }
    return 1;
}

/* Compute the offsets of one skyline run. */
SHARED I tmmu_skyline(const struct skyline *p)
{
    const I steps = p->steps;
    I *const height = p->height, *const end = p->end;
    height[0] = 0;
    end[0] = steps;
    for (I unplaced = p->first[steps]; unplaced;) {
        I begin = 0, left_height = INFINITE; /* first step of the lowest stretch; height on its left */
        for (I at = 0, last = INFINITE; at < steps; last = height[at], at = end[at]) {
            while (end[at] < steps && height[end[at]] == height[at])
                end[at] = end[end[at]];
            if (height[at] < height[begin] || at == 0) {
                begin = at;
                left_height = last;
            }
        }
        const I low = height[begin], stop = end[begin];
        I best = -1;
        for (I i = p->first[begin]; i < p->first[stop]; i++)
            if (p->hi[i] <= stop && p->offset[i] < 0 && (best < 0 || p->rank[i] < p->rank[best]))
                best = i;
        if (best < 0) {
            height[begin] = smaller(left_height, stop < steps ? height[stop] : INFINITE);
            continue;
        }
        p->offset[best] = low;
        unplaced--;
        const I lo = p->lo[best], hi = p->hi[best];
        if (hi < stop) {
            height[hi] = low;
            end[hi] = stop;
        }
        end[begin] = lo;
        end[lo] = hi;
        height[lo] = align_up(low + p->size[best], p->grid);
    }
    return DONE;
}
