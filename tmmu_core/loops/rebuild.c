/* Part of a packing torn down and put up again, compiled ahead: what rebuilding.py of tmmu_core/planners/exact/ says,
 * function by function under the same names; why, is said there.
 *
 * Freestanding, as greedy.c is: no library, no recursion, no memory but the caller's. Its loops gain by vectors.
 */
#pragma GCC optimize("O3")
#include "loops.h"

typedef int32_t N;

enum { AREA, BYTES, LIFE, EARLY, LATE, BORN, DIES, SIZE, GRID, FIXED, COLUMNS };
enum { OFFSET, LEFT, WEIGHT, ROW, START, END, NEXT_ROW, NEXT_START, NEXT_END, TAKEN, WAS, ORDER, KEY, COUNTED };
enum { FROM, UNTIL, LONG, TALL, LOW, HIGH, FAR };
enum { DRAWN, ROWS, OUT, COST, FEWEST, TURN };
enum { WHO, AT, WHEN, BELOW, ABOVE, MANY, LOOSE, FIRM };
enum { LOWEST, TIGHTEST, HIGHEST, TIGHTEST_ABOVE };
enum { UNITS = 1024, STAGES = 1024, BLURS = 4096, TRIES = 8, TOUCH = 32, EVERY = 128, ROUNDS = 1000, DEARER = 64 };
enum { NOWHERE = 0x7FFFFFFF };
#define BEYOND ((I)1 << 62)
#define PINNED ((I)1 << 50)
static const N FAR_IN_TIME[3] = {48, 10, 144}, FAR_IN_BYTES[3] = {60, 300, 20};

typedef const struct site *P;

#define UNIT(u, c) (p->unit[(u) * COLUMNS + (c)])
#define WORK(row) (p->work + (row) * (p->n + 1))
#define NEAR(row) (p->near + (row) * p->n)

static inline I greater(I one, I two) { return one > two ? one : two; }

static inline I draw(I *state)
{
    const uint32_t s = (uint32_t)*state, word = ((s >> ((s >> 28) + 4)) ^ s) * 277803737u;
    *state = s * 747796405u + 2891336453u;
    return (word >> 22) ^ word;
}

static inline I scale_of(P p) { return (p->capacity + UNITS - 1) / UNITS; }

static inline void lay(P p, I scale, I i, I at)
{
    const N low = at >= 0 && UNIT(i, FIXED) < 0 ? (N)(at / scale) : -1;
    WORK(OFFSET)[i] = at;
    NEAR(LOW)[i] = low;
    NEAR(HIGH)[i] = low + NEAR(TALL)[i];
}

static I least_in_the_way(P p, I i, I *state)
{
    I *const start = WORK(NEXT_START), *const end = WORK(NEXT_END), *const weight = WORK(NEXT_ROW);
    const uint8_t *const meets = p->meets + i * p->n;
    const I need = UNIT(i, SIZE), grid = UNIT(i, GRID), rows = p->now[ROWS];
    I count = 0, best = -1, least = PINNED;
    for (I k = 0; k < rows; k++) {
        const I j = WORK(ROW)[k];
        start[count] = WORK(START)[k];
        end[count] = WORK(END)[k];
        weight[count] = UNIT(j, FIXED) >= 0 ? PINNED : WORK(WEIGHT)[j];
        count += meets[j];
    }
    start[count] = p->capacity;
    end[count] = 0;
    for (I tried = 0; tried < TRIES; tried++) {
        const I r = draw(state), k = (r >> 1) % (count + 1);
        const I at = r & 1 ? (end[k] + grid - 1) & -grid : (start[k] - need) & -grid, top = at + need;
        if (at < 0 || top > p->capacity)
            continue;
        I cost = 0;
        for (I j = 0; j < count; j++)
            cost += weight[j] & -(I)((start[j] < top) & (end[j] > at));
        if (cost < least) {
            least = cost;
            best = at;
        }
    }
    return best;
}

