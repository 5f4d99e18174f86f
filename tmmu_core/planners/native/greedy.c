/* Greedy placement in C: tmmu_core/planners/greedy.py. */
#include "native.h"

/* A free gap for `need` bytes, found while ranges pass by in order of their starts. */
struct gap {
    I need, grid, tightest, at, edge, best, smallest;
};

/* Let the range [start, end) pass; return whether the lowest gap is found. */
static inline int pass(struct gap *g, I start, I end)
{
    if (!g->tightest) {
        if (end > g->at) {
            if (start >= g->at + g->need)
                return 1;
            g->at = (end + g->grid - 1) & -g->grid;
        }
        return 0;
    }
    if (start > g->edge) {
        const I at = (g->edge + g->grid - 1) & -g->grid;
        if (at + g->need <= start && (g->smallest < 0 || start - g->edge < g->smallest)) {
            g->best = at;
            g->smallest = start - g->edge;
        }
    }
    if (end > g->edge)
        g->edge = end;
    return 0;
}

static inline I chosen(const struct gap *g)
{
    if (!g->tightest)
        return g->at;
    return g->best >= 0 ? g->best : (g->edge + g->grid - 1) & -g->grid;
}

/* Offsets of one run of a plain problem whose storages have few neighbours. */
SHARED I tmmu_place_near(const struct near *p)
{
    const I n = p->n;
    const I *const first = p->first, *const other = p->other, *const size = p->size;
    I *const offset = p->offset, *const spans = p->spans, *const placed = p->placed;
    for (I i = 0; i < n; i++)
        offset[i] = -1;
    for (I step = 0; step < n; step++) {
        const I i = p->sequence[step];
        I many = 0;
        for (I row = first[i]; row < first[i + 1]; row++) { /* without a branch, which could not be predicted */
            placed[many] = other[row];
            many += offset[other[row]] >= 0;
        }
        for (I row = 0; row < many; row++) {
            const I start = offset[placed[row]], end = start + size[placed[row]];
            I k = row;
            while (k > 0 && spans[2 * k - 2] > start) {
                spans[2 * k] = spans[2 * k - 2];
                spans[2 * k + 1] = spans[2 * k - 1];
                k--;
            }
            spans[2 * k] = start;
            spans[2 * k + 1] = end;
        }
        struct gap g = {size[i], p->align[i], p->tightest, 0, 0, -1, -1};
        for (I k = 0; k < many && !pass(&g, spans[2 * k], spans[2 * k + 1]); k++)
            ;
        offset[i] = chosen(&g);
    }
    return DONE;
}

/* The same by a scan of all placed storages, which are kept in order of their offsets, as columns of `spans`. */
SHARED I tmmu_place_all(const struct near *p)
{
    const I n = p->n;
    I *const start = p->spans, *const end = start + n, *const lo = end + n, *const hi = lo + n;
    for (I step = 0; step < n; step++) {
        const I i = p->sequence[step];
        const I from = p->first[i], until = p->other[i];
        struct gap g = {p->size[i], p->align[i], p->tightest, 0, 0, -1, -1};
        for (I k = 0; k < step; k++)
            if (lo[k] < until && from < hi[k] && pass(&g, start[k], end[k]))
                break;
        const I at = p->offset[i] = chosen(&g);
        I k = step;
        for (; k > 0 && start[k - 1] > at; k--) {
            start[k] = start[k - 1];
            end[k] = end[k - 1];
            lo[k] = lo[k - 1];
            hi[k] = hi[k - 1];
        }
        start[k] = at;
        end[k] = at + p->size[i];
        lo[k] = from;
        hi[k] = until;
    }
    return DONE;
}

