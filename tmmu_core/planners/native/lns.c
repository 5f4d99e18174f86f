/* Large neighbourhood search (destroy and repair) of the planner `exact` in C. tmmu_core/planners/exact/lns_moves.py
   describes the search. O3 vectorises the loops. */
#pragma GCC optimize("O3")
#include "native.h"

typedef int32_t N;

/* Columns of `unit`. AREA to LATE are sort keys for the reinsertion; FIXED is the fixed offset or −1. */
enum { AREA, BYTES, LIFE, EARLY, LATE, BORN, DIES, SIZE, ALIGNMENT, FIXED, COLUMNS };
/* Rows of `work`. OFFSET: the result (−1: omitted). PLACED_ORDER: placed units, each after the units below it; LOW_END,
   HIGH_OFFSET: lowest end and highest offset of each placed unit. NEXT_…: the same three rows during the repair. RANK,
   FLOOR, CEILING: see list_gaps(). REMOVED: units to reinsert; INSERTION_ORDER: these units, sorted. */
enum { OFFSET, OMITTED, WEIGHT, PLACED_ORDER, LOW_END, HIGH_OFFSET, NEXT_ORDER, NEXT_LOW_END, NEXT_HIGH_OFFSET, RANK,
       FLOOR, CEILING, REMOVED, INSERTION_ORDER, KEY };
/* Rows of `proximity`, in 1 / SCALE of the whole time or of the capacity. LENGTH: three times the lifetime. SPAN: size.
   BOTTOM, TOP: address range; BOTTOM is −1 for omitted and fixed units. DISTANCE: from the centre; −1 if removed. */
enum { FIRST_TIME, LAST_TIME, LENGTH, SPAN, BOTTOM, TOP, DISTANCE };
enum { RANDOM_STATE, PLACED_COUNT, OMITTED_COUNT, COST, FEWEST_OMITTED, ITERATION }; /* cells of `progress` */
/* Cells of `target`: the centre of the removal, and the numbers of units to remove, to reinsert and to keep. */
enum { CENTRE_TIME, CENTRE_BOTTOM, CENTRE_TOP, DESTROY_COUNT, UNPLACED_COUNT, KEPT_COUNT };
enum { LOWEST, TIGHTEST, HIGHEST, WIDEST };            /* rules that choose a gap */
enum { BY_LOWEST, BY_HIGHEST, BY_MIDDLE, KEEP_ORDER }; /* how placed units are sorted */
enum { SCALE = 1024, STAGES = 1024, NOISE_PERIOD = 4096, SKIP_ONE_IN = 128, REWEIGHTINGS = 1000, REWEIGHT_DIVISOR = 64,
       SHORTFALL_SHARE = 384, UNREACHABLE = 0x7FFFFFFF };
static const N TIME_FACTORS[3] = {48, 10, 144}, BYTE_FACTORS[3] = {60, 300, 20};

typedef const struct lns *P;

#define UNIT(u, c) (p->unit[(u) * COLUMNS + (c)])
#define WORK(row) (p->work + (row) * (p->n + 1))
#define NEAR(row) (p->proximity + (row) * p->n)

/* Insert a unit and its key into the cells `first` to `last` − 1, which are sorted by key; the cell `last` is free. */
static inline void insert_by_key(I *key, I *row, I first, I last, I value, I unit)
{
    for (; last > first && key[last - 1] > value; last--) {
        key[last] = key[last - 1];
        row[last] = row[last - 1];
    }
    key[last] = value;
    row[last] = unit;
}

static inline I draw(I *state)
{
    const uint32_t s = (uint32_t)*state, word = ((s >> ((s >> 28) + 4)) ^ s) * 277803737u;
    *state = s * 747796405u + 2891336453u;
    return (word >> 22) ^ word;
}

/* The skyline is the height of the stacked units in each section. Units are stacked from the bottom or from the top. */
static inline N skyline_max(P p, I i)
{
    const N *const skyline = p->skyline;
    N found = 0;
    for (I k = p->first_stretch[i]; k < p->first_stretch[i + 1]; k++)
        for (I s = p->stretch[2 * k]; s < p->stretch[2 * k + 1]; s++)
            found = skyline[s] > found ? skyline[s] : found;
    return found;
}

