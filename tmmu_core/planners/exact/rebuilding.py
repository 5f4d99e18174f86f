"""The loop of :mod:`.rebuild`, compiled: part of a packing is torn down and put up again, turn after turn.

A packing below a capacity that leaves some units out is changed by *ruin and recreate* (Schrimpf and others, 2000;
what is torn down lies close together, as in Christiaens and Vanden Berghe, 2020): one unit is chosen, mostly one that
is left out, a place in its life, and what lies near that place, in time and in bytes, is taken away. Then all that have
no place are put back one by one. What comes of it is kept when it leaves out less than before, or little more: how much
more is drawn beforehand, so that a turn ends as soon as it leaves out too much, and falls turn by turn (simulated
annealing).

What lies has no offset, only an order: of two that meet the one lies below the other. How low each can lie then is the
longest way up to it from the bottom, and how high the longest way down from the top, as the heads and tails of jobs
that wait for machines are (Balas, 1969). A unit can be put between any two that follow each other where those below it
at their lowest and those above it at their highest leave its bytes free; the others make room by themselves, and no
free byte is lost for lying elsewhere (insertion, as Werner and Winkler, 1995, do with jobs).

Who is left out by a little only, for want of few bytes of its own, costs less than who lacks all of them.

Whole numbers alone, drawn by a permuted congruential generator (O'Neill 2014): the same turns on every machine. A turn
costs O(n + sections of all lives) for each unit that is put back.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tmmu_core.compiled import njit_leaf
from tmmu_core.planners.problem import I64

# Columns of ``Site.unit``; the first five of these traits say in which order units are put back, greatest first.
AREA, BYTES, LIFE, EARLY, LATE, BORN, DIES, SIZE, GRID, FIXED = range(10)
# Rows of ``Site.work``: offsets in the end (−1: left out); who is left out; what it costs to leave a unit out; who
# lies, each above those before it that it meets, with where it ends at its lowest and begins at its highest; the same
# for the turn; of who lies in the way of a unit which rank it has, where those up to it end and from it on begin; who
# was left out or is torn down in the turn; in which order they are put back, and the keys of it.
OFFSET, LEFT, WEIGHT, ROW, TOP, HIGH, NEXT_ROW, NEXT_TOP, NEXT_HIGH, RANK, FLOOR, CEILING, TAKEN, ORDER, KEY = range(15)
# Rows of ``Site.near``, what nearness is told by: a life; three times its length; bytes; where it lies (−1: out, or
# there for good); and how far it is (−1: torn down).
FROM, UNTIL, LONG, TALL, BELOW, ABOVE, FAR = range(7)
# Cells of ``Site.now``.
DRAWN, ROWS, OUT, COST, FEWEST, TURN = range(6)
# Cells of ``Site.spot``, what a turn is about: a unit; a place of time and the places of bytes; how many are torn down
# there; how many have no place then; and how many have.
WHO, WHEN, UNDER, OVER, MANY, LOOSE, FIRM = range(7)

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
AS_LOW, AS_HIGH, BETWEEN, AS_IT_IS = range(4)
"""In a turn all lie as low as they can, or as high, or half the way between; the last leaves their order as it is."""
LOWEST, TIGHTEST, HIGHEST, WIDEST = range(4)
"""Which gap of those that a unit fits."""
EVERY = 128
"""One gap of so many is passed over, so that no rule decides alone."""
NARROWLY = 384
"""How much less it costs, in 1/1024ths, to leave out who lacks next to nothing."""
ROUNDS, DEARER = 1000, 64
"""So often in a run, whoever is left out then comes to weigh more by one part of so many: who was left out for long is
put in, and others have to make room."""
BEYOND = 2**62
STEPS = 2**30
"""Below so many steps all capacities are: columns of 32 bits hold them."""


class Site(NamedTuple):
    """n units and m sections, and the packing at hand; bytes in steps of :class:`.rebuild.Rebuild`."""

    unit: I64
    """(n, 10): traits up to 2^20, then ``BORN … FIXED``."""
    meets: NDArray[np.uint8]
    """(n, n): who may share no byte; everyone with itself too."""
    begin: I64
    """(n + 1,): where a unit's rows begin in ``run``."""
    run: I64
    """(r, 2): sections of its life that follow each other: the first, and that after the last."""
    heat: I64
    """(STAGES + 1,): how much more may be left out, in ``WEIGHT`` × 2^10."""
    loss: I64
    """(1024,): −ln of (k + ½) / 1024, in 1/1024ths."""
    blur: NDArray[np.int32]
    """(2, BLURS + n at least): 11 to 20, by which a distance is taken; 0 to 1,023, by which a length is."""
    work: I64
    """(15, n + 1): ``OFFSET … KEY``."""
    near: NDArray[np.int32]
    """(7, n): ``FROM … FAR``."""
    sky: NDArray[np.int32]
    """(m,): where what lies in a section ends so far, or begins."""
    spot: I64
    """(7,): ``WHO … FIRM``."""
    now: I64
    """(6,): ``DRAWN … TURN``."""