/* How many of values[0:count] are <= x. */
static inline I after(const I *values, I count, I x)
{
    I lo = 0, hi = count;
    while (lo < hi) {
        const I mid = (lo + hi) >> 1;
        if (values[mid] <= x)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Add a range to a list whose block has a free place. */
static void merge(const struct tree *p, I which, I start, I end)
{
    I *const starts = p->starts + p->begin[which], *const ends = p->ends + p->begin[which];
    const I n = p->count[which];
    const I i = after(ends, n, start - 1), j = after(starts, n, end);
    if (i < j) {
        if (starts[i] < start)
            start = starts[i];
        if (ends[j - 1] > end)
            end = ends[j - 1];
        const I shift = j - i - 1;
        if (shift > 0) {
            for (I k = j; k < n; k++) {
                starts[k - shift] = starts[k];
                ends[k - shift] = ends[k];
            }
            p->count[which] = (int32_t)(n - shift);
        }
    } else {
        for (I k = n; k > i; k--) {
            starts[k] = starts[k - 1];
            ends[k] = ends[k - 1];
        }
        p->count[which] = (int32_t)(n + 1);
    }
    starts[i] = start;
    ends[i] = end;
}

/* A lifetime covers at most two nodes per level of the tree, with at most two ancestors per level. */
enum { MOST_NODES = 140 };

struct nodes {
    I inside[MOST_NODES], above[MOST_NODES], n, m;
};

/* The nodes that cover [lo, hi), and their ancestors. */
static void nodes_of(I lo, I hi, I leaves, struct nodes *found)
{
    I left = lo + leaves, right = hi + leaves, n = 0, m = 0;
    while (left < right) {
        if (left & 1)
            found->inside[n++] = left++;
        if (right & 1)
            found->inside[n++] = --right;
        left >>= 1;
        right >>= 1;
    }
    I one = lo + leaves, two = hi - 1 + leaves, width = 1;
    while (one) {
        if (lo > one * width - leaves || hi < (one + 1) * width - leaves)
            found->above[m++] = one;
        if (two != one && hi < (two + 1) * width - leaves)
            found->above[m++] = two;
        one >>= 1;
        two >>= 1;
        width <<= 1;
    }
    found->n = n;
    found->m = m;
}

/* Blocked addresses of a storage: range lists, then single ranges of its odd conflicts. */
struct block {
    I many, total;
};

/* The first range of a list, or the single range, that ends after `at`; return whether there is one. */
static inline int range_after(const struct tree *p, const struct block *b, I which, I at, I *start, I *end)
{
    if (which >= b->many) {
        const I j = p->near[which - b->many];
        *start = p->offset[j];
        *end = *start + p->size[j];
        return *end > at;
    }
    const I list = p->blocked[which], begin = p->begin[list], f = after(p->ends + begin, p->count[list], at);
    if (f == p->count[list])
        return 0;
    *start = p->starts[begin + f];
    *end = p->ends[begin + f];
    return 1;
}

static inline I lowest(const struct tree *p, const struct block *b, I need, I grid)
{
    I at = 0, agreed = 0, which = 0, start, end;
    while (agreed < b->total) {
        if (range_after(p, b, which, at, &start, &end) && start < at + need) {
            at = (end + grid - 1) & -grid;
            agreed = 0;
        } else {
            agreed++;
            which = which + 1 < b->total ? which + 1 : 0;
        }
    }
    return at;
}

static inline I tightest(const struct tree *p, const struct block *b, I need, I grid)
{
    I edge = 0, best = -1, smallest = -1, start, end;
    for (;;) {
        I wall = -1;
        for (I moved = 1; moved;) { /* the edge moves past the ranges that cover it; then the next one is the wall */
            moved = 0;
            wall = -1;
            for (I which = 0; which < b->total; which++) {
                if (!range_after(p, b, which, edge, &start, &end))
                    continue;
                if (start <= edge) {
                    edge = end;
                    moved = 1;
                } else if (wall < 0 || start < wall)
                    wall = start;
            }
        }
        const I at = (edge + grid - 1) & -grid;
        if (wall < 0)
            return best >= 0 ? best : at;
        if (at + need <= wall && (smallest < 0 || wall - edge < smallest)) {
            best = at;
            smallest = wall - edge;
        }
        edge = wall;
    }
}

/* Whether `need` bytes at `here` overlap nothing but j, whose place is reused. */
static inline int is_free(const struct tree *p, const struct block *b, I j, I here, I need)
{
    I start, end;
    for (I which = 0; which < b->total; which++) {
        const int is_own = which >= b->many && p->near[which - b->many] == j;
        if (!is_own && range_after(p, b, which, here, &start, &end) && start < here + need)
            return 0;
    }
    return 1;
}

static I where(const struct tree *p, I i, struct nodes *found)
{
    const I need = p->size[i], grid = p->align[i];
    struct block b = {0, 0};
    for (I row = p->part_of[i]; row < p->part_of[i + 1]; row++) {
        nodes_of(p->part_lo[row], p->part_hi[row], p->leaves, found);
        for (I v = 0; v < found->n; v++)
            if (p->count[2 * found->inside[v] + 1])
                p->blocked[b.many++] = 2 * found->inside[v] + 1;
        for (I v = 0; v < found->m; v++)
            if (p->count[2 * found->above[v]])
                p->blocked[b.many++] = 2 * found->above[v];
    }
    I odd = 0;
    for (I row = p->odd_of[i]; row < p->odd_of[i + 1]; row++)
        if (p->offset[p->odd_other[row]] >= 0)
            p->near[odd++] = p->odd_other[row];
    b.total = b.many + odd;
    I at = p->tightest ? tightest(p, &b, need, grid) : lowest(p, &b, need, grid);
    for (I row = p->odd_of[i]; row < p->odd_of[i + 1]; row++) {
        const I j = p->odd_other[row];
        const I here = p->offset[j];
        if (p->odd_kind[row] != 1 || here < 0 || (here & (grid - 1)))
            continue;
        if (!p->tightest && here >= at)
            continue;
        if (is_free(p, &b, j, here, need)) {
            at = here;
            if (p->tightest)
                break;
        }
    }
    return at;
}

/* The v-th list that a range is added to. */
static inline I list_of(const struct nodes *found, I v)
{
    if (v < found->n)
        return 2 * found->inside[v];
    if (v < 2 * found->n)
        return 2 * found->inside[v - found->n] + 1;
    return 2 * found->above[v - 2 * found->n] + 1;
}

/* Offsets of one run. Return the missing pairs where the pool is too small; the next call continues the run. */
SHARED I tmmu_place(const struct tree *p)
{
    I *const now = p->now; /* the step, the part whose range is being taken (-1: none yet), pairs of the pool in use */
    struct nodes found;
    for (; now[0] < p->n; now[0]++, now[1] = -1) {
        const I i = p->sequence[now[0]];
        if (now[1] < 0) {
            p->offset[i] = p->fixed[i] >= 0 ? p->fixed[i] : where(p, i, &found);
            now[1] = p->part_of[i];
        }
        for (; now[1] < p->part_of[i + 1]; now[1]++) {
            nodes_of(p->part_lo[now[1]], p->part_hi[now[1]], p->leaves, &found);
            const I lists = 2 * found.n + found.m;
            I lacks = now[2] - p->pool;
            for (I v = 0; v < lists; v++) {
                const I which = list_of(&found, v);
                if (p->count[which] == p->room[which])
                    lacks += p->room[which] ? 2 * p->room[which] : 2;
            }
            if (lacks > 0)
                return lacks;
            for (I v = 0; v < lists; v++) {
                const I which = list_of(&found, v);
                if (p->count[which] == p->room[which]) {
                    const I to = now[2], from = p->begin[which];
                    for (I f = 0; f < p->count[which]; f++) {
                        p->starts[to + f] = p->starts[from + f];
                        p->ends[to + f] = p->ends[from + f];
                    }
                    p->begin[which] = to;
                    p->room[which] = p->room[which] ? 2 * p->room[which] : 2;
                    now[2] += p->room[which];
                }
                merge(p, which, p->offset[i], p->offset[i] + p->size[i]);
            }
        }
    }
    return DONE;
}
