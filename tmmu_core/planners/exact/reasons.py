"""Why nothing fitted: which of the decisions taken so far a failure hangs on.

A failure is read backwards through the events. What is *needed* is a set of claims "this unit starts at n or above";
the event that made a claim true puts others in its place, and blames a level where a decision was used. Only what was
needed is asked for (a claim that already held before the event stays), so a decision that merely stood by is not
blamed, and the search may jump back over it.

Every claim is about all packings, of least Σ height · offset among those that fit, in which the blamed decisions hold:

* "nobody else meets the place of u at a" (a unit placed): whoever ends above ``a`` starts above the end of u. And u
  itself then lies no higher than ``a``, or it could be moved down.
* "somebody meets it" (a hole).
"""

from __future__ import annotations

from tmmu_core.compiled import njit_leaf
from tmmu_core.planners.exact.propagate import BY_HOLE, BY_TWIN, BY_UNIT, FAR, TOO_FULL, TOO_HIGH, UNMET, UPON
from tmmu_core.planners.exact.tables import (
    ASKED,
    CONFLICT,
    EVENTS,
    FIRST_OF_IT,
    FIXED,
    FROM,
    HEIGHT,
    HOLE,
    HOLE_LEVEL,
    LEFT,
    LEVEL,
    LOW,
    NEED,
    NEIGHBOURS,
    ONE,
    OTHER,
    OVER,
    OWNER,
    PLACED,
    SECOND_OF_IT,
    TALL,
    THEN,
    TWO,
    UNDER,
    WHEN,
    WHO,
    WHY,
    Shape,
    State,
)
from tmmu_core.planners.problem import I64


@njit_leaf
def blame(shape: Shape, state: State, capacity: int) -> None:
    """Set ``state.blame`` for the failure in ``state.tally``; it must be all 0 before."""
    unit, event, count = state.unit, state.event, state.tally
    now = count[EVENTS]
    for u in range(len(unit)):
        unit[u, NEED], unit[u, THEN] = 0, unit[u, LOW]
    _begin(shape, state, capacity)
    for e in range(now - 1, -1, -1):
        u = event[e, WHO]
        need = unit[u, NEED]
        unit[u, THEN] = event[e, FROM]
        if need <= event[e, FROM]:
            continue
        unit[u, NEED] = 0
        need = min(need, event[e, ASKED])
        one, two = event[e, ONE], event[e, TWO]
        if event[e, WHY] == BY_UNIT:
            _blame(state.blame, unit[one, LEVEL])
            _need(unit, u, unit[one, LOW] - shape.neighbour[two, UNDER] + 1)
        elif event[e, WHY] == BY_HOLE:
            _why_hole(shape, state, u, (one, two), need, e)
        elif event[e, WHY] == BY_TWIN:
            _need(unit, one, need - shape.unit[one, TALL])
        else:
            _why_first(shape, state, (one, two), need, capacity, e)


@njit_leaf
def _blame(levels: I64, level: int) -> None:
    if level >= 0:
        levels[level] = 1


@njit_leaf
def _need(unit: I64, u: int, at: int) -> None:
    if unit[u, NEED] < at:
        unit[u, NEED] = at


@njit_leaf
def _begin(shape: Shape, state: State, capacity: int) -> None:
    """The claims that contradict each other."""
    unit, count = state.unit, state.tally
    one, two = count[FIRST_OF_IT], count[SECOND_OF_IT]
    if count[CONFLICT] == TOO_HIGH:
        _need(unit, one, two)
    elif count[CONFLICT] == TOO_FULL:
        begin, total = shape.first[one], 0
        end = begin + state.section[one, LEFT]
        for row in range(begin, end):
            total += shape.entry[state.order[row, 0], HEIGHT]
        for row in range(begin, end):
            _need(unit, shape.entry[state.order[row, 0], OWNER], capacity - total + 1)
    elif count[CONFLICT] == UNMET:
        _why_hole(shape, state, one, (unit[one, HOLE], unit[one, HOLE_LEVEL]), FAR, count[EVENTS])
    elif count[CONFLICT] == UPON:
        _blame(state.blame, unit[two, LEVEL])
        _need(unit, one, unit[one, LOW])
        _need(unit, two, unit[two, LOW])


@njit_leaf
def _why_hole(shape: Shape, state: State, u: int, hole: tuple[int, int], need: int, now: int) -> None:
    """Why everybody who can meet a hole (offset, level) ends at ``need`` or above."""
    unit = state.unit
    at, level = hole
    _blame(state.blame, level)
    _need(unit, u, at)
    if need <= at + 1:
        return
    for k in range(shape.unit[u, NEIGHBOURS], shape.unit[u + 1, NEIGHBOURS]):
        w = shape.neighbour[k, OTHER]
        if shape.unit[w, FIXED] >= 0:
            continue
        low, over = unit[w, THEN], at + shape.neighbour[k, OVER]
        if unit[w, PLACED] and unit[w, WHEN] <= now:
            if low >= over:
                _need(unit, w, over)
            else:  # it lies wholly below
                _blame(state.blame, unit[w, LEVEL])
        elif need - shape.neighbour[k, UNDER] <= min(low, over):
            _need(unit, w, need - shape.neighbour[k, UNDER])
        else:
            _need(unit, w, over)


@njit_leaf
def _why_first(shape: Shape, state: State, who: tuple[int, int], need: int, capacity: int, now: int) -> None:
    """Why only one unit could be lowest in a section, and why it ends at ``need`` or above; ``who`` is (s, it)."""
    unit = state.unit
    s, lowest = who
    rest, high = 0, 0
    for row in range(shape.first[s], shape.first[s + 1]):
        e = state.order[row, 0]
        u = shape.entry[e, OWNER]
        if not unit[u, PLACED] or unit[u, WHEN] > now:
            rest += shape.entry[e, HEIGHT]
            if u == lowest:
                high = shape.entry[e, HEIGHT]
    for row in range(shape.first[s], shape.first[s + 1]):
        u = shape.entry[state.order[row, 0], OWNER]
        if not unit[u, PLACED] or unit[u, WHEN] > now:
            _need(unit, u, need - high if u == lowest else capacity - rest + 1)
