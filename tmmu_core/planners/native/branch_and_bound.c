/* Branch and bound of the planner `exact` in C: search_tables.py, propagation.py, conflicts.py and
   branch_and_bound.py of tmmu_core/planners/exact/. Functions and constants have the names of those modules, which
   document them. */
#include "native.h"

/* Columns of the tables, as in search_tables.py. */
enum { ENTRIES, NEIGHBOURS, MATES, WALLS, ALIGNMENT, MAX_HEIGHT, FIXED, TWIN, SHAPE_COLUMNS };
enum { SECTION, HEIGHT, OWNER };
enum { OTHER, OWN_HEIGHT, OTHER_HEIGHT };
enum { LOW, PLACED, PLACED_SINCE, LEVEL, HOLE, HOLE_LEVEL, HOLE_ROW, FILLER, FILLER_LOW, FILLER_END, QUEUED,
       QUEUED_LOW, CLAIM, LOW_THEN, UNIT_COLUMNS };
enum { OPEN_BYTES, OPEN_UNITS, LOWEST, SECOND_LOWEST, SECTION_QUEUED, FAILURES, SECTION_COLUMNS };
enum { RAISED, OLD_LOW, REQUESTED, REASON, CAUSE, DETAIL, EVENT_COLUMNS };
enum { EVENT_COUNT, PLACED_COUNT, CHANGED_COUNT, DIRTY_COUNT, HOLE_COUNT, FILLED_COUNT, CONFLICT, CONFLICT_A,
       CONFLICT_B };

/* Results (branch_and_bound.py); reasons and conflicts (propagation.py). */
enum { FOUND = 1, INFEASIBLE = 0, BUDGET_SPENT = -1, TABLES_FULL = -2 };
enum { BY_UNIT, BY_HOLE, BY_SECTION, BY_TWIN };
enum { OFFSET_TOO_HIGH, SECTION_TOO_FULL, HOLE_UNFILLED, DOMINATED, NO_CANDIDATE, TRAIL_FULL };
#define FAR ((I)1 << 62)

typedef const struct search *S;

#define SHAPE(u, c) (s->shape[(u) * SHAPE_COLUMNS + (c)])
#define ENTRY(e, c) (s->entry[(e) * 3 + (c)])
#define NEAR(k, c) (s->neighbour[(k) * 3 + (c)])
#define UNIT(u, c) (s->unit[(u) * UNIT_COLUMNS + (c)])
#define SECT(k, c) (s->section[(k) * SECTION_COLUMNS + (c)])
#define ORDER(row, c) (s->order[(row) * 2 + (c)])
#define EVENT(e, c) (s->event[(e) * EVENT_COLUMNS + (c)])
#define COUNTER(c) (s->counters[c])

/* search_tables.py */

static I lowest_allowed_offset(const I *shape, const I *wall, I u, I at)
{
    const I *const unit = shape + u * SHAPE_COLUMNS;
    const I grid = unit[ALIGNMENT];
    at = (at + grid - 1) & -grid;
    for (I moved = 1; moved;) {
        moved = 0;
        for (I w = unit[WALLS]; w < unit[SHAPE_COLUMNS + WALLS]; w++) {
            if (at < wall[3 * w + 1] && wall[3 * w] < at + wall[3 * w + 2]) {
                at = (wall[3 * w + 1] + grid - 1) & -grid;
                moved = 1;
            }
        }
    }
    return at;
}

SHARED I tmmu_neighbours(const struct neighbour_query *p)
{
    const I n = p->n;
    I *const seen = p->seen, *const begin = p->begin, *const table = p->table;
    for (I u = 0; u < n; u++)
        seen[u] = -1;
    begin[0] = 0;
    for (I u = 0; u < n; u++) {
        I used = begin[u];
        for (I e = p->entry_of[u]; e < p->entry_of[u + 1]; e++) {
            const I section = p->entry[3 * e + SECTION], high = p->entry[3 * e + HEIGHT];
            for (I row = p->first[section]; row < p->first[section + 1]; row++) {
                const I other = p->by_section[row], w = p->entry[3 * other + OWNER];
                if (w == u)
                    continue;
                if (seen[w] < begin[u]) { /* w is seen for the first time from u */
                    seen[w] = used;
                    if (used < p->max_rows) {
                        table[3 * used + OTHER] = w;
                        table[3 * used + OWN_HEIGHT] = table[3 * used + OTHER_HEIGHT] = 0;
                    }
                    used++;
                }
                if (seen[w] < p->max_rows) {
                    I *const at = table + 3 * seen[w];
                    at[OWN_HEIGHT] = larger(at[OWN_HEIGHT], high);
                    at[OTHER_HEIGHT] = larger(at[OTHER_HEIGHT], p->entry[3 * other + HEIGHT]);
                }
            }
        }
        begin[u + 1] = used;
    }
    return begin[n];
}

