/* The branch and bound, compiled ahead: what kernel.py, propagate.py, reasons.py and tables.py of
 * tmmu_core/planners/exact/ say, function by function under the same names; why, is said there.
 *
 * Freestanding, as greedy.c is: no library, no recursion, no memory but the caller's.
 */
#include "loops.h"

/* Columns of the tables, as in tables.py. */
enum { ENTRIES, NEIGHBOURS, MATES, WALLS, GRID, TALL, FIXED, TWIN, SHAPE_COLUMNS };
enum { SECTION, HEIGHT, OWNER };
enum { OTHER, OVER, UNDER };
enum { LOW, PLACED, WHEN, LEVEL, HOLE, HOLE_LEVEL, HOLE_ROW, NEAREST, NEAREST_LOW, NEAREST_END, WAITS, OLD, NEED, THEN,
       UNIT_COLUMNS };
enum { REST, LEFT, LOWEST, SECOND, STALE, FAILS, SECTION_COLUMNS };
enum { WHO, FROM, ASKED, WHY, ONE, TWO, EVENT_COLUMNS };
enum { EVENTS, PUT, CHANGED, DIRTY, HOLES, MET, CONFLICT, FIRST_OF_IT, SECOND_OF_IT };

/* Answers (kernel.py), reasons, failures and switches (propagate.py). */
enum { FOUND = 1, INFEASIBLE = 0, SPENT = -1, CRAMPED = -2 };
enum { BY_UNIT, BY_HOLE, BY_FIRST, BY_TWIN };
enum { TOO_HIGH, TOO_FULL, UNMET, UPON, STUCK, NO_ROOM };
enum { SECTIONS = 1, FIRSTS = 2, DOMINANCE = 4, TWINS = 8, SWAPS = 16, JUMPS = 32 };
#define FAR ((I)1 << 62)

typedef const struct search *S;

#define SHAPE(u, c) (s->shape[(u) * SHAPE_COLUMNS + (c)])
#define ENTRY(e, c) (s->entry[(e) * 3 + (c)])
#define NEAR(k, c) (s->neighbour[(k) * 3 + (c)])
#define UNIT(u, c) (s->unit[(u) * UNIT_COLUMNS + (c)])
#define SECT(k, c) (s->section[(k) * SECTION_COLUMNS + (c)])
#define ORDER(row, c) (s->order[(row) * 2 + (c)])
#define EVENT(e, c) (s->event[(e) * EVENT_COLUMNS + (c)])
#define TALLY(c) (s->tally[c])

static inline I greater(I one, I two) { return one > two ? one : two; }
static inline I lesser(I one, I two) { return one < two ? one : two; }

/* ------------------------------------------------------------------------------------------------ tables.py */

static I settle(const I *shape, const I *wall, I u, I at)
{
    const I *const unit = shape + u * SHAPE_COLUMNS;
    const I grid = unit[GRID];
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

SHARED I tmmu_settle(const I *shape, const I *wall, I u, I at) { return settle(shape, wall, u, at); }

SHARED I tmmu_neighbours(const struct meeting *p)
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
                if (seen[w] < begin[u]) { /* rows of earlier units: this one has not met it yet */
                    seen[w] = used;
                    if (used < p->room) {
                        table[3 * used + OTHER] = w;
                        table[3 * used + OVER] = table[3 * used + UNDER] = 0;
                    }
                    used++;
                }
                if (seen[w] < p->room) {
                    I *const at = table + 3 * seen[w];
                    at[OVER] = greater(at[OVER], high);
                    at[UNDER] = greater(at[UNDER], p->entry[3 * other + HEIGHT]);
                }
            }
        }
        begin[u + 1] = used;
    }
    return begin[n];
}

/* --------------------------------------------------------------------------------------------- propagate.py */

