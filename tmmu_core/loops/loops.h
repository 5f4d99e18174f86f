/* What Python hands over: tables of whole numbers, by address. calls.py has the same structures, field by field. */
#ifndef TMMU_LOOPS_H
#define TMMU_LOOPS_H
#include <stdint.h>

typedef int64_t I;

#define SHARED __attribute__((visibility("default")))

/* DONE, or something that the caller must not have handed over. */
enum { DONE = 0, OUTSIDE = -9 };

/* n storages; `first` (n + 1) says where a storage's neighbours begin in `other`. */
struct near {
    I n, tightest;
    const I *sequence, *first, *other, *size, *align;
    I *offset;         /* out */
    I *spans, *placed; /* 2 and 1 for each neighbour of the storage that has most, and 1 more */
};

/* n storages over `leaves` columns of squeezed time; see Columns. `begin`, `count`, `room`: 4 * leaves lists. */
struct tree {
    I n, leaves, tightest, pool;
    const I *sequence, *part_of, *part_lo, *part_hi, *size, *align, *fixed, *odd_of, *odd_other, *odd_kind;
    I *begin;
    int32_t *count, *room;
    I *starts, *ends; /* `pool` of each */
    I *blocked;       /* 200 for each part of the storage that has most */
    I *near;          /* as many as a storage has odd conflicts */
    I *offset;        /* out; -1 before */
    I *now;           /* 3: 0, -1, 0 before */
};

/* Shape, State and Ask of planners/exact; n units, m sections. */
struct search {
    I n, m, events, most;
    const I *shape, *entry, *first, *neighbour, *mate, *wall;
    I *unit, *section, *order, *event, *changed, *dirty, *holes, *placed, *met, *blame, *tally;
    I capacity;
    const I *rank;
    I switches, budget;
    volatile I *nodes;
    const volatile I *stop;
    I *asked, *at, *second, *marks; /* a row for each level */
    uint8_t *kept;                  /* of level k what it hangs on: k answers, from k * (k - 1) / 2 on */
};

/* n units and the packing at hand, see Site in planners/exact/rebuilding.py; `now` may be read, and `stop` set, meanwhile. */
struct site {
    I n, sections, blurs, capacity, turns, ruin;
    const I *unit, *heat, *loss;
    const uint8_t *meets;
    const I *begin, *run; /* a unit's runs of sections, from and to */
    const int32_t *blur;  /* 2 rows of as many as `blurs` */
    I *work;
    int32_t *near, *sky;
    I *spot;
    volatile I *now;
    const volatile I *stop;
};

/* Who shares a section with whom; n units. As many rows as there is room for are written, all are counted. */
struct meeting {
    I n, room;
    const I *entry_of, *entry, *first, *by_section;
    I *begin; /* n + 1 */
    I *seen;  /* n */
    I *table;
};

#endif
