"""``greedy``: one placement loop, a table of orders and a table of fits.

Storages are placed one after another in a fixed order; the fit chooses among the addresses that are free during the
whole lifetime. A segment tree over compressed time holds, per node, the merged address ranges of the storages that
cover it (``own``) and of those that overlap it (``any``). A lifetime is O(log k) nodes, so a run visits O(n log k)
range lists.

Orders and fits are those of the literature: size and breadth (Pisarchyk & Lee 2020), area and length (dynamic storage
allocation and strip packing), first fit in birth order with a free list. The loop runs in the native library where it
is loaded, with the same result. Without the tree, which is for many storages with many neighbours, it scans all placed
storages in order of address, or sorts the addresses of those that overlap in time.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from ctypes import CDLL
from typing import Any

import numpy as np

from tmmu_core.planners.columns import HANDOFF, Columns, align_up, columns, extent_of, finished, option
from tmmu_core.planners.native import native
from tmmu_core.planners.native.load import library
from tmmu_core.planners.problem import I64, Packing, Problem, Progress

FITS = ("lowest", "tightest", "free_list")
NEAR_UP_TO = 128
"""Mean number of neighbours up to which this loop is used."""

PAIRS_UP_TO = 2_000_000
"""Rows of the neighbour table, about 40 bytes each; with more, the tree needs less memory."""


def greedy(problem: Problem, options: Mapping[str, Any], progress: Progress | None = None) -> Packing:
    """Place every storage once, in one order, with one fit.

    Options: ``order`` (a key of :data:`ORDERS`, default ``size``) and ``fit`` (one of :data:`FITS`, default
    ``lowest``). ``free_list`` is ``lowest`` in birth order. Raises AllocationOverflow where an end passes 2^64 − 1.
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
    """Return the indices by the first key, largest first, then the next; ties in normative order."""
    n = len(keys[0])
    numbers = [np.asarray(key) for key in keys]
    if any(column.dtype != np.int64 for column in numbers):  # beyond int64
        return sorted(range(n), key=lambda i: (*(-int(k[i]) for k in keys), i))
    order: list[int] = np.lexsort((np.arange(n), *(-column for column in reversed(numbers)))).tolist()
    return order


def _sizes(cols: Columns) -> Sequence[int] | I64:
    return cols.sizes if cols.small else cols.size


def _held(cols: Columns) -> I64:
    """Σ (hi − lo) over the live parts of each storage."""
    held = np.zeros(len(cols), dtype=np.int64)
    np.add.at(held, cols.storage_of_part, cols.part_hi - cols.part_lo)
    return held


def _steps(cols: Columns) -> I64:
    """Return the live steps of each storage, without its gaps."""
    life: I64 = cols.problem.death - cols.problem.birth
    if cols.problem.gaps is None:
        return life
    return life - np.array([sum(stop - begin for begin, stop in gaps) for gaps in cols.problem.gaps], np.int64)


def _times(cols: Columns, steps: I64) -> Sequence[int] | I64:
    """Return bytes × steps of each storage; may exceed 64 bits."""
    if cols.small and int(cols.sizes.max(initial=0)) * int(np.abs(steps).max(initial=0)) < 2**63:
        return cols.sizes * steps
    return [a * b for a, b in zip(cols.size, steps.tolist(), strict=True)]


def by_size(cols: Columns) -> list[int]:
    """Most bytes first; ties: longer lifetime first."""
    return _sorted_by([_sizes(cols), _held(cols)])


def by_area(cols: Columns) -> list[int]:
    """Most bytes × steps first."""
    return _sorted_by([_times(cols, _steps(cols))])


def by_birth(cols: Columns) -> list[int]:
    """Birth order: the normative order."""
    order: list[int] = np.argsort(cols.problem.birth, kind="stable").tolist()
    return order


def by_length(cols: Columns) -> list[int]:
    """Longest lifetime first; ties: larger first."""
    return _sorted_by([_held(cols), _sizes(cols)])


def by_size_length(cols: Columns) -> list[int]:
    """Most bytes × births during the lifetime first: like area without idle stretches of time."""
    return _sorted_by([_times(cols, _held(cols))])


def by_breadth(cols: Columns) -> list[int]:
    """Storages live at the moment of most live bytes first, larger ones first (Pisarchyk & Lee 2020)."""
    return _sorted_by([widest(cols), _sizes(cols)])


def widest(cols: Columns) -> list[int]:
    """Return, per storage, the most live bytes during its lifetime."""
    live = np.asarray(cols.live_bytes(), dtype=np.int64 if cols.small else object)
    levels = [live]  # levels[l][c]: the most over columns [c, c + 2^l)
    while 2 ** len(levels) <= len(live):
        half = 2 ** (len(levels) - 1)
        levels.append(np.maximum(levels[-1][:-half], levels[-1][half:]))
    level = np.searchsorted(2 ** np.arange(len(levels)), cols.part_hi - cols.part_lo, side="right") - 1
    begin = np.cumsum([0, *map(len, levels)])[level]
    table = np.concatenate(levels)
    most = np.zeros(len(cols), dtype=live.dtype)
    of_part = np.maximum(table[begin + cols.part_lo], table[begin + cols.part_hi - (1 << level)])
    np.maximum.at(most, cols.storage_of_part, of_part)
    found: list[int] = most.tolist()
    return found