/* propagation.py */

static I record_conflict(S s, I kind, I cause, I detail)
{
    COUNTER(CONFLICT) = kind;
    COUNTER(CONFLICT_A) = cause;
    COUNTER(CONFLICT_B) = detail;
    return 0;
}

static I raise_offset(S s, I u, I at_least, I reason, I cause, I detail)
{
    const I e = COUNTER(EVENT_COUNT);
    if (e == s->events)
        return record_conflict(s, TRAIL_FULL, u, 0);
    COUNTER(EVENT_COUNT) = e + 1;
    const I old = UNIT(u, LOW);
    EVENT(e, RAISED) = u;
    EVENT(e, OLD_LOW) = old;
    EVENT(e, REQUESTED) = at_least;
    EVENT(e, REASON) = reason;
    EVENT(e, CAUSE) = cause;
    EVENT(e, DETAIL) = detail;
    const I at = lowest_allowed_offset(s->shape, s->wall, u, at_least);
    UNIT(u, LOW) = at;
    if (at + SHAPE(u, MAX_HEIGHT) > s->capacity)
        return record_conflict(s, OFFSET_TOO_HIGH, u, s->capacity - SHAPE(u, MAX_HEIGHT) + 1);
    if (at > SHAPE(u, FIXED) && SHAPE(u, FIXED) >= 0)
        return record_conflict(s, OFFSET_TOO_HIGH, u, SHAPE(u, FIXED) + 1);
    if (!UNIT(u, QUEUED)) {
        UNIT(u, QUEUED) = 1;
        UNIT(u, QUEUED_LOW) = old;
        s->changed[COUNTER(CHANGED_COUNT)] = u;
        COUNTER(CHANGED_COUNT) += 1;
    }
    return 1;
}

static void open_hole(S s, I u, I at, I level)
{
    const I row = COUNTER(HOLE_COUNT);
    UNIT(u, HOLE) = at;
    UNIT(u, HOLE_LEVEL) = level;
    UNIT(u, HOLE_ROW) = row;
    UNIT(u, FILLER) = -1;
    s->holes[row] = u;
    COUNTER(HOLE_COUNT) = row + 1;
}

static void close_hole(S s, I u)
{
    const I last = COUNTER(HOLE_COUNT) - 1, row = UNIT(u, HOLE_ROW), other = s->holes[last];
    s->holes[row] = other;
    UNIT(other, HOLE_ROW) = row;
    COUNTER(HOLE_COUNT) = last;
    UNIT(u, HOLE) = -1;
}

static void queue_section(S s, I section)
{
    SECT(section, SECTION_QUEUED) = 1;
    s->dirty[COUNTER(DIRTY_COUNT)] = section;
    COUNTER(DIRTY_COUNT) += 1;
}

static I place_unit(S s, I u, I level)
{
    const I at = UNIT(u, LOW);
    UNIT(u, PLACED) = 1;
    UNIT(u, PLACED_SINCE) = COUNTER(EVENT_COUNT);
    UNIT(u, LEVEL) = level;
    s->placed[COUNTER(PLACED_COUNT)] = u;
    COUNTER(PLACED_COUNT) += 1;
    for (I e = SHAPE(u, ENTRIES); e < SHAPE(u + 1, ENTRIES); e++) {
        const I k = ENTRY(e, SECTION);
        SECT(k, OPEN_BYTES) -= ENTRY(e, HEIGHT);
        SECT(k, OPEN_UNITS) -= 1;
        const I last = s->first[k] + SECT(k, OPEN_UNITS);
        const I here = ORDER(e, 1), other = ORDER(last, 0);
        ORDER(here, 0) = other;
        ORDER(last, 0) = e;
        ORDER(other, 1) = here;
        ORDER(e, 1) = last;
        if (!SECT(k, SECTION_QUEUED))
            queue_section(s, k);
    }
    for (I k = SHAPE(u, NEIGHBOURS); k < SHAPE(u + 1, NEIGHBOURS); k++) {
        const I w = NEAR(k, OTHER);
        if (UNIT(w, PLACED))
            continue;
        const I end = at + NEAR(k, OWN_HEIGHT), hole = UNIT(w, HOLE);
        if (hole >= 0 && end > hole && at < hole + NEAR(k, OTHER_HEIGHT)) {
            const I row = COUNTER(FILLED_COUNT);
            s->filled[3 * row] = w;
            s->filled[3 * row + 1] = hole;
            s->filled[3 * row + 2] = UNIT(w, HOLE_LEVEL);
            COUNTER(FILLED_COUNT) = row + 1;
            close_hole(s, w);
        }
        if (UNIT(w, LOW) < end && UNIT(w, LOW) + NEAR(k, OTHER_HEIGHT) > at && !raise_offset(s, w, end, BY_UNIT, u, k))
            return 0;
    }
    return 1;
}