static I fail(S s, I kind, I one, I two)
{
    TALLY(CONFLICT) = kind;
    TALLY(FIRST_OF_IT) = one;
    TALLY(SECOND_OF_IT) = two;
    return 0;
}

static I raise(S s, I who, I to, I why, I one, I two)
{
    const I e = TALLY(EVENTS);
    if (e == s->events)
        return fail(s, NO_ROOM, who, 0);
    TALLY(EVENTS) = e + 1;
    const I old = UNIT(who, LOW);
    EVENT(e, WHO) = who;
    EVENT(e, FROM) = old;
    EVENT(e, ASKED) = to;
    EVENT(e, WHY) = why;
    EVENT(e, ONE) = one;
    EVENT(e, TWO) = two;
    const I at = settle(s->shape, s->wall, who, to);
    UNIT(who, LOW) = at;
    if (at + SHAPE(who, TALL) > s->capacity)
        return fail(s, TOO_HIGH, who, s->capacity - SHAPE(who, TALL) + 1);
    if (at > SHAPE(who, FIXED) && SHAPE(who, FIXED) >= 0)
        return fail(s, TOO_HIGH, who, SHAPE(who, FIXED) + 1);
    if (!UNIT(who, WAITS)) {
        UNIT(who, WAITS) = 1;
        UNIT(who, OLD) = old;
        s->changed[TALLY(CHANGED)] = who;
        TALLY(CHANGED) += 1;
    }
    return 1;
}

static void open_hole(S s, I u, I at, I level)
{
    const I row = TALLY(HOLES);
    UNIT(u, HOLE) = at;
    UNIT(u, HOLE_LEVEL) = level;
    UNIT(u, HOLE_ROW) = row;
    UNIT(u, NEAREST) = -1;
    s->holes[row] = u;
    TALLY(HOLES) = row + 1;
}

static void close_hole(S s, I u)
{
    const I last = TALLY(HOLES) - 1, row = UNIT(u, HOLE_ROW), other = s->holes[last];
    s->holes[row] = other;
    UNIT(other, HOLE_ROW) = row;
    TALLY(HOLES) = last;
    UNIT(u, HOLE) = -1;
}

static void make_stale(S s, I section)
{
    SECT(section, STALE) = 1;
    s->dirty[TALLY(DIRTY)] = section;
    TALLY(DIRTY) += 1;
}

static I put(S s, I u, I level)
{
    const I at = UNIT(u, LOW);
    UNIT(u, PLACED) = 1;
    UNIT(u, WHEN) = TALLY(EVENTS);
    UNIT(u, LEVEL) = level;
    s->placed[TALLY(PUT)] = u;
    TALLY(PUT) += 1;
    for (I e = SHAPE(u, ENTRIES); e < SHAPE(u + 1, ENTRIES); e++) {
        const I k = ENTRY(e, SECTION);
        SECT(k, REST) -= ENTRY(e, HEIGHT);
        SECT(k, LEFT) -= 1;
        const I last = s->first[k] + SECT(k, LEFT);
        const I here = ORDER(e, 1), other = ORDER(last, 0);
        ORDER(here, 0) = other;
        ORDER(last, 0) = e;
        ORDER(other, 1) = here;
        ORDER(e, 1) = last;
        if (!SECT(k, STALE))
            make_stale(s, k);
    }
    for (I k = SHAPE(u, NEIGHBOURS); k < SHAPE(u + 1, NEIGHBOURS); k++) {
        const I w = NEAR(k, OTHER);
        if (UNIT(w, PLACED))
            continue;
        const I end = at + NEAR(k, OVER), hole = UNIT(w, HOLE);
        if (hole >= 0 && end > hole && (at < hole + NEAR(k, UNDER) || !(s->switches & DOMINANCE))) {
            const I row = TALLY(MET);
            s->met[3 * row] = w;
            s->met[3 * row + 1] = hole;
            s->met[3 * row + 2] = UNIT(w, HOLE_LEVEL);
            TALLY(MET) = row + 1;
            close_hole(s, w);
        }
        if (UNIT(w, LOW) < end && UNIT(w, LOW) + NEAR(k, UNDER) > at && !raise(s, w, end, BY_UNIT, u, k))
            return 0;
    }
    return 1;
}