@njit_leaf
def _draw(state: int) -> tuple[int, int]:
    """The next state, and 32 bits."""
    word = (((state >> ((state >> 28) + 4)) ^ state) * 277803737) & 0xFFFFFFFF
    return (state * 747796405 + 2891336453) & 0xFFFFFFFF, (word >> 22) ^ word


@njit_leaf
def _highest(site: Site, i: int) -> int:
    """The highest of the sky in the sections of ``i``."""
    found = 0
    for k in range(site.begin[i], site.begin[i + 1]):
        for section in range(site.run[k, 0], site.run[k, 1]):
            found = max(found, site.sky[section])
    return found


@njit_leaf
def _lowest(site: Site, capacity: int, i: int) -> int:
    """The lowest of the sky in the sections of ``i``."""
    found = capacity
    for k in range(site.begin[i], site.begin[i + 1]):
        for section in range(site.run[k, 0], site.run[k, 1]):
            found = min(found, site.sky[section])
    return found


@njit_leaf
def _raise(site: Site, i: int, to: int) -> None:
    """Have the sky be no lower in the sections of ``i``."""
    for k in range(site.begin[i], site.begin[i + 1]):
        for section in range(site.run[k, 0], site.run[k, 1]):
            site.sky[section] = max(site.sky[section], to)


@njit_leaf
def _lower(site: Site, i: int, to: int) -> None:
    """Have the sky be no higher in the sections of ``i``."""
    for k in range(site.begin[i], site.begin[i + 1]):
        for section in range(site.run[k, 0], site.run[k, 1]):
            site.sky[section] = min(site.sky[section], to)


@njit_leaf
def _level(site: Site, at: int) -> None:
    """Have the sky be there in all sections."""
    for section in range(len(site.sky)):
        site.sky[section] = at


@njit_leaf
def _as_low(site: Site, i: int, floor: int) -> int:
    """The lowest offset of ``i`` above a floor."""
    fixed, grid = site.unit[i, FIXED], site.unit[i, GRID]
    return fixed if fixed >= 0 else (floor + grid - 1) & -grid


@njit_leaf
def _as_high(site: Site, i: int, ceiling: int) -> int:
    """The highest offset of ``i`` below a ceiling."""
    fixed = site.unit[i, FIXED]
    return fixed if fixed >= 0 else (ceiling - site.unit[i, SIZE]) & -site.unit[i, GRID]


@njit_leaf
def _let_loose(site: Site, capacity: int, lying: int, rows: int) -> None:
    """Say of who lies, in an order, how low each can and how high; ``lying`` is ``ROW`` or ``NEXT_ROW``."""
    row, top, high = site.work[lying], site.work[lying + 1], site.work[lying + 2]
    _level(site, 0)
    for k in range(rows):
        i = row[k]
        top[i] = _as_low(site, i, _highest(site, i)) + site.unit[i, SIZE]
        _raise(site, i, top[i])
    _level(site, capacity)
    for k in range(rows - 1, -1, -1):
        i = row[k]
        high[i] = _as_high(site, i, _lowest(site, capacity, i))
        _lower(site, i, high[i])