ORDERS: Mapping[str, Callable[[Columns], list[int]]] = {
    "size": by_size,
    "area": by_area,
    "birth": by_birth,
    "length": by_length,
    "size_length": by_size_length,
    "breadth": by_breadth,
}


# ------------------------------------------------------------------------------------------------------- placement


def place(cols: Columns, order: Sequence[int], fit: str, *, plain: bool = False) -> list[int]:
    """Return the offsets of one run. ``order`` is a permutation; storages with a fixed offset are placed first.

    ``plain`` selects the Python loop even where the native library is loaded. The offsets are the same.
    """
    sequence = order
    if cols.problem.fixed is not None:
        sequence = [i for i in order if cols.fixed[i] >= 0] + [i for i in order if cols.fixed[i] < 0]
    loops = None if plain or not cols.small else library()
    if loops is None:
        return _place(cols, sequence, tightest=fit == "tightest")
    call = _flat_call(cols) if cols.plain else None
    if call is not None:
        return native.place_flat(loops, call, sequence, fit == "tightest")
    return place_native(loops, cols, sequence, tightest=fit == "tightest")


def place_native(loops: CDLL, cols: Columns, sequence: Sequence[int], tightest: bool) -> list[int]:
    """Return the offsets of one run of the native segment-tree loop; ``cols`` must be small."""
    odd_of, odd_other, odd_kind = cols.odd_rows
    found: list[int] = native.place(
        loops,
        len(cols.births),
        sequence=np.asarray(sequence, dtype=np.int64),
        part_of=cols.part_of,
        part_lo=cols.part_lo,
        part_hi=cols.part_hi,
        size=cols.sizes,
        align=cols.aligns,
        fixed=np.asarray(cols.fixed, dtype=np.int64),
        odd_of=odd_of,
        odd_other=odd_other,
        odd_kind=odd_kind,
        tightest=tightest,
    ).tolist()
    return found


def _flat_call(cols: Columns) -> Any:
    """Return the arguments of a native run of a plain problem without the tree; ``None`` where that takes longer.

    A run scans all placed storages, or sorts the neighbours of each: the storages that overlap it in time. Cached.
    """
    if "flat" not in cols.memo:
        lo, hi = cols.part_lo, cols.part_hi
        order = np.argsort(lo, kind="stable")
        later = np.searchsorted(lo[order], hi[order])  # storages born before the k-th by birth ends
        count = later - np.arange(1, len(cols) + 1)
        rows, n = 2 * int(count.sum()), len(cols)
        call = None
        if 4 * n**3 <= rows**2:
            call = native.flat(lo, hi, cols.sizes, cols.aligns, spans=4 * n)
        elif rows <= min(NEAR_UP_TO * n, PAIRS_UP_TO):
            one = np.repeat(np.arange(n), count)
            other = order[np.arange(len(one)) - np.repeat(np.cumsum(count) - count, count) + one + 1]
            one = order[one]
            table = np.concatenate([other, one])[np.argsort(np.concatenate([one, other]), kind="stable")]
            first = np.zeros(n + 1, np.int64)
            np.cumsum(np.bincount(one, minlength=n) + np.bincount(other, minlength=n), out=first[1:])
            call = native.flat(first, table, cols.sizes, cols.aligns, spans=2 * int(np.diff(first).max(initial=0)))
        cols.memo["flat"] = call
    found: Any = cols.memo["flat"]
    return found


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
                # A reused place is the tightest possible gap; for the lowest fit it must also be lower.
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
"""Merged half-open address ranges: sorted starts, sorted ends."""


class _Tree:
    """Segment tree over compressed time with merged address ranges at its nodes."""

    def __init__(self, k: int) -> None:
        self.leaves = 1 << max(k - 1, 0).bit_length()
        self.own: dict[int, Ranges] = {}
        self.any: dict[int, Ranges] = {}

    def taken(self, lo: int, hi: int) -> Iterator[Ranges]:
        """Yield the range lists whose union is taken at some moment of ``[lo, hi)``."""
        inside, above = self._nodes(lo, hi)
        yield from (self.any[v] for v in inside if v in self.any)
        yield from (self.own[v] for v in above if v in self.own)

    def take(self, lo: int, hi: int, start: int, end: int) -> None:
        """Mark addresses ``[start, end)`` as taken during ``[lo, hi)``."""
        inside, above = self._nodes(lo, hi)
        for v in inside:
            _merge(self.own.setdefault(v, ([], [])), start, end)
            _merge(self.any.setdefault(v, ([], [])), start, end)
        for v in above:
            _merge(self.any.setdefault(v, ([], [])), start, end)

    def _nodes(self, lo: int, hi: int) -> tuple[list[int], list[int]]:
        """Return the fewest nodes that cover ``[lo, hi)``, and all their proper ancestors."""
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
    """Return the lowest multiple of ``align`` at which ``size`` bytes are free in every list."""
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
    """Return the offset in the smallest free gap of ``size`` bytes, the lowest of equals; else above everything."""
    edge, best, smallest = 0, -1, -1
    while True:
        moved = True
        while moved:  # skip ranges that cover the edge
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


__all__ = ["FITS", "ORDERS", "extent_of", "greedy", "place", "widest"]
