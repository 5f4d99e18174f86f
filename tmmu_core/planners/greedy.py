"""``greedy``: one placement loop, a table of orders and a table of fits.

Storages are taken one after another in a fixed order and each goes where the fit says among the bytes that are free
for its whole life. What is free is asked of a segment tree over squeezed time: a node keeps the merged address
ranges of the storages that cover it (``own``) and of those that touch it anywhere (``any``). A life is O(log k)
nodes, merged ranges stay few because low memory fills up, so a run is near-linear: O(n log k) list visits.

Orders and fits are the field's: by size and by breadth (Pisarchyk & Lee 2020), by area and length (Knuth's dynamic
storage allocation and the strip-packing literature), first fit in birth order with a free list (every allocator).
From :data:`COMPILED_FROM` storages on the same loop runs compiled (:mod:`tmmu_core.planners.kernels`), where numba is
installed. Where storages meet few others, those are sorted instead, compiled or not (:mod:`tmmu_core.planners.near`).
"""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any

import numpy as np

from tmmu_core import compiled as compiling
from tmmu_core.loops.library import library
from tmmu_core.planners.columns import (
    HANDOFF,
    Columns,
    align_up,
    columns,
    extent_of,
    finished,
    option,
)
from tmmu_core.planners.near import COMPILED_NEAR_UP_TO, near_of, neighbours, place_near
from tmmu_core.planners.problem import I64, Packing, Problem, Progress

COMPILED_FROM = 10_000
"""Storages placed (times runs) from which loading the compiled loop pays for itself."""

LOADED_FROM = 64
"""Storages from which the compiled loop is the quicker one where it is loaded already."""

FITS = ("lowest", "tightest", "free_list")


def greedy(problem: Problem, options: Mapping[str, Any], progress: Progress | None = None) -> Packing:
    """Place every storage once, in one order, with one fit.

    Options: ``order`` (a key of :data:`ORDERS`, default ``size``) and ``fit`` (one of :data:`FITS`, default
    ``lowest``). ``free_list`` takes storages in birth order whatever ``order`` says. Raises AllocationOverflow
    when an end passes 2^64 − 1.
    """
    fit = option(options, "fit", "lowest", FITS)
    order = option(options, "order", "size", tuple(ORDERS))
    if fit == "free_list":
        order = "birth"
    cols = columns(problem)
    offset = place(cols, ORDERS[order](cols), fit)
    notes = {"order": order, "fit": fit}
    return Packing(finished(cols, offset), notes=notes)


# ---------------------------------------------------------------------------------------------------------- orders


def _sorted_by(keys: Sequence[Sequence[int] | I64]) -> list[int]:
    """Indices by the first key, largest first, then the next; the normative order breaks ties."""
    n = len(keys[0])
    numbers = [np.asarray(key) for key in keys]
    if any(column.dtype != np.int64 for column in numbers):  # past 64 bits with a sign
        return sorted(range(n), key=lambda i: (*(-int(k[i]) for k in keys), i))
    order: list[int] = np.lexsort((np.arange(n), *(-column for column in reversed(numbers)))).tolist()
    return order


def _sizes(cols: Columns) -> Sequence[int] | I64:
    return cols.sizes if cols.small else cols.size


def _held(cols: Columns) -> I64:
    """Σ (hi − lo) over each storage's live parts."""
    held = np.zeros(len(cols), dtype=np.int64)
    np.add.at(held, cols.storage_of_part, cols.part_hi - cols.part_lo)
    return held


def _steps(cols: Columns) -> I64:
    """Steps each storage holds bytes for, its gaps taken off."""
    life: I64 = cols.problem.death - cols.problem.birth
    if cols.problem.gaps is None:
        return life
    return life - np.array([sum(stop - begin for begin, stop in gaps) for gaps in cols.problem.gaps], np.int64)


def _times(cols: Columns, steps: I64) -> Sequence[int] | I64:
    """Bytes × steps of each storage, which may pass 64 bits."""
    if cols.small and int(cols.sizes.max(initial=0)) * int(np.abs(steps).max(initial=0)) < 2**63:
        return cols.sizes * steps
    return [a * b for a, b in zip(cols.size, steps.tolist(), strict=True)]


def by_size(cols: Columns) -> list[int]:
    """Most bytes first, the longer life first among equals."""
    return _sorted_by([_sizes(cols), _held(cols)])


def by_area(cols: Columns) -> list[int]:
    """Most bytes × steps first."""
    return _sorted_by([_times(cols, _steps(cols))])


def by_birth(cols: Columns) -> list[int]:
    """As the tensors are made: the normative order."""
    order: list[int] = np.argsort(cols.problem.birth, kind="stable").tolist()
    return order


def by_length(cols: Columns) -> list[int]:
    """Longest life first, the larger first among equals."""
    return _sorted_by([_held(cols), _sizes(cols)])


def by_size_length(cols: Columns) -> list[int]:
    """Most bytes × births lived through first: like area, but idle stretches of the clock weigh nothing."""
    return _sorted_by([_times(cols, _held(cols))])


