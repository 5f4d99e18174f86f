"""The loop of :mod:`.rebuild`, compiled: part of a packing is torn down and put up again, turn after turn.

A packing below a capacity that leaves some units out is changed by *ruin and recreate* (Schrimpf and others, 2000;
what is torn down lies close together, as in Christiaens and Vanden Berghe, 2020): one unit is chosen, mostly one that
is left out, a place in its life, and what lies near that place, in time and in bytes, is taken away. Then all that have
no place are put back one by one, each into one of the gaps it fits. Every other turn the unit is one that is left out,
and is put first, where the least is in its way: who lies there is taken away too (ejection, as Nagata and Bräysy, 2009,
do with vehicles). What comes of it is kept when it leaves out less than before, or little more: how much more is drawn
beforehand, so that a turn ends as soon as it leaves out too much, and falls turn by turn (simulated annealing).

Of what leaves out as much, that is better where more touches: how many bytes are free at a time is given, and where
those that lie touch each other, the bottom or the top for longer, they are free in fewer and greater gaps.

Whole numbers alone, drawn by a permuted congruential generator (O'Neill 2014): the same turns on every machine. A turn
costs O(n) for each unit that is put back.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tmmu_core.compiled import njit_leaf
from tmmu_core.planners.problem import I64

# Columns of ``Site.unit``; the first five of these traits say in which order units are put back, greatest first.
AREA, BYTES, LIFE, EARLY, LATE, BORN, DIES, SIZE, GRID, FIXED = range(10)
# Rows of ``Site.work``: offsets (−1: left out); who is left out; what it costs to leave a unit out; who lies somewhere,
# by offset, with begin and end; the same for the turn; who was left out or is torn down in the turn, and from where; in
# which order they are put back, and the keys of it; and whose touching is counted already (0 between turns).
OFFSET, LEFT, WEIGHT, ROW, START, END, NEXT_ROW, NEXT_START, NEXT_END, TAKEN, WAS, ORDER, KEY, COUNTED = range(14)
# Rows of ``Site.near``, what nearness is told by: a life; three times its length; bytes; where it lies (−1: out, or
# there for good); and how far it is.
FROM, UNTIL, LONG, TALL, LOW, HIGH, FAR = range(7)
# Cells of ``Site.now``.
DRAWN, ROWS, OUT, COST, FEWEST, TURN = range(6)
# Cells of ``Site.spot``, what a turn is about: a unit; where it is put first (−1: nowhere); a place of time and the
# places of bytes; how many are torn down there; how many have no place then; and how many have.
WHO, AT, WHEN, BELOW, ABOVE, MANY, LOOSE, FIRM = range(8)

UNITS = 1024
"""All of time, and all of the capacity, in places that nearness is told by."""
STAGES = 1024
"""Steps of the cooling."""
FAR_IN_TIME, FAR_IN_BYTES = (48, 10, 144), (60, 300, 20)
"""What a place of time and of bytes counts: one of three ways a turn."""
BLURS = 4096
"""A turn blurs nearness by as many rows of ``Site.blur`` as there are units, from one of so many on."""
NOWHERE = 2**31 - 1
"""How far a unit is that cannot be torn down."""
TRIES = 8
"""Places tried where a unit might be put first."""
PINNED = 2**50
"""What a unit weighs that is there for good."""
LOWEST, TIGHTEST, HIGHEST, TIGHTEST_ABOVE = range(4)
"""Which gap: the lowest; the tightest, at its bottom; the highest; the tightest, at its top."""
TOUCH = 32
"""What it weighs when two touch all the time, in 1/1024ths of an average unit."""
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
    """(n, n): who may share no byte; everyone with itself too."""
    heat: I64
    """(STAGES + 1,): how much more may be left out, in ``WEIGHT`` × 2^10."""
    loss: I64
    """(1024,): −ln of (k + ½) / 1024, in 1/1024ths."""
    blur: NDArray[np.int32]
    """(2, BLURS + n at least): 11 to 20, by which a distance is taken; 0 to 1,023, by which a length is."""
    work: I64
    """(14, n + 1): ``OFFSET … COUNTED``."""
    near: NDArray[np.int32]
    """(7, n): ``FROM … FAR``."""
    spot: I64
    """(8,): ``WHO … FIRM``."""
    now: I64
    """(6,): ``DRAWN … TURN``."""


@njit_leaf
def _draw(state: int) -> tuple[int, int]:
    """The next state, and 32 bits."""
    word = (((state >> ((state >> 28) + 4)) ^ state) * 277803737) & 0xFFFFFFFF
    return (state * 747796405 + 2891336453) & 0xFFFFFFFF, (word >> 22) ^ word


@njit_leaf
def _lay(site: Site, scale: int, i: int, at: int) -> None:
    """Have ``i`` lie at an offset, or nowhere (−1)."""
    near = site.near
    site.work[OFFSET, i] = at
    near[LOW, i] = at // scale if at >= 0 and site.unit[i, FIXED] < 0 else -1
    near[HIGH, i] = near[LOW, i] + near[TALL, i]


@njit_leaf
def _least_in_the_way(site: Site, capacity: int, i: int, state: int) -> tuple[int, int]:
    """The state, and of some offsets for ``i``, right above or below others, the one where the least lies; or −1."""
    work, unit, meets = site.work, site.unit, site.meets[i]
    start, end, weight = work[NEXT_START], work[NEXT_END], work[NEXT_ROW]
    need, grid = unit[i, SIZE], unit[i, GRID]
    count = 0
    for k in range(site.now[ROWS]):
        j = work[ROW, k]
        if meets[j]:
            start[count], end[count] = work[START, k], work[END, k]
            weight[count] = PINNED if unit[j, FIXED] >= 0 else work[WEIGHT, j]
            count += 1
    start[count], end[count] = capacity, 0
    best, least = -1, PINNED
    for _ in range(TRIES):
        state, r = _draw(state)
        k = (r >> 1) % (count + 1)
        at = (end[k] + grid - 1) & -grid if r & 1 else (start[k] - need) & -grid
        if at < 0 or at + need > capacity:
            continue
        cost = 0
        for j in range(count):
            if start[j] < at + need and end[j] > at:
                cost += weight[j]
        if cost < least:
            best, least = at, cost
    return state, best


@njit_leaf
def _chosen(site: Site, capacity: int, ruin: int, state: int) -> int:
    """Say in ``Site.spot`` what the turn is about; the state."""
    unit, near, spot, out = site.unit, site.near, site.spot, site.now[OUT]
    scale = (capacity + UNITS - 1) // UNITS
    state, r = _draw(state)
    spot[MANY] = 1 + r % (2 * ruin)
    state, r = _draw(state)
    who = site.work[LEFT, (r >> 3) % out] if r & 7 else (r >> 3) % len(unit)
    spot[AT] = -1
    if r & 1:
        state, spot[AT] = _least_in_the_way(site, capacity, who, state)
    state, r = _draw(state)
    spot[WHEN] = unit[who, BORN] + r % max(unit[who, DIES] - unit[who, BORN], 1)
    state, r = _draw(state)
    at = max(spot[AT], site.work[OFFSET, who])
    spot[WHO], spot[BELOW] = who, at // scale if at >= 0 else r % UNITS
    spot[ABOVE] = spot[BELOW] + near[TALL, who]
    return state


@njit_leaf
def _how_far(site: Site, state: int) -> int:
    """Say in ``Site.near`` how far each is from what the turn is about; the state."""
    near, spot = site.near, site.spot
    state, r = _draw(state)
    in_time, in_bytes = FAR_IN_TIME[r % 3], FAR_IN_BYTES[r % 3]
    one, two = (r >> 4) % BLURS, (r >> 16) % BLURS
    for j in range(len(site.unit)):
        steps = max(near[FROM, j] - spot[WHEN], spot[WHEN] - near[UNTIL, j], 0)
        places = max(near[LOW, j] - spot[ABOVE], spot[BELOW] - near[HIGH, j], 0)
        far = (in_time * steps + in_bytes * places) * site.blur[0, one + j]
        far += near[LONG, j] * site.blur[1, two + j] >> 6
        near[FAR, j] = NOWHERE if near[LOW, j] < 0 else far
    return state


@njit_leaf
def _torn_down(site: Site, scale: int, state: int) -> int:
    """Take away who lies where the chosen one is put first, and who is nearest; the state."""
    unit, work, near, spot, now = site.unit, site.work, site.near, site.spot, site.now
    taken, was, key = work[TAKEN], work[WAS], work[KEY]
    rows, out = now[ROWS], now[OUT]
    count = out
    for k in range(out):
        taken[k], was[k] = work[LEFT, k], -1
    if spot[AT] >= 0:
        top = spot[AT] + unit[spot[WHO], SIZE]
        for k in range(rows):
            j = work[ROW, k]
            if work[START, k] < top and work[END, k] > spot[AT] and site.meets[spot[WHO], j]:
                taken[count] = j
                count += 1
    for k in range(out, count):
        was[k] = work[OFFSET, taken[k]]
        _lay(site, scale, taken[k], -1)
    state = _how_far(site, state)
    first, farthest = count, NOWHERE
    for j in range(len(unit)):
        if near[FAR, j] < farthest:
            if count < first + spot[MANY]:
                count += 1
            k = count - 1
            while k > first and key[k - 1] > near[FAR, j]:
                key[k], taken[k] = key[k - 1], taken[k - 1]
                k -= 1
            key[k], taken[k] = near[FAR, j], j
            if count == first + spot[MANY]:
                farthest = key[count - 1]
    for k in range(first, count):
        was[k] = work[OFFSET, taken[k]]
        _lay(site, scale, taken[k], -1)
    kept = 0
    for k in range(rows):
        j = work[ROW, k]
        if work[OFFSET, j] >= 0:
            work[NEXT_ROW, kept], work[NEXT_START, kept], work[NEXT_END, kept] = j, work[START, k], work[END, k]
            kept += 1
    spot[LOOSE], spot[FIRM] = count, kept
    return state


@njit_leaf
def _in_an_order(site: Site, state: int) -> int:
    """Sort who has no place by one of six orders, blurred by chance; the state."""
    unit, taken, order, key = site.unit, site.work[TAKEN], site.work[ORDER], site.work[KEY]
    state, r = _draw(state)
    by = r % 6
    for k in range(site.spot[LOOSE]):
        i = taken[k]
        state, r = _draw(state)
        value = -(r & 0xFFFFF) if by == 5 else -unit[i, by] * (64 + (r >> 4) % 33)
        at = k
        while at > 0 and key[at - 1] > value:
            key[at], order[at] = key[at - 1], order[at - 1]
            at -= 1
        key[at], order[at] = value, i
    return state


@njit_leaf
def _gap(site: Site, capacity: int, i: int, rule: int, state: int) -> tuple[int, int]:
    """The state, and an offset for ``i`` in a gap it fits, or −1."""
    work, rows, meets = site.work, site.spot[FIRM], site.meets[i]
    need, grid = site.unit[i, SIZE], site.unit[i, GRID]
    top, best, least = 0, -1, BEYOND
    for k in range(rows + 1):
        start = capacity
        if k < rows:
            if not meets[work[NEXT_ROW, k]]:
                continue
            start = work[NEXT_START, k]
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
                    if rule == LOWEST:
                        break
        if k < rows:
            top = max(top, work[NEXT_END, k])
    return state, best


@njit_leaf
def _put(site: Site, scale: int, i: int, at: int) -> None:
    """Have ``i`` lie at an offset, among those that lie somewhere."""
    row, start, end = site.work[NEXT_ROW], site.work[NEXT_START], site.work[NEXT_END]
    _lay(site, scale, i, at)
    k = site.spot[FIRM]
    while k > 0 and (start[k - 1] > at or (start[k - 1] == at and row[k - 1] > i)):
        row[k], start[k], end[k] = row[k - 1], start[k - 1], end[k - 1]
        k -= 1
    row[k], start[k], end[k] = i, at, at + site.unit[i, SIZE]
    site.spot[FIRM] += 1


@njit_leaf
def _put_up(site: Site, capacity: int, most: int, state: int) -> tuple[int, int, int]:
    """Put back who has no place, as long as less than ``most`` is left out.

    The state; how many are left out, in front of ``ORDER``; and what it costs.
    """
    spot, order, weight = site.spot, site.work[ORDER], site.work[WEIGHT]
    scale = (capacity + UNITS - 1) // UNITS
    if spot[AT] >= 0:
        _put(site, scale, spot[WHO], spot[AT])
    state, common = _draw(state)
    cost, still = 0, 0
    for k in range(spot[LOOSE]):
        i = order[k]
        if spot[AT] >= 0 and i == spot[WHO]:
            continue
        state, r = _draw(state)
        state, at = _gap(site, capacity, i, common & 3 if r & 7 else (r >> 3) & 3, state)
        if at >= 0:
            _put(site, scale, i, at)
        else:
            order[still] = i
            still += 1
            cost += weight[i]
            if cost >= most:
                break
    return state, still, cost


@njit_leaf
def _touching(site: Site, capacity: int, i: int, at: int, lying: int) -> int:
    """For how long ``i`` touches others, the bottom and the top at an offset, among those of ``ROW`` or ``NEXT_ROW``.

    Those that are counted already are not counted again.
    """
    unit, work, meets = site.unit, site.work, site.meets[i]
    row, start, end = work[lying], work[lying + 1], work[lying + 2]
    born, dies, top = unit[i, BORN], unit[i, DIES], at + unit[i, SIZE]
    touching = 0
    if at == 0:
        touching += dies - born
    if top == capacity:
        touching += dies - born
    for k in range(site.now[ROWS] if lying == ROW else site.spot[FIRM]):
        if start[k] == top or end[k] == at:
            j = row[k]
            if meets[j] and not work[COUNTED, j]:
                touching += min(dies, unit[j, DIES]) - max(born, unit[j, BORN])
    return touching


@njit_leaf
def _more_touching(site: Site, capacity: int) -> int:
    """For how much longer what lies after the turn touches than what lay before."""
    work, more = site.work, 0
    taken, was, counted = work[TAKEN], work[WAS], work[COUNTED]
    for k in range(site.spot[LOOSE]):
        if was[k] >= 0:
            more -= _touching(site, capacity, taken[k], was[k], ROW)
            counted[taken[k]] = 1
    for k in range(site.spot[LOOSE]):
        counted[taken[k]] = 0
    for k in range(site.spot[LOOSE]):
        if work[OFFSET, taken[k]] >= 0:
            more += _touching(site, capacity, taken[k], work[OFFSET, taken[k]], NEXT_ROW)
            counted[taken[k]] = 1
    for k in range(site.spot[LOOSE]):
        counted[taken[k]] = 0
    return more


@njit_leaf
def _begin(site: Site, capacity: int) -> None:
    """Have ``Site.near`` and ``START``, ``END`` say what the packing at hand and a capacity do."""
    unit, work, near = site.unit, site.work, site.near
    scale = (capacity + UNITS - 1) // UNITS
    for i in range(len(unit)):
        near[FROM, i], near[UNTIL, i] = unit[i, BORN], unit[i, DIES]
        near[LONG, i], near[TALL, i] = 3 * (unit[i, DIES] - unit[i, BORN]), min(unit[i, SIZE] // scale, UNITS)
        _lay(site, scale, i, work[OFFSET, i])
    for k in range(site.now[ROWS]):
        work[START, k] = work[OFFSET, work[ROW, k]]
        work[END, k] = work[START, k] + unit[work[ROW, k], SIZE]


@njit_leaf
def rebuild(site: Site, capacity: int, turns: int, ruin: int, stop: I64) -> bool:
    """Whether nobody is left out after at most ``turns``; offsets are then ``site.work[OFFSET]``.

    Goes on from ``site.now[TURN]``, and ends soon after ``stop[0]`` is set from outside.
    """
    work, now, spot, weight = site.work, site.now, site.spot, site.work[WEIGHT]
    scale, every = (capacity + UNITS - 1) // UNITS, max(turns // ROUNDS, 1)
    _begin(site, capacity)
    while now[OUT] and now[TURN] < turns and not stop[0]:
        state = _chosen(site, capacity, ruin, now[DRAWN])
        state = _torn_down(site, scale, state)
        state = _in_an_order(site, state)
        state, r = _draw(state)
        most = now[COST] + max(site.heat[now[TURN] * STAGES // turns] * site.loss[r & 1023] >> 20, 0)
        state, still, cost = _put_up(site, capacity, most, state)
        if cost < most and (not still or cost - (_more_touching(site, capacity) * TOUCH >> 10) < most):
            rows = spot[FIRM]
            for k in range(rows):
                work[ROW, k], work[START, k], work[END, k] = work[NEXT_ROW, k], work[NEXT_START, k], work[NEXT_END, k]
            for k in range(still):
                work[LEFT, k] = work[ORDER, k]
            now[ROWS], now[OUT], now[COST] = rows, still, cost
            now[FEWEST] = min(now[FEWEST], still)
        else:
            for k in range(spot[LOOSE]):
                _lay(site, scale, work[TAKEN, k], work[WAS, k])
        now[DRAWN] = state
        now[TURN] += 1
        if now[TURN] % every == 0:
            for k in range(now[OUT]):
                dearer = weight[work[LEFT, k]] // DEARER + 1
                weight[work[LEFT, k]] += dearer
                now[COST] += dearer
    return bool(now[OUT] == 0)