static I find_filler(S s, I u)
{
    const I hole = UNIT(u, HOLE);
    I least = FAR, filler = -1;
    for (I k = SHAPE(u, NEIGHBOURS); k < SHAPE(u + 1, NEIGHBOURS); k++) {
        const I w = NEAR(k, OTHER);
        if (UNIT(w, PLACED) || SHAPE(w, FIXED) >= 0)
            continue;
        const I low = UNIT(w, LOW);
        if (low >= hole + NEAR(k, OWN_HEIGHT))
            continue;
        const I end = larger(low + NEAR(k, OTHER_HEIGHT), hole + 1);
        if (end < least) {
            least = end;
            filler = w;
        }
    }
    UNIT(u, FILLER) = filler;
    UNIT(u, FILLER_END) = least;
    UNIT(u, FILLER_LOW) = filler >= 0 ? UNIT(filler, LOW) : 0;
    return least;
}

static I propagate_section(S s, I k)
{
    const I left = SECT(k, OPEN_UNITS), rest = SECT(k, OPEN_BYTES), begin = s->first[k];
    I low = FAR, second = FAR, cause = -1, detail = -1;
    for (I row = begin; row < begin + left; row++) {
        const I at = UNIT(ENTRY(ORDER(row, 0), OWNER), LOW);
        if (at < low) {
            second = low;
            detail = cause;
            low = at;
            cause = row;
        } else if (at < second) {
            second = at;
            detail = row;
        }
    }
    I lowest = -1, high = 0, other = -1;
    if (cause >= 0) {
        const I e = ORDER(cause, 0);
        lowest = ENTRY(e, OWNER);
        high = ENTRY(e, HEIGHT);
    }
    if (detail >= 0)
        other = ENTRY(ORDER(detail, 0), OWNER);
    SECT(k, LOWEST) = lowest;
    SECT(k, SECOND_LOWEST) = other;
    if (left && low + rest > s->capacity)
        return record_conflict(s, SECTION_TOO_FULL, k, low);
    if (left > 1 && second + rest > s->capacity && second < low + high) {
        for (I row = begin; row < begin + left; row++) {
            const I u = ENTRY(ORDER(row, 0), OWNER);
            if (u != lowest && UNIT(u, LOW) < low + high && !raise_offset(s, u, low + high, BY_SECTION, k, lowest))
                return 0;
        }
    }
    return 1;
}

static I propagate(S s)
{
    for (;;) {
        while (COUNTER(CHANGED_COUNT)) {
            COUNTER(CHANGED_COUNT) -= 1;
            const I u = s->changed[COUNTER(CHANGED_COUNT)];
            UNIT(u, QUEUED) = 0;
            const I old = UNIT(u, QUEUED_LOW);
            for (I e = SHAPE(u, ENTRIES); e < SHAPE(u + 1, ENTRIES); e++) {
                const I k = ENTRY(e, SECTION);
                if (!SECT(k, SECTION_QUEUED)) {
                    const I w = SECT(k, SECOND_LOWEST);
                    if (w < 0 || UNIT(w, PLACED) || old <= UNIT(w, LOW) || UNIT(SECT(k, LOWEST), PLACED))
                        queue_section(s, k);
                }
            }
            const I twin = SHAPE(u, TWIN);
            if (twin >= 0 && !UNIT(twin, PLACED)) {
                const I end = UNIT(u, LOW) + SHAPE(u, MAX_HEIGHT);
                if (UNIT(twin, LOW) < end && !raise_offset(s, twin, end, BY_TWIN, u, 0))
                    return 0;
            }
        }
        while (COUNTER(DIRTY_COUNT)) {
            COUNTER(DIRTY_COUNT) -= 1;
            const I k = s->dirty[COUNTER(DIRTY_COUNT)];
            SECT(k, SECTION_QUEUED) = 0;
            if (!propagate_section(s, k))
                return 0;
        }
        const I holes = COUNTER(CHANGED_COUNT) ? 0 : COUNTER(HOLE_COUNT);
        for (I row = 0; row < holes; row++) {
            const I u = s->holes[row], w = UNIT(u, FILLER);
            const I known = w >= 0 && !UNIT(w, PLACED) && UNIT(w, LOW) == UNIT(u, FILLER_LOW);
            if (known && UNIT(u, LOW) >= UNIT(u, FILLER_END))
                continue;
            const I end = find_filler(s, u);
            if (end == FAR)
                return record_conflict(s, HOLE_UNFILLED, u, 0);
            if (end > UNIT(u, LOW) && !raise_offset(s, u, end, BY_HOLE, UNIT(u, HOLE), UNIT(u, HOLE_LEVEL)))
                return 0;
        }
        if (!COUNTER(CHANGED_COUNT) && !COUNTER(DIRTY_COUNT))
            return 1;
    }
}

