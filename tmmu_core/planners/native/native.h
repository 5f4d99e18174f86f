/* Arguments of the library's functions: integers, and tables by address, 8 bytes each. native.py reads the structures
   from this file. All sources are freestanding: 64-bit integers, no C library, no recursion but a bounded one, no
   allocation. The callers rule out overflow, and signed arithmetic wraps (-fwrapv), so no behaviour is undefined. */
#ifndef TMMU_NATIVE_H
#define TMMU_NATIVE_H
#include <stdint.h>

typedef int64_t I;

#define SHARED __attribute__((visibility("default")))

enum { DONE = 0 };

static inline I larger(I one, I two) { return one > two ? one : two; }
static inline I smaller(I one, I two) { return one < two ? one : two; }

/* Greedy placement by neighbours: n storages; `first` (n + 1) is where the neighbours of each begin in `other`.
   By a scan: `first` and `other` (n) are the live range of each, and `spans` has 4 n. */
struct near {
    I n, tightest;
    const I *sequence, *first, *other, *size, *align;
    I *offset;         /* out */
    I *spans, *placed; /* 2 m and m + 1, with m the most neighbours of a storage */
};

/* Greedy placement by a segment tree over `leaves` columns of compressed time (see Columns).
   `begin`, `count`, `room`: of each of 4 * leaves lists. */
struct tree {
    I n, leaves, tightest, pool;
    const I *sequence, *part_of, *part_lo, *part_hi, *size, *align, *fixed, *odd_of, *odd_other, *odd_kind;
    I *begin;
    int32_t *count, *room;
    I *starts, *ends; /* `pool` of each */
    I *blocked;       /* 200 for each part of the storage with the most parts */
    I *near;          /* the most odd conflicts of a storage */
    I *offset;        /* out; -1 before */
    I *now;           /* 3: 0, -1, 0 before */
};

/* Tables, State and FitQuery of planners/exact: n units, at most `events` events and `max_levels` levels. */
struct search {
    I n, sections, events, max_levels;
    const I *shape, *entry, *first, *neighbour, *mate, *wall;
    I *unit, *section, *order, *event, *changed, *dirty, *holes, *placed, *filled, *conflict_levels, *counters;
    I capacity;
    const I *rank;
    I budget;
    volatile I *nodes;
    const volatile I *stop;
    I *unit_of_level, *offset_of_level, *second_branch, *trail_marks; /* a row for each level */
    uint8_t *nogoods; /* of level k the k levels below that its conflicts depend on, from k * (k - 1) / 2 on */
};

/* n units, m sections and a packing (planners/exact/lns.py); bytes are counted in steps, capacities are below 2^30 of
   them. `progress` may be read, and `stop` set, meanwhile. */
struct lns {
    I n, sections, noise_rows, capacity, iterations, mean_destroyed;
    const I *unit;            /* (n, 10): AREA … FIXED, traits up to 2^20 */
    const I *temperature;     /* STAGES + 1, in weights × 2^10 */
    const I *log_table;       /* 1,024: −ln of (k + ½) / 1024, in 1/1024 */
    const uint8_t *conflicts; /* (n, n): 1 where two units must not share bytes, also on the diagonal */
    const I *first_run, *run; /* n + 1; runs of consecutive sections of a lifetime, from and to */
    const int32_t *noise;     /* 2 rows of `noise_rows`: factors 11 to 20 of a distance, 0 to 1,023 of a length */
    I *work;                  /* (15, n + 1): OFFSET … KEY */
    int32_t *proximity;       /* (7, n): FIRST_TIME … DISTANCE */
    int32_t *skyline;         /* m: highest end, or lowest offset, so far in each section */
    I *target;                /* 7: CENTRE_UNIT … KEPT_COUNT */
    volatile I *progress;
    const volatile I *stop;
};

/* Model of planners/reuse/reuse_model.py and a placement: n units, edges by unit from `first`. `cost` and `missing`
   (units without a place) are those of `offset` before, of `best` after. `matrix` has the weight of every two units
   where all edges are of whole units and nothing is reserved; else `swept` is 0. */
struct reuse {
    I n, capacity, reserved_count, rounds, threshold, most_out, bound, random, swept, cost, missing, placed;
    const I *size, *align, *pin, *first, *other, *mine, *theirs, *weight, *reserved, *matrix;
    I *offset, *best, *work, *old, *out; /* n each */
    I *by_start, *by_end; /* 4 n each: the placed units in order of their ends, as before the round, and scratch */
};

/* Offsets of n units, those of each from `start`; see planners/reuse/cost_bound.py. `cost` has n + 1 rows of `total`. */
struct least_cost {
    I n, total, first, limit, nodes, best;
    const I *start, *twin, *least, *table;
    I *cost, *order, *trail;
};

/* Pairs of units that share a section; n units. Rows are written up to `max_rows`, all are counted. */
struct neighbour_query {
    I n, max_rows;
    const I *entry_of, *entry, *first, *by_section;
    I *begin; /* n + 1 */
    I *seen;  /* n */
    I *table;
};

/* Execution order of n units: the tables of OrderModel (fitting/order/order_model.py), an order, and working memory. */
struct order {
    I n, storages, arenas, skip_from, skip_to, threshold;
    const I *unit_ptr, *unit_nodes, *touch_ptr, *touch_idx, *cand_ptr, *cand_idx, *out, *size;
    const uint8_t *held, *initial;
    const I *touched_by, *arena;
    const I *given;                         /* n: the order to measure or to change */
    const I *edge_ptr, *edge_idx, *waits_for; /* successors of each unit, or its predecessors */
    I *left;                                /* storages: nodes that still have to touch each */
    uint8_t *born;                          /* storages */
    I *live;                                /* arenas */
    I *work;                                /* 5 rows of n */
    uint8_t *done;                          /* n */
    I *one, *two;                           /* out */
};

/* One execution with recomputation: the tables of RecomputeModel and Choice (fitting/recompute), and working memory. */
struct recompute {
    I positions, storages, loading, most_steps, most_lives, most_reads;
    const I *in_ptr, *in_idx, *out_ptr, *out_idx, *producer, *made_of, *size, *expires;
    const I *drop_ptr, *drop_idx; /* position -> storages that are dropped after it */
    const uint8_t *at_start, *again, *away;
    I *life, *stack, *pending;
    uint8_t *dropped, *gone;
    uint8_t *ever, *first_life, *further; /* out, as all that follow */
    I *of, *birth, *last, *node, *at, *read_ptr, *reads, *first;
    I *totals; /* steps, lives, reads, FLOPs, bytes moved */
};

/* Flow network: residual edges grouped by tail; vertex 0 is the source, vertex 1 the sink. */
struct cut {
    I vertices;
    const I *start, *to, *twin;
    I *room;
    I *level; /* out: >= 0 on the side of the source */
    I *queue, *at, *path;
};

#endif
