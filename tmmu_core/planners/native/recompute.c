/* Execution with recomputation and offloading, and the minimum cut: the loops of tmmu_core/fitting/recompute in C. */
#include "native.h"

enum { STEPS, LIVES, READS, FLOPS, MOVED };
enum { GIVEN_UP, VALID };

#define MOST_FLOPS ((I)1 << 61)

struct counters {
    I steps, lives, reads, flops, moved;
};

/* Begin a life of storage s at the current step. */
static void begin_life(const struct recompute *p, struct counters *c, I s)
{
    p->of[c->lives] = s;
    p->birth[c->lives] = p->last[c->lives] = c->steps;
    c->lives++;
}

static void end_step(const struct recompute *p, struct counters *c)
{
    c->steps++;
    p->read_ptr[c->steps] = c->reads;
}

/* Read the inputs of node n at the current step. */
static void read_inputs(const struct recompute *p, struct counters *c, I n)
{
    for (I f = p->in_ptr[n]; f < p->in_ptr[n + 1]; f++) {
        const I x = p->life[p->in_idx[f]];
        p->last[x] = c->steps;
        p->reads[c->reads++] = x;
    }
}

/* Whether a run of node n still fits the tables. */
static int has_room(const struct recompute *p, const struct counters *c, I n)
{
    return c->steps < p->most_steps && c->lives + p->out_ptr[n + 1] - p->out_ptr[n] <= p->most_lives &&
           c->reads + p->in_ptr[n + 1] - p->in_ptr[n] <= p->most_reads;
}

/* Run the nodes that make storage `root` again, before position k; append to `pending` what these runs drop.
   Return how many are pending, or -1. */
static I restore(const struct recompute *p, struct counters *c, I root, I k, I waiting)
{
    I depth = 1;
    p->stack[0] = root;
    while (depth) {
        const I s = p->stack[depth - 1];
        if (!p->dropped[s]) {
            depth--;
            continue;
        }
        if (p->away[s]) {
            if (c->steps >= p->most_steps || c->lives >= p->most_lives)
                return -1;
            p->at[c->steps] = k;
            c->moved += p->size[s];
            p->life[s] = c->lives;
            begin_life(p, c, s);
            p->dropped[s] = 0;
            end_step(p, c);
            continue;
        }
        const I n = p->producer[s];
        int ready = 1;
        for (I f = p->in_ptr[n]; f < p->in_ptr[n + 1]; f++)
            if (p->dropped[p->in_idx[f]]) {
                p->stack[depth++] = p->in_idx[f];
                ready = 0;
                break;
            }
        if (!ready)
            continue;
        if (p->expires[n] < k || !has_room(p, c, n))
            return -1;
        p->node[c->steps] = n;
        p->further[c->steps] = 1;
        p->at[c->steps] = k;
        c->flops += p->made_of[n];
        if (c->flops > MOST_FLOPS)
            c->flops = MOST_FLOPS;
        read_inputs(p, c, n);
        for (I f = p->in_ptr[n]; f < p->in_ptr[n + 1]; f++)
            if (p->again[f])
                p->pending[waiting++] = p->in_idx[f];
        for (I o = p->out_ptr[n]; o < p->out_ptr[n + 1]; o++) {
            const I y = p->out_idx[o];
            if (p->dropped[y] && !p->away[y]) {
                p->life[y] = c->lives;
                p->dropped[y] = 0;
            }
            begin_life(p, c, y);
        }
        end_step(p, c);
    }
    return waiting;
}

/* Copy an offloaded storage to the other memory the first time that it is dropped; return whether there was room. */
static int move_away(const struct recompute *p, struct counters *c, I s, I k)
{
    if (!p->away[s] || p->gone[s])
        return 1;
    if (c->steps >= p->most_steps)
        return 0;
    p->gone[s] = 1;
    c->moved += p->size[s];
    p->last[p->life[s]] = c->steps;
    p->at[c->steps] = k;
    end_step(p, c);
    return 1;
}