static void clear_queues(S s)
{
    while (COUNTER(CHANGED_COUNT)) {
        COUNTER(CHANGED_COUNT) -= 1;
        UNIT(s->changed[COUNTER(CHANGED_COUNT)], QUEUED) = 0;
    }
    while (COUNTER(DIRTY_COUNT)) {
        COUNTER(DIRTY_COUNT) -= 1;
        SECT(s->dirty[COUNTER(DIRTY_COUNT)], SECTION_QUEUED) = 0;
    }
}

static void undo(S s, const I *trail_marks)
{
    while (COUNTER(FILLED_COUNT) > trail_marks[2]) {
        COUNTER(FILLED_COUNT) -= 1;
        const I *const row = s->filled + 3 * COUNTER(FILLED_COUNT);
        open_hole(s, row[0], row[1], row[2]);
    }
    while (COUNTER(EVENT_COUNT) > trail_marks[0]) {
        COUNTER(EVENT_COUNT) -= 1;
        const I e = COUNTER(EVENT_COUNT);
        UNIT(EVENT(e, RAISED), LOW) = EVENT(e, OLD_LOW);
    }
    while (COUNTER(PLACED_COUNT) > trail_marks[1]) {
        COUNTER(PLACED_COUNT) -= 1;
        const I u = s->placed[COUNTER(PLACED_COUNT)];
        UNIT(u, PLACED) = 0;
        UNIT(u, LEVEL) = -1;
        for (I e = SHAPE(u + 1, ENTRIES) - 1; e >= SHAPE(u, ENTRIES); e--) {
            const I k = ENTRY(e, SECTION);
            SECT(k, OPEN_UNITS) += 1;
            SECT(k, OPEN_BYTES) += ENTRY(e, HEIGHT);
        }
    }
}

/* conflicts.py */

static inline void add_level(S s, I level)
{
    if (level >= 0)
        s->conflict_levels[level] = 1;
}

static inline void claim(S s, I u, I at)
{
    if (UNIT(u, CLAIM) < at)
        UNIT(u, CLAIM) = at;
}

static void explain_hole(S s, I u, I at, I level, I claimed, I now)
{
    add_level(s, level);
    claim(s, u, at);
    if (claimed <= at + 1)
        return;
    for (I k = SHAPE(u, NEIGHBOURS); k < SHAPE(u + 1, NEIGHBOURS); k++) {
        const I w = NEAR(k, OTHER);
        if (SHAPE(w, FIXED) >= 0)
            continue;
        const I low = UNIT(w, LOW_THEN), over = at + NEAR(k, OWN_HEIGHT);
        if (UNIT(w, PLACED) && UNIT(w, PLACED_SINCE) <= now) {
            if (low >= over)
                claim(s, w, over);
            else
                add_level(s, UNIT(w, LEVEL));
        } else if (claimed - NEAR(k, OTHER_HEIGHT) <= smaller(low, over))
            claim(s, w, claimed - NEAR(k, OTHER_HEIGHT));
        else
            claim(s, w, over);
    }
}

