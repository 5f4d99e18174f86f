/* Part of a packing torn down and put up again, compiled ahead: what rebuilding.py of tmmu_core/planners/exact/ says,
 * function by function under the same names; why, is said there.
 *
 * Freestanding, as greedy.c is: no library, no recursion, no memory but the caller's.
 */
#include "loops.h"

enum { AREA, BYTES, LIFE, EARLY, LATE, BORN, DIES, SIZE, GRID, FIXED, COLUMNS };
enum { OFFSET, ROW, LEFT, NEXT_OFFSET, NEXT_ROW, NEXT_LEFT, KEY, WEIGHT };
enum { DRAWN, ROWS, OUT, COST, FEWEST, TURN };
enum { LOWEST, TIGHTEST, HIGHEST, TIGHTEST_ABOVE };
enum { UNITS = 1024, STAGES = 1024, EVERY = 128, ROUNDS = 1000, DEARER = 64 };
#define BEYOND ((I)1 << 62)
static const I FAR_IN_TIME[3] = {48, 10, 144}, FAR_IN_BYTES[3] = {60, 300, 20};

typedef const struct site *P;

#define UNIT(u, c) (p->unit[(u) * COLUMNS + (c)])
#define WORK(row) (p->work + (row) * (p->n + 1))

static inline I greater(I one, I two) { return one > two ? one : two; }

static inline I draw(I *state)
{
    const I s = *state, word = (((s >> ((s >> 28) + 4)) ^ s) * 277803737) & 0xFFFFFFFF;
    *state = (s * 747796405 + 2891336453) & 0xFFFFFFFF;
    return (word >> 22) ^ word;
}

static void least_in_front(I *key, I count, I many)
{
    I lo = 0, hi = count - 1;
    while (lo < hi) {
        const I pivot = key[(lo + hi) >> 1];
        I i = lo, j = hi;
        while (i <= j) {
            while (key[i] < pivot)
                i++;
            while (key[j] > pivot)
                j--;
            if (i <= j) {
                const I one = key[i];
                key[i++] = key[j];
                key[j--] = one;
            }
        }
        if (many - 1 <= j)
            hi = j;
        else if (many - 1 >= i)
            lo = i;
        else
            return;
    }
}

static void torn_down(P p, I *state, I *rows, I *out)
{
    const I n = p->n, scale = (p->capacity + UNITS - 1) / UNITS;
    I *const offset = WORK(NEXT_OFFSET), *const row = WORK(NEXT_ROW), *const left = WORK(NEXT_LEFT);
    I *const key = WORK(KEY), *const lying = WORK(ROW);
    const I lie = p->now[ROWS];
    for (I i = 0; i < n; i++)
        offset[i] = WORK(OFFSET)[i];
    *out = p->now[OUT];
    for (I i = 0; i < *out; i++)
        left[i] = WORK(LEFT)[i];
    I many = 1 + draw(state) % (2 * p->ruin), r = draw(state);
    const I seed = *out && (r & 3) ? left[(r >> 2) % *out] : (r >> 2) % n;
    const I about = UNIT(seed, BORN) + draw(state) % greater(UNIT(seed, DIES) - UNIT(seed, BORN), 1);
    r = draw(state);
    const I low = offset[seed] >= 0 ? offset[seed] / scale : r % UNITS, high = low + UNIT(seed, SIZE) / scale;
    r = draw(state);
    const I in_time = FAR_IN_TIME[r % 3], in_bytes = FAR_IN_BYTES[r % 3];
    I count = 0;
    for (I k = 0; k < lie; k++) {
        const I j = lying[k];
        if (UNIT(j, FIXED) >= 0)
            continue;
        r = draw(state);
        const I begin = offset[j] / scale, end = begin + UNIT(j, SIZE) / scale;
        const I born = UNIT(j, BORN), dies = UNIT(j, DIES);
        const I steps = greater(greater(born - about, about - dies), 0);
        const I places = greater(greater(begin - high, low - end), 0);
        const I far = (in_time * steps + in_bytes * places) * (11 + r % 10) + 3 * (dies - born) * ((r >> 8) & 1023) / 64;
        key[count++] = far * n + j;
    }
    if (many < count)
        least_in_front(key, count, many);
    else
        many = count;
    for (I k = 0; k < many; k++) {
        const I j = key[k] % n;
        offset[j] = -1;
        left[(*out)++] = j;
    }
    *rows = 0;
    for (I k = 0; k < lie; k++)
        if (offset[lying[k]] >= 0)
            row[(*rows)++] = lying[k];
}

