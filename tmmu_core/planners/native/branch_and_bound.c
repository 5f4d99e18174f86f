/* Branch and bound of the planner `exact` in C. The modules search_tables.py, propagation.py (with conflict analysis)
   and branch_and_bound.py of tmmu_core/planners/exact/ have functions of the same names and describe the algorithms. */
#include "native.h"

/* Columns of the tables of search_tables.py, and columns that only the search uses. PLACED_SINCE: number of events when
   the unit was placed. FILLER: row of the neighbour that is tried first to fill the hole. QUEUED_LOW: lower bound
   before the raise that added the unit to `changed`. For conflict analysis: CLAIM, the claimed lower bound (0: none),
   and LOW_THEN, the lower bound before the event that is being read. */
enum { ENTRIES, NEIGHBOURS, MATES, WALLS, ALIGNMENT, MAX_HEIGHT, FIXED, TWIN, SHAPE_COLUMNS };
enum { SECTION, HEIGHT, OWNER };
enum { OTHER, OWN_HEIGHT, OTHER_HEIGHT };
enum { ENTRY_AT, ROW_OF, UNIT_AT }; /* ROW_OF: indexed by entry; the others: by row */
enum { LOW, PLACED, PLACED_SINCE, LEVEL, HOLE, HOLE_LEVEL, HOLE_ROW, FILLER, QUEUED, QUEUED_LOW, CLAIM, LOW_THEN };
enum { OPEN_BYTES, OPEN_UNITS, LOWEST, SECOND_LOWEST, SECTION_QUEUED, FAILURES, CEILING, SECTION_COLUMNS };

/* Results of tmmu_search; kinds of reasons; kinds of conflicts. TRAIL_FULL: no row is left for an event. */
enum { FOUND = 1, INFEASIBLE = 0, BUDGET_SPENT = -1, TABLES_FULL = -2 };
enum { BY_UNIT, BY_HOLE, BY_SECTION, BY_TWIN };
enum { OFFSET_TOO_HIGH, SECTION_TOO_FULL, HOLE_UNFILLED, DOMINATED, NO_CANDIDATE, TRAIL_FULL };

/* A raise of a lower bound. */
struct event {
    I unit, old_low;
};
/* The reason of an event. `requested`: the new bound before it is rounded up to an allowed offset. `cause`, `detail`:
   BY_UNIT, the level of the placed unit, and the least lower bound at which the raised unit does not fit below;
   BY_HOLE, the hole's offset and level; BY_SECTION, the section and its lowest unit; BY_TWIN, the twin and 0. */
struct reason {
    I requested, kind, cause, detail;
};
struct filled {
    I unit, hole, level;
};
struct level {
    I unit, offset, is_second_branch, event_count, placed_count, filled_count, highest_low;
};

typedef struct search *S;

#define SHAPE(u, c) (s->shape[(u) * SHAPE_COLUMNS + (c)])
#define ENTRY(e, c) (s->entry[(e) * 3 + (c)])
#define NEAR(k, c) (s->neighbour[(k) * 3 + (c)])
#define UNIT(u, c) (s->unit[(c) * s->n + (u)])
#define SECT(k, c) (s->section[(k) * SECTION_COLUMNS + (c)])
#define ORDER(row, c) (s->order[(c) * s->entries + (row)])

/* search_tables.py */

static I lowest_allowed_offset(S s, I u, I at)
{
    const I grid = SHAPE(u, ALIGNMENT);
    at = align_up(at, grid);
    for (I moved = 1; moved;) {
        moved = 0;
        for (const I *wall = s->wall + 3 * SHAPE(u, WALLS); wall < s->wall + 3 * SHAPE(u + 1, WALLS); wall += 3) {
            if (at < wall[1] && wall[0] < at + wall[2]) {
                at = align_up(wall[1], grid);
                moved = 1;
            }
        }
    }
    return at;
}

