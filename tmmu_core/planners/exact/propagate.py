"""What follows from what is placed: the least offset of every unit, raised until nothing moves or nothing fits.

A raise is an *event*, kept with its reason (:mod:`.reasons` reads them). Five things raise:

* a unit placed at ``a`` clears its neighbours: above ``a`` they are above its end (``BY_UNIT``);
* a *hole*: it was decided that somebody meets the place a unit could drop to, so the unit lies above one of those who
  still can (``BY_HOLE``);
* of all that a section still has to hold only one can lie lowest: the others lie above it (``BY_FIRST``);
* identical units lie in the order of their numbers (``BY_TWIN``);
* the grid and the fixed units, at every raise.

Nothing fits where a unit's end passes the capacity, where a section's least offset and its unplaced bytes do, or where
nobody can meet a hole.
"""

from __future__ import annotations

from tmmu_core.compiled import njit_leaf, njit_or
from tmmu_core.planners.exact import plain
from tmmu_core.planners.exact.tables import (
    ASKED,
    CHANGED,
    CONFLICT,
    DIRTY,
    ENTRIES,
    EVENTS,
    FIRST_OF_IT,
    FIXED,
    FROM,
    HEIGHT,
    HOLE,
    HOLE_LEVEL,
    HOLE_ROW,
    HOLES,
    LEFT,
    LEVEL,
    LOW,
    LOWEST,
    MET,
    NEAREST,
    NEAREST_END,
    NEAREST_LOW,
    NEIGHBOURS,
    OLD,
    ONE,
    OTHER,
    OVER,
    OWNER,
    PLACED,
    PUT,
    REST,
    SECOND,
    SECOND_OF_IT,
    SECTION,
    STALE,
    TALL,
    TWIN,
    TWO,
    UNDER,
    WAITS,
    WHEN,
    WHO,
    WHY,
    Shape,
    State,
    settle,
)
from tmmu_core.planners.problem import I64

FAR = 2**62

BY_UNIT, BY_HOLE, BY_FIRST, BY_TWIN = range(4)
"""Reasons of an event; ``ONE`` and ``TWO`` are: the unit and the row of the neighbour in its table; the hole and its
level; the section and who is lowest in it; the twin."""

TOO_HIGH, TOO_FULL, UNMET, UPON, STUCK, NO_ROOM = range(6)
"""Kinds of failure; the two cells behind are: unit and the offset that is too high; section and its least offset; the
unit whose hole nobody can meet; a unit and the smaller one it must not lie directly upon; nothing. ``NO_ROOM`` is no
failure of the packing: the table of events is full."""

SECTIONS, FIRSTS, DOMINANCE, TWINS, SWAPS, JUMPS = 1, 2, 4, 8, 16, 32
"""Switches: the section bound, who must be lowest, holes must be met in their own height, the order of twins, larger
upon smaller, jumping back over what a failure does not hang on."""
ALL = 63


@njit_leaf
def _fail(state: State, kind: int, one: int, two: int) -> bool:
    state.tally[CONFLICT], state.tally[FIRST_OF_IT], state.tally[SECOND_OF_IT] = kind, one, two
    return False


@njit_leaf
def _raise(shape: Shape, state: State, capacity: int, who: int, to: int, why: tuple[int, int, int]) -> bool:
    """``who`` cannot start below ``to``. ``False``: then it cannot start at all."""
    unit, event = state.unit, state.event
    e = state.tally[EVENTS]
    if e == len(event):
        return _fail(state, NO_ROOM, who, 0)
    state.tally[EVENTS] = e + 1
    old = unit[who, LOW]
    event[e, WHO], event[e, FROM], event[e, ASKED] = who, old, to
    event[e, WHY], event[e, ONE], event[e, TWO] = why[0], why[1], why[2]
    at = settle(shape.unit, shape.wall, who, to)
    unit[who, LOW] = at
    if at + shape.unit[who, TALL] > capacity:
        return _fail(state, TOO_HIGH, who, capacity - shape.unit[who, TALL] + 1)
    if at > shape.unit[who, FIXED] >= 0:
        return _fail(state, TOO_HIGH, who, shape.unit[who, FIXED] + 1)
    if not unit[who, WAITS]:
        unit[who, WAITS], unit[who, OLD] = 1, old
        state.changed[state.tally[CHANGED]] = who
        state.tally[CHANGED] += 1
    return True