static void chosen(P p, I *state)
{
    const I out = p->now[OUT], scale = scale_of(p);
    p->spot[MANY] = 1 + draw(state) % (2 * p->ruin);
    I r = draw(state);
    const I who = r & 7 ? WORK(LEFT)[(r >> 3) % out] : (r >> 3) % p->n;
    p->spot[AT] = r & 1 ? least_in_the_way(p, who, state) : -1;
    p->spot[WHEN] = UNIT(who, BORN) + draw(state) % greater(UNIT(who, DIES) - UNIT(who, BORN), 1);
    r = draw(state);
    const I at = greater(p->spot[AT], WORK(OFFSET)[who]), below = at >= 0 ? at / scale : r % UNITS;
    p->spot[WHO] = who;
    p->spot[BELOW] = below;
    p->spot[ABOVE] = below + NEAR(TALL)[who];
}

static void how_far(P p, I *state)
{
    const I r = draw(state), n = p->n;
    const N in_time = FAR_IN_TIME[r % 3], in_bytes = FAR_IN_BYTES[r % 3];
    const N *const one = p->blur + (r >> 4) % BLURS, *const two = p->blur + p->blurs + (r >> 16) % BLURS;
    const N when = (N)p->spot[WHEN], below = (N)p->spot[BELOW], above = (N)p->spot[ABOVE];
    const N *const from = NEAR(FROM), *const until = NEAR(UNTIL), *const life = NEAR(LONG);
    const N *const low = NEAR(LOW), *const high = NEAR(HIGH);
    N *const restrict far = NEAR(FAR);
    for (I j = 0; j < n; j++) {
        const N early = from[j] - when, late = when - until[j], over = low[j] - above, under = below - high[j];
        N steps = early > late ? early : late, places = over > under ? over : under;
        steps = steps > 0 ? steps : 0;
        places = places > 0 ? places : 0;
        const N distance = (in_time * steps + in_bytes * places) * one[j] + ((life[j] * two[j]) >> 6);
        far[j] = low[j] < 0 ? NOWHERE : distance;
    }
}

static void torn_down(P p, I scale, I *state)
{
    I *const taken = WORK(TAKEN), *const was = WORK(WAS), *const key = WORK(KEY);
    const I *const row = WORK(ROW), *const start = WORK(START), *const end = WORK(END);
    const I n = p->n, rows = p->now[ROWS], out = p->now[OUT], at = p->spot[AT];
    I count = out;
    for (I k = 0; k < out; k++) {
        taken[k] = WORK(LEFT)[k];
        was[k] = -1;
    }
    if (at >= 0) {
        const I who = p->spot[WHO], top = at + UNIT(who, SIZE);
        for (I k = 0; k < rows; k++)
            if (start[k] < top && end[k] > at && p->meets[who * n + row[k]])
                taken[count++] = row[k];
    }
    for (I k = out; k < count; k++) {
        was[k] = WORK(OFFSET)[taken[k]];
        lay(p, scale, taken[k], -1);
    }
    how_far(p, state);
    const N *const far = NEAR(FAR);
    const I first = count, full = first + p->spot[MANY];
    N farthest = NOWHERE;
    for (I j = 0; j < n; j++) {
        if (far[j] >= farthest)
            continue;
        I k = count < full ? count++ : count - 1;
        for (; k > first && key[k - 1] > far[j]; k--) {
            key[k] = key[k - 1];
            taken[k] = taken[k - 1];
        }
        key[k] = far[j];
        taken[k] = j;
        if (count == full)
            farthest = (N)key[count - 1];
    }
    for (I k = first; k < count; k++) {
        was[k] = WORK(OFFSET)[taken[k]];
        lay(p, scale, taken[k], -1);
    }
    I *const next_row = WORK(NEXT_ROW), *const next_start = WORK(NEXT_START), *const next_end = WORK(NEXT_END);
    I kept = 0;
    for (I k = 0; k < rows; k++) {
        next_row[kept] = row[k];
        next_start[kept] = start[k];
        next_end[kept] = end[k];
        kept += WORK(OFFSET)[row[k]] >= 0;
    }
    p->spot[LOOSE] = count;
    p->spot[FIRM] = kept;
}