static I reach(S s, I u, I dominance)
{
    const I hole = UNIT(u, HOLE);
    I least = FAR, who = -1;
    for (I k = SHAPE(u, NEIGHBOURS); k < SHAPE(u + 1, NEIGHBOURS); k++) {
        const I w = NEAR(k, OTHER);
        if (UNIT(w, PLACED) || SHAPE(w, FIXED) >= 0)
            continue;
        const I low = UNIT(w, LOW);
        if (dominance && low >= hole + NEAR(k, OVER))
            continue;
        const I end = greater(low + NEAR(k, UNDER), hole + 1);
        if (end < least) {
            least = end;
            who = w;
        }
    }
    UNIT(u, NEAREST) = who;
    UNIT(u, NEAREST_END) = least;
    UNIT(u, NEAREST_LOW) = who >= 0 ? UNIT(who, LOW) : 0;
    return least;
}

static I look_at(S s, I k)
{
    const I left = SECT(k, LEFT), rest = SECT(k, REST), begin = s->first[k];
    I low = FAR, second = FAR, one = -1, two = -1;
    for (I row = begin; row < begin + left; row++) {
        const I at = UNIT(ENTRY(ORDER(row, 0), OWNER), LOW);
        if (at < low) {
            second = low;
            two = one;
            low = at;
            one = row;
        } else if (at < second) {
            second = at;
            two = row;
        }
    }
    I who = -1, high = 0, other = -1;
    if (one >= 0) {
        const I e = ORDER(one, 0);
        who = ENTRY(e, OWNER);
        high = ENTRY(e, HEIGHT);
    }
    if (two >= 0)
        other = ENTRY(ORDER(two, 0), OWNER);
    SECT(k, LOWEST) = who;
    SECT(k, SECOND) = other;
    if (left && s->switches & SECTIONS && low + rest > s->capacity)
        return fail(s, TOO_FULL, k, low);
    if (left > 1 && s->switches & FIRSTS && second + rest > s->capacity && second < low + high) {
        for (I row = begin; row < begin + left; row++) {
            const I u = ENTRY(ORDER(row, 0), OWNER);
            if (u != who && UNIT(u, LOW) < low + high && !raise(s, u, low + high, BY_FIRST, k, who))
                return 0;
        }
    }
    return 1;
}

static I propagate(S s)
{
    for (;;) {
        while (TALLY(CHANGED)) {
            TALLY(CHANGED) -= 1;
            const I u = s->changed[TALLY(CHANGED)];
            UNIT(u, WAITS) = 0;
            const I old = UNIT(u, OLD);
            for (I e = SHAPE(u, ENTRIES); e < SHAPE(u + 1, ENTRIES); e++) {
                const I k = ENTRY(e, SECTION);
                if (!SECT(k, STALE)) {
                    const I w = SECT(k, SECOND);
                    if (w < 0 || UNIT(w, PLACED) || old <= UNIT(w, LOW) || UNIT(SECT(k, LOWEST), PLACED))
                        make_stale(s, k);
                }
            }
            const I twin = SHAPE(u, TWIN);
            if (s->switches & TWINS && twin >= 0 && !UNIT(twin, PLACED)) {
                const I end = UNIT(u, LOW) + SHAPE(u, TALL);
                if (UNIT(twin, LOW) < end && !raise(s, twin, end, BY_TWIN, u, 0))
                    return 0;
            }
        }
        while (TALLY(DIRTY)) {
            TALLY(DIRTY) -= 1;
            const I k = s->dirty[TALLY(DIRTY)];
            SECT(k, STALE) = 0;
            if (!look_at(s, k))
                return 0;
        }
        const I holes = TALLY(CHANGED) ? 0 : TALLY(HOLES);
        for (I row = 0; row < holes; row++) {
            const I u = s->holes[row], w = UNIT(u, NEAREST);
            const I known = w >= 0 && !UNIT(w, PLACED) && UNIT(w, LOW) == UNIT(u, NEAREST_LOW);
            if (known && UNIT(u, LOW) >= UNIT(u, NEAREST_END))
                continue;
            const I end = reach(s, u, s->switches & DOMINANCE);
            if (end == FAR)
                return fail(s, UNMET, u, 0);
            if (end > UNIT(u, LOW) && !raise(s, u, end, BY_HOLE, UNIT(u, HOLE), UNIT(u, HOLE_LEVEL)))
                return 0;
        }
        if (!TALLY(CHANGED) && !TALLY(DIRTY))
            return 1;
    }
}