/* Run position k, then drop storages; return whether there was room. */
static int run_position(const struct recompute *p, struct counters *c, I k, I waiting)
{
    if (!has_room(p, c, k))
        return 0;
    p->node[c->steps] = k;
    p->at[c->steps] = k;
    p->first[k] = c->steps;
    read_inputs(p, c, k);
    for (I o = p->out_ptr[k]; o < p->out_ptr[k + 1]; o++) {
        p->life[p->out_idx[o]] = c->lives;
        p->first_life[c->lives] = 1;
        begin_life(p, c, p->out_idx[o]);
    }
    for (I w = 0; w < waiting; w++)
        p->dropped[p->pending[w]] = p->ever[p->pending[w]] = 1;
    for (I d = p->drop_ptr[k]; d < p->drop_ptr[k + 1]; d++)
        p->dropped[p->drop_idx[d]] = p->ever[p->drop_idx[d]] = 1;
    end_step(p, c);
    for (I w = 0; w < waiting; w++)
        if (!move_away(p, c, p->pending[w], k))
            return 0;
    for (I d = p->drop_ptr[k]; d < p->drop_ptr[k + 1]; d++)
        if (!move_away(p, c, p->drop_idx[d], k))
            return 0;
    return 1;
}

SHARED I tmmu_recompute_run(const struct recompute *p)
{
    struct counters c = {0, 0, 0, 0, 0};
    if (p->loading) {
        for (I s = 0; s < p->storages; s++)
            if (p->at_start[s]) {
                p->life[s] = c.lives;
                p->first_life[c.lives] = 1;
                begin_life(p, &c, s);
            }
        c.steps = 1;
    }
    for (I k = 0; k < p->positions; k++) {
        I waiting = 0;
        for (I e = p->in_ptr[k]; e < p->in_ptr[k + 1] && waiting >= 0; e++)
            if (p->dropped[p->in_idx[e]])
                waiting = restore(p, &c, p->in_idx[e], k, waiting);
        if (waiting < 0 || !run_position(p, &c, k, waiting))
            return GIVEN_UP;
    }
    p->totals[STEPS] = c.steps;
    p->totals[LIVES] = c.lives;
    p->totals[READS] = c.reads;
    p->totals[FLOPS] = c.flops;
    p->totals[MOVED] = c.moved;
    return VALID;
}

/* Distance of every vertex from the source along edges with room; return whether the sink is reached. */
static int find_levels(const struct cut *p)
{
    for (I v = 0; v < p->vertices; v++)
        p->level[v] = -1;
    p->level[0] = 0;
    p->queue[0] = 0;
    I done = 0, filled = 1;
    while (done < filled) {
        const I v = p->queue[done++];
        for (I e = p->start[v]; e < p->start[v + 1]; e++)
            if (p->room[e] > 0 && p->level[p->to[e]] < 0) {
                p->level[p->to[e]] = p->level[v] + 1;
                p->queue[filled++] = p->to[e];
            }
    }
    return p->level[1] >= 0;
}

/* Push along the path of so many edges as much as fits; return how many edges stay on the path. */
static I push(const struct cut *p, I depth)
{
    I pushed = p->room[p->path[0]], back = depth;
    for (I d = 1; d < depth; d++)
        if (p->room[p->path[d]] < pushed)
            pushed = p->room[p->path[d]];
    for (I d = depth - 1; d >= 0; d--) {
        const I e = p->path[d];
        p->room[e] -= pushed;
        p->room[p->twin[e]] += pushed;
        if (p->room[e] == 0)
            back = d;
    }
    return back;
}

/* Dinic's algorithm; `level` is >= 0 on the side of the source. */
SHARED I tmmu_minimum_cut(const struct cut *p)
{
    while (find_levels(p)) {
        for (I v = 0; v < p->vertices; v++)
            p->at[v] = p->start[v];
        I depth = 0, v = 0;
        for (;;) {
            if (v == 1) {
                depth = push(p, depth);
                v = p->to[p->twin[p->path[depth]]];
                continue;
            }
            while (p->at[v] < p->start[v + 1]) {
                const I e = p->at[v];
                if (p->room[e] > 0 && p->level[p->to[e]] == p->level[v] + 1)
                    break;
                p->at[v]++;
            }
            if (p->at[v] < p->start[v + 1]) {
                const I e = p->at[v];
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
