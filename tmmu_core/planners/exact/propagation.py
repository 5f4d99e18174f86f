"""Propagation: raise the lower bound of every offset until nothing changes or a conflict is found.

Every raise is an *event* on the trail, with its reason. Raises come from:

* a unit placed at ``a``: its neighbours above ``a`` start at or above its end (``BY_UNIT``);
* a *hole*: the unit lies above one of those that can still fill it, below its end (dominance, ``BY_HOLE``);
* a section of which only one open unit can be lowest: the others lie above it (``BY_SECTION``);
* identical units, ordered by number (symmetry, ``BY_TWIN``);
* alignment and fixed units, at every raise.

A conflict is a unit that ends above the capacity, a section whose lowest offset and open bytes exceed it (section
bound), or a hole that no unit can fill.

*Conflict analysis* computes the decision levels that a conflict depends on (its nogood). The events are read backwards.
Claims of the form "this unit lies at n or above" are collected per unit; the event that made a claim true replaces it
by the claims it followed from, and adds the level of a decision it used. A claim that already held before the event
stays as it is. Decisions that play no part are not in the nogood, so the search jumps back over them.

Every claim holds in all packings of least Σ height · offset among those that fit and contain the decisions:

* first branch ("no other unit overlaps u at a"): every unit that ends above ``a`` starts above the end of u, and u
  lies no higher than ``a``, else it could be moved down;
* second branch (a hole): some unit overlaps that place.
"""

from tmmu_core.planners.exact import search_tables as tab
from tmmu_core.planners.exact.search_tables import State, Tables
from tmmu_core.planners.problem import I64

FAR = 2**62

BY_UNIT, BY_HOLE, BY_SECTION, BY_TWIN = range(4)
"""Reasons of an event, with ``CAUSE`` and ``DETAIL``: unit and row of ``Tables.neighbour``; hole and its level; section
and its lowest unit; twin."""

OFFSET_TOO_HIGH, SECTION_TOO_FULL, HOLE_UNFILLED, DOMINATED, NO_CANDIDATE, TRAIL_FULL = range(6)
"""Kinds of conflict, with ``CONFLICT_A`` and ``CONFLICT_B``: unit and its least impossible offset; section and its
lowest offset; unit with the hole; unit and the smaller one below it; none. ``TRAIL_FULL``: the event table has no
free row."""


def _record_conflict(state: State, kind: int, one: int, two: int) -> bool:
    state.counters[tab.CONFLICT], state.counters[tab.CONFLICT_A], state.counters[tab.CONFLICT_B] = kind, one, two
    return False


def _raise_offset(
    tables: Tables, state: State, capacity: int, u: int, at_least: int, reason: tuple[int, int, int]
) -> bool:
    """Raise the lower bound of ``u``; return ``False`` and record the conflict if ``u`` has no offset left."""
    unit, event = state.unit, state.event
    e = state.counters[tab.EVENT_COUNT]
    if e == len(event):
        return _record_conflict(state, TRAIL_FULL, u, 0)
    state.counters[tab.EVENT_COUNT] = e + 1
    old = unit[u, tab.LOW]
    event[e, tab.RAISED], event[e, tab.OLD_LOW], event[e, tab.REQUESTED] = u, old, at_least
    event[e, tab.REASON], event[e, tab.CAUSE], event[e, tab.DETAIL] = reason[0], reason[1], reason[2]
    at = tab.lowest_allowed_offset(tables.unit, tables.wall, u, at_least)
    unit[u, tab.LOW] = at
    if at + tables.unit[u, tab.MAX_HEIGHT] > capacity:
        return _record_conflict(state, OFFSET_TOO_HIGH, u, capacity - tables.unit[u, tab.MAX_HEIGHT] + 1)
    if at > tables.unit[u, tab.FIXED] >= 0:
        return _record_conflict(state, OFFSET_TOO_HIGH, u, tables.unit[u, tab.FIXED] + 1)
    if not unit[u, tab.QUEUED]:
        unit[u, tab.QUEUED], unit[u, tab.QUEUED_LOW] = 1, old
        state.changed[state.counters[tab.CHANGED_COUNT]] = u
        state.counters[tab.CHANGED_COUNT] += 1
    return True