SHARED I tmmu_neighbours(const struct neighbours *p)
{
    const I n = p->n;
    I *const seen = p->seen, *const begin = p->begin, *const table = p->table;
    for (I u = 0; u < n; u++)
        seen[u] = -1;
    begin[0] = 0;
    for (I u = 0; u < n; u++) {
        I rows = begin[u];
        for (I e = p->entry_of[u]; e < p->entry_of[u + 1]; e++) {
            const I section = p->entry[3 * e + SECTION], height = p->entry[3 * e + HEIGHT];
            const I end = p->first[section + 1];
            for (I row = p->first[section]; row < end; row++) {
                const I other = p->by_section[row], w = p->entry[3 * other + OWNER];
                if (w == u)
                    continue;
                if (seen[w] < begin[u]) { /* the first common section of u and w */
                    seen[w] = rows;
                    if (rows < p->max_rows) {
                        table[3 * rows + OTHER] = w;
                        table[3 * rows + OWN_HEIGHT] = table[3 * rows + OTHER_HEIGHT] = 0;
                    }
                    rows++;
                }
                if (seen[w] < p->max_rows) {
                    I *const at = table + 3 * seen[w];
                    at[OWN_HEIGHT] = larger(at[OWN_HEIGHT], height);
                    at[OTHER_HEIGHT] = larger(at[OTHER_HEIGHT], p->entry[3 * other + HEIGHT]);
                }
            }
        }
        begin[u + 1] = rows;
    }
    return begin[n];
}

/* propagation.py */

static I fail(S s, I conflict, I cause, I detail)
{
    s->conflict = conflict;
    s->conflict_cause = cause;
    s->conflict_detail = detail;
    return 0;
}

static I raise_low(S s, I u, I at_least, I reason, I cause, I detail)
{
    if (s->event_count == s->max_events)
        return fail(s, TRAIL_FULL, u, 0);
    const I old = UNIT(u, LOW), at = lowest_allowed_offset(s, u, at_least);
    s->reason[s->event_count] = (struct reason){at_least, reason, cause, detail};
    s->event[s->event_count++] = (struct event){u, old};
    UNIT(u, LOW) = at;
    s->highest_low = larger(s->highest_low, at);
    if (at + SHAPE(u, MAX_HEIGHT) > s->capacity)
        return fail(s, OFFSET_TOO_HIGH, u, s->capacity - SHAPE(u, MAX_HEIGHT) + 1);
    if (at > SHAPE(u, FIXED) && SHAPE(u, FIXED) >= 0)
        return fail(s, OFFSET_TOO_HIGH, u, SHAPE(u, FIXED) + 1);
    if (!UNIT(u, QUEUED)) {
        UNIT(u, QUEUED) = 1;
        UNIT(u, QUEUED_LOW) = old;
        s->changed[s->changed_count++] = u;
    }
    return 1;
}

static void open_hole(S s, I u, I hole, I level)
{
    UNIT(u, HOLE) = hole;
    UNIT(u, HOLE_LEVEL) = level;
    UNIT(u, HOLE_ROW) = s->hole_count;
    UNIT(u, FILLER) = SHAPE(u, NEIGHBOURS);
    s->holes[s->hole_count++] = u;
}

static void close_hole(S s, I u)
{
    const I row = UNIT(u, HOLE_ROW), last = s->holes[--s->hole_count];
    s->holes[row] = last;
    UNIT(last, HOLE_ROW) = row;
    UNIT(u, HOLE) = -1;
}

static void queue_section(S s, I k)
{
    if (!SECT(k, SECTION_QUEUED)) {
        SECT(k, SECTION_QUEUED) = 1;
        s->dirty[s->dirty_count++] = k;
    }
}

