/* Two loops of tmmu_core/fitting/recompute in C: the simulation of recomputation and offloading (live_curve.py, which
   defines positions and lives), and the minimum cut (recompute_search.py). */
#include "native.h"

enum { ABORTED, VALID };

#define MOST_FLOPS ((I)1 << 61)

struct totals {
    I steps, lives, reads, flops, moved;
};

/* Begin another life (period in memory) of storage s at the current step. */
static void begin_life(const struct recompute *p, I s)
{
    struct totals *const t = p->totals;
    p->of[t->lives] = s;
    p->birth[t->lives] = p->last[t->lives] = t->steps;
    t->lives++;
}

static void end_step(const struct recompute *p)
{
    p->read_ptr[++p->totals->steps] = p->totals->reads;
}

/* Begin a step that runs node n for position k, and record its reads. Return whether the tables have room. */
static int begin_step(const struct recompute *p, I n, I k)
{
    struct totals *const t = p->totals;
    if (t->steps >= p->most_steps || t->lives + p->out_ptr[n + 1] - p->out_ptr[n] > p->most_lives ||
        t->reads + p->in_ptr[n + 1] - p->in_ptr[n] > p->most_reads)
        return 0;
    p->node[t->steps] = n;
    p->at[t->steps] = k;
    for (I f = p->in_ptr[n]; f < p->in_ptr[n + 1]; f++) {
        const I x = p->life[p->in_idx[f]];
        p->last[x] = t->steps;
        p->reads[t->reads++] = x;
    }
    return 1;
}

/* Run node n before position k: for the first time if it is delayed, else again. Append to `pending` the inputs to drop
   after k. Return the number of pending storages, or -1 if the run is impossible or the tables are full. */
static I run_again(const struct recompute *p, I n, I k, I count)
{
    struct totals *const t = p->totals;
    if (p->expires[n] < k || !begin_step(p, n, k))
        return -1;
    p->further[t->steps] = 1;
    if (!p->delayed[n])
        t->flops = smaller(t->flops + p->node_flops[n], MOST_FLOPS);
    p->delayed[n] = 0;
    for (I f = p->in_ptr[n]; f < p->in_ptr[n + 1]; f++)
        if (p->again[f])
            p->pending[count++] = p->in_idx[f];
    for (I o = p->out_ptr[n]; o < p->out_ptr[n + 1]; o++) {
        const I y = p->out_idx[o];
        if (p->dropped[y] && !p->away[y]) {
            p->life[y] = t->lives;
            p->dropped[y] = 0;
        }
        begin_life(p, y);
    }
    end_step(p);
    return count;
}

/* Restore storage `root` before position k: copy it back, or restore the dropped inputs of its producer and run the
   producer. Return the same as run_again(). */
static I restore(const struct recompute *p, I root, I k, I count)
{
    struct totals *const t = p->totals;
    I depth = 1;
    p->stack[0] = root;
    while (depth) {
        const I s = p->stack[depth - 1];
        if (!p->dropped[s]) {
            depth--;
            continue;
        }
        if (p->away[s]) { /* copy it back */
            if (t->steps >= p->most_steps || t->lives >= p->most_lives)
                return -1;
            p->at[t->steps] = k;
            t->moved += p->size[s];
            p->life[s] = t->lives;
            p->dropped[s] = 0;
            begin_life(p, s);
            end_step(p);
            continue;
        }
        const I n = p->producer[s];
        I f = p->in_ptr[n];
        while (f < p->in_ptr[n + 1] && !p->dropped[p->in_idx[f]])
            f++;
        if (f < p->in_ptr[n + 1])
            p->stack[depth++] = p->in_idx[f];
        else if ((count = run_again(p, n, k, count)) < 0)
            return -1;
    }
    return count;
}

/* If storage s is offloaded and dropped for the first time, copy it out. Return whether the tables have room. */
static int copy_out(const struct recompute *p, I s, I k)
{
    struct totals *const t = p->totals;
    if (!p->away[s] || p->gone[s])
        return 1;
    if (t->steps >= p->most_steps)
        return 0;
    p->gone[s] = 1;
    t->moved += p->size[s];
    p->last[p->life[s]] = t->steps;
    p->at[t->steps] = k;
    end_step(p);
    return 1;
}

/* Set `delayed` of each position whose results are not read before they are dropped; see DropWalk in live_curve.py. */
static void find_delayed(const struct recompute *p)
{
    for (I k = p->positions - 1; k >= 0; k--) {
        for (I d = p->drop_ptr[k]; d < p->drop_ptr[k + 1]; d++)
            p->unread[p->drop_idx[d]] = p->away[p->drop_idx[d]] ? 0 : 2;
        const int is_view = p->out_ptr[k] == p->out_ptr[k + 1];
        const I *const ptr = is_view ? p->in_ptr : p->out_ptr, *const idx = is_view ? p->in_idx : p->out_idx;
        int all = p->can_delay[k], any = 0;
        for (I o = ptr[k]; o < ptr[k + 1]; o++) {
            all &= p->unread[idx[o]] > 0;
            any |= p->unread[idx[o]] == 2;
        }
        p->delayed[k] = all && any;
        for (I f = p->in_ptr[k]; f < p->in_ptr[k + 1] && !p->delayed[k]; f++)
            p->unread[p->in_idx[f]] = 0;
    }
}