static void explain_section(S s, I k, I lowest, I claimed, I now)
{
    I rest = 0, high = 0;
    for (I row = s->first[k]; row < s->first[k + 1]; row++) {
        const I e = ORDER(row, 0), u = ENTRY(e, OWNER);
        if (!UNIT(u, PLACED) || UNIT(u, PLACED_SINCE) > now) {
            rest += ENTRY(e, HEIGHT);
            if (u == lowest)
                high = ENTRY(e, HEIGHT);
        }
    }
    for (I row = s->first[k]; row < s->first[k + 1]; row++) {
        const I u = ENTRY(ORDER(row, 0), OWNER);
        if (!UNIT(u, PLACED) || UNIT(u, PLACED_SINCE) > now)
            claim(s, u, u == lowest ? claimed - high : s->capacity - rest + 1);
    }
}

static void initial_claims(S s)
{
    const I cause = COUNTER(CONFLICT_A), detail = COUNTER(CONFLICT_B);
    switch (COUNTER(CONFLICT)) {
    case OFFSET_TOO_HIGH:
        claim(s, cause, detail);
        break;
    case SECTION_TOO_FULL: {
        const I begin = s->first[cause], end = begin + SECT(cause, OPEN_UNITS);
        I total = 0;
        for (I row = begin; row < end; row++)
            total += ENTRY(ORDER(row, 0), HEIGHT);
        for (I row = begin; row < end; row++)
            claim(s, ENTRY(ORDER(row, 0), OWNER), s->capacity - total + 1);
        break;
    }
    case HOLE_UNFILLED:
        explain_hole(s, cause, UNIT(cause, HOLE), UNIT(cause, HOLE_LEVEL), FAR, COUNTER(EVENT_COUNT));
        break;
    case DOMINATED:
        add_level(s, UNIT(detail, LEVEL));
        claim(s, cause, UNIT(cause, LOW));
        claim(s, detail, UNIT(detail, LOW));
        break;
    }
}

static void analyse_conflict(S s)
{
    for (I u = 0; u < s->n; u++) {
        UNIT(u, CLAIM) = 0;
        UNIT(u, LOW_THEN) = UNIT(u, LOW);
    }
    initial_claims(s);
    for (I e = COUNTER(EVENT_COUNT) - 1; e >= 0; e--) {
        const I u = EVENT(e, RAISED);
        I claimed = UNIT(u, CLAIM);
        UNIT(u, LOW_THEN) = EVENT(e, OLD_LOW);
        if (claimed <= EVENT(e, OLD_LOW))
            continue;
        UNIT(u, CLAIM) = 0;
        claimed = smaller(claimed, EVENT(e, REQUESTED));
        const I cause = EVENT(e, CAUSE), detail = EVENT(e, DETAIL);
        switch (EVENT(e, REASON)) {
        case BY_UNIT:
            add_level(s, UNIT(cause, LEVEL));
            claim(s, u, UNIT(cause, LOW) - NEAR(detail, OTHER_HEIGHT) + 1);
            break;
        case BY_HOLE:
            explain_hole(s, u, cause, detail, claimed, e);
            break;
        case BY_TWIN:
            claim(s, cause, claimed - SHAPE(cause, MAX_HEIGHT));
            break;
        default:
            explain_section(s, cause, detail, claimed, e);
        }
    }
}

/* branch_and_bound.py */

static I lowest_open_unit(S s)
{
    I best = -1, low = 0;
    for (I u = 0; u < s->n; u++) {
        if (UNIT(u, PLACED) || UNIT(u, HOLE) >= 0)
            continue;
        const I at = UNIT(u, LOW);
        if (best < 0 || at < low || (at == low && s->rank[u] < s->rank[best])) {
            best = u;
            low = at;
        }
    }
    return best;
}

static I branching_unit(S s, I u)
{
    for (;;) {
        const I hole = UNIT(u, HOLE);
        I least = hole >= 0 ? FAR : UNIT(u, LOW), best = -1;
        for (I k = SHAPE(u, NEIGHBOURS); k < SHAPE(u + 1, NEIGHBOURS); k++) {
            const I w = NEAR(k, OTHER);
            I at;
            if (UNIT(w, PLACED))
                continue;
            if (hole >= 0) {
                if (SHAPE(w, FIXED) >= 0 || UNIT(w, LOW) >= hole + NEAR(k, OWN_HEIGHT))
                    continue;
                at = larger(UNIT(w, LOW) + NEAR(k, OTHER_HEIGHT), hole + 1);
            } else if (UNIT(w, LOW) + NEAR(k, OTHER_HEIGHT) <= UNIT(u, LOW))
                at = UNIT(w, LOW);
            else
                continue;
            if (at < least || (best >= 0 && at == least && s->rank[w] < s->rank[best])) {
                least = at;
                best = w;
            }
        }
        if (best < 0)
            return hole >= 0 ? -1 : u;
        u = best;
    }
}