static I place_unit(S s, I u, I level)
{
    const I at = UNIT(u, LOW);
    UNIT(u, PLACED) = 1;
    UNIT(u, PLACED_SINCE) = s->event_count;
    UNIT(u, LEVEL) = level;
    s->placed[s->placed_count++] = u;
    for (I e = SHAPE(u, ENTRIES); e < SHAPE(u + 1, ENTRIES); e++) {
        const I k = ENTRY(e, SECTION);
        SECT(k, OPEN_BYTES) -= ENTRY(e, HEIGHT);
        const I last = s->first[k] + --SECT(k, OPEN_UNITS), row = ORDER(e, ROW_OF), other = ORDER(last, ENTRY_AT);
        ORDER(row, ENTRY_AT) = other;
        ORDER(row, UNIT_AT) = ORDER(last, UNIT_AT);
        ORDER(last, ENTRY_AT) = e;
        ORDER(last, UNIT_AT) = u;
        ORDER(other, ROW_OF) = row;
        ORDER(e, ROW_OF) = last;
        queue_section(s, k);
    }
    for (I k = SHAPE(u, NEIGHBOURS); k < SHAPE(u + 1, NEIGHBOURS); k++) {
        const I w = NEAR(k, OTHER);
        if (UNIT(w, PLACED))
            continue;
        const I end = at + NEAR(k, OWN_HEIGHT), below = at - NEAR(k, OTHER_HEIGHT) + 1, hole = UNIT(w, HOLE);
        if (hole >= 0 && end > hole && at < hole + NEAR(k, OTHER_HEIGHT)) {
            s->filled[s->filled_count++] = (struct filled){w, hole, UNIT(w, HOLE_LEVEL)};
            close_hole(s, w);
        }
        if (UNIT(w, LOW) < end && UNIT(w, LOW) >= below && !raise_low(s, w, end, BY_UNIT, level, below))
            return 0;
    }
    return 1;
}

/* Return the lowest end with which the neighbour in row k fills a hole; INFINITE if it cannot. */
static inline I filler_end(S s, I k, I hole)
{
    const I w = NEAR(k, OTHER), low = UNIT(w, LOW);
    if (UNIT(w, PLACED) || SHAPE(w, FIXED) >= 0 || low >= hole + NEAR(k, OWN_HEIGHT))
        return INFINITE;
    return larger(low + NEAR(k, OTHER_HEIGHT), hole + 1);
}

static I propagate_section(S s, I k)
{
    const I count = SECT(k, OPEN_UNITS), rest = SECT(k, OPEN_BYTES), begin = s->first[k];
    if (s->highest_low + rest <= SECT(k, CEILING)) { /* neither condition below can hold */
        SECT(k, LOWEST) = SECT(k, SECOND_LOWEST) = -1;
        return 1;
    }
    I low = INFINITE, second_low = INFINITE, lowest_row = -1, second_row = -1;
    for (I row = begin; row < begin + count; row++) {
        const I at = UNIT(ORDER(row, UNIT_AT), LOW);
        if (at < low) {
            second_low = low;
            second_row = lowest_row;
            low = at;
            lowest_row = row;
        } else if (at < second_low) {
            second_low = at;
            second_row = row;
        }
    }
    const I lowest = lowest_row < 0 ? -1 : ORDER(lowest_row, UNIT_AT);
    const I end = lowest_row < 0 ? 0 : low + ENTRY(ORDER(lowest_row, ENTRY_AT), HEIGHT);
    SECT(k, LOWEST) = lowest;
    SECT(k, SECOND_LOWEST) = second_row < 0 ? -1 : ORDER(second_row, UNIT_AT);
    if (count && low + rest > SECT(k, CEILING))
        return fail(s, SECTION_TOO_FULL, k, -1);
    if (count > 1 && second_low + rest > SECT(k, CEILING) && second_low < end) {
        for (I row = begin; row < begin + count; row++) {
            const I u = ORDER(row, UNIT_AT);
            if (u != lowest && UNIT(u, LOW) < end && !raise_low(s, u, end, BY_SECTION, k, lowest))
                return 0;
        }
    }
    return 1;
}

static I propagate_holes(S s)
{
    for (I row = 0; row < s->hole_count; row++) {
        const I u = s->holes[row], hole = UNIT(u, HOLE), low = UNIT(u, LOW), end = SHAPE(u + 1, NEIGHBOURS);
        I least = UNIT(u, FILLER) < end ? filler_end(s, UNIT(u, FILLER), hole) : INFINITE;
        for (I k = SHAPE(u, NEIGHBOURS); k < end && least > low; k++) { /* an end up to `low` means no raise of u */
            const I at = filler_end(s, k, hole);
            if (at < least) {
                least = at;
                UNIT(u, FILLER) = k;
            }
        }
        if (least == INFINITE)
            return fail(s, HOLE_UNFILLED, u, 0);
        if (least > low && !raise_low(s, u, least, BY_HOLE, hole, UNIT(u, HOLE_LEVEL)))
            return 0;
    }
    return 1;
}