def by_breadth(cols: Columns) -> list[int]:
    """Those who live through the fullest moment first, the larger first among them (Pisarchyk & Lee 2020)."""
    return _sorted_by([widest(cols), _sizes(cols)])


def widest(cols: Columns) -> list[int]:
    """Per storage, the most live bytes at any moment of its life."""
    live = np.asarray(cols.live_bytes(), dtype=np.int64 if cols.small else object)
    levels = [live]  # levels[l][c]: the most over columns [c, c + 2^l)
    while 2 ** len(levels) <= len(live):
        half = 2 ** (len(levels) - 1)
        levels.append(np.maximum(levels[-1][:-half], levels[-1][half:]))
    if cols.plain:
        return _widest_of_one_part(cols, levels)
    most = [0] * len(cols)
    lows, highs = cols.part_lo.tolist(), cols.part_hi.tolist()
    for row, i in enumerate(cols.storage_of_part.tolist()):
        level = (highs[row] - lows[row]).bit_length() - 1
        most[i] = max(most[i], int(levels[level][lows[row]]), int(levels[level][highs[row] - 2**level]))
    return most


def _widest_of_one_part(cols: Columns, levels: list[I64]) -> list[int]:
    width = cols.part_hi - cols.part_lo
    level = np.searchsorted(2 ** np.arange(len(levels)), width, side="right") - 1
    begin = np.cumsum([0, *map(len, levels)])[level]
    table = np.concatenate(levels)
    most: list[int] = np.maximum(table[begin + cols.part_lo], table[begin + cols.part_hi - (1 << level)]).tolist()
    return most


ORDERS: Mapping[str, Callable[[Columns], list[int]]] = {
    "size": by_size,
    "area": by_area,
    "birth": by_birth,
    "length": by_length,
    "size_length": by_size_length,
    "breadth": by_breadth,
}


# ------------------------------------------------------------------------------------------------------- placement


def place(cols: Columns, order: Sequence[int], fit: str, *, runs: int = 1, compiled: bool | None = None) -> list[int]:
    """Offsets of one run. ``order`` is a permutation; storages with a fixed offset go first all the same.

    ``runs`` tells how many runs will share the cost of loading the compiled loop; ``compiled`` forces the choice.
    The answer does not depend on either.
    """
    if fit == "free_list" and cols.plain:
        return _free_list(cols)
    sequence = order
    if cols.problem.fixed is not None:
        sequence = [i for i in order if cols.fixed[i] >= 0] + [i for i in order if cols.fixed[i] < 0]
    if compiled is None:
        pays = len(cols) * runs >= COMPILED_FROM or (len(cols) >= LOADED_FROM and "numba" in sys.modules)
        compiled = library() is not None or (pays and compiling.is_there())
    if compiled and cols.small:
        met = neighbours(cols, COMPILED_NEAR_UP_TO) if cols.plain else None
        if met is not None:
            from tmmu_core.planners import near_kernel

            return near_kernel.place(cols, sequence, met, tightest=fit == "tightest")
        from tmmu_core.planners import kernels

        return kernels.place(cols, sequence, tightest=fit == "tightest")
    if cols.plain:
        near = near_of(cols)
        if near is not None:
            return place_near(cols, sequence, near, tightest=fit == "tightest")
    return _place(cols, sequence, tightest=fit == "tightest")


def _place(cols: Columns, sequence: Sequence[int], tightest: bool) -> list[int]:
    offset = [-1] * len(cols)
    tree = _Tree(len(cols.births))
    lows, highs, first = cols.part_lo.tolist(), cols.part_hi.tolist(), cols.part_of.tolist()
    for i in sequence:
        parts = range(first[i], first[i + 1])
        size, align = cols.size[i], cols.align[i]
        at = cols.fixed[i]
        if at < 0:
            taken = [ranges for row in parts for ranges in tree.taken(lows[row], highs[row])]
            odd = cols.odd[i] if cols.odd is not None else ()
            placed = [(j, kind) for j, kind in odd if offset[j] >= 0]
            blocked = taken + [([offset[j]], [offset[j] + cols.size[j]]) for j, _ in placed]
            at = _tightest(blocked, size, align) if tightest else _lowest(blocked, size, align)
            for j, kind in placed:
                # The whole of a handed-off place is the tightest gap there is; for the lowest fit it must be lower.
                if kind == HANDOFF and (tightest or offset[j] < at) and offset[j] % align == 0:
                    others = [([offset[o]], [offset[o] + cols.size[o]]) for o, _ in placed if o != j]
                    if _is_free(taken + others, offset[j], size):
                        at = offset[j]
                        if tightest:
                            break
        offset[i] = at
        for row in parts:
            tree.take(lows[row], highs[row], at, at + size)
    return offset


Ranges = tuple[list[int], list[int]]
"""Merged address ranges, half-open: sorted starts, sorted ends."""