static inline void raise_skyline(P p, I i, I to)
{
    N *const skyline = p->skyline;
    for (I k = p->first_stretch[i]; k < p->first_stretch[i + 1]; k++)
        for (I s = p->stretch[2 * k]; s < p->stretch[2 * k + 1]; s++)
            skyline[s] = skyline[s] > (N)to ? skyline[s] : (N)to;
}

static inline void clear_skyline(P p)
{
    for (I s = 0; s < p->sections; s++)
        p->skyline[s] = 0;
}

static inline I lowest_offset(P p, I i, I floor)
{
    const I fixed = UNIT(i, FIXED);
    return fixed >= 0 ? fixed : align_up(floor, UNIT(i, ALIGNMENT));
}

static inline I highest_offset(P p, I i, I ceiling)
{
    const I fixed = UNIT(i, FIXED);
    return fixed >= 0 ? fixed : (ceiling - UNIT(i, SIZE)) & -UNIT(i, ALIGNMENT);
}

/* Compute the lowest end and the highest offset of each of the `rows` units in PLACED_ORDER or NEXT_ORDER. */
static void offset_ranges(P p, I order_row, I rows)
{
    const I *const row = WORK(order_row);
    I *const top = WORK(order_row + 1), *const high = WORK(order_row + 2);
    clear_skyline(p);
    for (I k = 0; k < rows; k++) {
        const I i = row[k];
        top[i] = lowest_offset(p, i, skyline_max(p, i)) + UNIT(i, SIZE);
        raise_skyline(p, i, top[i]);
    }
    clear_skyline(p);
    for (I k = rows - 1; k >= 0; k--) {
        const I i = row[k];
        high[i] = highest_offset(p, i, p->capacity - skyline_max(p, i));
        raise_skyline(p, i, p->capacity - high[i]);
    }
}

/* List the gaps for i: one below each unit that conflicts with i, and one at the top. RANK: index that i gets in
   the order. FLOOR: highest LOW_END below the gap. CEILING: lowest HIGH_OFFSET above. Return the top gap's index. */
static I list_gaps(P p, I i, I order_row, I rows)
{
    const I *const row = WORK(order_row), *const top = WORK(order_row + 1), *const high = WORK(order_row + 2);
    const uint8_t *const conflicts = p->conflicts + i * p->n;
    I *const rank = WORK(RANK), *const floor = WORK(FLOOR), *const ceiling = WORK(CEILING), count = 0;
    for (I k = 0; k < rows; k++) {
        rank[count] = k;
        count += conflicts[row[k]];
    }
    rank[count] = rows;
    floor[0] = 0;
    for (I k = 0; k < count; k++)
        floor[k + 1] = larger(top[row[rank[k]]], floor[k]);
    ceiling[count] = p->capacity;
    for (I k = count - 1; k >= 0; k--)
        ceiling[k] = smaller(high[row[rank[k]]], ceiling[k + 1]);
    return count;
}

static I omission_cost(P p, I i, I shortfall)
{
    const I weight = WORK(WEIGHT)[i], size = UNIT(i, SIZE);
    const I share = larger(smaller(shortfall, size), 0) * SHORTFALL_SHARE / larger(size, 1);
    return weight - ((weight * SHORTFALL_SHARE) >> 10) + ((weight * share) >> 10);
}

/* Return the cost of a packing that omits the first `count` units of the row `omitted_row`. */
static I total_cost(P p, I omitted_row, I count, I order_row, I rows)
{
    const I *const omitted = WORK(omitted_row), *const floor = WORK(FLOOR), *const ceiling = WORK(CEILING);
    I cost = 0;
    for (I k = 0; k < count; k++) {
        const I i = omitted[k], gaps = list_gaps(p, i, order_row, rows);
        I widest = -INFINITE; /* bytes of the widest gap; negative if every floor is above its ceiling */
        for (I gap = 0; gap <= gaps; gap++)
            widest = larger(widest, ceiling[gap] - floor[gap]);
        cost += omission_cost(p, i, UNIT(i, SIZE) - widest);
    }
    return cost;
}