def place_unit(tables: Tables, state: State, capacity: int, u: int, level: int) -> bool:
    """Place ``u`` at its lowest offset, below all unplaced neighbours that overlap it."""
    unit, section, order = state.unit, state.section, state.order
    at = unit[u, tab.LOW]
    unit[u, tab.PLACED], unit[u, tab.PLACED_SINCE], unit[u, tab.LEVEL] = 1, state.counters[tab.EVENT_COUNT], level
    state.placed[state.counters[tab.PLACED_COUNT]] = u
    state.counters[tab.PLACED_COUNT] += 1
    for e in range(tables.unit[u, tab.ENTRIES], tables.unit[u + 1, tab.ENTRIES]):
        s = tables.entry[e, tab.SECTION]
        section[s, tab.OPEN_BYTES] -= tables.entry[e, tab.HEIGHT]
        section[s, tab.OPEN_UNITS] -= 1
        last = tables.first[s] + section[s, tab.OPEN_UNITS]
        here, other = order[e, 1], order[last, 0]
        order[here, 0], order[last, 0] = other, e
        order[other, 1], order[e, 1] = here, last
        if not section[s, tab.SECTION_QUEUED]:
            section[s, tab.SECTION_QUEUED] = 1
            state.dirty[state.counters[tab.DIRTY_COUNT]] = s
            state.counters[tab.DIRTY_COUNT] += 1
    for k in range(tables.unit[u, tab.NEIGHBOURS], tables.unit[u + 1, tab.NEIGHBOURS]):
        w = tables.neighbour[k, tab.OTHER]
        if unit[w, tab.PLACED]:
            continue
        end = at + tables.neighbour[k, tab.OWN_HEIGHT]
        hole = unit[w, tab.HOLE]
        if hole >= 0 and end > hole and at < hole + tables.neighbour[k, tab.OTHER_HEIGHT]:
            row = state.counters[tab.FILLED_COUNT]
            state.filled[row, 0], state.filled[row, 1], state.filled[row, 2] = w, hole, unit[w, tab.HOLE_LEVEL]
            state.counters[tab.FILLED_COUNT] = row + 1
            close_hole(state, w)
        rises = unit[w, tab.LOW] < end and unit[w, tab.LOW] + tables.neighbour[k, tab.OTHER_HEIGHT] > at
        if rises and not _raise_offset(tables, state, capacity, w, end, (BY_UNIT, u, k)):
            return False
    return True


def open_hole(state: State, u: int, at: int, level: int) -> None:
    """Require that some unit overlaps the place of ``u`` at ``at``."""
    row = state.counters[tab.HOLE_COUNT]
    state.unit[u, tab.HOLE], state.unit[u, tab.HOLE_LEVEL], state.unit[u, tab.HOLE_ROW], state.unit[u, tab.FILLER] = (
        at,
        level,
        row,
        -1,
    )
    state.holes[row] = u
    state.counters[tab.HOLE_COUNT] = row + 1


def close_hole(state: State, u: int) -> None:
    """Remove the requirement: a unit fills the hole."""
    last = state.counters[tab.HOLE_COUNT] - 1
    row, other = state.unit[u, tab.HOLE_ROW], state.holes[last]
    state.holes[row] = other
    state.unit[other, tab.HOLE_ROW] = row
    state.counters[tab.HOLE_COUNT] = last
    state.unit[u, tab.HOLE] = -1


def _find_filler(tables: Tables, state: State, u: int) -> int:
    """Return the least end of the units that can still fill the hole of ``u``; FAR: none."""
    unit, hole = state.unit, state.unit[u, tab.HOLE]
    least, filler = FAR, -1
    for k in range(tables.unit[u, tab.NEIGHBOURS], tables.unit[u + 1, tab.NEIGHBOURS]):
        w = tables.neighbour[k, tab.OTHER]
        if unit[w, tab.PLACED] or tables.unit[w, tab.FIXED] >= 0:
            continue
        low = unit[w, tab.LOW]
        if low >= hole + tables.neighbour[k, tab.OWN_HEIGHT]:
            continue
        end = max(low + tables.neighbour[k, tab.OTHER_HEIGHT], hole + 1)
        if end < least:
            least, filler = end, w
    unit[u, tab.FILLER], unit[u, tab.FILLER_END] = filler, least
    unit[u, tab.FILLER_LOW] = unit[filler, tab.LOW] if filler >= 0 else 0
    return least


