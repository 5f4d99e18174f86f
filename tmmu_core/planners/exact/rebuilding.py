"""The loop of :mod:`.rebuild`, compiled: part of a packing is torn down and put up again, turn after turn.

A packing below a capacity that leaves some units out is changed by *ruin and recreate* (Schrimpf and others, 2000;
what is torn down lies close together, as in Christiaens and Vanden Berghe, 2020): one unit is chosen, mostly one that
is left out, a place in its life, and what lies near that place, in time and in bytes, is taken away. Then all that have
no place are put back one by one, each into one of the gaps it fits. What comes of it is kept when it leaves out less
than before, or little more: how much more falls turn by turn (simulated annealing).

Whole numbers alone, drawn by a permuted congruential generator (O'Neill 2014): the same turns on every machine. A turn
costs O(n) for each unit that is put back, some ten of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tmmu_core.compiled import njit_leaf
from tmmu_core.planners.problem import I64

# Columns of ``Site.unit``; the first five of these traits say in which order units are put back, greatest first.
AREA, BYTES, LIFE, EARLY, LATE, BORN, DIES, SIZE, GRID, FIXED = range(10)
# Rows of ``Site.work``: offsets (−1: left out), who lies somewhere by offset, who is left out; the same for the turn;
# keys to sort by; what it costs to leave a unit out.
OFFSET, ROW, LEFT, NEXT_OFFSET, NEXT_ROW, NEXT_LEFT, KEY, WEIGHT = range(8)
# Cells of ``Site.now``.
DRAWN, ROWS, OUT, COST, FEWEST, TURN = range(6)

UNITS = 1024
"""All of time, and all of the capacity, in places that nearness is told by."""
STAGES = 1024
"""Steps of the cooling."""
FAR_IN_TIME, FAR_IN_BYTES = (48, 10, 144), (60, 300, 20)
"""What a place of time and of bytes counts: one of three ways a turn."""
LOWEST, TIGHTEST, HIGHEST, TIGHTEST_ABOVE = range(4)
"""Which gap: the lowest; the tightest, at its bottom; the highest; the tightest, at its top."""
EVERY = 128
"""One gap of so many is passed over, so that no rule decides alone."""
ROUNDS, DEARER = 1000, 64
"""So often in a run, whoever is left out then comes to weigh more by one part of so many: who was left out for long is
put in, and others have to make room."""
BEYOND = 2**62


class Site(NamedTuple):
    """n units, and the packing at hand."""

    unit: I64
    """(n, 10): traits up to 2^20, then ``BORN … FIXED``."""
    meets: NDArray[np.uint8]
    """(n, n): who may share no byte."""
    heat: I64
    """(STAGES + 1,): how much more may be left out, in ``WEIGHT`` × 2^10."""
    loss: I64
    """(1024,): −ln of (k + ½) / 1024, in 1/1024ths."""
    work: I64
    """(8, n + 1): ``OFFSET … WEIGHT``."""
    now: I64
    """(6,): ``DRAWN … TURN``."""


@njit_leaf
def _draw(state: int) -> tuple[int, int]:
    """The next state, and 32 bits."""
    word = (((state >> ((state >> 28) + 4)) ^ state) * 277803737) & 0xFFFFFFFF
    return (state * 747796405 + 2891336453) & 0xFFFFFFFF, (word >> 22) ^ word


@njit_leaf
def _least_in_front(key: I64, count: int, many: int) -> None:
    """Have the ``many`` smallest of ``key[:count]`` stand in front."""
    lo, hi = 0, count - 1
    while lo < hi:
        pivot, i, j = key[(lo + hi) >> 1], lo, hi
        while i <= j:
            while key[i] < pivot:
                i += 1
            while key[j] > pivot:
                j -= 1
            if i <= j:
                key[i], key[j] = key[j], key[i]
                i += 1
                j -= 1
        if many - 1 <= j:
            hi = j
        elif many - 1 >= i:
            lo = i
        else:
            return


@njit_leaf
def _torn_down(site: Site, capacity: int, ruin: int, state: int) -> tuple[int, int, int]:
    """Copy the packing and take away up to ``2 * ruin`` units near a place; the state, who lies, who is left out."""
    unit, work, n = site.unit, site.work, len(site.unit)
    offset, row, left, key = work[NEXT_OFFSET], work[NEXT_ROW], work[NEXT_LEFT], work[KEY]
    rows, out = site.now[ROWS], site.now[OUT]
    offset[:n] = work[OFFSET, :n]
    left[:out] = work[LEFT, :out]
    scale = (capacity + UNITS - 1) // UNITS
    state, r = _draw(state)
    many = 1 + r % (2 * ruin)
    state, r = _draw(state)
    seed = left[(r >> 2) % out] if out and r & 3 else (r >> 2) % n
    state, r = _draw(state)
    about = unit[seed, BORN] + r % max(unit[seed, DIES] - unit[seed, BORN], 1)
    state, r = _draw(state)
    low = offset[seed] // scale if offset[seed] >= 0 else r % UNITS
    high = low + unit[seed, SIZE] // scale
    state, r = _draw(state)
    in_time, in_bytes = FAR_IN_TIME[r % 3], FAR_IN_BYTES[r % 3]
    count = 0
    for k in range(rows):
        j = work[ROW, k]
        if unit[j, FIXED] >= 0:
            continue
        state, r = _draw(state)
        begin = offset[j] // scale
        end = begin + unit[j, SIZE] // scale
        born, dies = unit[j, BORN], unit[j, DIES]
        steps = max(born - about, about - dies, 0)
        places = max(begin - high, low - end, 0)
        far = (in_time * steps + in_bytes * places) * (11 + r % 10) + 3 * (dies - born) * ((r >> 8) & 1023) // 64
        key[count] = far * n + j
        count += 1
    many = min(many, count)
    if many < count:
        _least_in_front(key, count, many)
    for k in range(many):
        j = key[k] % n
        offset[j] = -1
        left[out] = j
        out += 1
    kept = 0
    for k in range(rows):
        j = work[ROW, k]
        if offset[j] >= 0:
            row[kept] = j
            kept += 1
    return state, kept, out


@njit_leaf
def _in_an_order(site: Site, out: int, state: int) -> int:
    """Sort ``KEY[:out]`` by one of six orders, blurred by chance; a unit is its key modulo n."""
    unit, left, key, n = site.unit, site.work[NEXT_LEFT], site.work[KEY], len(site.unit)
    state, r = _draw(state)
    by = r % 6
    for k in range(out):
        i = left[k]
        state, r = _draw(state)
        value = -(r & 0xFFFFF) if by == 5 else -unit[i, by] * (64 + (r >> 4) % 33)
        value = value * n + i
        at = k
        while at > 0 and key[at - 1] > value:
            key[at] = key[at - 1]
            at -= 1
        key[at] = value
    return state


@njit_leaf
def _gap(site: Site, capacity: int, rows: int, i: int, rule: int, state: int) -> tuple[int, int]:
    """The state, and an offset for ``i`` in a gap it fits, or −1."""
    unit, offset, row, meets = site.unit, site.work[NEXT_OFFSET], site.work[NEXT_ROW], site.meets[i]
    need, grid = unit[i, SIZE], unit[i, GRID]
    top, best, least = 0, -1, BEYOND
    for k in range(rows + 1):
        start = capacity
        if k < rows:
            j = row[k]
            if not meets[j]:
                continue
            start = offset[j]
        if start - top >= need:
            low, high = (top + grid - 1) & -grid, (start - need) & -grid
            if low <= high:
                state, r = _draw(state)
                worth = start - top - need
                if rule == LOWEST:
                    worth = low
                elif rule == HIGHEST:
                    worth = -high
                if r % EVERY and worth < least:
                    least, best = worth, low if rule <= TIGHTEST else high
        if k < rows:
            top = max(top, start + unit[j, SIZE])
    return state, best


@njit_leaf
def _put(site: Site, rows: int, i: int, at: int) -> None:
    """Have ``i`` lie at an offset, among those that lie somewhere."""
    offset, row = site.work[NEXT_OFFSET], site.work[NEXT_ROW]
    offset[i] = at
    k = rows
    while k > 0 and (offset[row[k - 1]] > at or (offset[row[k - 1]] == at and row[k - 1] > i)):
        row[k] = row[k - 1]
        k -= 1
    row[k] = i


@njit_leaf
def rebuild(site: Site, capacity: int, turns: int, ruin: int, stop: I64) -> bool:
    """Whether nobody is left out after at most ``turns``; offsets are then ``site.work[OFFSET]``.

    Goes on from ``site.now[TURN]``, and ends soon after ``stop[0]`` is set from outside.
    """
    work, now, n = site.work, site.now, len(site.unit)
    key, left, weight = work[KEY], work[NEXT_LEFT], work[WEIGHT]
    every = max(turns // ROUNDS, 1)
    while now[OUT] and now[TURN] < turns and not stop[0]:
        state, rows, out = _torn_down(site, capacity, ruin, now[DRAWN])
        state = _in_an_order(site, out, state)
        state, common = _draw(state)
        cost, still = 0, 0
        for k in range(out):
            i = key[k] % n
            state, r = _draw(state)
            state, at = _gap(site, capacity, rows, i, common & 3 if r & 7 else (r >> 3) & 3, state)
            if at < 0:
                left[still] = i
                still += 1
                cost += weight[i]
            else:
                _put(site, rows, i, at)
                rows += 1
        state, r = _draw(state)
        more = site.heat[now[TURN] * STAGES // turns] * site.loss[r & 1023] >> 20
        if cost < now[COST] + more or not still:
            work[OFFSET, :n] = work[NEXT_OFFSET, :n]
            work[ROW, :rows] = work[NEXT_ROW, :rows]
            work[LEFT, :still] = left[:still]
            now[ROWS], now[OUT], now[COST] = rows, still, cost
            now[FEWEST] = min(now[FEWEST], still)
        now[DRAWN] = state
        now[TURN] += 1
        if now[TURN] % every == 0:
            for k in range(now[OUT]):
                dearer = weight[work[LEFT, k]] // DEARER + 1
                weight[work[LEFT, k]] += dearer
                now[COST] += dearer
    return bool(now[OUT] == 0)
