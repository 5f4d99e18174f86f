"""The greedy placement loop, compiled: the same tree over squeezed time on flat arrays.

Same answers as :func:`tmmu_core.planners.greedy._place`, byte for byte. Importing this module loads numba
(where it is installed); nothing outside the large cases does. Every function is iterative, and cached on disk between
processes.

Each tree node owns two sorted lists of merged ranges. Lists live in one pool of (start, end) pairs; a list that
outgrows its block moves to the pool's end with twice the room. Peak: about 100 bytes per node plus the pool.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tmmu_core.compiled import njit, njit_leaf
from tmmu_core.loops import calls
from tmmu_core.loops.library import library
from tmmu_core.planners.columns import Columns
from tmmu_core.planners.problem import I64

I32 = NDArray[np.int32]


def place(cols: Columns, sequence: Sequence[int] | I64, tightest: bool) -> list[int]:
    """Offsets of one greedy run, storages taken as ``sequence`` says (fixed ones first)."""
    fixed = np.asarray(cols.fixed, dtype=np.int64)
    odd_of, odd_other, odd_kind = cols.odd_rows
    loops = library()
    if loops is not None:
        found: list[int] = calls.place(
            loops,
            len(cols.births),
            sequence=np.asarray(sequence, dtype=np.int64),
            part_of=cols.part_of,
            part_lo=cols.part_lo,
            part_hi=cols.part_hi,
            size=cols.sizes,
            align=cols.aligns,
            fixed=fixed,
            odd_of=odd_of,
            odd_other=odd_other,
            odd_kind=odd_kind,
            tightest=tightest,
        ).tolist()
        return found
    offset = place_all(
        np.asarray(sequence, dtype=np.int64),
        cols.part_of,
        cols.part_lo,
        cols.part_hi,
        cols.sizes,
        cols.aligns,
        fixed,
        odd_of,
        odd_other,
        odd_kind,
        len(cols.births),
        tightest,
    )
    result: list[int] = offset.tolist()
    return result


@njit_leaf
def _after(values: I64, begin: int, count: int, x: int) -> int:
    """How many of ``values[begin:begin + count]`` are ≤ x."""
    lo, hi = 0, count
    while lo < hi:
        mid = (lo + hi) >> 1
        if values[begin + mid] <= x:
            lo = mid + 1
        else:
            hi = mid
    return lo


@njit_leaf
def _before(values: I64, begin: int, count: int, x: int) -> int:
    """How many of ``values[begin:begin + count]`` are < x."""
    lo, hi = 0, count
    while lo < hi:
        mid = (lo + hi) >> 1
        if values[begin + mid] < x:
            lo = mid + 1
        else:
            hi = mid
    return lo


@njit_leaf
def _merge(which: int, start: int, end: int, begin: I64, count: I32, starts: I64, ends: I64) -> None:
    """Add a range to a list whose block has a free place."""
    b, n = begin[which], count[which]
    i = _before(ends, b, n, start)
    j = _after(starts, b, n, end)
    if i < j:
        start = min(start, starts[b + i])
        end = max(end, ends[b + j - 1])
        shift = j - i - 1
        if shift > 0:
            for k in range(b + j, b + n):
                starts[k - shift] = starts[k]
                ends[k - shift] = ends[k]
            count[which] = n - shift
    else:
        for k in range(b + n, b + i, -1):
            starts[k] = starts[k - 1]
            ends[k] = ends[k - 1]
        count[which] = n + 1
    starts[b + i] = start
    ends[b + i] = end


@njit_leaf
def _nodes(lo: int, hi: int, leaves: int, inside: I64, above: I64) -> tuple[int, int]:
    """Fill ``inside`` and ``above`` with the nodes of ``[lo, hi)`` and those over them; gives how many of each."""
    left, right = lo + leaves, hi + leaves
    n = 0
    while left < right:
        if left & 1:
            inside[n] = left
            n += 1
        if right & 1:
            inside[n] = right - 1
            n += 1
        left, right = (left + 1) >> 1, right >> 1
    m = 0
    one, two = lo + leaves, hi - 1 + leaves
    width = 1
    while one:
        if lo > one * width - leaves or hi < (one + 1) * width - leaves:
            above[m] = one
            m += 1
        if two != one and hi < (two + 1) * width - leaves:
            above[m] = two
            m += 1
        one >>= 1
        two >>= 1
        width <<= 1
    return n, m


@njit
def place_all(
    sequence: I64,
    part_of: I64,
    part_lo: I64,
    part_hi: I64,
    size: I64,
    align: I64,
    fixed: I64,
    odd_of: I64,
    odd_other: I64,
    odd_kind: I64,
    k: int,
    tightest: bool,
) -> I64:
    """The loop of :func:`tmmu_core.planners.greedy._place`; all arrays int64, see :class:`Columns`."""
    leaves = 1
    while leaves < k:
        leaves <<= 1
    lists = 4 * leaves  # own of node v: 2v; any: 2v + 1
    begin = np.zeros(lists, np.int64)
    count = np.zeros(lists, np.int32)
    room = np.zeros(lists, np.int32)
    pool = max(1024, 16 * len(size))
    starts = np.empty(pool, np.int64)
    ends = np.empty(pool, np.int64)
    used = 0

    most_parts = 1
    most_odd = 0
    for i in range(len(size)):
        most_parts = max(most_parts, part_of[i + 1] - part_of[i])
        most_odd = max(most_odd, odd_of[i + 1] - odd_of[i])
    inside = np.empty(140, np.int64)
    above = np.empty(140, np.int64)
    # What is blocked for the storage at hand: list numbers, then single ranges of its odd conflicts.
    blocked = np.empty(200 * most_parts, np.int64)
    other = np.empty(most_odd + 1, np.int64)

    offset = np.full(len(size), -1, np.int64)
    for step in range(len(sequence)):
        i = sequence[step]
        need, grid = size[i], align[i]
        at = fixed[i]
        if at < 0:
            many = 0
            for row in range(part_of[i], part_of[i + 1]):
                n, m = _nodes(part_lo[row], part_hi[row], leaves, inside, above)
                for v in range(n):
                    if count[2 * inside[v] + 1]:
                        blocked[many] = 2 * inside[v] + 1
                        many += 1
                for v in range(m):
                    if count[2 * above[v]]:
                        blocked[many] = 2 * above[v]
                        many += 1
            odd = 0
            for row in range(odd_of[i], odd_of[i + 1]):
                if offset[odd_other[row]] >= 0:
                    other[odd] = odd_other[row]
                    odd += 1
            total = many + odd

            if not tightest:
                at = 0
                agreed = 0
                which = 0
                while agreed < total:
                    wall, past = -1, 0
                    if which < many:
                        b, n32 = begin[blocked[which]], count[blocked[which]]
                        f = _after(ends, b, n32, at)
                        if f < n32:
                            wall, past = starts[b + f], ends[b + f]
                    else:
                        j = other[which - many]
                        if offset[j] + size[j] > at:
                            wall, past = offset[j], offset[j] + size[j]
                    if 0 <= wall < at + need:
                        at = (past + grid - 1) & -grid
                        agreed = 0
                    else:
                        agreed += 1
                        which += 1
                        if which == total:
                            which = 0
            else:
                edge = 0
                best = -1
                smallest = -1
                while True:
                    moved = True
                    while moved:
                        moved = False
                        for which in range(total):
                            if which < many:
                                b, n32 = begin[blocked[which]], count[blocked[which]]
                                f = _after(ends, b, n32, edge)
                                if f < n32 and starts[b + f] <= edge:
                                    edge = ends[b + f]
                                    moved = True
                            else:
                                j = other[which - many]
                                if offset[j] <= edge < offset[j] + size[j]:
                                    edge = offset[j] + size[j]
                                    moved = True
                    wall = -1
                    for which in range(total):
                        if which < many:
                            b, n32 = begin[blocked[which]], count[blocked[which]]
                            f = _after(starts, b, n32, edge)
                            if f < n32 and (wall < 0 or starts[b + f] < wall):
                                wall = starts[b + f]
                        else:
                            j = other[which - many]
                            if offset[j] > edge and (wall < 0 or offset[j] < wall):
                                wall = offset[j]
                    at = (edge + grid - 1) & -grid
                    if wall < 0:
                        if best >= 0:
                            at = best
                        break
                    if at + need <= wall and (smallest < 0 or wall - edge < smallest):
                        best, smallest = at, wall - edge
                    edge = wall

            for row in range(odd_of[i], odd_of[i + 1]):
                j = odd_other[row]
                if odd_kind[row] != 1 or offset[j] < 0 or offset[j] % grid:
                    continue
                if not tightest and offset[j] >= at:
                    continue
                here = offset[j]
                free = True
                for which in range(total):
                    if which < many:
                        b, n32 = begin[blocked[which]], count[blocked[which]]
                        f = _after(ends, b, n32, here)
                        if f < n32 and starts[b + f] < here + need:
                            free = False
                    else:
                        o = other[which - many]
                        if o != j and offset[o] < here + need and here < offset[o] + size[o]:
                            free = False
                if free:
                    at = here
                    if tightest:
                        break

        offset[i] = at
        for row in range(part_of[i], part_of[i + 1]):
            n, m = _nodes(part_lo[row], part_hi[row], leaves, inside, above)
            for v in range(2 * n + m):
                if v < n:
                    which = 2 * inside[v]
                elif v < 2 * n:
                    which = 2 * inside[v - n] + 1
                else:
                    which = 2 * above[v - 2 * n] + 1
                if count[which] == room[which]:
                    bigger = max(2, 2 * room[which])
                    if used + bigger > len(starts):
                        wider = np.empty(2 * len(starts) + bigger, np.int64)
                        wider[:used] = starts[:used]
                        starts = wider
                        wider = np.empty(len(starts), np.int64)
                        wider[:used] = ends[:used]
                        ends = wider
                    b = begin[which]
                    for f in range(count[which]):
                        starts[used + f] = starts[b + f]
                        ends[used + f] = ends[b + f]
                    begin[which] = used
                    room[which] = bigger
                    used += bigger
                _merge(which, at, at + need, begin, count, starts, ends)
    return offset