def _two_lowest(tables: Tables, state: State, begin: int, count: int) -> tuple[int, int]:
    """Return the rows of the lowest open unit of a section and of the lowest of the others; −1: none."""
    if count < 2:
        return (begin if count else -1), -1
    low = state.unit[tables.entry[state.order[begin : begin + count, 0], tab.OWNER], tab.LOW]
    first = int(low.argmin())
    low[first] = FAR
    return begin + first, begin + int(low.argmin())


def _propagate_section(tables: Tables, state: State, capacity: int, s: int) -> bool:
    """Check the section bound, and whether only one unit can be lowest."""
    section, unit = state.section, state.unit
    left, rest, begin = section[s, tab.OPEN_UNITS], section[s, tab.OPEN_BYTES], tables.first[s]
    low, second, lowest, high, other = FAR, FAR, -1, 0, -1
    one, two = _two_lowest(tables, state, begin, left)
    if one >= 0:
        e = state.order[one, 0]
        lowest, high = tables.entry[e, tab.OWNER], tables.entry[e, tab.HEIGHT]
        low = unit[lowest, tab.LOW]
    if two >= 0:
        other = tables.entry[state.order[two, 0], tab.OWNER]
        second = unit[other, tab.LOW]
    section[s, tab.LOWEST], section[s, tab.SECOND_LOWEST] = lowest, other
    if left and low + rest > capacity:
        return _record_conflict(state, SECTION_TOO_FULL, s, low)
    if left > 1 and second + rest > capacity and second < low + high:
        for row in range(begin, begin + left):
            u = tables.entry[state.order[row, 0], tab.OWNER]
            rises = u != lowest and unit[u, tab.LOW] < low + high
            if rises and not _raise_offset(tables, state, capacity, u, low + high, (BY_SECTION, s, lowest)):
                return False
    return True


def propagate(tables: Tables, state: State, capacity: int) -> bool:
    """Propagate to a fixed point; return ``False`` and record the conflict if a unit has no offset left."""
    unit, section, count = state.unit, state.section, state.counters
    while True:
        while count[tab.CHANGED_COUNT]:
            count[tab.CHANGED_COUNT] -= 1
            u = state.changed[count[tab.CHANGED_COUNT]]
            unit[u, tab.QUEUED] = 0
            old = unit[u, tab.QUEUED_LOW]
            for e in range(tables.unit[u, tab.ENTRIES], tables.unit[u + 1, tab.ENTRIES]):
                # Only a section whose two lowest units moved or were placed can propagate.
                s = tables.entry[e, tab.SECTION]
                if not section[s, tab.SECTION_QUEUED]:
                    w = section[s, tab.SECOND_LOWEST]
                    if (
                        w < 0
                        or unit[w, tab.PLACED]
                        or old <= unit[w, tab.LOW]
                        or unit[section[s, tab.LOWEST], tab.PLACED]
                    ):
                        section[s, tab.SECTION_QUEUED] = 1
                        state.dirty[count[tab.DIRTY_COUNT]] = s
                        count[tab.DIRTY_COUNT] += 1
            twin = tables.unit[u, tab.TWIN]
            if twin >= 0 and not unit[twin, tab.PLACED]:
                end = unit[u, tab.LOW] + tables.unit[u, tab.MAX_HEIGHT]
                if unit[twin, tab.LOW] < end and not _raise_offset(tables, state, capacity, twin, end, (BY_TWIN, u, 0)):
                    return False
        while count[tab.DIRTY_COUNT]:
            count[tab.DIRTY_COUNT] -= 1
            s = state.dirty[count[tab.DIRTY_COUNT]]
            section[s, tab.SECTION_QUEUED] = 0
            if not _propagate_section(tables, state, capacity, s):
                return False
        for row in range(count[tab.HOLE_COUNT] if not count[tab.CHANGED_COUNT] else 0):
            u = state.holes[row]
            w = unit[u, tab.FILLER]
            known = w >= 0 and not unit[w, tab.PLACED] and unit[w, tab.LOW] == unit[u, tab.FILLER_LOW]
            if known and unit[u, tab.LOW] >= unit[u, tab.FILLER_END]:
                continue
            end = _find_filler(tables, state, u)
            if end == FAR:
                return _record_conflict(state, HOLE_UNFILLED, u, 0)
            if end > unit[u, tab.LOW]:
                why = (BY_HOLE, unit[u, tab.HOLE], unit[u, tab.HOLE_LEVEL])
                if not _raise_offset(tables, state, capacity, u, end, why):
                    return False
        if not count[tab.CHANGED_COUNT]:
            return True