/* After position k, drop the pending storages, then those in `drop_idx`. Return whether the tables have room. */
static int drop_after(const struct recompute *p, I k, I count)
{
    for (I d = p->drop_ptr[k]; d < p->drop_ptr[k + 1]; d++)
        p->pending[count++] = p->drop_idx[d];
    for (I d = 0; d < count; d++)
        p->dropped[p->pending[d]] = p->ever[p->pending[d]] = 1;
    for (I d = 0; d < count; d++)
        if (!copy_out(p, p->pending[d], k))
            return 0;
    return 1;
}

SHARED I tmmu_recompute(const struct recompute *p)
{
    struct totals *const t = p->totals;
    *t = (struct totals){0, 0, 0, 0, 0};
    if (p->loading) {
        for (I s = 0; s < p->storages; s++)
            if (p->starts_live[s]) {
                p->life[s] = t->lives;
                p->first_life[t->lives] = 1;
                begin_life(p, s);
            }
        t->steps = 1;
    }
    find_delayed(p);
    for (I k = 0; k < p->positions; k++) {
        I count = 0;
        if (p->delayed[k] && p->out_ptr[k] == p->out_ptr[k + 1])
            p->delayed[k] = p->dropped[p->in_idx[p->in_ptr[k]]];
        for (I o = p->out_ptr[k]; o < p->out_ptr[k + 1] && p->delayed[k]; o++)
            p->dropped[p->out_idx[o]] = p->ever[p->out_idx[o]] = 1;
        for (I f = p->in_ptr[k]; f < p->in_ptr[k + 1] && count >= 0 && !p->delayed[k]; f++)
            if (p->dropped[p->in_idx[f]])
                count = restore(p, p->in_idx[f], k, count);
        if (count < 0 || (!p->delayed[k] && !begin_step(p, k, k)))
            return ABORTED;
        if (!p->delayed[k]) {
            p->first[k] = t->steps;
            for (I o = p->out_ptr[k]; o < p->out_ptr[k + 1]; o++) {
                p->life[p->out_idx[o]] = t->lives;
                p->first_life[t->lives] = 1;
                begin_life(p, p->out_idx[o]);
            }
            end_step(p);
        }
        if (!drop_after(p, k, count))
            return ABORTED;
    }
    return VALID;
}

/* Set `level`: the length of the shortest residual path from the source (-1: none). Return whether the sink has one. */
static int find_levels(const struct minimum_cut *p)
{
    for (I v = 0; v < p->vertices; v++)
        p->level[v] = -1;
    p->level[0] = 0;
    p->queue[0] = 0;
    I head = 0, tail = 1;
    while (head < tail) {
        const I v = p->queue[head++];
        for (I e = p->start[v]; e < p->start[v + 1]; e++)
            if (p->room[e] > 0 && p->level[p->to[e]] < 0) {
                p->level[p->to[e]] = p->level[v] + 1;
                p->queue[tail++] = p->to[e];
            }
    }
    return p->level[1] >= 0;
}

/* Compute a minimum cut by Dinic's algorithm: the vertices with `level` >= 0 are on the side of the source. */
SHARED I tmmu_minimum_cut(const struct minimum_cut *p)
{
    while (find_levels(p)) {
        for (I v = 0; v < p->vertices; v++)
            p->at[v] = p->start[v];
        I depth = 0, v = 0;
        for (;;) {
            if (v == 1) {
                I pushed = p->room[p->path[0]], kept = depth; /* kept: edges before the first saturated edge */
                for (I d = 1; d < depth; d++)
                    pushed = smaller(pushed, p->room[p->path[d]]);
                for (I d = depth - 1; d >= 0; d--) {
                    const I e = p->path[d];
                    p->room[e] -= pushed;
                    p->room[p->twin[e]] += pushed;
                    if (p->room[e] == 0)
                        kept = d;
                }
                depth = kept;
                v = p->to[p->twin[p->path[depth]]];
                continue;
            }
            I e = p->at[v];
            while (e < p->start[v + 1] && (p->room[e] == 0 || p->level[p->to[e]] != p->level[v] + 1))
                e++;
            p->at[v] = e;
            if (e < p->start[v + 1]) {
                p->path[depth++] = e;
                v = p->to[e];
                continue;
            }
            if (depth == 0)
                break;
            p->level[v] = -1;
            v = p->to[p->twin[p->path[--depth]]];
            p->at[v]++;
        }
    }
    return DONE;
}