@njit_leaf
def put(shape: Shape, state: State, capacity: int, switches: int, u: int, level: int) -> bool:
    """Place ``u`` as low as it can be, all that meets it and is not yet placed above it."""
    unit, section, order = state.unit, state.section, state.order
    at = unit[u, LOW]
    unit[u, PLACED], unit[u, WHEN], unit[u, LEVEL] = 1, state.tally[EVENTS], level
    state.placed[state.tally[PUT]] = u
    state.tally[PUT] += 1
    for e in range(shape.unit[u, ENTRIES], shape.unit[u + 1, ENTRIES]):
        s = shape.entry[e, SECTION]
        section[s, REST] -= shape.entry[e, HEIGHT]
        section[s, LEFT] -= 1
        last = shape.first[s] + section[s, LEFT]
        here, other = order[e, 1], order[last, 0]
        order[here, 0], order[last, 0] = other, e
        order[other, 1], order[e, 1] = here, last
        if not section[s, STALE]:
            section[s, STALE] = 1
            state.dirty[state.tally[DIRTY]] = s
            state.tally[DIRTY] += 1
    for k in range(shape.unit[u, NEIGHBOURS], shape.unit[u + 1, NEIGHBOURS]):
        w = shape.neighbour[k, OTHER]
        if unit[w, PLACED]:
            continue
        end = at + shape.neighbour[k, OVER]
        hole = unit[w, HOLE]
        if hole >= 0 and end > hole and (at < hole + shape.neighbour[k, UNDER] or not switches & DOMINANCE):
            row = state.tally[MET]
            state.met[row, 0], state.met[row, 1], state.met[row, 2] = w, hole, unit[w, HOLE_LEVEL]
            state.tally[MET] = row + 1
            close_hole(state, w)
        rises = unit[w, LOW] < end and unit[w, LOW] + shape.neighbour[k, UNDER] > at
        if rises and not _raise(shape, state, capacity, w, end, (BY_UNIT, u, k)):
            return False
    return True


@njit_leaf
def open_hole(state: State, u: int, at: int, level: int) -> None:
    """From now on somebody has to meet the place of ``u`` at ``at``."""
    row = state.tally[HOLES]
    state.unit[u, HOLE], state.unit[u, HOLE_LEVEL], state.unit[u, HOLE_ROW], state.unit[u, NEAREST] = at, level, row, -1
    state.holes[row] = u
    state.tally[HOLES] = row + 1


@njit_leaf
def close_hole(state: State, u: int) -> None:
    """Somebody has met it."""
    last = state.tally[HOLES] - 1
    row, other = state.unit[u, HOLE_ROW], state.holes[last]
    state.holes[row] = other
    state.unit[other, HOLE_ROW] = row
    state.tally[HOLES] = last
    state.unit[u, HOLE] = -1


@njit_leaf
def _reach(shape: Shape, state: State, u: int, dominance: bool) -> int:
    """The least end of those who can still meet a hole; FAR when there is nobody."""
    unit, hole = state.unit, state.unit[u, HOLE]
    least, who = FAR, -1
    for k in range(shape.unit[u, NEIGHBOURS], shape.unit[u + 1, NEIGHBOURS]):
        w = shape.neighbour[k, OTHER]
        if unit[w, PLACED] or shape.unit[w, FIXED] >= 0:
            continue
        low = unit[w, LOW]
        if dominance and low >= hole + shape.neighbour[k, OVER]:
            continue
        end = max(low + shape.neighbour[k, UNDER], hole + 1)
        if end < least:
            least, who = end, w
    unit[u, NEAREST], unit[u, NEAREST_END] = who, least
    unit[u, NEAREST_LOW] = unit[who, LOW] if who >= 0 else 0
    return least


def _two_lowest_plainly(shape: Shape, state: State, begin: int, left: int) -> tuple[int, int]:
    who = shape.entry[state.order[begin : begin + left, 0], OWNER]
    first, second = plain.two_lowest(state.unit[who, LOW])
    return begin + first if first >= 0 else -1, begin + second if second >= 0 else -1


@njit_or(_two_lowest_plainly)
def _two_lowest(shape: Shape, state: State, begin: int, left: int) -> tuple[int, int]:
    """Rows of ``state.order`` of a section's lowest and of the lowest of its others; −1 where there is none."""
    low, second, first, other = FAR, FAR, -1, -1
    for row in range(begin, begin + left):
        at = state.unit[shape.entry[state.order[row, 0], OWNER], LOW]
        if at < low:
            second, other = low, first
            low, first = at, row
        elif at < second:
            second, other = at, row
    return first, other