static void in_an_order(P p, I *state)
{
    const I *const taken = WORK(TAKEN), count = p->spot[LOOSE], by = draw(state) % 6;
    I *const key = WORK(KEY), *const order = WORK(ORDER);
    for (I k = 0; k < count; k++) {
        const I i = taken[k], r = draw(state);
        const I value = by == 5 ? -(r & 0xFFFFF) : -UNIT(i, by) * (64 + (r >> 4) % 33);
        I at = k;
        for (; at > 0 && key[at - 1] > value; at--) {
            key[at] = key[at - 1];
            order[at] = order[at - 1];
        }
        key[at] = value;
        order[at] = i;
    }
}

static I gap(P p, I i, I rule, I *state)
{
    I *const row = WORK(NEXT_ROW), *const start = WORK(NEXT_START), *const end = WORK(NEXT_END);
    const uint8_t *const meets = p->meets + i * p->n;
    const I need = UNIT(i, SIZE), grid = UNIT(i, GRID), rows = p->spot[FIRM];
    I top = 0, best = -1, least = BEYOND;
    /* It meets itself: what is above all others is met as well. */
    row[rows] = i;
    start[rows] = end[rows] = p->capacity;
    for (I k = 0; k <= rows; k++) {
        const I met = -(I)meets[row[k]], over = end[k] & met;
        if (__builtin_expect(((start[k] - top) & met) >= need, 0)) {
            const I low = (top + grid - 1) & -grid, high = (start[k] - need) & -grid;
            if (low <= high) {
                const I worth = rule == LOWEST ? low : rule == HIGHEST ? -high : start[k] - top - need;
                if (draw(state) % EVERY && worth < least) {
                    least = worth;
                    best = rule <= TIGHTEST ? low : high;
                    if (rule == LOWEST)
                        break;
                }
            }
        }
        top = greater(top, over);
    }
    return best;
}

static void put(P p, I scale, I i, I at)
{
    I *const row = WORK(NEXT_ROW), *const start = WORK(NEXT_START), *const end = WORK(NEXT_END);
    lay(p, scale, i, at);
    I k = p->spot[FIRM]++;
    for (; k > 0 && (start[k - 1] > at || (start[k - 1] == at && row[k - 1] > i)); k--) {
        row[k] = row[k - 1];
        start[k] = start[k - 1];
        end[k] = end[k - 1];
    }
    row[k] = i;
    start[k] = at;
    end[k] = at + UNIT(i, SIZE);
}

static I put_up(P p, I most, I *still, I *state)
{
    const I scale = scale_of(p), first = p->spot[AT] >= 0 ? p->spot[WHO] : -1, count = p->spot[LOOSE];
    I *const order = WORK(ORDER), cost = 0;
    if (first >= 0)
        put(p, scale, first, p->spot[AT]);
    const I common = draw(state);
    *still = 0;
    for (I k = 0; k < count; k++) {
        const I i = order[k];
        if (i == first)
            continue;
        const I r = draw(state), at = gap(p, i, r & 7 ? common & 3 : (r >> 3) & 3, state);
        if (at >= 0) {
            put(p, scale, i, at);
            continue;
        }
        order[(*still)++] = i;
        cost += WORK(WEIGHT)[i];
        if (cost >= most)
            break;
    }
    return cost;
}

static I touching(P p, I i, I at, I lying)
{
    const I *const row = WORK(lying), *const start = WORK(lying + 1), *const end = WORK(lying + 2);
    const uint8_t *const meets = p->meets + i * p->n;
    const I born = UNIT(i, BORN), dies = UNIT(i, DIES), top = at + UNIT(i, SIZE);
    const I rows = lying == ROW ? p->now[ROWS] : p->spot[FIRM];
    I sum = (dies - born) * ((at == 0) + (top == p->capacity));
    for (I k = 0; k < rows; k++)
        if (__builtin_expect((start[k] == top) | (end[k] == at), 0)) {
            const I j = row[k];
            if (meets[j] && !WORK(COUNTED)[j])
                sum += (dies < UNIT(j, DIES) ? dies : UNIT(j, DIES)) - greater(born, UNIT(j, BORN));
        }
    return sum;
}