static I dominated_by(S s, I u)
{
    for (I row = SHAPE(u, MATES); row < SHAPE(u + 1, MATES); row++) {
        const I w = s->mate[row];
        const I height = SHAPE(w, MAX_HEIGHT);
        if (UNIT(w, PLACED) && UNIT(w, LOW) + height == UNIT(u, LOW) && height < SHAPE(u, MAX_HEIGHT))
            return w;
    }
    return -1;
}

static I propagate_root(S s)
{
    for (I u = 0; u < s->n; u++) {
        if (UNIT(u, LOW) + SHAPE(u, MAX_HEIGHT) > s->capacity)
            return 0;
        UNIT(u, QUEUED) = 1;
        s->changed[u] = u;
    }
    COUNTER(CHANGED_COUNT) = s->n;
    for (I k = 0; k < s->sections; k++) {
        SECT(k, SECTION_QUEUED) = 1;
        s->dirty[k] = k;
    }
    COUNTER(DIRTY_COUNT) = s->sections;
    return propagate(s);
}

static inline uint8_t *nogood_of(S s, I level) { return s->nogoods + level * (level - 1) / 2; }

SHARED I tmmu_search(const struct search *s)
{
    I *const in_conflict = s->conflict_levels;
    I levels = 0;
    if (!propagate_root(s))
        return COUNTER(CONFLICT) == TRAIL_FULL ? TABLES_FULL : INFEASIBLE;
    while (COUNTER(PLACED_COUNT) < s->n) {
        if (*s->nodes >= s->budget || *s->stop)
            return BUDGET_SPENT;
        if (levels >= s->max_levels)
            return TABLES_FULL;
        *s->nodes += 1;
        I u = lowest_open_unit(s);
        if (u >= 0)
            u = branching_unit(s, u);
        I good = 1, level = -1;
        if (u < 0) {
            COUNTER(CONFLICT) = NO_CANDIDATE;
            good = 0;
        } else if (SHAPE(u, FIXED) < 0) {
            level = levels++;
            s->unit_of_level[level] = u;
            s->offset_of_level[level] = UNIT(u, LOW);
            s->second_branch[level] = 0;
            s->trail_marks[3 * level] = COUNTER(EVENT_COUNT);
            s->trail_marks[3 * level + 1] = COUNTER(PLACED_COUNT);
            s->trail_marks[3 * level + 2] = COUNTER(FILLED_COUNT);
            const I below = dominated_by(s, u);
            if (below >= 0)
                good = record_conflict(s, DOMINATED, u, below);
        }
        if (good)
            good = place_unit(s, u, level) && propagate(s);
        while (!good) {
            if (COUNTER(CONFLICT) == TRAIL_FULL)
                return TABLES_FULL;
            if (COUNTER(CONFLICT) == SECTION_TOO_FULL)
                SECT(COUNTER(CONFLICT_A), FAILURES) += 1;
            clear_queues(s);
            if (COUNTER(CONFLICT) != NO_CANDIDATE) {
                analyse_conflict(s);
                if (COUNTER(CONFLICT) == DOMINATED)
                    in_conflict[levels - 1] = 1;
            } else
                for (I k = 0; k < levels; k++)
                    in_conflict[k] = 1;
            for (;;) {
                level = levels - 1;
                while (level >= 0 && !in_conflict[level])
                    level--;
                if (level < 0)
                    return INFEASIBLE;
                for (I k = levels - 1; k >= level; k--) {
                    undo(s, s->trail_marks + 3 * k);
                    if (s->second_branch[k])
                        close_hole(s, s->unit_of_level[k]);
                }
                levels = level;
                in_conflict[level] = 0;
                if (!s->second_branch[level])
                    break;
                const uint8_t *const nogood = nogood_of(s, level);
                for (I k = 0; k < level; k++)
                    in_conflict[k] |= nogood[k];
            }
            uint8_t *const nogood = nogood_of(s, level);
            for (I k = 0; k < level; k++) {
                nogood[k] = (uint8_t)in_conflict[k];
                in_conflict[k] = 0;
            }
            s->second_branch[level] = 1;
            levels = level + 1;
            *s->nodes += 1;
            open_hole(s, s->unit_of_level[level], s->offset_of_level[level], level);
            good = propagate(s);
        }
    }
    return FOUND;
}