class _Tree:
    """Which addresses are taken when: a segment tree over squeezed time with merged ranges at its nodes."""

    def __init__(self, k: int) -> None:
        self.leaves = 1 << max(k - 1, 0).bit_length()
        self.own: dict[int, Ranges] = {}
        self.any: dict[int, Ranges] = {}

    def taken(self, lo: int, hi: int) -> Iterator[Ranges]:
        """The range lists whose union is what is taken at some moment of ``[lo, hi)``."""
        inside, above = self._nodes(lo, hi)
        yield from (self.any[v] for v in inside if v in self.any)
        yield from (self.own[v] for v in above if v in self.own)

    def take(self, lo: int, hi: int, start: int, end: int) -> None:
        """Mark addresses ``[start, end)`` as taken throughout ``[lo, hi)``."""
        inside, above = self._nodes(lo, hi)
        for v in inside:
            _merge(self.own.setdefault(v, ([], [])), start, end)
            _merge(self.any.setdefault(v, ([], [])), start, end)
        for v in above:
            _merge(self.any.setdefault(v, ([], [])), start, end)

    def _nodes(self, lo: int, hi: int) -> tuple[list[int], list[int]]:
        """The fewest nodes that make up ``[lo, hi)``, and all nodes strictly above one of them."""
        left, right = lo + self.leaves, hi + self.leaves
        inside = []
        while left < right:
            if left & 1:
                inside.append(left)
            if right & 1:
                inside.append(right - 1)
            left, right = (left + 1) >> 1, right >> 1
        above: list[int] = []
        one, two = lo + self.leaves, hi - 1 + self.leaves
        width = 1
        while one:
            if lo > one * width - self.leaves or hi < (one + 1) * width - self.leaves:
                above.append(one)
            if two != one and hi < (two + 1) * width - self.leaves:
                above.append(two)
            one, two, width = one >> 1, two >> 1, width << 1
        return inside, above


def _merge(ranges: Ranges, start: int, end: int) -> None:
    starts, ends = ranges
    i = bisect_left(ends, start)
    j = bisect_right(starts, end)
    if i < j:
        start, end = min(start, starts[i]), max(end, ends[j - 1])
    starts[i:j] = [start]
    ends[i:j] = [end]


def _lowest(blocked: Sequence[Ranges], size: int, align: int) -> int:
    """The lowest multiple of ``align`` at which ``size`` bytes are free in every list."""
    at, agreed, which = 0, 0, 0
    while agreed < len(blocked):
        starts, ends = blocked[which]
        i = bisect_right(ends, at)
        if i < len(starts) and starts[i] < at + size:
            at, agreed = align_up(ends[i], align), 0
        else:
            agreed += 1
            which = which + 1 if which + 1 < len(blocked) else 0
    return at


def _tightest(blocked: Sequence[Ranges], size: int, align: int) -> int:
    """The offset in the smallest free gap that takes ``size`` bytes, the lowest of equals; else on top of all."""
    edge, best, smallest = 0, -1, -1
    while True:
        moved = True
        while moved:  # leave whatever covers the edge
            moved = False
            for starts, ends in blocked:
                i = bisect_right(ends, edge)
                if i < len(starts) and starts[i] <= edge:
                    edge, moved = ends[i], True
        at = align_up(edge, align)
        beyond = ((starts, bisect_right(starts, edge)) for starts, _ in blocked)
        walls = [starts[i] for starts, i in beyond if i < len(starts)]
        if not walls:
            return best if best >= 0 else at
        wall = min(walls)
        if at + size <= wall and (smallest < 0 or wall - edge < smallest):
            best, smallest = at, wall - edge
        edge = wall


def _is_free(blocked: Sequence[Ranges], at: int, size: int) -> bool:
    for starts, ends in blocked:
        i = bisect_right(ends, at)
        if i < len(starts) and starts[i] < at + size:
            return False
    return True


def _free_list(cols: Columns) -> list[int]:
    """First fit in birth order over a sorted list of free blocks that join when they touch.

    For plain problems only. Gives what ``lowest`` gives in birth order, without the tree.
    """
    offset = [0] * len(cols)
    deaths: list[tuple[int, int]] = []
    starts: list[int] = []  # free blocks below the top, sorted, never touching
    ends: list[int] = []
    top = 0
    lows, highs = cols.part_lo.tolist(), cols.part_hi.tolist()
    for i in by_birth(cols):
        while deaths and deaths[0][0] <= lows[i]:
            gone = heappop(deaths)[1]
            _merge((starts, ends), offset[gone], offset[gone] + cols.size[gone])
        if ends and ends[-1] == top:
            top = starts.pop()
            ends.pop()
        size, align = cols.size[i], cols.align[i]
        for k, begin in enumerate(starts):
            at = align_up(begin, align)
            if at + size <= ends[k]:
                pieces = [(begin, at), (at + size, ends[k])]
                starts[k : k + 1] = [a for a, b in pieces if a < b]
                ends[k : k + 1] = [b for a, b in pieces if a < b]
                break
        else:
            at = align_up(top, align)
            if at > top:
                starts.append(top)
                ends.append(at)
            top = at + size
        offset[i] = at
        heappush(deaths, (highs[i], i))
    return offset


__all__ = ["COMPILED_FROM", "FITS", "ORDERS", "extent_of", "greedy", "place", "widest"]