static I more_touching(P p)
{
    const I *const taken = WORK(TAKEN), *const was = WORK(WAS), count = p->spot[LOOSE];
    I *const counted = WORK(COUNTED), more = 0;
    for (I k = 0; k < count; k++)
        if (was[k] >= 0) {
            more -= touching(p, taken[k], was[k], ROW);
            counted[taken[k]] = 1;
        }
    for (I k = 0; k < count; k++)
        counted[taken[k]] = 0;
    for (I k = 0; k < count; k++)
        if (WORK(OFFSET)[taken[k]] >= 0) {
            more += touching(p, taken[k], WORK(OFFSET)[taken[k]], NEXT_ROW);
            counted[taken[k]] = 1;
        }
    for (I k = 0; k < count; k++)
        counted[taken[k]] = 0;
    return more;
}

static void begin(P p)
{
    const I scale = scale_of(p);
    for (I i = 0; i < p->n; i++) {
        const I tall = UNIT(i, SIZE) / scale;
        NEAR(FROM)[i] = (N)UNIT(i, BORN);
        NEAR(UNTIL)[i] = (N)UNIT(i, DIES);
        NEAR(LONG)[i] = (N)(3 * (UNIT(i, DIES) - UNIT(i, BORN)));
        NEAR(TALL)[i] = (N)(tall < UNITS ? tall : UNITS);
        lay(p, scale, i, WORK(OFFSET)[i]);
    }
    for (I k = 0; k < p->now[ROWS]; k++) {
        const I j = WORK(ROW)[k];
        WORK(START)[k] = WORK(OFFSET)[j];
        WORK(END)[k] = WORK(OFFSET)[j] + UNIT(j, SIZE);
    }
}

SHARED I tmmu_rebuild(P p)
{
    volatile I *const now = p->now;
    I *const left = WORK(LEFT), *const weight = WORK(WEIGHT);
    const I scale = scale_of(p), every = greater(p->turns / ROUNDS, 1);
    begin(p);
    while (now[OUT] && now[TURN] < p->turns && !*p->stop) {
        I state = now[DRAWN], still;
        chosen(p, &state);
        torn_down(p, scale, &state);
        in_an_order(p, &state);
        const I more = (p->heat[now[TURN] * STAGES / p->turns] * p->loss[draw(&state) & 1023]) >> 20;
        const I most = now[COST] + greater(more, 0), cost = put_up(p, most, &still, &state);
        if (cost < most && (!still || cost - ((more_touching(p) * TOUCH) >> 10) < most)) {
            const I rows = p->spot[FIRM];
            for (I k = 0; k < rows; k++) {
                WORK(ROW)[k] = WORK(NEXT_ROW)[k];
                WORK(START)[k] = WORK(NEXT_START)[k];
                WORK(END)[k] = WORK(NEXT_END)[k];
            }
            for (I k = 0; k < still; k++)
                left[k] = WORK(ORDER)[k];
            now[ROWS] = rows;
            now[OUT] = still;
            now[COST] = cost;
            if (still < now[FEWEST])
                now[FEWEST] = still;
        } else {
            for (I k = 0; k < p->spot[LOOSE]; k++)
                lay(p, scale, WORK(TAKEN)[k], WORK(WAS)[k]);
        }
        now[DRAWN] = state;
        now[TURN]++;
        if (now[TURN] % every == 0) {
            for (I k = 0; k < now[OUT]; k++) {
                const I dearer = weight[left[k]] / DEARER + 1;
                weight[left[k]] += dearer;
                now[COST] += dearer;
            }
        }
    }
    return now[OUT] == 0;
}
