/* Part of a packing torn down and put up again, compiled ahead: what rebuilding.py of tmmu_core/planners/exact/ says,
 * function by function under the same names; why, is said there.
 *
 * Freestanding, as greedy.c is: no library, no recursion, no memory but the caller's. Its loops gain by vectors.
 */
#pragma GCC optimize("O3")
#include "loops.h"

typedef int32_t N;

enum { AREA, BYTES, LIFE, EARLY, LATE, BORN, DIES, SIZE, GRID, FIXED, COLUMNS };
enum { OFFSET, LEFT, WEIGHT, ROW, TOP, HIGH, NEXT_ROW, NEXT_TOP, NEXT_HIGH, RANK, FLOOR, CEILING, TAKEN, ORDER, KEY };
enum { FROM, UNTIL, LONG, TALL, BELOW, ABOVE, FAR };
enum { DRAWN, ROWS, OUT, COST, FEWEST, TURN };
enum { WHO, WHEN, UNDER, OVER, MANY, LOOSE, FIRM };
enum { LOWEST, TIGHTEST, HIGHEST, WIDEST };
enum { AS_LOW, AS_HIGH, BETWEEN, AS_IT_IS };
enum { UNITS = 1024, STAGES = 1024, BLURS = 4096, EVERY = 128, ROUNDS = 1000, DEARER = 64, NARROWLY = 384 };
enum { NOWHERE = 0x7FFFFFFF };
#define BEYOND ((I)1 << 62)
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

static inline N highest(P p, I i)
{
    const N *const sky = p->sky;
    N found = 0;
    for (I k = p->begin[i]; k < p->begin[i + 1]; k++)
        for (I s = p->run[2 * k]; s < p->run[2 * k + 1]; s++)
            found = sky[s] > found ? sky[s] : found;
    return found;
}

static inline N lowest(P p, I i)
{
    const N *const sky = p->sky;
    N found = (N)p->capacity;
    for (I k = p->begin[i]; k < p->begin[i + 1]; k++)
        for (I s = p->run[2 * k]; s < p->run[2 * k + 1]; s++)
            found = sky[s] < found ? sky[s] : found;
    return found;
}

static inline void raise(P p, I i, I to)
{
    N *const sky = p->sky;
    for (I k = p->begin[i]; k < p->begin[i + 1]; k++)
        for (I s = p->run[2 * k]; s < p->run[2 * k + 1]; s++)
            sky[s] = sky[s] > (N)to ? sky[s] : (N)to;
}

static inline void lower(P p, I i, I to)
{
    N *const sky = p->sky;
    for (I k = p->begin[i]; k < p->begin[i + 1]; k++)
        for (I s = p->run[2 * k]; s < p->run[2 * k + 1]; s++)
            sky[s] = sky[s] < (N)to ? sky[s] : (N)to;
}

static inline void level(P p, I at)
{
    for (I s = 0; s < p->sections; s++)
        p->sky[s] = (N)at;
}

static inline I as_low(P p, I i, I floor)
{
    const I grid = UNIT(i, GRID), fixed = UNIT(i, FIXED);
    return fixed >= 0 ? fixed : (floor + grid - 1) & -grid;
}

static inline I as_high(P p, I i, I ceiling)
{
    const I fixed = UNIT(i, FIXED);
    return fixed >= 0 ? fixed : (ceiling - UNIT(i, SIZE)) & -UNIT(i, GRID);
}

static void let_loose(P p, I lying, I rows)
{
    const I *const row = WORK(lying);
    I *const top = WORK(lying + 1), *const high = WORK(lying + 2);
    level(p, 0);
    for (I k = 0; k < rows; k++) {
        const I i = row[k];
        top[i] = as_low(p, i, highest(p, i)) + UNIT(i, SIZE);
        raise(p, i, top[i]);
    }
    level(p, p->capacity);
    for (I k = rows - 1; k >= 0; k--) {
        const I i = row[k];
        high[i] = as_high(p, i, lowest(p, i));
        lower(p, i, high[i]);
    }
}