@njit_leaf
def _ranks(site: Site, capacity: int, i: int, lying: int) -> int:
    """Say of those that ``i`` meets which rank each has, where those below it end and those from it on begin.

    How many they are; after them the top.
    """
    row, top, high, meets = site.work[lying], site.work[lying + 1], site.work[lying + 2], site.meets[i]
    rank, floor, ceiling = site.work[RANK], site.work[FLOOR], site.work[CEILING]
    rows = site.now[ROWS] if lying == ROW else site.spot[FIRM]
    count = 0
    floor[0] = 0
    for k in range(rows):
        j = row[k]
        if meets[j]:
            rank[count], ceiling[count] = k, high[j]
            floor[count + 1] = max(top[j], floor[count])
            count += 1
    rank[count], ceiling[count] = rows, capacity
    for k in range(count - 1, -1, -1):
        ceiling[k] = min(ceiling[k], ceiling[k + 1])
    return count


@njit_leaf
def _widest(site: Site, capacity: int, i: int, lying: int) -> int:
    """How many bytes are free in the widest gap for ``i``, less than none where all gaps lack some."""
    floor, ceiling = site.work[FLOOR], site.work[CEILING]
    room = -BEYOND
    for k in range(_ranks(site, capacity, i, lying) + 1):
        room = max(room, ceiling[k] - floor[k])
    return room


@njit_leaf
def _left_out(site: Site, i: int, lacking: int) -> int:
    """What it costs to leave out ``i``, which lacks so many bytes."""
    weight, size = site.work[WEIGHT, i], site.unit[i, SIZE]
    lacks = max(min(lacking, size), 0) * NARROWLY // max(size, 1)
    return weight - (weight * NARROWLY >> 10) + (weight * lacks >> 10)


@njit_leaf
def _cost_of(site: Site, capacity: int, count: int, lying: int) -> int:
    """What it costs to leave out so many of ``LEFT``, or of ``ORDER`` in a turn."""
    left = site.work[LEFT if lying == ROW else ORDER]
    cost = 0
    for k in range(count):
        cost += _left_out(site, left[k], site.unit[left[k], SIZE] - _widest(site, capacity, left[k], lying))
    return cost


@njit_leaf
def _sorted(site: Site, capacity: int, by: int) -> None:
    """Have who lies be in the order of offsets, as low or as high as they can be, and say in ``Site.near`` where."""
    row, top, high, key, near = site.work[ROW], site.work[TOP], site.work[HIGH], site.work[KEY], site.near
    scale = (UNITS << 32) // capacity
    near[BELOW] = -1
    for k in range(site.now[ROWS]):
        i = row[k]
        low = top[i] - site.unit[i, SIZE]
        twice = low + high[i]
        if by == AS_LOW:
            twice = 2 * low
        elif by == AS_HIGH:
            twice = 2 * high[i]
        if site.unit[i, FIXED] < 0:
            near[BELOW, i] = twice * scale >> 33
            near[ABOVE, i] = near[BELOW, i] + near[TALL, i]
        if by != AS_IT_IS:
            to = k
            while to > 0 and key[to - 1] > twice:
                key[to], row[to] = key[to - 1], row[to - 1]
                to -= 1
            key[to], row[to] = twice, i


