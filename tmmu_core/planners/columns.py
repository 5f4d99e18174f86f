"""Prepare a problem for packing: compressed time, sizes, and conflicts without overlap in time.

Two half-open ranges overlap if and only if one of them contains the other's first step. So time is compressed: only
the k distinct births remain, as *compressed steps*. The end of a gap counts as a birth.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tmmu_core.base.errors import U64_MAX, InvalidIrShapes
from tmmu_core.planners.problem import I64, U64, Problem, live_parts

SAFE = 2**62  # sums of aligned sizes below this keep all offsets within int64

NEVER, HANDOFF = 0, 1
"""Conflicts without overlap in time. ``NEVER``: no common byte; ``HANDOFF``: none unless the offsets are equal."""


@dataclass(frozen=True, eq=False)
class ConflictTable:
    """Conflicts that need no overlap in time: per storage, ``(other, kind)`` pairs. ``len``: number of all pairs."""

    first: I64  # shape (n + 1,): the pairs of storage i are ``table[first[i]:first[i + 1]]``
    table: I64  # shape (m, 2)

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, i: int) -> list[tuple[int, int]]:
        return [(other, kind) for other, kind in self.table[self.first[i] : self.first[i + 1]].tolist()]


@dataclass(frozen=True, eq=False)
class Columns:
    """A problem with n storages as columns; ``part_*`` is a ragged table of live ranges in compressed time."""

    problem: Problem
    size: tuple[int, ...]  # bytes, at least 1
    align: tuple[int, ...]
    fixed: tuple[int, ...]  # offset or −1
    part_of: I64  # shape (n + 1,): the live parts of storage i are rows ``part_of[i]:part_of[i + 1]``
    part_lo: I64
    part_hi: I64
    births: I64  # shape (k,): the original step of each compressed step
    extra_conflicts: ConflictTable  # per storage, ``(other, NEVER | HANDOFF)``: conflicts that need no overlap in time

    def __len__(self) -> int:
        return len(self.size)

    @cached_property
    def has_intervals(self) -> bool:
        """Whether every storage has one live part and no extra conflict."""
        return not self.extra_conflicts and bool((np.diff(self.part_of) == 1).all())

    @cached_property
    def is_plain(self) -> bool:
        """Whether every storage has one live part, no fixed offset and no extra conflict."""
        return self.has_intervals and max(self.fixed, default=-1) < 0

    @cached_property
    def is_small(self) -> bool:
        """Whether int64 holds every intermediate value of a planner."""
        return sum(map(int, self.size)) + len(self) * max(self.align, default=1) + max(self.fixed, default=0) < SAFE

    @cached_property
    def sizes(self) -> NDArray[Any]:
        """``size`` as int64, or as Python integers if the problem is not :attr:`is_small`."""
        return np.array(self.size, np.int64 if self.is_small else object)

    @cached_property
    def aligns(self) -> NDArray[Any]:
        """``align`` with the element type of :attr:`sizes`."""
        return np.array(self.align, np.int64 if self.is_small else object)

    @cached_property
    def storage_of_part(self) -> I64:
        """Storage of each live part."""
        return np.repeat(np.arange(len(self), dtype=np.int64), np.diff(self.part_of))

    def live_bytes(self, sizes: NDArray[Any] | None = None) -> NDArray[Any]:
        """Return the live bytes at each compressed step; ``sizes`` (n,) replaces the storages' sizes."""
        size = (self.sizes if sizes is None else sizes)[self.storage_of_part]
        change = np.zeros(len(self.births) + 1, size.dtype)
        np.add.at(change, self.part_lo, size)
        np.subtract.at(change, self.part_hi, size)
        return np.cumsum(change[:-1])

    def alive_at(self, step: int) -> I64:
        """Return the storages that are live at a compressed step, ascending."""
        return _distinct(self.storage_of_part[(self.part_lo <= step) & (step < self.part_hi)])

    def overlap_in_time(self, i: int, j: int) -> bool:
        """Return whether the live ranges of two storages overlap."""
        lo, hi = self.part_lo, self.part_hi
        rows, others = (range(self.part_of[k], self.part_of[k + 1]) for k in (i, j))
        return any(lo[a] < hi[b] and lo[b] < hi[a] for a, b in product(rows, others))


def columns(problem: Problem) -> Columns:
    """Prepare a problem. Raises InvalidIrShapes if conflicting storages are fixed on common bytes."""
    n = len(problem)
    size = tuple(np.maximum(problem.size, np.uint64(1)).tolist())
    align = tuple(problem.alignment.tolist())
    fixed = tuple(problem.fixed.tolist()) if problem.fixed is not None else (-1,) * n
    first, lo, hi = live_parts(problem)
    births = _distinct(np.sort(lo))
    lo, hi = (np.searchsorted(births, steps).astype(np.int64) for steps in (lo, hi))
    cols = Columns(problem, size, align, fixed, first, lo, hi, births, _extra_conflicts(problem))
    if problem.fixed is not None:
        _check_fixed(cols)
    return cols


def _distinct(ascending: I64) -> I64:
    """Return the distinct values of a sorted column; about 100 times faster than ``np.unique``."""
    return ascending[np.append(True, ascending[1:] != ascending[:-1])[: len(ascending)]]