static void stop_propagating(S s)
{
    while (TALLY(CHANGED)) {
        TALLY(CHANGED) -= 1;
        UNIT(s->changed[TALLY(CHANGED)], WAITS) = 0;
    }
    while (TALLY(DIRTY)) {
        TALLY(DIRTY) -= 1;
        SECT(s->dirty[TALLY(DIRTY)], STALE) = 0;
    }
}

static void take_back(S s, const I *marks)
{
    while (TALLY(MET) > marks[2]) {
        TALLY(MET) -= 1;
        const I *const row = s->met + 3 * TALLY(MET);
        open_hole(s, row[0], row[1], row[2]);
    }
    while (TALLY(EVENTS) > marks[0]) {
        TALLY(EVENTS) -= 1;
        const I e = TALLY(EVENTS);
        UNIT(EVENT(e, WHO), LOW) = EVENT(e, FROM);
    }
    while (TALLY(PUT) > marks[1]) {
        TALLY(PUT) -= 1;
        const I u = s->placed[TALLY(PUT)];
        UNIT(u, PLACED) = 0;
        UNIT(u, LEVEL) = -1;
        for (I e = SHAPE(u + 1, ENTRIES) - 1; e >= SHAPE(u, ENTRIES); e--) {
            const I k = ENTRY(e, SECTION);
            SECT(k, LEFT) += 1;
            SECT(k, REST) += ENTRY(e, HEIGHT);
        }
    }
}

/* ----------------------------------------------------------------------------------------------- reasons.py */

static inline void blame_level(S s, I level)
{
    if (level >= 0)
        s->blame[level] = 1;
}

static inline void need(S s, I u, I at)
{
    if (UNIT(u, NEED) < at)
        UNIT(u, NEED) = at;
}

static void why_hole(S s, I u, I at, I level, I needed, I now)
{
    blame_level(s, level);
    need(s, u, at);
    if (needed <= at + 1)
        return;
    for (I k = SHAPE(u, NEIGHBOURS); k < SHAPE(u + 1, NEIGHBOURS); k++) {
        const I w = NEAR(k, OTHER);
        if (SHAPE(w, FIXED) >= 0)
            continue;
        const I low = UNIT(w, THEN), over = at + NEAR(k, OVER);
        if (UNIT(w, PLACED) && UNIT(w, WHEN) <= now) {
            if (low >= over)
                need(s, w, over);
            else
                blame_level(s, UNIT(w, LEVEL));
        } else if (needed - NEAR(k, UNDER) <= lesser(low, over))
            need(s, w, needed - NEAR(k, UNDER));
        else
            need(s, w, over);
    }
}