@njit_leaf
def _chosen(site: Site, capacity: int, ruin: int, state: int) -> int:
    """Say in ``Site.spot`` what the turn is about; the state."""
    unit, near, spot, out = site.unit, site.near, site.spot, site.now[OUT]
    state, r = _draw(state)
    spot[MANY] = 1 + r % (2 * ruin)
    _sorted(site, capacity, (r >> 20) & 3)
    state, r = _draw(state)
    who = site.work[LEFT, (r >> 3) % out] if r & 7 else (r >> 3) % len(unit)
    state, r = _draw(state)
    spot[WHEN] = unit[who, BORN] + r % max(unit[who, DIES] - unit[who, BORN], 1)
    state, r = _draw(state)
    under = near[BELOW, who] if near[BELOW, who] >= 0 else r % UNITS
    spot[WHO], spot[UNDER], spot[OVER] = who, under, under + near[TALL, who]
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
        places = max(near[BELOW, j] - spot[OVER], spot[UNDER] - near[ABOVE, j], 0)
        far = (in_time * steps + in_bytes * places) * site.blur[0, one + j]
        far += near[LONG, j] * site.blur[1, two + j] >> 6
        near[FAR, j] = NOWHERE if near[BELOW, j] < 0 else far
    return state


@njit_leaf
def _torn_down(site: Site, state: int) -> int:
    """Take away who is nearest; the state."""
    work, near, spot, now = site.work, site.near, site.spot, site.now
    taken, key, out = work[TAKEN], work[KEY], now[OUT]
    for k in range(out):
        taken[k] = work[LEFT, k]
    state = _how_far(site, state)
    count, farthest = out, NOWHERE
    for j in range(len(site.unit)):
        if near[FAR, j] < farthest:
            if count < out + spot[MANY]:
                count += 1
            k = count - 1
            while k > out and key[k - 1] > near[FAR, j]:
                key[k], taken[k] = key[k - 1], taken[k - 1]
                k -= 1
            key[k], taken[k] = near[FAR, j], j
            if count == out + spot[MANY]:
                farthest = key[count - 1]
    for k in range(out, count):
        near[FAR, taken[k]] = -1
    kept = 0
    for k in range(now[ROWS]):
        j = work[ROW, k]
        if near[FAR, j] >= 0:
            work[NEXT_ROW, kept] = j
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
    """The state, and below which of those that ``i`` meets there is a gap it fits, or −1."""
    floor, ceiling, need = site.work[FLOOR], site.work[CEILING], site.unit[i, SIZE]
    best, least = -1, BEYOND
    for k in range(_ranks(site, capacity, i, NEXT_ROW) + 1):
        room = ceiling[k] - floor[k] - need
        if room < 0 or _as_low(site, i, floor[k]) > _as_high(site, i, ceiling[k]):
            continue
        worth = room
        if rule == LOWEST:
            worth = k
        elif rule == HIGHEST:
            worth = -k
        elif rule == WIDEST:
            worth = -room
        state, r = _draw(state)
        if r % EVERY and worth < least:
            least, best = worth, k
            if rule == LOWEST:
                break
    return state, best


@njit_leaf
def _put(site: Site, capacity: int, i: int, k: int) -> None:
    """Have ``i`` lie right below one of those it meets; who lies above it makes room, and who lies below it."""
    row, top, high, unit = site.work[NEXT_ROW], site.work[NEXT_TOP], site.work[NEXT_HIGH], site.unit
    at, rows = site.work[RANK, k], site.spot[FIRM]
    most = top[i] = _as_low(site, i, site.work[FLOOR, k]) + unit[i, SIZE]
    least = high[i] = _as_high(site, i, site.work[CEILING, k])
    for q in range(rows, at, -1):
        row[q] = row[q - 1]
    row[at] = i
    site.spot[FIRM] += 1
    _level(site, 0)
    _raise(site, i, most)
    for q in range(at + 1, rows + 1):
        j = row[q]
        if top[j] - unit[j, SIZE] < most:
            floor = _highest(site, j)
            if floor > top[j] - unit[j, SIZE]:
                top[j] = _as_low(site, j, floor) + unit[j, SIZE]
                _raise(site, j, top[j])
                most = max(most, top[j])
    _level(site, capacity)
    _lower(site, i, least)
    for q in range(at - 1, -1, -1):
        j = row[q]
        if high[j] + unit[j, SIZE] > least:
            ceiling = _lowest(site, capacity, j)
            if ceiling < high[j] + unit[j, SIZE]:
                high[j] = _as_high(site, j, ceiling)
                _lower(site, j, high[j])
                least = min(least, high[j])


