"""The branch and bound itself, compiled: can these units be packed below a capacity?

Depth-first over canonical packings, bottom up. A state is the floor of every section (the end of the highest unit
placed in it); an unplaced unit's *natural* offset is the lowest one above the floors of all its sections. The next
unit placed is one whose natural offset is not below the last one placed, so every packing is met in one sequence.

What is cut off, with the packing of least Σ height² · offset among those that fit as the one never lost:

* a section whose lowest possible floor and whose unplaced bytes pass the capacity (*section bound*); the lowest
  floor is the least natural offset in the section, recomputed only when the unit that set it moved;
* a unit that starts where another would have fitted wholly below (*dominance*);
* one of several identical units out of turn, and of two units with the same life, one directly upon the other, the
  larger upon the smaller (*symmetry*);
* units left behind (natural offset below the last placed) that nothing can raise any more without passing the
  capacity (*stranded*).

When no unplaced unit crosses a boundary between sections any more, the two sides are searched one after the other
(*split*): if one fails, both have failed. No recursion: frames on a stack, trails to undo. Same input, same nodes.

After MiniMalloc (Moffitt, ASPLOS '23), from which canonical order, section bound, dominance and splits come.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from tmmu_core.planners.problem import I64

FOUND, INFEASIBLE, SPENT = 1, 0, -1
FAR = 2**62


class Shape(NamedTuple):
    """n units in m sections, r (unit, section) entries, heights in bytes. Ragged tables as (first, column…)."""

    entry_of: I64
    """(n + 1,): the entries of a unit."""
    section: I64
    """(r,)"""
    height: I64
    """(r,)"""
    unit: I64
    """(r,)"""
    list_of: I64
    """(m + 1,): the entries of a section, as rows of ``entry``."""
    entry: I64
    """(r,): entries by section."""
    place: I64
    """(r,): where an entry stands in ``entry``."""
    align: I64
    tall: I64
    """(n,): the greatest height."""
    lo: I64
    hi: I64
    """(n,): first and last section."""
    fixed: I64
    """(n,): offset or −1."""
    twin: I64
    """(n,): units with one number are identical."""
    span: I64
    """(n,): units with one number ≥ 0 have the same sections and may be swapped freely; −1: with nobody."""
    wall_of: I64
    """(n + 1,): the fixed units in the way of a unit, as rows of the next three."""
    wall_lo: I64
    wall_hi: I64
    wall_height: I64
    """The unit's own height where it would meet the wall."""


class State(NamedTuple):
    """What a search changes, and how it takes it back."""

    floor: I64
    rest: I64
    """(m,): bytes still to be placed in a section."""
    left: I64
    entry: I64
    place: I64
    natural: I64
    placed: I64
    top: I64
    """(m,): the unit placed last in a section, or −1."""
    low: I64
    """(m,): the least natural offset in a section, and who sets it."""
    lowest: I64
    crossing: I64
    """(m,): unplaced units in both section s and s + 1 (or with both in their hull)."""
    raised: I64
    """(n,): for stranded units, the least offset they can still come to."""
    first_end: I64
    second_end: I64
    first_unit: I64
    trail_floor: I64
    trail_natural: I64
    trail_low: I64
    used: I64
    """(3,): rows used of the three trails."""
    fails: I64
    """(m,): how often a section was what could not be. Only counted, never taken back."""


@njit(cache=True)
def _settle(shape: Shape, u: int, at: int) -> int:
    """The lowest offset ≥ ``at`` on the unit's grid and off the fixed units in its way."""
    grid = shape.align[u]
    at = (at + grid - 1) & -grid
    moved = True
    while moved:
        moved = False
        for w in range(shape.wall_of[u], shape.wall_of[u + 1]):
            if at < shape.wall_hi[w] and shape.wall_lo[w] < at + shape.wall_height[w]:
                at = (shape.wall_hi[w] + grid - 1) & -grid
                moved = True
    return at