static I ranks(P p, I i, I lying, I rows)
{
    const I *const row = WORK(lying), *const top = WORK(lying + 1), *const high = WORK(lying + 2);
    const uint8_t *const meets = p->meets + i * p->n;
    I *const rank = WORK(RANK), *const floor = WORK(FLOOR), *const ceiling = WORK(CEILING), count = 0;
    for (I k = 0; k < rows; k++) {
        const I j = row[k];
        rank[count] = k;
        floor[count + 1] = top[j];
        ceiling[count] = high[j];
        count += meets[j];
    }
    rank[count] = rows;
    ceiling[count] = p->capacity;
    floor[0] = 0;
    for (I k = 1; k <= count; k++)
        floor[k] = greater(floor[k], floor[k - 1]);
    for (I k = count - 1; k >= 0; k--)
        ceiling[k] = ceiling[k] < ceiling[k + 1] ? ceiling[k] : ceiling[k + 1];
    return count;
}

static I widest(P p, I i, I lying, I rows)
{
    const I *const floor = WORK(FLOOR), *const ceiling = WORK(CEILING), count = ranks(p, i, lying, rows);
    I room = -BEYOND;
    for (I k = 0; k <= count; k++)
        room = greater(room, ceiling[k] - floor[k]);
    return room;
}

static I left_out(P p, I i, I lacking)
{
    const I weight = WORK(WEIGHT)[i], size = UNIT(i, SIZE), lacks = greater(lacking < size ? lacking : size, 0);
    return weight - ((weight * NARROWLY) >> 10) + ((weight * ((lacks * NARROWLY) / greater(size, 1))) >> 10);
}

static I cost_of(P p, I which, I count, I lying, I rows)
{
    const I *const left = WORK(which);
    I cost = 0;
    for (I k = 0; k < count; k++)
        cost += left_out(p, left[k], UNIT(left[k], SIZE) - widest(p, left[k], lying, rows));
    return cost;
}

static void sorted(P p, I by)
{
    I *const row = WORK(ROW), *const key = WORK(KEY);
    const I *const top = WORK(TOP), *const high = WORK(HIGH), rows = p->now[ROWS];
    N *const below = NEAR(BELOW), *const above = NEAR(ABOVE);
    const N *const tall = NEAR(TALL);
    const I scale = ((I)UNITS << 32) / p->capacity;
    for (I i = 0; i < p->n; i++)
        below[i] = -1;
    for (I k = 0; k < rows; k++) {
        const I i = row[k], low = top[i] - UNIT(i, SIZE);
        const I at = by == AS_LOW ? 2 * low : by == AS_HIGH ? 2 * high[i] : low + high[i];
        if (UNIT(i, FIXED) < 0) {
            below[i] = (N)((at * scale) >> 33);
            above[i] = below[i] + tall[i];
        }
        if (by != AS_IT_IS) {
            I to = k;
            for (; to > 0 && key[to - 1] > at; to--) {
                key[to] = key[to - 1];
                row[to] = row[to - 1];
            }
            key[to] = at;
            row[to] = i;
        }
    }
}

static void chosen(P p, I *state)
{
    I r = draw(state);
    p->spot[MANY] = 1 + r % (2 * p->ruin);
    sorted(p, (r >> 20) & 3);
    r = draw(state);
    const I who = r & 7 ? WORK(LEFT)[(r >> 3) % p->now[OUT]] : (r >> 3) % p->n;
    p->spot[WHEN] = UNIT(who, BORN) + draw(state) % greater(UNIT(who, DIES) - UNIT(who, BORN), 1);
    r = draw(state);
    const I under = NEAR(BELOW)[who] >= 0 ? NEAR(BELOW)[who] : r % UNITS;
    p->spot[WHO] = who;
    p->spot[UNDER] = under;
    p->spot[OVER] = under + NEAR(TALL)[who];
}