/* Sort the placed units by position, except for KEEP_ORDER. Write BOTTOM and TOP of placed units that are not fixed. */
static void sort_placed(P p, I by)
{
    I *const row = WORK(PLACED_ORDER), *const key = WORK(KEY);
    const I *const top = WORK(LOW_END), *const high = WORK(HIGH_OFFSET), rows = p->progress[PLACED_COUNT];
    N *const bottom = NEAR(BOTTOM), *const upper = NEAR(TOP);
    const N *const span = NEAR(SPAN);
    const I scale = ((I)SCALE << 32) / p->capacity;
    for (I i = 0; i < p->n; i++)
        bottom[i] = -1;
    for (I k = 0; k < rows; k++) {
        const I i = row[k], low = top[i] - UNIT(i, SIZE);
        const I at = by == BY_LOWEST ? 2 * low : by == BY_HIGHEST ? 2 * high[i] : low + high[i];
        if (UNIT(i, FIXED) < 0) {
            bottom[i] = (N)((at * scale) >> 33);
            upper[i] = bottom[i] + span[i];
        }
        if (by != KEEP_ORDER)
            insert_by_key(key, row, 0, k, at, i);
    }
}

/* Draw the number of units to remove, sort the placed units, and draw the centre of the removal. */
static void choose_target(P p, I *state)
{
    I r = draw(state);
    p->target[DESTROY_COUNT] = 1 + r % (2 * p->mean_destroyed);
    sort_placed(p, (r >> 20) & 3);
    r = draw(state);
    const I centre = r & 7 ? WORK(OMITTED)[(r >> 3) % p->progress[OMITTED_COUNT]] : (r >> 3) % p->n;
    p->target[CENTRE_TIME] = UNIT(centre, BORN) + draw(state) % larger(UNIT(centre, DIES) - UNIT(centre, BORN), 1);
    r = draw(state);
    const I bottom = NEAR(BOTTOM)[centre] >= 0 ? NEAR(BOTTOM)[centre] : r % SCALE;
    p->target[CENTRE_BOTTOM] = bottom;
    p->target[CENTRE_TOP] = bottom + NEAR(SPAN)[centre];
}

/* Write the distance of each unit from the centre; omitted and fixed units are unreachable. */
static void compute_distances(P p, I *state)
{
    const I r = draw(state), n = p->n;
    const N time_factor = TIME_FACTORS[r % 3], byte_factor = BYTE_FACTORS[r % 3];
    const N *const factor = p->noise + (r >> 4) % NOISE_PERIOD;
    const N *const length_factor = p->noise + p->noise_rows + (r >> 16) % NOISE_PERIOD;
    const N time = (N)p->target[CENTRE_TIME], bottom = (N)p->target[CENTRE_BOTTOM], top = (N)p->target[CENTRE_TOP];
    const N *const first = NEAR(FIRST_TIME), *const last = NEAR(LAST_TIME), *const length = NEAR(LENGTH);
    const N *const low = NEAR(BOTTOM), *const high = NEAR(TOP);
    N *const restrict distances = NEAR(DISTANCE);
    for (I j = 0; j < n; j++) {
        const N early = first[j] - time, late = time - last[j], above = low[j] - top, below = bottom - high[j];
        N steps = early > late ? early : late, bytes = above > below ? above : below;
        steps = steps > 0 ? steps : 0;
        bytes = bytes > 0 ? bytes : 0;
        const N distance = (time_factor * steps + byte_factor * bytes) * factor[j];
        distances[j] = low[j] < 0 ? UNREACHABLE : distance + ((length[j] * length_factor[j]) >> 6);
    }
}