@njit(cache=True)
def _put(shape: Shape, state: State, u: int) -> None:
    at = state.natural[u]
    state.placed[u] = 1
    for e in range(shape.entry_of[u], shape.entry_of[u + 1]):
        s = shape.section[e]
        row = state.used[0]
        state.trail_floor[3 * row] = s
        state.trail_floor[3 * row + 1] = state.floor[s]
        state.trail_floor[3 * row + 2] = state.top[s]
        state.used[0] = row + 1
        state.floor[s] = at + shape.height[e]
        state.top[s] = u
        state.rest[s] -= shape.height[e]
        state.left[s] -= 1
        last = shape.list_of[s] + state.left[s]
        here, other = state.place[e], state.entry[last]
        state.entry[here], state.entry[last] = other, e
        state.place[other], state.place[e] = here, last
    for s in range(shape.lo[u], shape.hi[u]):
        state.crossing[s] -= 1


@njit(cache=True)
def _take_back(shape: Shape, state: State, u: int) -> None:
    """Unplace; units must be taken back in the reverse of the order they were put."""
    state.placed[u] = 0
    for e in range(shape.entry_of[u + 1] - 1, shape.entry_of[u] - 1, -1):
        s = shape.section[e]
        state.left[s] += 1
        state.rest[s] += shape.height[e]
    for s in range(shape.lo[u], shape.hi[u]):
        state.crossing[s] += 1


@njit(cache=True)
def _rewind(state: State, floors: int, naturals: int, lows: int) -> None:
    for row in range(state.used[0] - 1, floors - 1, -1):
        s = state.trail_floor[3 * row]
        state.floor[s] = state.trail_floor[3 * row + 1]
        state.top[s] = state.trail_floor[3 * row + 2]
    for row in range(state.used[1] - 1, naturals - 1, -1):
        state.natural[state.trail_natural[2 * row]] = state.trail_natural[2 * row + 1]
    for row in range(state.used[2] - 1, lows - 1, -1):
        s = state.trail_low[3 * row]
        state.low[s] = state.trail_low[3 * row + 1]
        state.lowest[s] = state.trail_low[3 * row + 2]
    state.used[0], state.used[1], state.used[2] = floors, naturals, lows


@njit(cache=True)
def _raise(shape: Shape, state: State, u: int, capacity: int) -> bool:
    """Raise the natural offsets above a unit just placed; ``False``: it cannot lead to a packing."""
    for e in range(shape.entry_of[u], shape.entry_of[u + 1]):
        s = shape.section[e]
        floor = state.floor[s]
        if state.left[s] and floor + state.rest[s] > capacity:
            state.fails[s] += 1
            return False
        begin = shape.list_of[s]
        for row in range(begin, begin + state.left[s]):
            v = shape.unit[state.entry[row]]
            if state.natural[v] < floor:
                if shape.fixed[v] >= 0:
                    return False
                used = state.used[1]
                state.trail_natural[2 * used] = v
                state.trail_natural[2 * used + 1] = state.natural[v]
                state.used[1] = used + 1
                state.natural[v] = _settle(shape, v, floor)
                if state.natural[v] + shape.tall[v] > capacity:
                    state.fails[s] += 1
                    return False
    return True


@njit(cache=True)
def _sections_fit(shape: Shape, state: State, lo: int, hi: int, at: int, capacity: int) -> bool:
    """The section bound over sections ``[lo, hi)``; nothing can start below ``at`` any more."""
    for s in range(lo, hi):
        if state.left[s] == 0:
            continue
        who = state.lowest[s]
        if state.placed[who] or state.natural[who] > state.low[s]:
            used = state.used[2]
            state.trail_low[3 * used] = s
            state.trail_low[3 * used + 1] = state.low[s]
            state.trail_low[3 * used + 2] = who
            state.used[2] = used + 1
            least = FAR
            begin = shape.list_of[s]
            for row in range(begin, begin + state.left[s]):
                v = shape.unit[state.entry[row]]
                if state.natural[v] < least:
                    least, who = state.natural[v], v
            state.low[s], state.lowest[s] = least, who
        if max(state.low[s], at) + state.rest[s] > capacity:
            state.fails[s] += 1
            return False
    return True