def clear_queues(state: State) -> None:
    """Empty the queues of changed units and sections."""
    count = state.counters
    while count[tab.CHANGED_COUNT]:
        count[tab.CHANGED_COUNT] -= 1
        state.unit[state.changed[count[tab.CHANGED_COUNT]], tab.QUEUED] = 0
    while count[tab.DIRTY_COUNT]:
        count[tab.DIRTY_COUNT] -= 1
        state.section[state.dirty[count[tab.DIRTY_COUNT]], tab.SECTION_QUEUED] = 0


def undo(tables: Tables, state: State, marks: I64) -> None:
    """Undo all events, placements and filled holes after ``marks``."""
    unit, section, count = state.unit, state.section, state.counters
    while count[tab.FILLED_COUNT] > marks[2]:
        count[tab.FILLED_COUNT] -= 1
        u = state.filled[count[tab.FILLED_COUNT], 0]
        open_hole(state, u, state.filled[count[tab.FILLED_COUNT], 1], state.filled[count[tab.FILLED_COUNT], 2])
    while count[tab.EVENT_COUNT] > marks[0]:
        count[tab.EVENT_COUNT] -= 1
        e = count[tab.EVENT_COUNT]
        unit[state.event[e, tab.RAISED], tab.LOW] = state.event[e, tab.OLD_LOW]
    while count[tab.PLACED_COUNT] > marks[1]:
        count[tab.PLACED_COUNT] -= 1
        u = state.placed[count[tab.PLACED_COUNT]]
        unit[u, tab.PLACED], unit[u, tab.LEVEL] = 0, -1
        for e in range(tables.unit[u + 1, tab.ENTRIES] - 1, tables.unit[u, tab.ENTRIES] - 1, -1):
            s = tables.entry[e, tab.SECTION]
            section[s, tab.OPEN_UNITS] += 1
            section[s, tab.OPEN_BYTES] += tables.entry[e, tab.HEIGHT]


def analyse_conflict(tables: Tables, state: State, capacity: int) -> None:
    """Set ``state.conflict_levels`` for the failure in ``state.counters``; it must be all 0 before."""
    unit, event, count = state.unit, state.event, state.counters
    now = count[tab.EVENT_COUNT]
    for u in range(len(unit)):
        unit[u, tab.CLAIM], unit[u, tab.LOW_THEN] = 0, unit[u, tab.LOW]
    _initial_claims(tables, state, capacity)
    for e in range(now - 1, -1, -1):
        u = event[e, tab.RAISED]
        need = unit[u, tab.CLAIM]
        unit[u, tab.LOW_THEN] = event[e, tab.OLD_LOW]
        if need <= event[e, tab.OLD_LOW]:
            continue
        unit[u, tab.CLAIM] = 0
        need = min(need, event[e, tab.REQUESTED])
        one, two = event[e, tab.CAUSE], event[e, tab.DETAIL]
        if event[e, tab.REASON] == BY_UNIT:
            _add_level(state.conflict_levels, unit[one, tab.LEVEL])
            _claim(unit, u, unit[one, tab.LOW] - tables.neighbour[two, tab.OTHER_HEIGHT] + 1)
        elif event[e, tab.REASON] == BY_HOLE:
            _explain_hole(tables, state, u, (one, two), need, e)
        elif event[e, tab.REASON] == BY_TWIN:
            _claim(unit, one, need - tables.unit[one, tab.MAX_HEIGHT])
        else:
            _explain_section(tables, state, (one, two), need, capacity, e)