static void in_an_order(P p, I out, I *state)
{
    const I n = p->n, *const left = WORK(NEXT_LEFT);
    I *const key = WORK(KEY);
    const I by = draw(state) % 6;
    for (I k = 0; k < out; k++) {
        const I i = left[k], r = draw(state);
        const I value = (by == 5 ? -(r & 0xFFFFF) : -UNIT(i, by) * (64 + (r >> 4) % 33)) * n + i;
        I at = k;
        for (; at > 0 && key[at - 1] > value; at--)
            key[at] = key[at - 1];
        key[at] = value;
    }
}

static I gap(P p, I rows, I i, I rule, I *state)
{
    const I *const offset = WORK(NEXT_OFFSET), *const row = WORK(NEXT_ROW);
    const uint8_t *const meets = p->meets + i * p->n;
    const I need = UNIT(i, SIZE), grid = UNIT(i, GRID);
    I top = 0, best = -1, least = BEYOND;
    for (I k = 0; k <= rows; k++) {
        const I j = k < rows ? row[k] : -1;
        if (j >= 0 && !meets[j])
            continue;
        const I start = j < 0 ? p->capacity : offset[j];
        if (start - top >= need) {
            const I low = (top + grid - 1) & -grid, high = (start - need) & -grid;
            if (low <= high) {
                const I worth = rule == LOWEST ? low : rule == HIGHEST ? -high : start - top - need;
                if (draw(state) % EVERY && worth < least) {
                    least = worth;
                    best = rule <= TIGHTEST ? low : high;
                }
            }
        }
        if (j >= 0)
            top = greater(top, start + UNIT(j, SIZE));
    }
    return best;
}

static void put(P p, I rows, I i, I at)
{
    I *const offset = WORK(NEXT_OFFSET), *const row = WORK(NEXT_ROW);
    offset[i] = at;
    I k = rows;
    for (; k > 0 && (offset[row[k - 1]] > at || (offset[row[k - 1]] == at && row[k - 1] > i)); k--)
        row[k] = row[k - 1];
    row[k] = i;
}

SHARED I tmmu_rebuild(P p)
{
    const I n = p->n;
    volatile I *const now = p->now;
    I *const key = WORK(KEY), *const left = WORK(NEXT_LEFT), *const weight = WORK(WEIGHT);
    const I every = greater(p->turns / ROUNDS, 1);
    while (now[OUT] && now[TURN] < p->turns && !*p->stop) {
        I state = now[DRAWN], rows, out, cost = 0, still = 0;
        torn_down(p, &state, &rows, &out);
        in_an_order(p, out, &state);
        const I common = draw(&state);
        for (I k = 0; k < out; k++) {
            const I i = (key[k] % n + n) % n, r = draw(&state);
            const I at = gap(p, rows, i, r & 7 ? common & 3 : (r >> 3) & 3, &state);
            if (at < 0) {
                left[still++] = i;
                cost += weight[i];
            } else {
                put(p, rows++, i, at);
            }
        }
        const I more = (p->heat[now[TURN] * STAGES / p->turns] * p->loss[draw(&state) & 1023]) >> 20;
        if (cost < now[COST] + more || !still) {
            for (I i = 0; i < n; i++)
                WORK(OFFSET)[i] = WORK(NEXT_OFFSET)[i];
            for (I k = 0; k < rows; k++)
                WORK(ROW)[k] = WORK(NEXT_ROW)[k];
            for (I k = 0; k < still; k++)
                WORK(LEFT)[k] = left[k];
            now[ROWS] = rows;
            now[OUT] = still;
            now[COST] = cost;
            if (still < now[FEWEST])
                now[FEWEST] = still;
        }
        now[DRAWN] = state;
        now[TURN]++;
        if (now[TURN] % every == 0) {
            for (I k = 0; k < now[OUT]; k++) {
                const I i = WORK(LEFT)[k], dearer = weight[i] / DEARER + 1;
                weight[i] += dearer;
                now[COST] += dearer;
            }
        }
    }
    return now[OUT] == 0;
}