static void why_first(S s, I k, I lowest, I needed, I now)
{
    I rest = 0, high = 0;
    for (I row = s->first[k]; row < s->first[k + 1]; row++) {
        const I e = ORDER(row, 0), u = ENTRY(e, OWNER);
        if (!UNIT(u, PLACED) || UNIT(u, WHEN) > now) {
            rest += ENTRY(e, HEIGHT);
            if (u == lowest)
                high = ENTRY(e, HEIGHT);
        }
    }
    for (I row = s->first[k]; row < s->first[k + 1]; row++) {
        const I u = ENTRY(ORDER(row, 0), OWNER);
        if (!UNIT(u, PLACED) || UNIT(u, WHEN) > now)
            need(s, u, u == lowest ? needed - high : s->capacity - rest + 1);
    }
}

static void begin_with(S s)
{
    const I one = TALLY(FIRST_OF_IT), two = TALLY(SECOND_OF_IT);
    switch (TALLY(CONFLICT)) {
    case TOO_HIGH:
        need(s, one, two);
        break;
    case TOO_FULL: {
        const I begin = s->first[one], end = begin + SECT(one, LEFT);
        I total = 0;
        for (I row = begin; row < end; row++)
            total += ENTRY(ORDER(row, 0), HEIGHT);
        for (I row = begin; row < end; row++)
            need(s, ENTRY(ORDER(row, 0), OWNER), s->capacity - total + 1);
        break;
    }
    case UNMET:
        why_hole(s, one, UNIT(one, HOLE), UNIT(one, HOLE_LEVEL), FAR, TALLY(EVENTS));
        break;
    case UPON:
        blame_level(s, UNIT(two, LEVEL));
        need(s, one, UNIT(one, LOW));
        need(s, two, UNIT(two, LOW));
        break;
    }
}

static void blame(S s)
{
    for (I u = 0; u < s->n; u++) {
        UNIT(u, NEED) = 0;
        UNIT(u, THEN) = UNIT(u, LOW);
    }
    begin_with(s);
    for (I e = TALLY(EVENTS) - 1; e >= 0; e--) {
        const I u = EVENT(e, WHO);
        I needed = UNIT(u, NEED);
        UNIT(u, THEN) = EVENT(e, FROM);
        if (needed <= EVENT(e, FROM))
            continue;
        UNIT(u, NEED) = 0;
        needed = lesser(needed, EVENT(e, ASKED));
        const I one = EVENT(e, ONE), two = EVENT(e, TWO);
        switch (EVENT(e, WHY)) {
        case BY_UNIT:
            blame_level(s, UNIT(one, LEVEL));
            need(s, u, UNIT(one, LOW) - NEAR(two, UNDER) + 1);
            break;
        case BY_HOLE:
            why_hole(s, u, one, two, needed, e);
            break;
        case BY_TWIN:
            need(s, one, needed - SHAPE(one, TALL));
            break;
        default:
            why_first(s, one, two, needed, e);
        }
    }
}

/* ------------------------------------------------------------------------------------------------ kernel.py */

static I lowest_of(S s)
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

static I under(S s, I u, I dominance)
{
    for (;;) {
        const I hole = UNIT(u, HOLE);
        I least = hole >= 0 ? FAR : UNIT(u, LOW), who = -1;
        for (I k = SHAPE(u, NEIGHBOURS); k < SHAPE(u + 1, NEIGHBOURS); k++) {
            const I w = NEAR(k, OTHER);
            I at;
            if (UNIT(w, PLACED))
                continue;
            if (hole >= 0) {
                if (SHAPE(w, FIXED) >= 0 || (dominance && UNIT(w, LOW) >= hole + NEAR(k, OVER)))
                    continue;
                at = greater(UNIT(w, LOW) + NEAR(k, UNDER), hole + 1);
            } else if (UNIT(w, LOW) + NEAR(k, UNDER) <= UNIT(u, LOW))
                at = UNIT(w, LOW);
            else
                continue;
            if (at < least || (who >= 0 && at == least && s->rank[w] < s->rank[who])) {
                least = at;
                who = w;
            }
        }
        if (who < 0)
            return hole >= 0 ? -1 : u;
        u = who;
    }
}