def _extra_conflicts(problem: Problem) -> ConflictTable:
    """Return the conflicts that need no overlap in time, in both directions; ``NEVER`` overrides ``HANDOFF``."""
    n = len(problem)
    pairs = [np.zeros(0, np.int64)]
    if problem.handoff_from is not None:
        reusing = np.flatnonzero(problem.handoff_from >= 0)
        pairs.append(_both_ways(np.stack([problem.handoff_from[reusing], reusing], axis=1), n) * 2 + HANDOFF)
    if problem.must_not_alias is not None:
        pairs.append(_both_ways(problem.must_not_alias.reshape(-1, 2), n) * 2 + NEVER)
    keys = np.sort(np.concatenate(pairs))
    pair, kind = np.divmod(keys, 2)
    is_first = np.diff(pair, prepend=-1) > 0  # the first of equal pairs is kept: ``NEVER`` sorts before ``HANDOFF``
    pair, kind = pair[is_first], kind[is_first]
    one, other = np.divmod(pair, max(n, 1))
    return ConflictTable(np.searchsorted(one, np.arange(n + 1)), np.stack([other, kind], axis=1))


def _both_ways(pairs: I64, n: int) -> I64:
    """Return ``one · n + other`` for both directions of each pair of distinct storages."""
    pairs = pairs[pairs[:, 0] != pairs[:, 1]].astype(np.int64)
    return np.concatenate([pairs[:, 0] * n + pairs[:, 1], pairs[:, 1] * n + pairs[:, 0]])


def _check_fixed(cols: Columns) -> None:
    """Raise ``InvalidIrShapes`` if conflicting storages are fixed on common bytes: a sweep over the births."""
    rows = np.flatnonzero(np.array(cols.fixed)[cols.storage_of_part] >= 0)
    parts = zip(*(column[rows].tolist() for column in (cols.part_lo, cols.part_hi, cols.storage_of_part)), strict=True)
    live: list[tuple[int, int]] = []  # (offset, storage), sorted; no two share a byte
    dying: list[tuple[int, int]] = []  # heap of (end, storage)
    for lo, hi, i in sorted(parts):
        while dying and dying[0][0] <= lo:
            _, j = heappop(dying)
            del live[bisect_left(live, (cols.fixed[j], j))]
        place = bisect_left(live, (cols.fixed[i], i))
        for _, j in live[max(place - 1, 0) : place + 1]:
            _check_collision(cols, i, j, may_coincide=False)
        live.insert(place, (cols.fixed[i], i))
        heappush(dying, (hi, i))
    for i, offset in enumerate(cols.fixed):
        for j, kind in cols.extra_conflicts[i]:
            if j > i and min(offset, cols.fixed[j]) >= 0:
                _check_collision(cols, i, j, may_coincide=kind == HANDOFF)


def _check_collision(cols: Columns, i: int, j: int, may_coincide: bool) -> None:
    """Raise ``InvalidIrShapes`` if two fixed storages overlap; ``may_coincide`` permits equal offsets."""
    a, b = cols.fixed[i], cols.fixed[j]
    if i == j or (may_coincide and a == b) or a + cols.size[i] <= b or b + cols.size[j] <= a:
        return
    one, two = cols.problem.ids[min(i, j)], cols.problem.ids[max(i, j)]
    arena, t = cols.problem.arena, int(max(cols.problem.birth[i], cols.problem.birth[j]))
    message = f"storages {one!r} and {two!r} of arena {arena!r} are fixed on common bytes and conflict."
    diagnostics = {"reason": "fixed_offsets_collide", "arena": arena, "tensor_id": one, "other_tensor_id": two}
    raise InvalidIrShapes(message, t=t, hint="Remove one of the two fixed offsets.", **diagnostics)


def align_up(at: int, alignment: int) -> int:
    """Return the least multiple of ``alignment`` that is at least ``at``."""
    return -(-at // alignment) * alignment


def free_gap(blocked: Iterable[tuple[int, int]], size: int, align: int, *, tightest: bool = False) -> int:
    """Return the lowest offset of ``size`` free bytes; with ``tightest``, the offset in the smallest gap that fits.

    ``blocked``: ranges ``[start, end)`` of bytes. If no gap is large enough, the offset is above all blocked ranges.
    """
    edge, best, smallest = 0, -1, -1
    for start, end in sorted(blocked):
        at = align_up(edge, align)
        if at + size <= start and (smallest < 0 or start - edge < smallest):
            if not tightest:
                return at
            best, smallest = at, start - edge
        edge = max(edge, end)
    return best if best >= 0 else align_up(edge, align)


def extent_of(cols: Columns, offset: Sequence[int] | NDArray[Any]) -> int:
    """Return the end of the highest storage; 0 without storages."""
    return int((np.asarray(offset, cols.sizes.dtype) + cols.sizes).max(initial=0))


def offset_column(cols: Columns, offset: Sequence[int]) -> U64:
    """Return the offsets as a uint64 column. Raises AllocationOverflow if a storage ends past 2^64 − 1."""
    for i, at in enumerate(offset) if extent_of(cols, offset) > U64_MAX else ():
        if at + cols.size[i] > U64_MAX:
            name, t = cols.problem.ids[i], int(cols.problem.birth[i])
            raise cols.problem.overflow(f"storage {name!r}", at, cols.size[i], t=t, tensor_id=name)
    return np.asarray(offset, dtype=np.uint64)