static void how_far(P p, I *state)
{
    const I r = draw(state), n = p->n;
    const N in_time = FAR_IN_TIME[r % 3], in_bytes = FAR_IN_BYTES[r % 3];
    const N *const one = p->blur + (r >> 4) % BLURS, *const two = p->blur + p->blurs + (r >> 16) % BLURS;
    const N when = (N)p->spot[WHEN], under = (N)p->spot[UNDER], over = (N)p->spot[OVER];
    const N *const from = NEAR(FROM), *const until = NEAR(UNTIL), *const life = NEAR(LONG);
    const N *const below = NEAR(BELOW), *const above = NEAR(ABOVE);
    N *const restrict far = NEAR(FAR);
    for (I j = 0; j < n; j++) {
        const N early = from[j] - when, late = when - until[j], higher = below[j] - over, lower = under - above[j];
        N steps = early > late ? early : late, places = higher > lower ? higher : lower;
        steps = steps > 0 ? steps : 0;
        places = places > 0 ? places : 0;
        const N distance = (in_time * steps + in_bytes * places) * one[j] + ((life[j] * two[j]) >> 6);
        far[j] = below[j] < 0 ? NOWHERE : distance;
    }
}

static void torn_down(P p, I *state)
{
    I *const taken = WORK(TAKEN), *const key = WORK(KEY), *const next = WORK(NEXT_ROW);
    const I *const row = WORK(ROW), n = p->n, rows = p->now[ROWS], out = p->now[OUT], full = out + p->spot[MANY];
    N *const far = NEAR(FAR), farthest = NOWHERE;
    I count = out, kept = 0;
    for (I k = 0; k < out; k++)
        taken[k] = WORK(LEFT)[k];
    how_far(p, state);
    for (I j = 0; j < n; j++) {
        if (far[j] >= farthest)
            continue;
        I k = count < full ? count++ : count - 1;
        for (; k > out && key[k - 1] > far[j]; k--) {
            key[k] = key[k - 1];
            taken[k] = taken[k - 1];
        }
        key[k] = far[j];
        taken[k] = j;
        if (count == full)
            farthest = (N)key[count - 1];
    }
    for (I k = out; k < count; k++)
        far[taken[k]] = -1;
    for (I k = 0; k < rows; k++) {
        next[kept] = row[k];
        kept += far[row[k]] >= 0;
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
    const I *const floor = WORK(FLOOR), *const ceiling = WORK(CEILING), need = UNIT(i, SIZE);
    const I count = ranks(p, i, NEXT_ROW, p->spot[FIRM]);
    I best = -1, least = BEYOND;
    for (I k = 0; k <= count; k++) {
        const I room = ceiling[k] - floor[k] - need;
        if (__builtin_expect(room < 0, 1) || as_low(p, i, floor[k]) > as_high(p, i, ceiling[k]))
            continue;
        const I worth = rule == LOWEST ? k : rule == HIGHEST ? -k : rule == TIGHTEST ? room : -room;
        if (draw(state) % EVERY && worth < least) {
            least = worth;
            best = k;
            if (rule == LOWEST)
                break;
        }
    }
    return best;
}

static void put(P p, I i, I k)
{
    I *const row = WORK(NEXT_ROW), *const top = WORK(NEXT_TOP), *const high = WORK(NEXT_HIGH);
    const I at = WORK(RANK)[k], rows = p->spot[FIRM]++;
    top[i] = as_low(p, i, WORK(FLOOR)[k]) + UNIT(i, SIZE);
    high[i] = as_high(p, i, WORK(CEILING)[k]);
    for (I q = rows; q > at; q--)
        row[q] = row[q - 1];
    row[at] = i;
    I most = top[i];
    level(p, 0);
    raise(p, i, most);
    for (I q = at + 1; q <= rows; q++) {
        const I j = row[q], low = top[j] - UNIT(j, SIZE);
        if (low >= most)
            continue;
        const I floor = highest(p, j);
        if (floor > low) {
            top[j] = as_low(p, j, floor) + UNIT(j, SIZE);
            raise(p, j, top[j]);
            most = greater(most, top[j]);
        }
    }
    I least = high[i];
    level(p, p->capacity);
    lower(p, i, least);
    for (I q = at - 1; q >= 0; q--) {
        const I j = row[q], end = high[j] + UNIT(j, SIZE);
        if (end <= least)
            continue;
        const I ceiling = lowest(p, j);
        if (ceiling < end) {
            high[j] = as_high(p, j, ceiling);
            lower(p, j, high[j]);
            least = high[j] < least ? high[j] : least;
        }
    }
}

static I put_up(P p, I most, I *still, I *state)
{
    const I count = p->spot[LOOSE];
    I *const order = WORK(ORDER), cost = 0;
    let_loose(p, NEXT_ROW, p->spot[FIRM]);
    const I common = draw(state);
    *still = 0;
    for (I k = 0; k < count && cost < most; k++) {
        const I i = order[k], r = draw(state), at = gap(p, i, r & 7 ? common & 3 : (r >> 3) & 3, state);
        if (at >= 0) {
            put(p, i, at);
            continue;
        }
        order[(*still)++] = i;
        cost += left_out(p, i, 0);
    }
    return cost < most ? cost_of(p, ORDER, *still, NEXT_ROW, p->spot[FIRM]) : cost;
}

static void begin(P p)
{
    for (I i = 0; i < p->n; i++) {
        NEAR(FROM)[i] = (N)UNIT(i, BORN);
        NEAR(UNTIL)[i] = (N)UNIT(i, DIES);
        NEAR(LONG)[i] = (N)(3 * (UNIT(i, DIES) - UNIT(i, BORN)));
        NEAR(TALL)[i] = (N)(UNIT(i, SIZE) < p->capacity ? UNIT(i, SIZE) * UNITS / p->capacity : UNITS);
    }
    let_loose(p, ROW, p->now[ROWS]);
    p->now[COST] = cost_of(p, LEFT, p->now[OUT], ROW, p->now[ROWS]);
}

SHARED I tmmu_rebuild(P p)
{
    volatile I *const now = p->now;
    I *const left = WORK(LEFT), *const weight = WORK(WEIGHT);
    const I every = greater(p->turns / ROUNDS, 1);
    begin(p);
    while (now[OUT] && now[TURN] < p->turns && !*p->stop) {
        I state = now[DRAWN], still;
        chosen(p, &state);
        torn_down(p, &state);
        in_an_order(p, &state);
        const I more = (p->heat[now[TURN] * STAGES / p->turns] * p->loss[draw(&state) & 1023]) >> 20;
        const I most = now[COST] + greater(more, 0), cost = put_up(p, most, &still, &state);
        if (cost < most) {
            const I rows = p->spot[FIRM];
            for (I k = 0; k < rows; k++)
                WORK(ROW)[k] = WORK(NEXT_ROW)[k];
            for (I i = 0; i < p->n; i++) {
                WORK(TOP)[i] = WORK(NEXT_TOP)[i];
                WORK(HIGH)[i] = WORK(NEXT_HIGH)[i];
            }
            for (I k = 0; k < still; k++)
                left[k] = WORK(ORDER)[k];
            now[ROWS] = rows;
            now[OUT] = still;
            now[COST] = cost;
            if (still < now[FEWEST])
                now[FEWEST] = still;
        }
        now[DRAWN] = state;
        now[TURN]++;
        if (now[TURN] % every == 0) {
            for (I k = 0; k < now[OUT]; k++)
                weight[left[k]] += weight[left[k]] / DEARER + 1;
            now[COST] = cost_of(p, LEFT, now[OUT], ROW, now[ROWS]);
        }
    }
    for (I i = 0; i < p->n; i++)
        WORK(OFFSET)[i] = -1;
    for (I k = 0; k < now[ROWS]; k++)
        WORK(OFFSET)[WORK(ROW)[k]] = WORK(TOP)[WORK(ROW)[k]] - UNIT(WORK(ROW)[k], SIZE);
    return now[OUT] == 0;
}
