"""The branch and bound itself, compiled: can these units be packed below a capacity?

Depth first, bottom up. A unit is chosen that nothing unplaced can still fit under, and one question is asked of the
place where it would come to rest: does nobody else meet that place? Then the unit lies there (any other packing could
be lowered). If somebody does, the unit lies above one of those who can: a *hole* is open until it is met. Each answer
is a *level*; what follows from it is :mod:`.propagate`.

Where a failure does not hang on a level (:mod:`.reasons`) the search jumps back over it, both answers unasked. So what
happens in one part of time never makes the search redo another, and no order of placing has to be right over all of
the model: the next unit is the one that can start lowest.

Canonical bottom-up packings and the section bound are those of MiniMalloc (Moffitt, ASPLOS '23); backjumping with
explained bounds comes from constraint programming (Prosser 1993; Ohrimenko, Stuckey and Codish 2009).
No recursion; same input, same nodes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tmmu_core.compiled import njit, njit_leaf, njit_or
from tmmu_core.planners.exact import plain
from tmmu_core.planners.exact.propagate import (
    DOMINANCE,
    FAR,
    JUMPS,
    NO_ROOM,
    STUCK,
    SWAPS,
    TOO_FULL,
    UPON,
    close_hole,
    open_hole,
    propagate,
    put,
    stop_propagating,
    take_back,
)
from tmmu_core.planners.exact.reasons import blame
from tmmu_core.planners.exact.tables import (
    CHANGED,
    CONFLICT,
    DIRTY,
    EVENTS,
    FAILS,
    FIRST_OF_IT,
    FIXED,
    HOLE,
    LOW,
    MATES,
    MET,
    NEIGHBOURS,
    OTHER,
    OVER,
    PLACED,
    PUT,
    SECOND_OF_IT,
    STALE,
    TALL,
    UNDER,
    WAITS,
    Shape,
    State,
)
from tmmu_core.planners.problem import I64

FOUND, INFEASIBLE, SPENT, CRAMPED = 1, 0, -1, -2


class Ask(NamedTuple):
    """One question."""

    capacity: int
    rank: I64
    """(n,): 0 goes first among units that can start equally low."""
    switches: int
    """Sum of what is used to prune, see :mod:`.propagate`."""
    budget: int
    """Nodes."""


def _lowest_plainly(shape: Shape, state: State, rank: I64) -> int:
    waits = (state.unit[:, PLACED] == 0) & (state.unit[:, HOLE] < 0)
    return plain.lowest(state.unit[:, LOW], waits, rank)


@njit_or(_lowest_plainly)
def _lowest(shape: Shape, state: State, rank: I64) -> int:
    unit, best = state.unit, -1
    for u in range(len(unit)):
        if unit[u, PLACED] or unit[u, HOLE] >= 0:
            continue
        if best < 0 or unit[u, LOW] < unit[best, LOW] or (unit[u, LOW] == unit[best, LOW] and rank[u] < rank[best]):
            best = u
    return best


@njit_leaf
def _under(shape: Shape, state: State, rank: I64, u: int, dominance: bool) -> int:
    """``u`` itself, or one that must or may come below it and under which nothing fits; −1 where nobody can."""
    unit = state.unit
    while True:
        hole = unit[u, HOLE]
        least, who = FAR if hole >= 0 else unit[u, LOW], -1
        for k in range(shape.unit[u, NEIGHBOURS], shape.unit[u + 1, NEIGHBOURS]):
            w = shape.neighbour[k, OTHER]
            if unit[w, PLACED]:
                continue
            if hole >= 0:  # someone who can meet the hole
                if shape.unit[w, FIXED] >= 0 or (dominance and unit[w, LOW] >= hole + shape.neighbour[k, OVER]):
                    continue
                at = max(unit[w, LOW] + shape.neighbour[k, UNDER], hole + 1)
            elif unit[w, LOW] + shape.neighbour[k, UNDER] <= unit[u, LOW]:
                at = unit[w, LOW]
            else:
                continue
            if at < least or (who >= 0 and at == least and rank[w] < rank[who]):
                least, who = at, w
        if who < 0:
            return -1 if hole >= 0 else u
        u = who


@njit_leaf
def _upon(shape: Shape, state: State, u: int) -> int:
    """The smaller unit of the same life that ``u`` would lie directly upon, or −1."""
    unit = state.unit
    for row in range(shape.unit[u, MATES], shape.unit[u + 1, MATES]):
        w = shape.mate[row]
        if (
            unit[w, PLACED]
            and unit[w, LOW] + shape.unit[w, TALL] == unit[u, LOW]
            and shape.unit[w, TALL] < shape.unit[u, TALL]
        ):
            return int(w)
    return -1


@njit_leaf
def _fits_at_all(shape: Shape, state: State, ask: Ask) -> bool:
    for u in range(len(state.unit)):
        if state.unit[u, LOW] + shape.unit[u, TALL] > ask.capacity:
            return False
        state.unit[u, WAITS] = 1
        state.changed[u] = u
    state.tally[CHANGED] = len(state.unit)
    for s in range(len(state.section)):
        state.section[s, STALE] = 1
        state.dirty[s] = s
    state.tally[DIRTY] = len(state.section)
    return propagate(shape, state, ask.capacity, ask.switches)


@njit
def search(shape: Shape, state: State, ask: Ask, nodes: I64, stop: I64) -> int:
    """Whether everything fits below ``ask.capacity``; offsets are then ``state.unit[:, LOW]``.

    ``state`` must be fresh. Gives FOUND, INFEASIBLE (proven), SPENT, or CRAMPED where its tables have too little room
    to go on; ``nodes[0]`` is how many answers were tried.
    Ends as SPENT soon after ``stop[0]`` is set from outside.
    """
    n = len(state.unit)
    unit, count, blamed = state.unit, state.tally, state.blame
    most = len(blamed) - 1
    asked = np.full(most + 1, -1, np.int64)
    at = np.zeros(most + 1, np.int64)
    second = np.zeros(most + 1, np.int64)
    marks = np.zeros((most + 1, 3), np.int64)
    kept = np.empty((most + 1, most + 1), np.uint8)
    jumps = ask.switches & JUMPS and ask.switches & DOMINANCE
    levels = 0
    if not _fits_at_all(shape, state, ask):
        return CRAMPED if count[CONFLICT] == NO_ROOM else INFEASIBLE
    while count[PUT] < n:
        if nodes[0] >= ask.budget or stop[0]:
            return SPENT
        if levels >= most:
            return CRAMPED
        nodes[0] += 1
        u = _lowest(shape, state, ask.rank)
        if u >= 0:
            u = _under(shape, state, ask.rank, u, ask.switches & DOMINANCE > 0)
        good, level = True, -1
        if u < 0:
            count[CONFLICT] = STUCK
            good = False
        elif shape.unit[u, FIXED] < 0:
            level = levels
            levels += 1
            asked[level], at[level], second[level] = u, unit[u, LOW], 0
            marks[level, 0], marks[level, 1], marks[level, 2] = count[EVENTS], count[PUT], count[MET]
            below = _upon(shape, state, u) if ask.switches & SWAPS else -1
            if below >= 0:
                count[CONFLICT], count[FIRST_OF_IT], count[SECOND_OF_IT] = UPON, u, below
                good = False
        if good:
            good = put(shape, state, ask.capacity, ask.switches, u, level)
            good = good and propagate(shape, state, ask.capacity, ask.switches)
        while not good:
            if count[CONFLICT] == NO_ROOM:
                return CRAMPED
            if count[CONFLICT] == TOO_FULL:
                state.section[count[FIRST_OF_IT], FAILS] += 1
            stop_propagating(state)
            if jumps and count[CONFLICT] != STUCK:
                blame(shape, state, ask.capacity)
                if count[CONFLICT] == UPON:
                    blamed[levels - 1] = 1
            else:
                blamed[:levels] = 1
            while True:
                level = levels - 1
                while level >= 0 and not blamed[level]:
                    level -= 1
                if level < 0:
                    return INFEASIBLE
                for k in range(levels - 1, level - 1, -1):
                    take_back(shape, state, marks[k])
                    if second[k]:
                        close_hole(state, asked[k])
                levels = level
                blamed[level] = 0
                if not second[level]:
                    break
                for k in range(level):
                    blamed[k] |= kept[level, k]
            kept[level, :level] = blamed[:level]
            blamed[:level] = 0
            second[level] = 1
            levels = level + 1
            nodes[0] += 1
            open_hole(state, asked[level], at[level], level)
            good = propagate(shape, state, ask.capacity, ask.switches)
    return FOUND
