/* Arguments of the library's functions: integers, and arrays by address, 8 bytes each. native.py reads the structures
   from this file. The sources are freestanding: no C library, no allocation, and recursion only in reuse.c (at most
   MOST_OFFERS of cost_bound.py calls deep). Callers rule out overflow, and -fwrapv defines it. */
#ifndef TMMU_NATIVE_H
#define TMMU_NATIVE_H
#include <stdint.h>

typedef int64_t I;

#define SHARED __attribute__((visibility("default")))

enum { DONE = 0 };

static inline I larger(I one, I two) { return one > two ? one : two; }
static inline I smaller(I one, I two) { return one < two ? one : two; }
/* The next multiple (>= `at`) of `grid`, a power of two. */
static inline I align_up(I at, I grid) { return (at + grid - 1) & -grid; }

/* Greedy placement of n storages without the tree. tmmu_place_near: `first` (n + 1) is where the neighbours of each
   storage begin in `other`; m is the largest number of neighbours. tmmu_place_all: `first` and `other` (n) are the live
   range of each storage. */
struct near {
    I n, tightest;
    const I *sequence, *first, *other, *size, *align, *fixed;
    I *offset; /* out */
    I *spans;  /* near: 2 m; all: 4 n */
    I *placed; /* near: m */
};

/* Greedy placement by a segment tree over the compressed steps (Columns), filled up to `leaves`, a power of two. Node v
   has two merged lists of address ranges: 2 v of the storages that cover it, 2 v + 1 of those that overlap it. `begin`,
   `count` and `room` are the first row, the rows in use and the rows of each of the 4 * leaves lists. */
struct tree {
    I n, leaves, tightest, pool;
    const I *sequence, *part_of, *part_lo, *part_hi, *size, *align, *fixed, *extra_of, *extra_other, *extra_kind;
    I *begin;
    int32_t *count, *room;
    I *starts, *ends; /* `pool` rows each: the lists */
    I *blocked;       /* 200 for each live part, of the storage with the most parts */
    I *placed;        /* the largest number of extra conflicts of a storage */
    I *offset;        /* out; -1 before */
    I *state;         /* 3: step, live part that is being added (-1: none yet), rows of the pool in use */
};

/* One skyline run (planners/exact/skyline.py) over `steps` compressed steps: `rank`, live range, bytes and `offset` of
   each storage, -1 before; `first` (steps + 1) is the first storage born at each step. */
struct skyline {
    I steps, grid;
    const I *first, *rank, *lo, *hi, *size;
    I *offset;        /* out */
    I *height, *end;  /* steps each: for the first step of each stretch, its height and its end */
};

/* Tables and State of planners/exact/search_tables.py: n units, at most `max_events` events and `max_levels` levels. */
struct search {
    I n, entries, sections, max_events, max_levels, capacity, budget;
    const I *shape, *entry, *first, *neighbour, *mate, *wall, *rank;
    I *unit, *section, *order;
    I *changed, *holes, *placed; /* n each */
    I *dirty;                    /* sections */
    struct event *event;         /* max_events, as of the next */
    struct reason *reason;
    struct level *level;         /* max_levels, as of the two below */
    struct filled *filled;
    uint8_t *nogood;  /* levels that the current conflict depends on */
    uint8_t *nogoods; /* for level k, from k * (k - 1) / 2 on: the k levels below, the same for its first branch */
    volatile I *nodes;
    const volatile I *stop;
    I event_count, placed_count, changed_count, dirty_count, hole_count, filled_count, level_count; /* 0 before */
    I conflict, conflict_cause, conflict_detail;
};

/* LnsState (planners/exact/lns_moves.py) of n units in m sections; sizes and offsets are in steps of LnsRun, below 2^30
   within the capacity. Other threads can read `progress` and set `stop`. */
struct lns {
    I n, sections, noise_rows, capacity, iterations, mean_destroyed;
    const I *unit, *temperature, *log_table;
    const uint8_t *conflicts;
    const I *first_run, *run;
    const int32_t *noise; /* 2 rows of `noise_rows` */
    I *work;              /* (15, n + 1): OFFSET … KEY */
    int32_t *proximity;   /* (7, n): FIRST_TIME … DISTANCE */
    int32_t *skyline;     /* m */
    I *target;            /* 6: CENTRE_TIME … KEPT_COUNT */
    volatile I *progress; /* 6: RANDOM_STATE … ITERATION */
    const volatile I *stop;
};

/* ReuseModel (planners/reuse/reuse_model.py) of n units, and a placement: `offset` (-1: not placed), of cost `cost`.
   Results: `best`, its `cost`, and `missing`, the number of units that it does not place. Without `matrix`
   (weight_matrix in local_search.py), `has_matrix` is 0 and the last two arrays are not used. */
struct reuse {
    I n, capacity, reserved_count, rounds, threshold, most_out, bound, random, has_matrix, cost, missing, placed;
    const I *size, *align, *pin, *first, *other, *own_size, *other_size, *weight, *reserved, *matrix;
    I *offset, *best;
    I *removed, *old, *is_removed; /* n each: the units that a round removes, their offsets before, and flags */
    I *by_start, *by_end; /* 4 n each: the placed units by offset and by end, the same before the round, scratch */
};

/* Search (planners/reuse/cost_bound.py): `total` offsets of n units, those of each from `start`. */
struct least_cost {
    I n, total, first, limit, nodes, best;
    const I *start, *twin, *least, *table;
    I *cost; /* (n + 1, total): the cost of each offset beside the units placed before unit k */
    I *order, *trail;
};

/* Pairs of n units that share a section. Rows up to `max_rows` are written, all are counted. */
struct neighbour_query {
    I n, max_rows;
    const I *entry_of, *entry, *first, *by_section;
    I *begin; /* n + 1 */
    I *seen;  /* n */
    I *table;
};

/* The tables of RecomputeModel and Choice (fitting/recompute), working memory, and the execution (Tables in
   live_curve.py). */
struct recompute {
    I positions, storages, loading, most_steps, most_lives, most_reads;
    const I *in_ptr, *in_idx, *out_ptr, *out_idx, *producer, *node_flops, *size, *expires;
    const I *drop_ptr, *drop_idx; /* position -> storages that are dropped after it */
    const uint8_t *starts_live, *away;
    const uint8_t *again; /* operands: whether the storage is dropped again after its node was recomputed */
    I *life, *stack;      /* storages; storages + 1 */
    I *pending;           /* operands + storages: to drop after the current position */
    uint8_t *dropped, *gone;
    uint8_t *ever, *first_life, *further; /* out, as all that follow */
    I *of, *birth, *last, *node, *at, *read_ptr, *reads, *first;
    struct totals *totals; /* steps, lives, reads, FLOPs, bytes moved */
};

/* Flow network: residual edges grouped by tail; vertex 0 is the source, vertex 1 the sink. */
struct cut {
    I vertices;
    const I *start, *to, *twin;
    I *room;
    I *level; /* out */
    I *queue, *at, *path;
};

#endif