/* Remove the units nearest to the centre. List the units to reinsert, omitted units first, and the units that stay. */
static void destroy(P p, I *state)
{
    I *const removed = WORK(REMOVED), *const key = WORK(KEY), *const next = WORK(NEXT_ORDER);
    const I *const row = WORK(PLACED_ORDER), n = p->n, rows = p->progress[PLACED_COUNT];
    const I omitted = p->progress[OMITTED_COUNT], most = omitted + p->target[DESTROY_COUNT];
    N *const distance = NEAR(DISTANCE), farthest = UNREACHABLE;
    I count = omitted, kept = 0;
    for (I k = 0; k < omitted; k++)
        removed[k] = WORK(OMITTED)[k];
    compute_distances(p, state);
    for (I j = 0; j < n; j++) {
        if (distance[j] >= farthest)
            continue;
        count += count < most;
        insert_by_key(key, removed, omitted, count - 1, distance[j], j);
        if (count == most)
            farthest = (N)key[count - 1];
    }
    for (I k = omitted; k < count; k++)
        distance[removed[k]] = -1;
    for (I k = 0; k < rows; k++) {
        next[kept] = row[k];
        kept += distance[row[k]] >= 0;
    }
    p->target[UNPLACED_COUNT] = count;
    p->target[KEPT_COUNT] = kept;
}

/* Return the index of the gap that a rule chooses for i; −1 if no gap is large enough or all such gaps are skipped. */
static I best_gap(P p, I i, I rule, I *state)
{
    const I *const floor = WORK(FLOOR), *const ceiling = WORK(CEILING), need = UNIT(i, SIZE);
    const I count = list_gaps(p, i, NEXT_ORDER, p->target[KEPT_COUNT]);
    I best = -1, least = INFINITE;
    for (I k = 0; k <= count; k++) {
        const I room = ceiling[k] - floor[k] - need;
        if (__builtin_expect(room < 0, 1) || lowest_offset(p, i, floor[k]) > highest_offset(p, i, ceiling[k]))
            continue;
        const I key = rule == LOWEST ? k : rule == HIGHEST ? -k : rule == TIGHTEST ? room : -room;
        if (draw(state) % SKIP_ONE_IN && key < least) {
            least = key;
            best = k;
            if (rule == LOWEST)
                break;
        }
    }
    return best;
}

/* Insert i into gap k: raise the lowest ends of units above it, and lower the highest offsets of units below it. */
static void insert(P p, I i, I k)
{
    I *const row = WORK(NEXT_ORDER), *const top = WORK(NEXT_LOW_END), *const high = WORK(NEXT_HIGH_OFFSET);
    const I at = WORK(RANK)[k], rows = p->target[KEPT_COUNT]++;
    top[i] = lowest_offset(p, i, WORK(FLOOR)[k]) + UNIT(i, SIZE);
    high[i] = highest_offset(p, i, WORK(CEILING)[k]);
    for (I q = rows; q > at; q--)
        row[q] = row[q - 1];
    row[at] = i;
    I highest_end = top[i];
    clear_skyline(p);
    raise_skyline(p, i, highest_end);
    for (I q = at + 1; q <= rows; q++) {
        const I j = row[q], low = top[j] - UNIT(j, SIZE);
        if (low >= highest_end)
            continue;
        const I floor = skyline_max(p, j);
        if (floor > low) {
            top[j] = lowest_offset(p, j, floor) + UNIT(j, SIZE);
            raise_skyline(p, j, top[j]);
            highest_end = larger(highest_end, top[j]);
        }
    }
    I lowest_start = high[i];
    clear_skyline(p);
    raise_skyline(p, i, p->capacity - lowest_start);
    for (I q = at - 1; q >= 0; q--) {
        const I j = row[q], end = high[j] + UNIT(j, SIZE);
        if (end <= lowest_start)
            continue;
        const I ceiling = p->capacity - skyline_max(p, j);
        if (ceiling < end) {
            high[j] = highest_offset(p, j, ceiling);
            raise_skyline(p, j, p->capacity - high[j]);
            lowest_start = smaller(lowest_start, high[j]);
        }
    }
}