static I propagate(S s)
{
    for (;;) {
        while (s->changed_count) {
            const I u = s->changed[--s->changed_count], old = UNIT(u, QUEUED_LOW), twin = SHAPE(u, TWIN);
            UNIT(u, QUEUED) = 0;
            for (I e = SHAPE(u, ENTRIES); e < SHAPE(u + 1, ENTRIES); e++) {
                const I k = ENTRY(e, SECTION), w = SECT(k, SECOND_LOWEST);
                if (SECT(k, SECTION_QUEUED))
                    continue;
                if (w < 0 || UNIT(w, PLACED) || old <= UNIT(w, LOW) || UNIT(SECT(k, LOWEST), PLACED))
                    queue_section(s, k);
            }
            if (twin >= 0 && !UNIT(twin, PLACED)) {
                const I end = UNIT(u, LOW) + SHAPE(u, MAX_HEIGHT);
                if (UNIT(twin, LOW) < end && !raise_low(s, twin, end, BY_TWIN, u, 0))
                    return 0;
            }
        }
        while (s->dirty_count) {
            const I k = s->dirty[--s->dirty_count];
            SECT(k, SECTION_QUEUED) = 0;
            if (!propagate_section(s, k))
                return 0;
        }
        if (!s->changed_count && !propagate_holes(s))
            return 0;
        if (!s->changed_count)
            return 1;
    }
}

static void undo(S s, const struct level *level)
{
    while (s->filled_count > level->filled_count) {
        const struct filled *const row = s->filled + --s->filled_count;
        open_hole(s, row->unit, row->hole, row->level);
    }
    s->highest_low = level->highest_low;
    while (s->event_count > level->event_count) {
        const struct event *const event = s->event + --s->event_count;
        UNIT(event->unit, LOW) = event->old_low;
    }
    while (s->placed_count > level->placed_count) {
        const I u = s->placed[--s->placed_count];
        UNIT(u, PLACED) = 0;
        UNIT(u, LEVEL) = -1;
        for (I e = SHAPE(u + 1, ENTRIES) - 1; e >= SHAPE(u, ENTRIES); e--) {
            const I k = ENTRY(e, SECTION);
            SECT(k, OPEN_UNITS) += 1;
            SECT(k, OPEN_BYTES) += ENTRY(e, HEIGHT);
        }
    }
}

static inline void add_level(S s, I level)
{
    if (level >= 0)
        s->nogood[level] = 1;
}

static inline void claim(S s, I u, I at)
{
    UNIT(u, CLAIM) = larger(UNIT(u, CLAIM), at);
}

/* Return whether unit u was placed before the event `now`. */
static inline I was_placed(S s, I u, I now)
{
    return UNIT(u, PLACED) && UNIT(u, PLACED_SINCE) <= now;
}

static void explain_hole(S s, I u, I hole, I level, I need, I now)
{
    add_level(s, level);
    claim(s, u, hole);
    if (need <= hole + 1)
        return;
    for (I k = SHAPE(u, NEIGHBOURS); k < SHAPE(u + 1, NEIGHBOURS); k++) {
        const I w = NEAR(k, OTHER), hole_end = hole + NEAR(k, OWN_HEIGHT), need_low = need - NEAR(k, OTHER_HEIGHT);
        if (SHAPE(w, FIXED) >= 0)
            continue;
        const I low = UNIT(w, LOW_THEN), is_placed = was_placed(s, w, now);
        if (is_placed && low < hole_end) /* w ends below the hole */
            add_level(s, UNIT(w, LEVEL));
        else
            claim(s, w, !is_placed && need_low <= smaller(low, hole_end) ? need_low : hole_end);
    }
}