@njit_leaf
def _put_up(site: Site, capacity: int, most: int, state: int) -> tuple[int, int, int]:
    """Put back who has no place, as long as less than ``most`` is left out.

    The state; how many are left out, in front of ``ORDER``; and what it costs.
    """
    spot, order = site.spot, site.work[ORDER]
    _let_loose(site, capacity, NEXT_ROW, spot[FIRM])
    state, common = _draw(state)
    cost, still = 0, 0
    for k in range(spot[LOOSE]):
        if cost >= most:
            break
        i = order[k]
        state, r = _draw(state)
        state, at = _gap(site, capacity, i, common & 3 if r & 7 else (r >> 3) & 3, state)
        if at >= 0:
            _put(site, capacity, i, at)
        else:
            order[still] = i
            still += 1
            cost += _left_out(site, i, 0)
    return state, still, _cost_of(site, capacity, still, NEXT_ROW) if cost < most else cost


@njit_leaf
def _begin(site: Site, capacity: int) -> None:
    """Have ``Site.near``, ``TOP``, ``HIGH`` and ``COST`` say what the packing at hand and a capacity do."""
    unit, near, now = site.unit, site.near, site.now
    for i in range(len(unit)):
        near[FROM, i], near[UNTIL, i] = unit[i, BORN], unit[i, DIES]
        near[LONG, i] = 3 * (unit[i, DIES] - unit[i, BORN])
        near[TALL, i] = unit[i, SIZE] * UNITS // capacity if unit[i, SIZE] < capacity else UNITS
    _let_loose(site, capacity, ROW, now[ROWS])
    now[COST] = _cost_of(site, capacity, now[OUT], ROW)


@njit_leaf
def rebuild(site: Site, capacity: int, turns: int, ruin: int, stop: I64) -> bool:
    """Whether nobody is left out after at most ``turns``; offsets are then ``site.work[OFFSET]``.

    Goes on from ``site.now[TURN]``, and ends soon after ``stop[0]`` is set from outside.
    """
    work, now, spot, weight = site.work, site.now, site.spot, site.work[WEIGHT]
    every = max(turns // ROUNDS, 1)
    _begin(site, capacity)
    while now[OUT] and now[TURN] < turns and not stop[0]:
        state = _chosen(site, capacity, ruin, now[DRAWN])
        state = _torn_down(site, state)
        state = _in_an_order(site, state)
        state, r = _draw(state)
        most = now[COST] + max(site.heat[now[TURN] * STAGES // turns] * site.loss[r & 1023] >> 20, 0)
        state, still, cost = _put_up(site, capacity, most, state)
        if cost < most:
            rows = spot[FIRM]
            for k in range(rows):
                work[ROW, k] = work[NEXT_ROW, k]
            for i in range(len(site.unit)):
                work[TOP, i], work[HIGH, i] = work[NEXT_TOP, i], work[NEXT_HIGH, i]
            for k in range(still):
                work[LEFT, k] = work[ORDER, k]
            now[ROWS], now[OUT], now[COST] = rows, still, cost
            now[FEWEST] = min(now[FEWEST], still)
        now[DRAWN] = state
        now[TURN] += 1
        if now[TURN] % every == 0:
            for k in range(now[OUT]):
                weight[work[LEFT, k]] += weight[work[LEFT, k]] // DEARER + 1
            now[COST] = _cost_of(site, capacity, now[OUT], ROW)
    for i in range(len(site.unit)):
        work[OFFSET, i] = -1
    for k in range(now[ROWS]):
        work[OFFSET, work[ROW, k]] = work[TOP, work[ROW, k]] - site.unit[work[ROW, k], SIZE]
    return bool(now[OUT] == 0)
