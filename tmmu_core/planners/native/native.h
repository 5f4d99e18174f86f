/* `struct NAME` has the arguments of `tmmu_NAME`. A field is an integer or the address of an array, and has 8 bytes;
   native.py reads the fields from this file. "out": a result; "0 before": the caller sets 0. The sources use no C
   library and allocate no memory. Only descend() in reuse.c is recursive, n calls deep. Callers prevent overflow. */
#ifndef TMMU_NATIVE_H
#define TMMU_NATIVE_H
#include <stdint.h>

typedef int64_t I;

#define SHARED __attribute__((visibility("default")))

#define INFINITE ((I)1 << 62)
enum { DONE = 0 };

static inline I larger(I one, I two) { return one > two ? one : two; }
static inline I smaller(I one, I two) { return one < two ? one : two; }
/* Round `at` up to a multiple of `grid`, which is a power of two. */
static inline I align_up(I at, I grid) { return (at + grid - 1) & -grid; }

/* Greedy placement of n storages in the order `sequence` by a scan. Storage i is live in [lo[i], hi[i]). */
struct scan {
    I n, tightest; /* tightest: use the smallest gap that fits, not the lowest one */
    const I *sequence, *lo, *hi, *size, *align, *fixed; /* fixed: offset, or -1 */
    I *offset; /* out */
    struct placed *placed; /* (n, 4): working memory */
};

/* Greedy placement by a segment tree over the compressed steps (columns.py); `leaves`, a power of two, is at least the
   number of steps. The covering nodes of a live range are the largest nodes inside it. Each node v has two lists of
   disjoint address ranges. List 2 v: the storages of which v is a covering node. List 2 v + 1: the storages that have a
   covering node in the subtree of v. `begin`, `count` and `room`, for each of 4 * leaves lists: its first row in the
   pool, the number of its used rows, and the number of all its rows; all 0 before. */
struct tree {
    I n, leaves, tightest, pool, used; /* used: rows of the pool in use; 0 before */
    const I *sequence, *part_of, *part_lo, *part_hi, *size, *align, *fixed, *extra_of, *extra_other, *extra_kind;
    I *begin;
    int32_t *count, *room;
    I *starts, *ends; /* `pool` rows each: starts and ends of the ranges of all lists */
    I *blocked;       /* lists that one storage must avoid; cells: 200 times the largest number of parts of a storage */
    I *placed;        /* single storages that it must avoid; cells: the largest number of extra conflicts of one */
    I *offset;        /* out; -1 before */
};

/* One skyline run (planners/auto.py) over `steps` compressed steps. The storages are sorted by birth; first[t] is the
   first storage born at step t or later. Storage i is live in [lo[i], hi[i]). */
struct skyline {
    I steps, grid;
    const I *first, *rank, *lo, *hi, *size;
    I *offset;       /* out; -1 before */
    I *height, *end; /* steps each: height and end of each stretch of equal height, at the stretch's first step */
};

/* A search over n units: Tables (`shape`: Tables.unit), State (planners/exact/search_tables.py) and working memory. */
struct search {
    I n, entries, sections, max_events, max_levels, capacity, budget;
    const I *shape, *entry, *first, *neighbour, *mate, *wall, *rank;
    I *unit, *section, *order;
    I *changed, *holes, *placed; /* n each */
    I *dirty;                    /* sections */
    struct event *event;         /* max_events */
    struct reason *reason;       /* max_events */
    struct level *level;         /* max_levels */
    struct filled *filled;       /* max_levels */
    uint8_t *nogood;             /* max_levels: 1 for each level that the current conflict depends on */
    uint8_t *nogoods; /* nogood of the failed first branch of each level k: k cells from k * (k - 1) / 2 on */
    volatile I *nodes;           /* visited so far */
    const volatile I *stop;
    I event_count, placed_count, changed_count, dirty_count, hole_count, filled_count, level_count; /* 0 before */
    I conflict, conflict_cause, conflict_detail;
    I highest_low; /* maximum of the units' lower bounds; 0 before */
    I explained, explained_lowest, explained_end, explained_least, lowest_height; /* used by explain_section() */
};

/* LnsState (planners/exact/lns_moves.py) of n units, and working memory. Sizes, offsets and `capacity` are counted in
   multiples of LnsRun.step bytes; `capacity` is below 2^30. Other threads can read `progress` and set `stop`. */