/* Explain a raise of u by section k. Successive raises by the same section repeat only the claims on u and `lowest`. */
static void explain_section(S s, I k, I u, I lowest, I need, I now)
{
    I row = s->explained_end, rest = SECT(k, OPEN_BYTES);
    if (k != s->explained || lowest != s->explained_lowest ||
        (row < s->first[k + 1] && !was_placed(s, ORDER(row, UNIT_AT), now))) {
        row = s->first[k] + SECT(k, OPEN_UNITS);
        for (; row < s->first[k + 1] && !was_placed(s, ORDER(row, UNIT_AT), now); row++) /* latest placed first */
            rest += ENTRY(ORDER(row, ENTRY_AT), HEIGHT);
        s->explained = k;
        s->explained_lowest = lowest;
        s->explained_end = row;
        s->explained_least = SECT(k, CEILING) - rest + 1;
        while (--row >= s->first[k])
            if (ORDER(row, UNIT_AT) == lowest)
                s->lowest_height = ENTRY(ORDER(row, ENTRY_AT), HEIGHT);
            else
                claim(s, ORDER(row, UNIT_AT), s->explained_least);
    }
    claim(s, u, s->explained_least);
    claim(s, lowest, need - s->lowest_height);
}

static void analyse_conflict(S s)
{
    for (I u = 0; u < s->n; u++) {
        UNIT(u, CLAIM) = 0;
        UNIT(u, LOW_THEN) = UNIT(u, LOW);
    }
    const I cause = s->conflict_cause, detail = s->conflict_detail;
    switch (s->conflict) {
    case OFFSET_TOO_HIGH:
        claim(s, cause, detail);
        break;
    case SECTION_TOO_FULL:
        for (I row = s->first[cause]; row < s->first[cause] + SECT(cause, OPEN_UNITS); row++)
            claim(s, ORDER(row, UNIT_AT), SECT(cause, CEILING) - SECT(cause, OPEN_BYTES) + 1);
        break;
    case HOLE_UNFILLED:
        explain_hole(s, cause, UNIT(cause, HOLE), UNIT(cause, HOLE_LEVEL), INFINITE, s->event_count);
        break;
    case DOMINATED:
        add_level(s, UNIT(detail, LEVEL));
        claim(s, cause, UNIT(cause, LOW));
        claim(s, detail, UNIT(detail, LOW));
    }
    s->explained = -1;
    const struct event *const events = s->event;
    const struct reason *const reasons = s->reason;
    I *const claims = &UNIT(0, CLAIM), *const low_then = &UNIT(0, LOW_THEN);
    for (I now = s->event_count - 1; now >= 0; now--) {
        const I u = events[now].unit, claimed = claims[u];
        low_then[u] = events[now].old_low;
        if (claimed <= low_then[u])
            continue;
        const struct reason *const reason = reasons + now;
        const I by = reason->cause, need = smaller(claimed, reason->requested);
        claims[u] = 0;
        switch (reason->kind) {
        case BY_UNIT:
            add_level(s, by);
            claim(s, u, reason->detail);
            break;
        case BY_HOLE:
            explain_hole(s, u, by, reason->detail, need, now);
            break;
        case BY_TWIN:
            claim(s, by, need - SHAPE(by, MAX_HEIGHT));
            break;
        default:
            explain_section(s, by, u, reason->detail, need, now);
            continue;
        }
        s->explained = -1;
    }
}

/* branch_and_bound.py */

static I branching_unit(S s)
{
    I best = -1; /* the lowest open unit without a hole */
    for (I u = 0; u < s->n; u++) {
        if (UNIT(u, PLACED) || UNIT(u, HOLE) >= 0)
            continue;
        const I above = best < 0 ? -1 : UNIT(u, LOW) - UNIT(best, LOW);
        if (above < 0 || (above == 0 && s->rank[u] < s->rank[best]))
            best = u;
    }
    for (I u = best; u >= 0; u = best) {
        const I hole = UNIT(u, HOLE), has_hole = hole >= 0;
        I least = has_hole ? INFINITE : UNIT(u, LOW);
        best = -1;
        for (I k = SHAPE(u, NEIGHBOURS); k < SHAPE(u + 1, NEIGHBOURS); k++) {
            const I w = NEAR(k, OTHER);
            if (UNIT(w, PLACED))
                continue;
            const I low = UNIT(w, LOW), end = low + NEAR(k, OTHER_HEIGHT);
            const I is_candidate =
                has_hole ? SHAPE(w, FIXED) < 0 && low < hole + NEAR(k, OWN_HEIGHT) : end <= UNIT(u, LOW);
            const I key = has_hole ? larger(end, hole + 1) : low;
            if (is_candidate && (key < least || (best >= 0 && key == least && s->rank[w] < s->rank[best]))) {
                least = key;
                best = w;
            }
        }
        if (best < 0 && !has_hole)
            return u;
    }
    return -1;
}