@njit(cache=True)
def _stranded_fit(shape: Shape, state: State, lo: int, hi: int, at: int, capacity: int) -> bool:
    """The section bound with units left behind: each must first be raised by another, placed at ``at`` or above."""
    some = False
    for s in range(lo, hi):
        if state.left[s] == 0 or state.low[s] >= at:
            continue
        some = True
        one, two, who = FAR, FAR, -1
        begin = shape.list_of[s]
        for row in range(begin, begin + state.left[s]):
            e = state.entry[row]
            v = shape.unit[e]
            end = max(state.natural[v], at) + shape.height[e]
            if end < one:
                one, two, who = end, one, v
            elif end < two:
                two = end
        state.first_end[s], state.second_end[s], state.first_unit[s] = one, two, who
    if not some:
        return True
    for s in range(lo, hi):
        if state.left[s] == 0 or state.low[s] >= at:
            continue
        begin = shape.list_of[s]
        least = FAR
        for row in range(begin, begin + state.left[s]):
            v = shape.unit[state.entry[row]]
            reach = state.natural[v]
            if reach < at:
                if shape.fixed[v] >= 0:
                    return False
                if state.raised[v] < 0:
                    reach = FAR
                    for e in range(shape.entry_of[v], shape.entry_of[v + 1]):
                        t = shape.section[e]
                        end = state.second_end[t] if state.first_unit[t] == v else state.first_end[t]
                        reach = min(reach, end)
                    state.raised[v] = reach
                    if reach + shape.tall[v] > capacity:
                        state.fails[s] += 1
                        return False
                else:
                    reach = state.raised[v]
            least = min(least, reach)
        if least + state.rest[s] > capacity:
            state.fails[s] += 1
            return False
    return True


@njit(cache=True)
def _candidates(
    shape: Shape, state: State, rank: I64, lo: int, hi: int, at: int, after: int, stack: I64, used: int
) -> int:
    """Push the units that may come next, best last placed first: by natural offset, then rank. Gives the new end."""
    least = FAR
    for u in range(len(shape.lo)):
        if not state.placed[u] and shape.lo[u] >= lo and shape.hi[u] < hi:
            least = min(least, state.natural[u] + (shape.tall[u] if shape.fixed[u] < 0 else 1))
    first = used
    for u in range(len(shape.lo)):
        if state.placed[u] or shape.lo[u] < lo or shape.hi[u] >= hi:
            continue
        here = state.natural[u]
        if here >= least or here < at or (here == at and rank[u] < after):
            continue
        below = state.top[shape.section[shape.entry_of[u]]]
        if (
            below >= 0
            and shape.span[u] >= 0
            and shape.span[below] == shape.span[u]
            and shape.tall[below] < shape.tall[u]
            and here == state.floor[shape.section[shape.entry_of[u]]]
        ):
            continue
        k = used
        while k > first:
            v = stack[k - 1]
            if state.natural[v] < here or (state.natural[v] == here and rank[v] < rank[u]):
                break
            stack[k] = v
            k -= 1
        stack[k] = u
        used += 1
    return used


@njit(cache=True)
def _twin_tried(shape: Shape, stack: I64, begin: int, here: int) -> bool:
    twin = shape.twin[stack[here]]
    k = begin
    while k < here and shape.twin[stack[k]] != twin:
        k += 1
    return k < here


@njit(cache=True)
def _tightest_first(state: State, sides_lo: I64, sides_hi: I64, begin: int, end: int, at: int) -> None:
    """Sort the sides of a split by their section bound, highest first, so that what fails fails early."""
    for i in range(begin, end):
        best, most = i, -1
        for j in range(i, end):
            need = 0
            for s in range(sides_lo[j], sides_hi[j]):
                if state.left[s]:
                    need = max(need, max(state.low[s], at) + state.rest[s])
            if need > most:
                best, most = j, need
        sides_lo[i], sides_lo[best] = sides_lo[best], sides_lo[i]
        sides_hi[i], sides_hi[best] = sides_hi[best], sides_hi[i]