struct lns {
    I n, sections, noise_rows, capacity, iterations, mean_destroyed;
    const I *unit, *temperature, *log_table;
    const uint8_t *conflicts;
    const I *first_stretch, *stretch;
    const int32_t *noise; /* 2 rows of `noise_rows` */
    I *work;              /* (15, n + 1): rows OFFSET … KEY */
    int32_t *proximity;   /* (7, n): rows FIRST_TIME … DISTANCE */
    int32_t *skyline;     /* sections */
    I *target;            /* 6: CENTRE_TIME … KEPT_COUNT */
    volatile I *progress; /* 6: RANDOM_STATE … ITERATION */
    const volatile I *stop;
};

/* ReuseModel (planners/reuse/local_search.py) of n units, and a first placement: `offset` (-1: not placed) and `cost`.
   Results: the placement `best`, its `cost`, and `missing`, the number of its unplaced units. `matrix` is the weight of
   each pair of units; if has_matrix is 0, it is empty, and by_start and by_end are not used. */
struct reuse {
    I n, capacity, reserved_count, rounds, threshold, most_removed, bound, random, has_matrix, cost, missing, placed;
    const I *size, *align, *pin, *first, *other, *own_size, *other_size, *weight, *reserved, *matrix;
    I *offset, *best;
    I *removed;           /* n: the units that a round removes */
    I *old, *is_removed;  /* n each: offset of a removed unit before the round; whether a unit is removed */
    I *by_start, *by_end; /* (4, n) each: placed units by offset or by end; a copy of this row; two scratch rows */
};

/* Search (planners/reuse/cost_bound.py) of units `first` to n - 1. Of `total` offsets, unit k tries those in
   [start[k], start[k + 1]), and unit `first` only those before `limit`. `best`: the upper limit before the search, and
   the least cost after it. `nodes`: nodes left (-1: too few). */
struct least_cost {
    I n, total, first, limit, nodes, best;
    const I *start, *twin, *least, *table;
    I *cost; /* (n + 1, total): row k: for each offset, its cost with the placed units before unit k */
    I *order, *trail;
};

/* Tables.neighbour for n units (search_tables.py). Only the first `max_rows` rows are written, but all are counted. */
struct neighbours {
    I n, max_rows;
    const I *entry_of, *entry, *first, *by_section;
    I *begin; /* n + 1 */
    I *seen;  /* n: working memory */
    I *table;
};

/* RecomputeModel and Choice (fitting/recompute), working memory, and results (Lives in live_curve.py). */
struct recompute {
    I positions, storages, loading, most_steps, most_lives, most_reads;
    const I *in_ptr, *in_idx, *out_ptr, *out_idx, *producer, *node_flops, *size, *expires;
    const I *drop_ptr, *drop_idx; /* position -> storages that are dropped after it */
    const uint8_t *starts_live;   /* per storage: loaded in the first step */
    const uint8_t *away;          /* per storage: offloaded and copied back, not recomputed */
    const uint8_t *again;         /* per operand: dropped after each position for which its node runs again */
    I *life, *stack;              /* per storage: its current life; stack of restore(), storages + 1 cells */
    I *pending;                   /* operands + storages cells: storages to drop after the current position */
    const uint8_t *can_delay;     /* per position: the first run can be later */
    uint8_t *dropped, *gone;      /* per storage: not in memory now; already copied to the other memory */
    uint8_t *delayed;             /* per position: the first run is later, when a result is needed */
    uint8_t *unread;              /* per storage: 2 if dropped, not offloaded, before a read; 1 if never read; else 0 */
    uint8_t *ever, *first_life, *further; /* from here on: out. Ever dropped; first lives; steps of run_again() */
    I *of, *birth, *last, *node, *at, *read_ptr, *reads, *first; /* of: Lives.storage; at: Run.for_position */
    struct totals *totals;
};

/* Flow network. The residual edges of vertex v begin at start[v]; vertex 0 is the source, vertex 1 the sink. */
struct minimum_cut {
    I vertices;
    const I *start, *to, *twin; /* twin: the reverse of each edge */
    I *room;                    /* residual capacity of each edge */
    I *level;                   /* out */
    I *queue, *at, *path;
};

#endif
