"""Conflict analysis: the decision levels that a conflict depends on (its nogood).

The events of the trail are read backwards. Claims of the form "this unit lies at n or above" are collected per unit;
the event that made a claim true replaces it by the claims it followed from, and adds the level of a decision it used.
A claim that already held before the event stays as it is. Decisions that play no part are not in the nogood, so the
search jumps back over them.

Every claim holds in all packings of least Σ height · offset among those that fit and contain the decisions:

* first branch ("no other unit overlaps u at a"): every unit that ends above ``a`` starts above the end of u, and u
  lies no higher than ``a``, else it could be moved down;
* second branch (a hole): some unit overlaps that place.
"""

from __future__ import annotations

from tmmu_core.planners.exact.propagation import (
    BY_HOLE,
    BY_TWIN,
    BY_UNIT,
    DOMINATED,
    FAR,
    HOLE_UNFILLED,
    OFFSET_TOO_HIGH,
    SECTION_TOO_FULL,
)
from tmmu_core.planners.exact.search_tables import (
    CAUSE,
    CLAIM,
    CONFLICT,
    CONFLICT_A,
    CONFLICT_B,
    DETAIL,
    EVENT_COUNT,
    FIXED,
    HEIGHT,
    HOLE,
    HOLE_LEVEL,
    LEVEL,
    LOW,
    LOW_THEN,
    MAX_HEIGHT,
    NEIGHBOURS,
    OLD_LOW,
    OPEN_UNITS,
    OTHER,
    OTHER_HEIGHT,
    OWN_HEIGHT,
    OWNER,
    PLACED,
    PLACED_SINCE,
    RAISED,
    REASON,
    REQUESTED,
    State,
    Tables,
)
from tmmu_core.planners.problem import I64


def analyse_conflict(tables: Tables, state: State, capacity: int) -> None:
    """Set ``state.conflict_levels`` for the failure in ``state.counters``; it must be all 0 before."""
    unit, event, count = state.unit, state.event, state.counters
    now = count[EVENT_COUNT]
    for u in range(len(unit)):
        unit[u, CLAIM], unit[u, LOW_THEN] = 0, unit[u, LOW]
    _initial_claims(tables, state, capacity)
    for e in range(now - 1, -1, -1):
        u = event[e, RAISED]
        need = unit[u, CLAIM]
        unit[u, LOW_THEN] = event[e, OLD_LOW]
        if need <= event[e, OLD_LOW]:
            continue
        unit[u, CLAIM] = 0
        need = min(need, event[e, REQUESTED])
        one, two = event[e, CAUSE], event[e, DETAIL]
        if event[e, REASON] == BY_UNIT:
            _add_level(state.conflict_levels, unit[one, LEVEL])
            _claim(unit, u, unit[one, LOW] - tables.neighbour[two, OTHER_HEIGHT] + 1)
        elif event[e, REASON] == BY_HOLE:
            _explain_hole(tables, state, u, (one, two), need, e)
        elif event[e, REASON] == BY_TWIN:
            _claim(unit, one, need - tables.unit[one, MAX_HEIGHT])
        else:
            _explain_section(tables, state, (one, two), need, capacity, e)


def _add_level(levels: I64, level: int) -> None:
    if level >= 0:
        levels[level] = 1


def _claim(unit: I64, u: int, at: int) -> None:
    if unit[u, CLAIM] < at:
        unit[u, CLAIM] = at


def _initial_claims(tables: Tables, state: State, capacity: int) -> None:
    """Add the claims that contradict each other."""
    unit, count = state.unit, state.counters
    one, two = count[CONFLICT_A], count[CONFLICT_B]
    if count[CONFLICT] == OFFSET_TOO_HIGH:
        _claim(unit, one, two)
    elif count[CONFLICT] == SECTION_TOO_FULL:
        begin, total = tables.first[one], 0
        end = begin + state.section[one, OPEN_UNITS]
        for row in range(begin, end):
            total += tables.entry[state.order[row, 0], HEIGHT]
        for row in range(begin, end):
            _claim(unit, tables.entry[state.order[row, 0], OWNER], capacity - total + 1)
    elif count[CONFLICT] == HOLE_UNFILLED:
        _explain_hole(tables, state, one, (unit[one, HOLE], unit[one, HOLE_LEVEL]), FAR, count[EVENT_COUNT])
    elif count[CONFLICT] == DOMINATED:
        _add_level(state.conflict_levels, unit[two, LEVEL])
        _claim(unit, one, unit[one, LOW])
        _claim(unit, two, unit[two, LOW])


def _explain_hole(tables: Tables, state: State, u: int, hole: tuple[int, int], need: int, now: int) -> None:
    """Add the claims from which every unit that can fill a hole (offset, level) ends at ``need`` or above."""
    unit = state.unit
    at, level = hole
    _add_level(state.conflict_levels, level)
    _claim(unit, u, at)
    if need <= at + 1:
        return
    for k in range(tables.unit[u, NEIGHBOURS], tables.unit[u + 1, NEIGHBOURS]):
        w = tables.neighbour[k, OTHER]
        if tables.unit[w, FIXED] >= 0:
            continue
        low, over = unit[w, LOW_THEN], at + tables.neighbour[k, OWN_HEIGHT]
        if unit[w, PLACED] and unit[w, PLACED_SINCE] <= now:
            if low >= over:
                _claim(unit, w, over)
            else:  # w ends below the hole
                _add_level(state.conflict_levels, unit[w, LEVEL])
        elif need - tables.neighbour[k, OTHER_HEIGHT] <= min(low, over):
            _claim(unit, w, need - tables.neighbour[k, OTHER_HEIGHT])
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
        u = tables.entry[e, OWNER]
        if not unit[u, PLACED] or unit[u, PLACED_SINCE] > now:
            rest += tables.entry[e, HEIGHT]
            if u == lowest:
                high = tables.entry[e, HEIGHT]
    for row in range(tables.first[s], tables.first[s + 1]):
        u = tables.entry[state.order[row, 0], OWNER]
        if not unit[u, PLACED] or unit[u, PLACED_SINCE] > now:
            _claim(unit, u, need - high if u == lowest else capacity - rest + 1)