@njit(cache=True)
def search(shape: Shape, state: State, rank: I64, capacity: int, budget: int, nodes: I64) -> int:
    """Whether everything fits below ``capacity``; offsets are then ``state.natural``.

    ``state`` must be fresh. Gives FOUND, INFEASIBLE (proven) or SPENT; ``nodes[0]`` is how many units were put.
    """
    n, m = len(shape.lo), len(shape.list_of) - 1
    for s in range(m):
        if state.rest[s] > capacity:
            return INFEASIBLE
    for u in range(n):
        if state.natural[u] + shape.tall[u] > capacity:
            return INFEASIBLE
    stack = np.empty(n * (n + 1) // 2 + n + 1, np.int64)
    stacked = 0
    frames = 2 * n + 4
    split = np.zeros(frames, np.int64)
    lo, hi = np.zeros(frames, np.int64), np.zeros(frames, np.int64)
    at, after = np.zeros(frames, np.int64), np.zeros(frames, np.int64)
    begin, end, now = np.zeros(frames, np.int64), np.zeros(frames, np.int64), np.zeros(frames, np.int64)
    chosen = np.full(frames, -1, np.int64)
    parent, root = np.zeros(frames, np.int64), np.zeros(frames, np.int64)
    marks = np.zeros((frames, 3), np.int64)
    sides_lo, sides_hi = np.zeros(m + 2 * n + 2, np.int64), np.zeros(m + 2 * n + 2, np.int64)
    sides = 0
    depth = 0

    # What to enter next: sections [a, b), the last offset and rank, the split it is a side of.
    a, b, last, last_rank, side_of, is_root = 0, m, 0, -1, -1, 1
    enter, proceed, fail, undo, solved = 0, 1, 2, 3, 4
    action = enter
    while True:
        if action == enter:
            first_side = sides
            start, some = a, False
            for s in range(a, b):
                some = some or state.left[s] > 0
                if s + 1 == b or state.crossing[s] == 0:
                    if some:
                        sides_lo[sides], sides_hi[sides] = start, s + 1
                        sides += 1
                    start, some = s + 1, False
            if sides == first_side:
                action = solved
                continue
            if sides > first_side + 1:
                _tightest_first(state, sides_lo, sides_hi, first_side, sides, last)
                d = depth
                depth += 1
                split[d], begin[d], end[d], now[d] = 1, first_side, sides, first_side + 1
                at[d], after[d], parent[d], root[d] = last, last_rank, side_of, is_root
                marks[d] = state.used
                side_of, is_root = d, 1
                a, b = sides_lo[first_side], sides_hi[first_side]
            else:
                a, b = sides_lo[first_side], sides_hi[first_side]
                sides = first_side
            d = depth
            depth += 1
            split[d], lo[d], hi[d], at[d], after[d] = 0, a, b, last, last_rank
            parent[d], root[d], chosen[d] = side_of, is_root, -1
            marks[d] = state.used
            begin[d] = now[d] = stacked
            state.raised[:] = -1
            if _stranded_fit(shape, state, a, b, last, capacity):
                stacked = _candidates(shape, state, rank, a, b, last, last_rank, stack, stacked)
            end[d] = stacked
            action = proceed
        elif action == proceed:
            d = depth - 1
            if now[d] == end[d]:
                action = fail
                continue
            here = now[d]
            now[d] += 1
            if _twin_tried(shape, stack, begin[d], here):
                continue
            if nodes[0] >= budget:
                return SPENT
            nodes[0] += 1
            u = stack[here]
            chosen[d] = u
            _put(shape, state, u)
            if _raise(shape, state, u, capacity) and _sections_fit(
                shape, state, lo[d], hi[d], state.natural[u], capacity
            ):
                a, b, last, last_rank, side_of, is_root = lo[d], hi[d], state.natural[u], rank[u], parent[d], 0
                action = enter
            else:
                action = undo
        elif action == undo:
            d = depth - 1
            _take_back(shape, state, chosen[d])
            _rewind(state, marks[d, 0], marks[d, 1], marks[d, 2])
            chosen[d] = -1
            action = proceed
        elif action == fail:
            # The top frame has nothing left. A side that fails takes its whole split with it, solved sides and all.
            depth -= 1
            d = depth
            stacked = begin[d]
            while root[d]:
                d = parent[d]
                if d < 0:
                    return INFEASIBLE
                while depth > d + 1:
                    depth -= 1
                    if not split[depth]:
                        stacked = begin[depth]
                        if chosen[depth] >= 0:
                            _take_back(shape, state, chosen[depth])
                            chosen[depth] = -1
                _rewind(state, marks[d, 0], marks[d, 1], marks[d, 2])
                sides = begin[d]
                depth = d
            action = undo
        else:
            # A side is solved: on with its split's next one, or the split is solved too.
            if side_of < 0:
                return FOUND
            d = side_of
            if now[d] < end[d]:
                a, b = sides_lo[now[d]], sides_hi[now[d]]
                now[d] += 1
                last, last_rank, is_root = at[d], after[d], 1
                action = enter
            else:
                side_of = parent[d]
