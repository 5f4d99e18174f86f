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

from tmmu_core.planners.exact import search_tables as tab
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
from tmmu_core.planners.exact.search_tables import State, Tables
from tmmu_core.planners.problem import I64


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