def _add_level(levels: I64, level: int) -> None:
    if level >= 0:
        levels[level] = 1


def _claim(unit: I64, u: int, at: int) -> None:
    if unit[u, tab.CLAIM] < at:
        unit[u, tab.CLAIM] = at


def _initial_claims(tables: Tables, state: State, capacity: int) -> None:
    """Add the claims that contradict each other."""
    unit, count = state.unit, state.counters
    one, two = count[tab.CONFLICT_A], count[tab.CONFLICT_B]
    if count[tab.CONFLICT] == OFFSET_TOO_HIGH:
        _claim(unit, one, two)
    elif count[tab.CONFLICT] == SECTION_TOO_FULL:
        begin, total = tables.first[one], 0
        end = begin + state.section[one, tab.OPEN_UNITS]
        for row in range(begin, end):
            total += tables.entry[state.order[row, 0], tab.HEIGHT]
        for row in range(begin, end):
            _claim(unit, tables.entry[state.order[row, 0], tab.OWNER], capacity - total + 1)
    elif count[tab.CONFLICT] == HOLE_UNFILLED:
        _explain_hole(tables, state, one, (unit[one, tab.HOLE], unit[one, tab.HOLE_LEVEL]), FAR, count[tab.EVENT_COUNT])
    elif count[tab.CONFLICT] == DOMINATED:
        _add_level(state.conflict_levels, unit[two, tab.LEVEL])
        _claim(unit, one, unit[one, tab.LOW])
        _claim(unit, two, unit[two, tab.LOW])


def _explain_hole(tables: Tables, state: State, u: int, hole: tuple[int, int], need: int, now: int) -> None:
    """Add the claims from which every unit that can fill a hole (offset, level) ends at ``need`` or above."""
    unit = state.unit
    at, level = hole
    _add_level(state.conflict_levels, level)
    _claim(unit, u, at)
    if need <= at + 1:
        return
    for k in range(tables.unit[u, tab.NEIGHBOURS], tables.unit[u + 1, tab.NEIGHBOURS]):
        w = tables.neighbour[k, tab.OTHER]
        if tables.unit[w, tab.FIXED] >= 0:
            continue
        low, over = unit[w, tab.LOW_THEN], at + tables.neighbour[k, tab.OWN_HEIGHT]
        if unit[w, tab.PLACED] and unit[w, tab.PLACED_SINCE] <= now:
            if low >= over:
                _claim(unit, w, over)
            else:  # w ends below the hole
                _add_level(state.conflict_levels, unit[w, tab.LEVEL])
        elif need - tables.neighbour[k, tab.OTHER_HEIGHT] <= min(low, over):
            _claim(unit, w, need - tables.neighbour[k, tab.OTHER_HEIGHT])
        else:
            _claim(unit, w, over)


def _explain_section(
    tables: Tables, state: State, section: tuple[int, int], need: int, capacity: int, now: int
) -> None:
    """Add the claims from which ``lowest`` must be the lowest open unit of section ``s`` and ends at ``need`` or
    above.
    """
    unit = state.unit
    s, lowest = section
    rest, high = 0, 0
    for row in range(tables.first[s], tables.first[s + 1]):
        e = state.order[row, 0]
        u = tables.entry[e, tab.OWNER]
        if not unit[u, tab.PLACED] or unit[u, tab.PLACED_SINCE] > now:
            rest += tables.entry[e, tab.HEIGHT]
            if u == lowest:
                high = tables.entry[e, tab.HEIGHT]
    for row in range(tables.first[s], tables.first[s + 1]):
        u = tables.entry[state.order[row, 0], tab.OWNER]
        if not unit[u, tab.PLACED] or unit[u, tab.PLACED_SINCE] > now:
            _claim(unit, u, need - high if u == lowest else capacity - rest + 1)