@njit_leaf
def _look_at(shape: Shape, state: State, capacity: int, switches: int, s: int) -> bool:
    """The section bound, and who alone can be lowest."""
    section, unit = state.section, state.unit
    left, rest, begin = section[s, LEFT], section[s, REST], shape.first[s]
    low, second, who, high, other = FAR, FAR, -1, 0, -1
    one, two = _two_lowest(shape, state, begin, left)
    if one >= 0:
        e = state.order[one, 0]
        who, high = shape.entry[e, OWNER], shape.entry[e, HEIGHT]
        low = unit[who, LOW]
    if two >= 0:
        other = shape.entry[state.order[two, 0], OWNER]
        second = unit[other, LOW]
    section[s, LOWEST], section[s, SECOND] = who, other
    if left and switches & SECTIONS and low + rest > capacity:
        return _fail(state, TOO_FULL, s, low)
    if left > 1 and switches & FIRSTS and second + rest > capacity and second < low + high:
        for row in range(begin, begin + left):
            u = shape.entry[state.order[row, 0], OWNER]
            rises = u != who and unit[u, LOW] < low + high
            if rises and not _raise(shape, state, capacity, u, low + high, (BY_FIRST, s, who)):
                return False
    return True


@njit_leaf
def propagate(shape: Shape, state: State, capacity: int, switches: int) -> bool:
    """Until nothing moves; ``False``: nothing fits, ``state.tally`` says why."""
    unit, section, count = state.unit, state.section, state.tally
    while True:
        while count[CHANGED]:
            count[CHANGED] -= 1
            u = state.changed[count[CHANGED]]
            unit[u, WAITS] = 0
            old = unit[u, OLD]
            for e in range(shape.unit[u, ENTRIES], shape.unit[u + 1, ENTRIES]):
                # A section must be looked at again if one of its two lowest has moved, or been placed.
                s = shape.entry[e, SECTION]
                if not section[s, STALE]:
                    w = section[s, SECOND]
                    if w < 0 or unit[w, PLACED] or old <= unit[w, LOW] or unit[section[s, LOWEST], PLACED]:
                        section[s, STALE] = 1
                        state.dirty[count[DIRTY]] = s
                        count[DIRTY] += 1
            twin = shape.unit[u, TWIN]
            if switches & TWINS and twin >= 0 and not unit[twin, PLACED]:
                end = unit[u, LOW] + shape.unit[u, TALL]
                if unit[twin, LOW] < end and not _raise(shape, state, capacity, twin, end, (BY_TWIN, u, 0)):
                    return False
        while count[DIRTY]:
            count[DIRTY] -= 1
            s = state.dirty[count[DIRTY]]
            section[s, STALE] = 0
            if not _look_at(shape, state, capacity, switches, s):
                return False
        for row in range(count[HOLES] if not count[CHANGED] else 0):
            u = state.holes[row]
            w = unit[u, NEAREST]
            known = w >= 0 and not unit[w, PLACED] and unit[w, LOW] == unit[u, NEAREST_LOW]
            if known and unit[u, LOW] >= unit[u, NEAREST_END]:
                continue
            end = _reach(shape, state, u, switches & DOMINANCE > 0)
            if end == FAR:
                return _fail(state, UNMET, u, 0)
            if end > unit[u, LOW]:
                why = (BY_HOLE, unit[u, HOLE], unit[u, HOLE_LEVEL])
                if not _raise(shape, state, capacity, u, end, why):
                    return False
        if not count[CHANGED]:
            return True


@njit_leaf
def stop_propagating(state: State) -> None:
    """Forget what waits."""
    count = state.tally
    while count[CHANGED]:
        count[CHANGED] -= 1
        state.unit[state.changed[count[CHANGED]], WAITS] = 0
    while count[DIRTY]:
        count[DIRTY] -= 1
        state.section[state.dirty[count[DIRTY]], STALE] = 0


@njit_leaf
def take_back(shape: Shape, state: State, marks: I64) -> None:
    """Undo all that came after ``marks`` (events, units placed, holes met)."""
    unit, section, count = state.unit, state.section, state.tally
    while count[MET] > marks[2]:
        count[MET] -= 1
        u = state.met[count[MET], 0]
        open_hole(state, u, state.met[count[MET], 1], state.met[count[MET], 2])
    while count[EVENTS] > marks[0]:
        count[EVENTS] -= 1
        e = count[EVENTS]
        unit[state.event[e, WHO], LOW] = state.event[e, FROM]
    while count[PUT] > marks[1]:
        count[PUT] -= 1
        u = state.placed[count[PUT]]
        unit[u, PLACED], unit[u, LEVEL] = 0, -1
        for e in range(shape.unit[u + 1, ENTRIES] - 1, shape.unit[u, ENTRIES] - 1, -1):
            s = shape.entry[e, SECTION]
            section[s, LEFT] += 1
            section[s, REST] += shape.entry[e, HEIGHT]