static I repair(P p, I cost_limit, I *omitted, I *state)
{
    const I count = p->target[UNPLACED_COUNT];
    I *const order = WORK(INSERTION_ORDER), cost = 0;
    offset_ranges(p, NEXT_ORDER, p->target[KEPT_COUNT]);
    const I common = draw(state);
    *omitted = 0;
    for (I k = 0; k < count && cost < cost_limit; k++) {
        const I i = order[k], r = draw(state), at = best_gap(p, i, r & 7 ? common & 3 : (r >> 3) & 3, state);
        if (at >= 0) {
            insert(p, i, at);
        } else {
            order[(*omitted)++] = i;
            cost += omission_cost(p, i, 0);
        }
    }
    return cost < cost_limit ? total_cost(p, INSERTION_ORDER, *omitted, NEXT_ORDER, p->target[KEPT_COUNT]) : cost;
}

SHARED I tmmu_lns(P p)
{
    volatile I *const progress = p->progress;
    I *const omitted_units = WORK(OMITTED), *const weight = WORK(WEIGHT);
    const I reweighting_interval = larger(p->iterations / REWEIGHTINGS, 1);
    for (I i = 0; i < p->n; i++) {
        NEAR(FIRST_TIME)[i] = (N)UNIT(i, BORN);
        NEAR(LAST_TIME)[i] = (N)UNIT(i, DIES);
        NEAR(LENGTH)[i] = (N)(3 * (UNIT(i, DIES) - UNIT(i, BORN)));
        NEAR(SPAN)[i] = (N)(UNIT(i, SIZE) < p->capacity ? UNIT(i, SIZE) * SCALE / p->capacity : SCALE);
    }
    offset_ranges(p, PLACED_ORDER, progress[PLACED_COUNT]);
    progress[COST] = total_cost(p, OMITTED, progress[OMITTED_COUNT], PLACED_ORDER, progress[PLACED_COUNT]);
    while (progress[OMITTED_COUNT] && progress[ITERATION] < p->iterations && !*p->stop) {
        I state = progress[RANDOM_STATE], omitted;
        choose_target(p, &state);
        destroy(p, &state);
        const I by = draw(&state) % 6;
        for (I k = 0; k < p->target[UNPLACED_COUNT]; k++) {
            const I i = WORK(REMOVED)[k], r = draw(&state);
            const I key = by == 5 ? -(r & 0xFFFFF) : -UNIT(i, by) * (64 + (r >> 4) % 33);
            insert_by_key(WORK(KEY), WORK(INSERTION_ORDER), 0, k, key, i);
        }
        const I temperature = p->temperature[progress[ITERATION] * STAGES / p->iterations];
        const I allowance = (temperature * p->log_table[draw(&state) & 1023]) >> 20;
        const I cost_limit = progress[COST] + larger(allowance, 0), cost = repair(p, cost_limit, &omitted, &state);
        if (cost < cost_limit) {
            for (I k = 0; k < 3 * (p->n + 1); k++) /* accept the three rows of the repair */
                WORK(PLACED_ORDER)[k] = WORK(NEXT_ORDER)[k];
            for (I k = 0; k < omitted; k++)
                omitted_units[k] = WORK(INSERTION_ORDER)[k];
            progress[PLACED_COUNT] = p->target[KEPT_COUNT];
            progress[OMITTED_COUNT] = omitted;
            progress[COST] = cost;
            progress[FEWEST_OMITTED] = smaller(progress[FEWEST_OMITTED], omitted);
        }
        progress[RANDOM_STATE] = state;
        progress[ITERATION]++;
        if (progress[ITERATION] % reweighting_interval == 0) {
            for (I k = 0; k < progress[OMITTED_COUNT]; k++)
                weight[omitted_units[k]] += weight[omitted_units[k]] / REWEIGHT_DIVISOR + 1;
            progress[COST] = total_cost(p, OMITTED, progress[OMITTED_COUNT], PLACED_ORDER, progress[PLACED_COUNT]);
        }
    }
    for (I i = 0; i < p->n; i++)
        WORK(OFFSET)[i] = -1;
    for (I k = 0; k < progress[PLACED_COUNT]; k++) {
        const I i = WORK(PLACED_ORDER)[k];
        WORK(OFFSET)[i] = WORK(LOW_END)[i] - UNIT(i, SIZE);
    }
    return progress[OMITTED_COUNT] == 0;
}
