"""Iterations of the large neighbourhood search: destroy part of a packing and repair it.

A packing below a capacity that omits some units is changed by *ruin and recreate* (Schrimpf et al. 2000; adjacent
removal as in Christiaens and Vanden Berghe 2020): choose a unit, mostly an omitted one, and a point of its lifetime;
remove the units nearest to that point in time and bytes; reinsert all units without a place one by one. The result is
accepted if it omits less than before, or little more (simulated annealing). The cost limit is drawn before the
repair, which ends when the cost exceeds the limit.

Placed units have no offsets, only an order: of two units that conflict, one is below the other. The lowest end of a
unit is the longest path from the bottom; its highest offset is the longest path from the top (heads and tails of job
shop scheduling, Balas 1969). A gap for a unit is between two neighbours in that order: the units below it are at their
lowest offsets, the units above it at their highest. A unit is inserted into a gap that is large enough; the other units
move apart (insertion: Werner and Winkler 1995).

The cost of an omitted unit grows with the bytes that its widest gap lacks.

All arithmetic is on integers, with a permuted congruential generator (O'Neill 2014): the iterations are the same on
every machine. Cost of an iteration: O(n + sections of all lifetimes) per reinserted unit.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tmmu_core.planners.problem import I64

# Columns of ``LnsState.unit``; the first five traits are sort keys of the reinsertion, greatest first.
AREA, BYTES, LIFE, EARLY, LATE, BORN, DIES, SIZE, ALIGNMENT, FIXED = range(10)
# Rows of ``LnsState.work``. ``OFFSET``: result (−1: omitted). ``OMITTED, WEIGHT``: omitted units; weight of each unit.
# ``PLACED_ORDER …``: placed units, each after those below it; their lowest ends; their highest offsets. ``NEXT_…``: the
# same during the repair. ``RANK, FLOOR, CEILING``: see ``_list_gaps``. ``REMOVED, INSERTION_ORDER, KEY``: units to
# reinsert; the same units sorted; their sort keys.
OFFSET, OMITTED, WEIGHT, PLACED_ORDER, LOW_END, HIGH_OFFSET, NEXT_ORDER, NEXT_LOW_END, NEXT_HIGH_OFFSET = range(9)
RANK, FLOOR, CEILING, REMOVED, INSERTION_ORDER, KEY = range(9, 15)

# Rows of ``LnsState.proximity``: lifetime, three times its length, bytes, position (−1: omitted or fixed), distance
# from the centre (−1: removed).
FIRST_TIME, LAST_TIME, LENGTH, SPAN, BOTTOM, TOP, DISTANCE = range(7)
# Cells of ``LnsState.progress``.
RANDOM_STATE, PLACED_COUNT, OMITTED_COUNT, COST, FEWEST_OMITTED, ITERATION = range(6)
# Cells of ``LnsState.target``: centre of the iteration (unit, time, bytes), and three counts: units to remove, units to
# reinsert (removed or omitted before), units that stay placed.
CENTRE_UNIT, CENTRE_TIME, CENTRE_BOTTOM, CENTRE_TOP, DESTROY_COUNT, UNPLACED_COUNT, KEPT_COUNT = range(7)

SCALE = 1024
"""The whole time, or the whole capacity, in units of distance."""
STAGES = 1024
"""Number of temperatures of the annealing."""
TIME_FACTORS, BYTE_FACTORS = (48, 10, 144), (60, 300, 20)
"""Weights of distance in time and in bytes; each iteration draws one of three."""
NOISE_PERIOD = 4096
"""Each iteration uses consecutive columns of ``noise`` as factors of distances; this many possible first columns."""
UNREACHABLE = 2**31 - 1
"""Distance of a unit that cannot be removed."""
BY_LOWEST, BY_HIGHEST, BY_MIDDLE, KEEP_ORDER = range(4)
"""How placed units are sorted in an iteration: by lowest, highest or middle position, or not at all."""
LOWEST, TIGHTEST, HIGHEST, WIDEST = range(4)
"""Rules that choose among the gaps that a unit fits."""
SKIP_ONE_IN = 128
"""One of this many gaps is skipped at random, which diversifies each rule."""
SHORTFALL_SHARE = 384
"""Fraction of the cost, in 1/1024, that depends on the bytes that the widest gap lacks."""
REWEIGHTINGS, REWEIGHT_DIVISOR = 1000, 64
"""``REWEIGHTINGS`` times in a run, the weights of omitted units grow by one part of ``REWEIGHT_DIVISOR``."""
INFINITE = 2**62
MAX_STEPS = 2**30
"""Upper limit of a capacity in units of ``LnsRun.step``, so that it fits into 32-bit columns."""


class LnsState(NamedTuple):
    """n units, m sections and a packing; sizes and offsets are in multiples of ``LnsRun.step`` bytes (:mod:`.lns`)."""

    unit: I64
    """(n, 10): traits up to 2^20, then ``BORN … FIXED``."""
    conflicts: NDArray[np.uint8]
    """(n, n): 1 where two units must not share bytes; also on the diagonal."""
    first_run: I64
    """(n + 1,): first row of each unit in ``run``."""
    run: I64
    """(r, 2): consecutive sections of a lifetime: the first, and the one after the last."""
    temperature: I64
    """(STAGES + 1,): in ``WEIGHT`` × 2^10."""
    log_table: I64
    """(1024,): −ln of (k + ½) / 1024, in 1/1024."""
    noise: NDArray[np.int32]
    """(2, NOISE_PERIOD + n at least): factors 11 to 20 of a distance; factors 0 to 1,023 of a length."""
    work: I64
    """(15, n + 1): ``OFFSET … KEY``."""
    proximity: NDArray[np.int32]
    """(7, n): ``FIRST_TIME … DISTANCE``."""
    skyline: NDArray[np.int32]
    """(m,): highest end, or lowest offset, so far in each section."""
    target: I64
    """(7,): ``CENTRE_UNIT … KEPT_COUNT``."""
    progress: I64
    """(6,): ``RANDOM_STATE … ITERATION``."""


def draw(rng: int) -> tuple[int, int]:
    """Return the next state and 32 random bits."""
    word = (((rng >> ((rng >> 28) + 4)) ^ rng) * 277803737) & 0xFFFFFFFF
    return (rng * 747796405 + 2891336453) & 0xFFFFFFFF, (word >> 22) ^ word


def _skyline_max(state: LnsState, i: int) -> int:
    """Return the maximum of the skyline in the sections of ``i``."""
    found = 0
    for k in range(state.first_run[i], state.first_run[i + 1]):
        for section in range(state.run[k, 0], state.run[k, 1]):
            found = max(found, state.skyline[section])
    return found


def _skyline_min(state: LnsState, capacity: int, i: int) -> int:
    """Return the minimum of the skyline in the sections of ``i``."""
    found = capacity
    for k in range(state.first_run[i], state.first_run[i + 1]):
        for section in range(state.run[k, 0], state.run[k, 1]):
            found = min(found, state.skyline[section])
    return found


def _raise_skyline(state: LnsState, i: int, to: int) -> None:
    """Raise the skyline to at least ``to`` in the sections of ``i``."""
    for k in range(state.first_run[i], state.first_run[i + 1]):
        for section in range(state.run[k, 0], state.run[k, 1]):
            state.skyline[section] = max(state.skyline[section], to)


def _lower_skyline(state: LnsState, i: int, to: int) -> None:
    """Lower the skyline to at most ``to`` in the sections of ``i``."""
    for k in range(state.first_run[i], state.first_run[i + 1]):
        for section in range(state.run[k, 0], state.run[k, 1]):
            state.skyline[section] = min(state.skyline[section], to)


def _fill_skyline(state: LnsState, at: int) -> None:
    """Set the skyline of all sections."""
    for section in range(len(state.skyline)):
        state.skyline[section] = at


def _lowest_offset(state: LnsState, i: int, floor: int) -> int:
    """Return the lowest offset of ``i`` at or above a floor."""
    fixed, grid = state.unit[i, FIXED], state.unit[i, ALIGNMENT]
    return fixed if fixed >= 0 else (floor + grid - 1) & -grid


def _highest_offset(state: LnsState, i: int, ceiling: int) -> int:
    """Return the highest offset of ``i`` that ends at or below a ceiling."""
    fixed = state.unit[i, FIXED]
    return fixed if fixed >= 0 else (ceiling - state.unit[i, SIZE]) & -state.unit[i, ALIGNMENT]


def _offset_ranges(state: LnsState, capacity: int, order_row: int, rows: int) -> None:
    """Compute the lowest end and the highest offset of every placed unit; ``order_row`` is ``PLACED_ORDER`` or
    ``NEXT_ORDER``.
    """
    row, top, high = state.work[order_row : order_row + 3]
    _fill_skyline(state, 0)
    for k in range(rows):
        i = row[k]
        top[i] = _lowest_offset(state, i, _skyline_max(state, i)) + state.unit[i, SIZE]
        _raise_skyline(state, i, top[i])
    _fill_skyline(state, capacity)
    for k in range(rows - 1, -1, -1):
        i = row[k]
        high[i] = _highest_offset(state, i, _skyline_min(state, capacity, i))
        _lower_skyline(state, i, high[i])


def _list_gaps(state: LnsState, capacity: int, i: int, order_row: int) -> int:
    """Write a gap below each placed unit that conflicts with ``i``, and the gap at the top; return the number of units.

    ``RANK`` is the position of that unit in the order, ``FLOOR`` the highest end below the gap, ``CEILING`` the lowest
    offset above it.
    """
    row, top, high, conflicts = (
        state.work[order_row],
        state.work[order_row + 1],
        state.work[order_row + 2],
        state.conflicts[i],
    )
    rank, floor, ceiling = state.work[RANK], state.work[FLOOR], state.work[CEILING]
    rows = state.progress[PLACED_COUNT] if order_row == PLACED_ORDER else state.target[KEPT_COUNT]
    count = 0
    floor[0] = 0
    for k in range(rows):
        j = row[k]
        if conflicts[j]:
            rank[count], ceiling[count] = k, high[j]
            floor[count + 1] = max(top[j], floor[count])
            count += 1
    rank[count], ceiling[count] = rows, capacity
    for k in range(count - 1, -1, -1):
        ceiling[k] = min(ceiling[k], ceiling[k + 1])
    return count


def _widest_gap(state: LnsState, capacity: int, i: int, order_row: int) -> int:
    """Return the bytes of the widest gap for ``i``; negative where units overlap it."""
    floor, ceiling = state.work[FLOOR], state.work[CEILING]
    room = -INFINITE
    for k in range(_list_gaps(state, capacity, i, order_row) + 1):
        room = max(room, ceiling[k] - floor[k])
    return room


def _omission_cost(state: LnsState, i: int, lacking: int) -> int:
    """Return the cost of omitting ``i`` if its widest gap is ``lacking`` bytes too small."""
    weight, size = state.work[WEIGHT, i], state.unit[i, SIZE]
    lacks = max(min(lacking, size), 0) * SHORTFALL_SHARE // max(size, 1)
    return weight - (weight * SHORTFALL_SHARE >> 10) + (weight * lacks >> 10)


def _total_cost(state: LnsState, capacity: int, count: int, order_row: int) -> int:
    """Return the cost of omitting the first ``count`` units of ``OMITTED`` (or of ``INSERTION_ORDER`` during an
    iteration).
    """
    left = state.work[OMITTED if order_row == PLACED_ORDER else INSERTION_ORDER]
    cost = 0
    for k in range(count):
        lacking = state.unit[left[k], SIZE] - _widest_gap(state, capacity, left[k], order_row)
        cost += _omission_cost(state, left[k], lacking)
    return cost


def _sort_placed(state: LnsState, capacity: int, by: int) -> None:
    """Sort the placed units by position and write their positions to ``proximity``."""
    row, top, high, key = (state.work[k] for k in (PLACED_ORDER, LOW_END, HIGH_OFFSET, KEY))
    proximity = state.proximity
    scale = (SCALE << 32) // capacity
    proximity[BOTTOM] = -1
    for k in range(state.progress[PLACED_COUNT]):
        i = row[k]
        low = top[i] - state.unit[i, SIZE]
        twice = low + high[i]
        if by == BY_LOWEST:
            twice = 2 * low
        elif by == BY_HIGHEST:
            twice = 2 * high[i]
        if state.unit[i, FIXED] < 0:
            proximity[BOTTOM, i] = twice * scale >> 33
            proximity[TOP, i] = proximity[BOTTOM, i] + proximity[SPAN, i]
        if by != KEEP_ORDER:
            to = k
            while to > 0 and key[to - 1] > twice:
                key[to], row[to] = key[to - 1], row[to - 1]
                to -= 1
            key[to], row[to] = twice, i


def _choose_target(state: LnsState, capacity: int, mean_destroyed: int, rng: int) -> int:
    """Choose the centre of the iteration, write it to ``target``; return the random state."""
    unit, proximity, target, omitted_count = state.unit, state.proximity, state.target, state.progress[OMITTED_COUNT]
    rng, r = draw(rng)
    target[DESTROY_COUNT] = 1 + r % (2 * mean_destroyed)
    _sort_placed(state, capacity, (r >> 20) & 3)
    rng, r = draw(rng)
    centre = state.work[OMITTED, (r >> 3) % omitted_count] if r & 7 else (r >> 3) % len(unit)
    rng, r = draw(rng)
    target[CENTRE_TIME] = unit[centre, BORN] + r % max(unit[centre, DIES] - unit[centre, BORN], 1)
    rng, r = draw(rng)
    bottom = proximity[BOTTOM, centre] if proximity[BOTTOM, centre] >= 0 else r % SCALE
    target[CENTRE_UNIT], target[CENTRE_BOTTOM], target[CENTRE_TOP] = centre, bottom, bottom + proximity[SPAN, centre]
    return rng


def _compute_distances(state: LnsState, rng: int) -> int:
    """Write the distance of each unit from the centre to ``proximity``; return the random state."""
    proximity, target = state.proximity, state.target
    rng, r = draw(rng)
    in_time, in_bytes = TIME_FACTORS[r % 3], BYTE_FACTORS[r % 3]
    one, two = (r >> 4) % NOISE_PERIOD, (r >> 16) % NOISE_PERIOD
    for j in range(len(state.unit)):
        time_distance = max(
            proximity[FIRST_TIME, j] - target[CENTRE_TIME], target[CENTRE_TIME] - proximity[LAST_TIME, j], 0
        )
        byte_distance = max(proximity[BOTTOM, j] - target[CENTRE_TOP], target[CENTRE_BOTTOM] - proximity[TOP, j], 0)
        distance = (in_time * time_distance + in_bytes * byte_distance) * state.noise[0, one + j]
        distance += proximity[LENGTH, j] * state.noise[1, two + j] >> 6
        proximity[DISTANCE, j] = UNREACHABLE if proximity[BOTTOM, j] < 0 else distance
    return rng


def _destroy(state: LnsState, rng: int) -> int:
    """Remove the nearest units; return the random state."""
    work, proximity, target, progress = state.work, state.proximity, state.target, state.progress
    removed, key, omitted_count = work[REMOVED], work[KEY], progress[OMITTED_COUNT]
    for k in range(omitted_count):
        removed[k] = work[OMITTED, k]
    rng = _compute_distances(state, rng)
    count, farthest = omitted_count, UNREACHABLE
    for j in range(len(state.unit)):
        if proximity[DISTANCE, j] < farthest:
            if count < omitted_count + target[DESTROY_COUNT]:
                count += 1
            k = count - 1
            while k > omitted_count and key[k - 1] > proximity[DISTANCE, j]:
                key[k], removed[k] = key[k - 1], removed[k - 1]
                k -= 1
            key[k], removed[k] = proximity[DISTANCE, j], j
            if count == omitted_count + target[DESTROY_COUNT]:
                farthest = key[count - 1]
    for k in range(omitted_count, count):
        proximity[DISTANCE, removed[k]] = -1
    kept = 0
    for k in range(progress[PLACED_COUNT]):
        j = work[PLACED_ORDER, k]
        if proximity[DISTANCE, j] >= 0:
            work[NEXT_ORDER, kept] = j
            kept += 1
    target[UNPLACED_COUNT], target[KEPT_COUNT] = count, kept
    return rng


def _sort_removed(state: LnsState, rng: int) -> int:
    """Sort the units to reinsert by one of six randomised orders; return the random state."""
    unit, removed, order, key = state.unit, state.work[REMOVED], state.work[INSERTION_ORDER], state.work[KEY]
    rng, r = draw(rng)
    by = r % 6
    for k in range(state.target[UNPLACED_COUNT]):
        i = removed[k]
        rng, r = draw(rng)
        value = -(r & 0xFFFFF) if by == 5 else -unit[i, by] * (64 + (r >> 4) % 33)
        at = k
        while at > 0 and key[at - 1] > value:
            key[at], order[at] = key[at - 1], order[at - 1]
            at -= 1
        key[at], order[at] = value, i
    return rng


def _best_gap(state: LnsState, capacity: int, i: int, rule: int, rng: int) -> tuple[int, int]:
    """Return the random state, and the gap for ``i`` chosen by a rule (an index into its conflicts), or −1."""
    floor, ceiling, need = state.work[FLOOR], state.work[CEILING], state.unit[i, SIZE]
    best, least = -1, INFINITE
    for k in range(_list_gaps(state, capacity, i, NEXT_ORDER) + 1):
        room = ceiling[k] - floor[k] - need
        if room < 0 or _lowest_offset(state, i, floor[k]) > _highest_offset(state, i, ceiling[k]):
            continue
        worth = room
        if rule == LOWEST:
            worth = k
        elif rule == HIGHEST:
            worth = -k
        elif rule == WIDEST:
            worth = -room
        rng, r = draw(rng)
        if r % SKIP_ONE_IN and worth < least:
            least, best = worth, k
            if rule == LOWEST:
                break
    return rng, best


def _insert(state: LnsState, capacity: int, i: int, k: int) -> None:
    """Insert ``i`` right below its ``k``-th conflict; units above and below move apart."""
    row, top, high, unit = state.work[NEXT_ORDER], state.work[NEXT_LOW_END], state.work[NEXT_HIGH_OFFSET], state.unit
    at, rows = state.work[RANK, k], state.target[KEPT_COUNT]
    highest_end = top[i] = _lowest_offset(state, i, state.work[FLOOR, k]) + unit[i, SIZE]
    lowest_start = high[i] = _highest_offset(state, i, state.work[CEILING, k])
    for q in range(rows, at, -1):
        row[q] = row[q - 1]
    row[at] = i
    state.target[KEPT_COUNT] += 1
    _fill_skyline(state, 0)
    _raise_skyline(state, i, highest_end)
    for q in range(at + 1, rows + 1):
        j = row[q]
        if top[j] - unit[j, SIZE] < highest_end:
            floor = _skyline_max(state, j)
            if floor > top[j] - unit[j, SIZE]:
                top[j] = _lowest_offset(state, j, floor) + unit[j, SIZE]
                _raise_skyline(state, j, top[j])
                highest_end = max(highest_end, top[j])
    _fill_skyline(state, capacity)
    _lower_skyline(state, i, lowest_start)
    for q in range(at - 1, -1, -1):
        j = row[q]
        if high[j] + unit[j, SIZE] > lowest_start:
            ceiling = _skyline_min(state, capacity, j)
            if ceiling < high[j] + unit[j, SIZE]:
                high[j] = _highest_offset(state, j, ceiling)
                _lower_skyline(state, j, high[j])
                lowest_start = min(lowest_start, high[j])


def _repair(state: LnsState, capacity: int, cost_limit: int, rng: int) -> tuple[int, int, int]:
    """Reinsert the removed and omitted units while the cost of those that do not fit is below ``cost_limit``.

    Return the random state, the number of omitted units (in front of ``INSERTION_ORDER``) and the cost.
    """
    target, order = state.target, state.work[INSERTION_ORDER]
    _offset_ranges(state, capacity, NEXT_ORDER, target[KEPT_COUNT])
    rng, common = draw(rng)
    cost, omitted = 0, 0
    for k in range(target[UNPLACED_COUNT]):
        if cost >= cost_limit:
            break
        i = order[k]
        rng, r = draw(rng)
        rng, at = _best_gap(state, capacity, i, common & 3 if r & 7 else (r >> 3) & 3, rng)
        if at >= 0:
            _insert(state, capacity, i, at)
        else:
            order[omitted] = i
            omitted += 1
            cost += _omission_cost(state, i, 0)
    return rng, omitted, _total_cost(state, capacity, omitted, NEXT_ORDER) if cost < cost_limit else cost


def _initialise(state: LnsState, capacity: int) -> None:
    """Compute ``proximity``, ``LOW_END``, ``HIGH_OFFSET`` and ``COST`` from the packing and the capacity."""
    unit, proximity, progress = state.unit, state.proximity, state.progress
    for i in range(len(unit)):
        proximity[FIRST_TIME, i], proximity[LAST_TIME, i] = unit[i, BORN], unit[i, DIES]
        proximity[LENGTH, i] = 3 * (unit[i, DIES] - unit[i, BORN])
        proximity[SPAN, i] = unit[i, SIZE] * SCALE // capacity if unit[i, SIZE] < capacity else SCALE
    _offset_ranges(state, capacity, PLACED_ORDER, progress[PLACED_COUNT])
    progress[COST] = _total_cost(state, capacity, progress[OMITTED_COUNT], PLACED_ORDER)


def destroy_and_repair(state: LnsState, capacity: int, iterations: int, mean_destroyed: int, stop: I64) -> bool:
    """Run up to ``iterations`` iterations; return whether all units are placed, at ``state.work[OFFSET]``.

    Continues from ``state.progress[ITERATION]``; ends soon after ``stop[0]`` is set.
    """
    work, progress, target, weight = state.work, state.progress, state.target, state.work[WEIGHT]
    every = max(iterations // REWEIGHTINGS, 1)
    _initialise(state, capacity)
    while progress[OMITTED_COUNT] and progress[ITERATION] < iterations and not stop[0]:
        rng = _choose_target(state, capacity, mean_destroyed, progress[RANDOM_STATE])
        rng = _destroy(state, rng)
        rng = _sort_removed(state, rng)
        rng, r = draw(rng)
        temperature = state.temperature[progress[ITERATION] * STAGES // iterations]
        cost_limit = progress[COST] + max(temperature * state.log_table[r & 1023] >> 20, 0)
        rng, omitted, cost = _repair(state, capacity, cost_limit, rng)
        if cost < cost_limit:
            rows = target[KEPT_COUNT]
            for k in range(rows):
                work[PLACED_ORDER, k] = work[NEXT_ORDER, k]
            for i in range(len(state.unit)):
                work[LOW_END, i], work[HIGH_OFFSET, i] = work[NEXT_LOW_END, i], work[NEXT_HIGH_OFFSET, i]
            for k in range(omitted):
                work[OMITTED, k] = work[INSERTION_ORDER, k]
            progress[PLACED_COUNT], progress[OMITTED_COUNT], progress[COST] = rows, omitted, cost
            progress[FEWEST_OMITTED] = min(progress[FEWEST_OMITTED], omitted)
        progress[RANDOM_STATE] = rng
        progress[ITERATION] += 1
        if progress[ITERATION] % every == 0:
            for k in range(progress[OMITTED_COUNT]):
                weight[work[OMITTED, k]] += weight[work[OMITTED, k]] // REWEIGHT_DIVISOR + 1
            progress[COST] = _total_cost(state, capacity, progress[OMITTED_COUNT], PLACED_ORDER)
    for i in range(len(state.unit)):
        work[OFFSET, i] = -1
    for k in range(progress[PLACED_COUNT]):
        work[OFFSET, work[PLACED_ORDER, k]] = (
            work[LOW_END, work[PLACED_ORDER, k]] - state.unit[work[PLACED_ORDER, k], SIZE]
        )
    return bool(progress[OMITTED_COUNT] == 0)