static I upon(S s, I u)
{
    for (I row = SHAPE(u, MATES); row < SHAPE(u + 1, MATES); row++) {
        const I w = s->mate[row];
        if (UNIT(w, PLACED) && UNIT(w, LOW) + SHAPE(w, TALL) == UNIT(u, LOW) && SHAPE(w, TALL) < SHAPE(u, TALL))
            return w;
    }
    return -1;
}

static I fits_at_all(S s)
{
    for (I u = 0; u < s->n; u++) {
        if (UNIT(u, LOW) + SHAPE(u, TALL) > s->capacity)
            return 0;
        UNIT(u, WAITS) = 1;
        s->changed[u] = u;
    }
    TALLY(CHANGED) = s->n;
    for (I k = 0; k < s->m; k++) {
        SECT(k, STALE) = 1;
        s->dirty[k] = k;
    }
    TALLY(DIRTY) = s->m;
    return propagate(s);
}

static inline uint8_t *kept_of(S s, I level) { return s->kept + level * (level - 1) / 2; }

SHARED I tmmu_search(const struct search *s)
{
    I *const blamed = s->blame;
    const I jumps = s->switches & JUMPS && s->switches & DOMINANCE;
    I levels = 0;
    if (!fits_at_all(s))
        return TALLY(CONFLICT) == NO_ROOM ? CRAMPED : INFEASIBLE;
    while (TALLY(PUT) < s->n) {
        if (*s->nodes >= s->budget || *s->stop)
            return SPENT;
        if (levels >= s->most)
            return CRAMPED;
        *s->nodes += 1;
        I u = lowest_of(s);
        if (u >= 0)
            u = under(s, u, s->switches & DOMINANCE);
        I good = 1, level = -1;
        if (u < 0) {
            TALLY(CONFLICT) = STUCK;
            good = 0;
        } else if (SHAPE(u, FIXED) < 0) {
            level = levels++;
            s->asked[level] = u;
            s->at[level] = UNIT(u, LOW);
            s->second[level] = 0;
            s->marks[3 * level] = TALLY(EVENTS);
            s->marks[3 * level + 1] = TALLY(PUT);
            s->marks[3 * level + 2] = TALLY(MET);
            const I below = s->switches & SWAPS ? upon(s, u) : -1;
            if (below >= 0)
                good = fail(s, UPON, u, below);
        }
        if (good)
            good = put(s, u, level) && propagate(s);
        while (!good) {
            if (TALLY(CONFLICT) == NO_ROOM)
                return CRAMPED;
            if (TALLY(CONFLICT) == TOO_FULL)
                SECT(TALLY(FIRST_OF_IT), FAILS) += 1;
            stop_propagating(s);
            if (jumps && TALLY(CONFLICT) != STUCK) {
                blame(s);
                if (TALLY(CONFLICT) == UPON)
                    blamed[levels - 1] = 1;
            } else
                for (I k = 0; k < levels; k++)
                    blamed[k] = 1;
            for (;;) {
                level = levels - 1;
                while (level >= 0 && !blamed[level])
                    level--;
                if (level < 0)
                    return INFEASIBLE;
                for (I k = levels - 1; k >= level; k--) {
                    take_back(s, s->marks + 3 * k);
                    if (s->second[k])
                        close_hole(s, s->asked[k]);
                }
                levels = level;
                blamed[level] = 0;
                if (!s->second[level])
                    break;
                const uint8_t *const kept = kept_of(s, level);
                for (I k = 0; k < level; k++)
                    blamed[k] |= kept[k];
            }
            uint8_t *const kept = kept_of(s, level);
            for (I k = 0; k < level; k++) {
                kept[k] = (uint8_t)blamed[k];
                blamed[k] = 0;
            }
            s->second[level] = 1;
            levels = level + 1;
            *s->nodes += 1;
            open_hole(s, s->asked[level], s->at[level], level);
            good = propagate(s);
        }
    }
    return FOUND;
}
