/* Structures with the arguments of the library's functions. A field is an integer or the address of an array, 8 bytes
   each; native.py reads the structures from this file. The sources are freestanding: no C library and no allocation.
   Only `descend` in reuse.c is recursive, once per unit. Callers prevent overflow of integers. */
#ifndef TMMU_NATIVE_H
#define TMMU_NATIVE_H
#include <stdint.h>

typedef int64_t I;

#define SHARED __attribute__((visibility("default")))

#define INFINITE ((I)1 << 62)
enum { DONE = 0 };

static inline I larger(I one, I two) { return one > two ? one : two; }
static inline I smaller(I one, I two) { return one < two ? one : two; }
/* The smallest multiple of `grid`, a power of two, that is at least `at`. */
static inline I align_up(I at, I grid) { return (at + grid - 1) & -grid; }

/* Greedy placement of n storages in the order `sequence`, without the tree. Storage i is live in [lo[i], hi[i]). */
struct scan {
    I n, tightest; /* tightest: use the smallest gap that fits, not the lowest one */
    const I *sequence, *lo, *hi, *size, *align, *fixed;
    I *offset; /* out */
    struct placed *placed; /* (n, 4): working memory */
};

/* Greedy placement by a segment tree over the compressed steps (Columns); `leaves`, a power of two, is at least their
   number. A live range is split into the largest nodes inside it, its covering nodes. Node v has two lists of disjoint
   address ranges: list 2 v for the storages that v covers, list 2 v + 1 for all storages that are live at a step of v.
   `begin`, `count` and `room`: first row, number of used rows and number of rows of each of the 4 * leaves lists, all 0
   before. */
struct tree {
    I n, leaves, tightest, pool, used; /* used: rows of the pool in use; 0 before */
    const I *sequence, *part_of, *part_lo, *part_hi, *size, *align, *fixed, *extra_of, *extra_other, *extra_kind;
    I *begin;
    int32_t *count, *room;
    I *starts, *ends; /* `pool` rows each: the ranges of all lists */
    I *blocked;       /* 200 for each live part of the storage with the most parts */
    I *placed;        /* as many as the extra conflicts of the storage with the most of them */
    I *offset;        /* out; -1 before */
};

/* One skyline run (planners/auto.py) over `steps` compressed steps. The storages are sorted by birth: those
   born at step t begin at first[t]. `lo` and `hi` are their live ranges. */
struct skyline {
    I steps, grid;
    const I *first, *rank, *lo, *hi, *size;
    I *offset;       /* out; -1 before */
    I *height, *end; /* steps each; set for the first step of each stretch of equal height: its height and its end */
};

/* Tables (`shape` is Tables.unit) and State of planners/exact/search_tables.py, and working memory for n units. */
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
    uint8_t *nogoods; /* k cells from k * (k - 1) / 2 on, for each level k: the nogood of its failed first branch */
    volatile I *nodes;           /* visited so far */
    const volatile I *stop;
    I event_count, placed_count, changed_count, dirty_count, hole_count, filled_count, level_count; /* 0 before */
    I conflict, conflict_cause, conflict_detail;
    I highest_low; /* no lower bound of a unit is above it; 0 before */
    I explained, explained_lowest, explained_end, explained_least, lowest_height; /* by explain_section() */
};

/* LnsState (planners/exact/lns_moves.py) of n units. Sizes and offsets are in units of LnsRun.step bytes; the capacity
   is below 2^30. Other threads can read `progress` and set `stop`. */
struct lns {
    I n, sections, noise_rows, capacity, iterations, mean_destroyed;
    const I *unit, *temperature, *log_table;
    const uint8_t *conflicts;
    const I *first_stretch, *stretch;
    const int32_t *noise; /* 2 rows of `noise_rows` */
    I *work;              /* (15, n + 1): OFFSET … KEY */
    int32_t *proximity;   /* (7, n): FIRST_TIME … DISTANCE */
    int32_t *skyline;     /* sections */
    I *target;            /* 6: CENTRE_TIME … KEPT_COUNT */
    volatile I *progress; /* 6: RANDOM_STATE … ITERATION */
    const volatile I *stop;
};

/* ReuseModel (planners/reuse/local_search.py) of n units, and their first placement `offset` (-1: not placed) with its
   `cost`. Results: the offsets `best`, their `cost`, and `missing`, the number of units that have no offset in `best`.
   `matrix` is that of repair(); if it is empty, `has_matrix` is 0, and by_start and by_end are not used. */
struct reuse {
    I n, capacity, reserved_count, rounds, threshold, most_removed, bound, random, has_matrix, cost, missing, placed;
    const I *size, *align, *pin, *first, *other, *own_size, *other_size, *weight, *reserved, *matrix;
    I *offset, *best;
    I *removed;           /* n: the units that a round removes */
    I *old, *is_removed;  /* n each: offset of a removed unit before the round; whether a unit is removed */
    I *by_start, *by_end; /* (4, n) each: the placed units by offset and by end; a copy of this row; two scratch rows */
};

/* Search (planners/reuse/cost_bound.py) of n units with `total` offsets in all; those of unit k begin at start[k].
   `limit`: end of the offsets of unit `first`. `best`: upper limit, then least cost. `nodes`: left (-1: too few). */
struct least_cost {
    I n, total, first, limit, nodes, best;
    const I *start, *twin, *least, *table;
    I *cost; /* (n + 1, total): row k has the cost of each offset with the placed units before unit k */
    I *order, *trail;
};

/* A table of the pairs of n units that share a section. The first `max_rows` rows are written, all are counted. */
struct neighbours {
    I n, max_rows;
    const I *entry_of, *entry, *first, *by_section;
    I *begin; /* n + 1 */
    I *seen;  /* n */
    I *table;
};

/* RecomputeModel and Choice (fitting/recompute), working memory, and the result (Tables in live_curve.py). A position
   is the index of a node in the initial order. */
struct recompute {
    I positions, storages, loading, most_steps, most_lives, most_reads;
    const I *in_ptr, *in_idx, *out_ptr, *out_idx, *producer, *node_flops, *size, *expires;
    const I *drop_ptr, *drop_idx; /* position -> storages that are dropped after it */
    const uint8_t *starts_live;   /* storages: loaded in the first step */
    const uint8_t *away;          /* storages: offloaded and copied back, not recomputed */
    const uint8_t *again;         /* operands: 1 if the operand is dropped after each position that reruns its node */
    I *life, *stack;              /* number of each storage's current life; storages + 1 */
    I *pending;                   /* operands + storages: storages to drop after the current position */
    const uint8_t *can_delay;     /* positions */
    uint8_t *dropped, *gone;      /* storages: not in memory now; already copied to the other memory */
    uint8_t *delayed;             /* positions: the first run is later, to restore a result */
    uint8_t *unread;              /* storages: 2: no run reads it before it is dropped; 1: no node reads it; else 0 */
    uint8_t *ever, *first_life, *further; /* from here on: out. Ever dropped; first lives; runs of run_again() */
    I *of, *birth, *last, *node, *at, *read_ptr, *reads, *first;
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