static I decide(S s)
{
    const I u = branching_unit(s);
    I k = -1;
    if (u < 0)
        return fail(s, NO_CANDIDATE, -1, -1);
    if (SHAPE(u, FIXED) < 0) {
        k = s->level_count++;
        s->level[k] = (struct level){u, UNIT(u, LOW), 0, s->event_count, s->placed_count, s->filled_count,
                                      s->highest_low};
        for (I row = SHAPE(u, MATES); row < SHAPE(u + 1, MATES); row++) {
            const I w = s->mate[row], height = SHAPE(w, MAX_HEIGHT);
            if (UNIT(w, PLACED) && UNIT(w, LOW) + height == UNIT(u, LOW) && height < SHAPE(u, MAX_HEIGHT))
                return fail(s, DOMINATED, u, w);
        }
    }
    return place_unit(s, u, k) && propagate(s);
}

static I backjump(S s)
{
    if (s->conflict == SECTION_TOO_FULL)
        SECT(s->conflict_cause, FAILURES) += 1;
    while (s->changed_count)
        UNIT(s->changed[--s->changed_count], QUEUED) = 0;
    while (s->dirty_count)
        SECT(s->dirty[--s->dirty_count], SECTION_QUEUED) = 0;
    if (s->conflict != NO_CANDIDATE)
        analyse_conflict(s);
    else
        for (I k = 0; k < s->level_count; k++)
            s->nogood[k] = 1;
    if (s->conflict == DOMINATED)
        s->nogood[s->level_count - 1] = 1;
    for (I k = s->level_count - 1; k >= 0; k--) {
        struct level *const level = s->level + k;
        uint8_t *const nogood_of_level = s->nogoods + k * (k - 1) / 2;
        undo(s, level);
        if (level->is_second_branch)
            close_hole(s, level->unit);
        if (!s->nogood[k])
            continue;
        s->nogood[k] = 0;
        if (!level->is_second_branch) {
            for (I j = 0; j < k; j++) {
                nogood_of_level[j] = s->nogood[j];
                s->nogood[j] = 0;
            }
            level->is_second_branch = 1;
            s->level_count = k + 1;
            return 1;
        }
        for (I j = 0; j < k; j++)
            s->nogood[j] |= nogood_of_level[j];
    }
    return 0;
}

SHARED I tmmu_search(struct search *s)
{
    for (I u = 0; u < s->n; u++) {
        s->highest_low = larger(s->highest_low, UNIT(u, LOW));
        if (UNIT(u, LOW) + SHAPE(u, MAX_HEIGHT) > s->capacity)
            return INFEASIBLE;
        UNIT(u, QUEUED) = 1;
        s->changed[s->changed_count++] = u;
    }
    for (I k = 0; k < s->sections; k++)
        queue_section(s, k);
    if (!propagate(s))
        return s->conflict == TRAIL_FULL ? TABLES_FULL : INFEASIBLE;
    while (s->placed_count < s->n) {
        if (*s->nodes >= s->budget || *s->stop)
            return BUDGET_SPENT;
        if (s->level_count == s->max_levels)
            return TABLES_FULL;
        *s->nodes += 1;
        for (I consistent = decide(s); !consistent;) {
            if (s->conflict == TRAIL_FULL)
                return TABLES_FULL;
            if (!backjump(s))
                return INFEASIBLE;
            *s->nodes += 1;
            const I k = s->level_count - 1;
            open_hole(s, s->level[k].unit, s->level[k].offset, k);
            consistent = propagate(s);
        }
    }
    return FOUND;
}
