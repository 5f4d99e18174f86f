"""A problem made ready for packing: time squeezed to the births, sizes backed, the odd conflicts as lists.

Two half-open ranges meet if and only if one of them holds the other's first step, so all that matters of time is
the order of births (a storage is born again after each of its gaps). With k distinct births a life becomes a range
of columns in ``[0, k)`` and every structure over time has at most k leaves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import add
from typing import Any, overload

import numpy as np

from tmmu_core.errors import U64_MAX, AlignmentViolation, AllocationOverflow, InvalidIrShapes
from tmmu_core.once import cached_property
from tmmu_core.planners.problem import I64, Problem

SAFE = 2**62
"""Below this sum of aligned sizes no offset + size can leave int64, whatever a planner does."""

NEVER, HANDOFF = 0, 1
"""Kinds of odd conflict: never the same byte; never, but for the very same offset."""


class Odd(Sequence[tuple[tuple[int, int], ...]]):
    """Per storage a row of ``(other, kind)`` pairs; a ragged table, of which a row is made when it is asked for."""

    def __init__(self, first: I64, table: I64) -> None:
        """``first`` (n + 1,): storage i has the rows ``first[i]:first[i + 1]`` of ``table`` (m, 2)."""
        self.first, self.table = first.astype(np.int64), table
        self._made: dict[int, tuple[tuple[int, int], ...]] = {}

    def __len__(self) -> int:
        return len(self.first) - 1

    @overload
    def __getitem__(self, i: int) -> tuple[tuple[int, int], ...]: ...
    @overload
    def __getitem__(self, i: slice) -> list[tuple[tuple[int, int], ...]]: ...
    def __getitem__(self, i: int | slice) -> Any:
        if isinstance(i, slice):
            return [self[k] for k in range(len(self))[i]]
        row = self._made.get(i)
        if row is None:
            if i < 0:
                raise IndexError(i)  # one past the last raises by itself
            pairs = self.table[self.first[i] : self.first[i + 1]].tolist()
            row = self._made[i] = tuple([(other, kind) for other, kind in pairs])
        return row


@dataclass(frozen=True, eq=False)
class Columns:
    """A problem with n storages as plain columns; ``part_*`` is a ragged table of live ranges, in squeezed time."""

    problem: Problem
    size: tuple[int, ...]
    """Bytes that back the storage: at least 1."""
    align: tuple[int, ...]
    fixed: tuple[int, ...]
    """Offset or −1."""
    part_of: I64
    """Shape (n + 1,): the live parts of storage i are rows ``part_of[i]:part_of[i + 1]``."""
    part_lo: I64
    part_hi: I64
    births: I64
    """Shape (k,): the step at which each column of squeezed time begins."""
    odd: Odd | None = None
    """Per storage, ``(other, NEVER | HANDOFF)``: conflicts that time does not tell. ``None``: there are none."""
    memo: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.size)

    @cached_property
    def plain(self) -> bool:
        """One live part each, nothing fixed, no odd conflict."""
        return self.odd is None and max(self.fixed, default=-1) < 0 and bool((np.diff(self.part_of) == 1).all())

    @cached_property
    def small(self) -> bool:
        """Whether int64 holds whatever a planner may compute."""
        worst = sum(map(int, self.size)) + len(self) * max(self.align, default=1) + max(self.fixed, default=0)
        return worst < SAFE

    @cached_property
    def sizes(self) -> I64:
        """``size`` as int64; asserts :attr:`small`."""
        assert self.small
        return np.asarray(self.size, dtype=np.int64)

    @cached_property
    def aligns(self) -> I64:
        """``align`` as int64."""
        assert self.small
        return np.asarray(self.align, dtype=np.int64)

    @cached_property
    def storage_of_part(self) -> I64:
        """Which storage each live part belongs to."""
        return np.repeat(np.arange(len(self), dtype=np.int64), np.diff(self.part_of))

    @cached_property
    def odd_rows(self) -> tuple[I64, I64, I64]:
        """``odd`` as a ragged table: (first row per storage, the other one, the kind)."""
        n = len(self)
        if self.odd is None:
            empty = np.zeros(0, dtype=np.int64)
            return np.zeros(n + 1, dtype=np.int64), empty, empty
        table = self.odd.table
        return self.odd.first, np.ascontiguousarray(table[:, 0]), np.ascontiguousarray(table[:, 1])

    def live_bytes(self) -> list[int]:
        """Σ size of the storages alive at each column of squeezed time, as plain integers."""
        k = len(self.births)
        if self.small:
            delta = np.zeros(k + 1, dtype=np.int64)
            part_size = self.sizes[self.storage_of_part]
            np.add.at(delta, self.part_lo, part_size)
            np.subtract.at(delta, self.part_hi, part_size)
            live_of: list[int] = np.cumsum(delta)[:k].tolist()
            return live_of
        change = [0] * (k + 1)
        for row, i in enumerate(self.storage_of_part):
            change[self.part_lo[row]] += self.size[i]
            change[self.part_hi[row]] -= self.size[i]
        live, out = 0, []
        for x in change[:k]:
            live += x
            out.append(live)
        return out

    def alive_at(self, column: int) -> I64:
        """Indices of the storages alive at one column, ascending."""
        rows = (self.part_lo <= column) & (column < self.part_hi)
        return _distinct(self.storage_of_part[rows])


def columns(problem: Problem) -> Columns:
    """Squeeze a problem. Raises AlignmentViolation or InvalidIrShapes where given offsets cannot be kept."""
    n = len(problem)
    size = tuple(np.maximum(problem.size, np.uint64(1)).tolist())
    align = tuple(problem.alignment.tolist())
    fixed = tuple(problem.fixed.tolist()) if problem.fixed is not None else (-1,) * n
    first, lo, hi = _live_parts(problem)
    births = _distinct(np.sort(lo))
    cols = Columns(
        problem,
        size,
        align,
        fixed,
        first,
        np.searchsorted(births, lo).astype(np.int64),
        np.searchsorted(births, hi).astype(np.int64),
        births,
        _odd_conflicts(problem),
    )
    _check_fixed(cols)
    return cols


def _distinct(ascending: I64) -> I64:
    """Each value once: of a hundred what ``np.unique`` takes to sort them by hashing first."""
    first = np.ones(len(ascending), np.bool_)
    first[1:] = ascending[1:] != ascending[:-1]
    return ascending[first]


def _live_parts(problem: Problem) -> tuple[I64, I64, I64]:
    n = len(problem)
    birth, death = problem.birth.astype(np.int64), problem.death.astype(np.int64)
    if problem.gaps is None or not any(problem.gaps):
        return np.arange(n + 1, dtype=np.int64), birth, death
    first, lo, hi = [0], [], []
    for i, gaps in enumerate(problem.gaps):
        at, end = int(birth[i]), int(death[i])
        for begin, stop in sorted(gaps):
            if at < min(begin, end):
                lo.append(at)
                hi.append(min(begin, end))
            at = max(at, stop)
        if at < end:
            lo.append(at)
            hi.append(end)
        first.append(len(lo))
    return tuple(np.asarray(column, dtype=np.int64) for column in (first, lo, hi))  # type: ignore[return-value]


def _odd_conflicts(problem: Problem) -> Odd | None:
    """Pairs that time does not tell, both ways round; ``NEVER`` wins over ``HANDOFF``."""
    n = len(problem)
    pairs = [np.zeros(0, np.int64)]
    if problem.handoff_from is not None:
        takers = np.flatnonzero(problem.handoff_from >= 0)
        pairs.append(_both_ways(np.stack([problem.handoff_from[takers], takers], axis=1), n) * 2 + HANDOFF)
    if problem.must_not_alias is not None:
        pairs.append(_both_ways(problem.must_not_alias.reshape(-1, 2), n) * 2 + NEVER)
    keys = np.sort(np.concatenate(pairs))
    if not len(keys):
        return None
    first = np.ones(len(keys), np.bool_)  # of equal pairs NEVER, which is the lower kind
    first[1:] = keys[1:] // 2 != keys[:-1] // 2
    pair, kind = np.divmod(keys[first], 2)
    one, other = np.divmod(pair, n)
    return Odd(np.searchsorted(one, np.arange(n + 1)), np.stack([other, kind], axis=1))


def _both_ways(pairs: I64, n: int) -> I64:
    """``one · n + other`` of each pair, both ways round, a pair of a storage with itself left out."""
    pairs = pairs[pairs[:, 0] != pairs[:, 1]].astype(np.int64)
    return np.concatenate([pairs[:, 0] * n + pairs[:, 1], pairs[:, 1] * n + pairs[:, 0]])


def _check_fixed(cols: Columns) -> None:
    """Given offsets must lie on their grid and must not collide with each other: no packing could mend that."""
    if cols.problem.fixed is None:
        return
    given = [i for i, offset in enumerate(cols.fixed) if offset >= 0]
    ids, arena = cols.problem.ids, cols.problem.arena
    for i in given:
        if cols.fixed[i] % cols.align[i]:
            raise AlignmentViolation(
                f"storage {ids[i]!r} of arena {arena!r} is fixed at offset {cols.fixed[i]}, "
                f"which is no multiple of its alignment {cols.align[i]}.",
                t=int(cols.problem.birth[i]),
                hint="Free the offset, or give one on the grid.",
                arena=arena,
                logical_slot=-1,
                tensor_id=ids[i],
            )
    chosen = set(given)
    live: list[tuple[int, int, int]] = sorted(
        (int(cols.part_lo[row]), int(cols.part_hi[row]), i)
        for i in given
        for row in range(cols.part_of[i], cols.part_of[i + 1])
    )
    now: list[tuple[int, int]] = []
    for lo, hi, i in live:
        now = [(end, j) for end, j in now if end > lo]
        for _, j in now:
            _refuse_collision(cols, i, j, exact_ok=False)
        now.append((hi, i))
    for i in given:
        for j, kind in cols.odd[i] if cols.odd is not None else ():
            if j > i and j in chosen:
                _refuse_collision(cols, i, j, exact_ok=kind == HANDOFF)


def _refuse_collision(cols: Columns, i: int, j: int, exact_ok: bool) -> None:
    a, b = cols.fixed[i], cols.fixed[j]
    if i == j or (exact_ok and a == b) or a + cols.size[i] <= b or b + cols.size[j] <= a:
        return
    one, two = cols.problem.ids[min(i, j)], cols.problem.ids[max(i, j)]
    raise InvalidIrShapes(
        f"storages {one!r} and {two!r} of arena {cols.problem.arena!r} are fixed on common bytes and conflict.",
        t=int(max(cols.problem.birth[i], cols.problem.birth[j])),
        hint="Free one of the two offsets.",
        reason="fixed_offsets_collide",
        arena=cols.problem.arena,
        tensor_id=one,
        other_tensor_id=two,
    )


def align_up(at: int, alignment: int) -> int:
    """The next multiple of a power of two, ``at`` itself included."""
    return (at + alignment - 1) & -alignment


def extent_of(cols: Columns, offset: Sequence[int]) -> int:
    """Last byte + 1, 0 when there is nothing."""
    return max(map(add, offset, cols.size), default=0)


def finished(cols: Columns, offset: Sequence[int]) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Offsets as the packing's column. Raises AllocationOverflow where one ends past 2^64 − 1."""
    for i, at in enumerate(offset) if extent_of(cols, offset) > U64_MAX else ():
        if at + cols.size[i] > U64_MAX:
            raise AllocationOverflow(
                f"storage {cols.problem.ids[i]!r} of arena {cols.problem.arena!r} would end past 2^64 − 1.",
                t=int(cols.problem.birth[i]),
                hint="Split the arena, or make the storages smaller.",
                arena=cols.problem.arena,
                offset=str(at),
                size=str(cols.size[i]),
                tensor_id=cols.problem.ids[i],
            )
    return np.asarray(offset, dtype=np.uint64)


def option(options: Mapping[str, Any], name: str, default: str, known: Sequence[str]) -> str:
    """A named choice out of a planner's options. Raises InvalidIrShapes (``planner_option``) naming what is known."""
    value = options.get(name, default)
    if value not in known:
        raise _bad_option(name, value, f"One of: {', '.join(known)}.")
    return str(value)


def count_option(options: Mapping[str, Any], name: str, default: int) -> int:
    """A whole number ≥ 0 out of a planner's options (text is read). Raises InvalidIrShapes (``planner_option``)."""
    value = options.get(name, default)
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
        raise _bad_option(name, value, "A whole number, 0 or more.")
    return int(value)


def flag_option(options: Mapping[str, Any], name: str, default: bool) -> bool:
    """Yes or no out of a planner's options (text is read; ``None`` is the default). Raises InvalidIrShapes."""
    value = options.get(name)
    if value is None:
        return default
    if isinstance(value, bool):
        return value
    if str(value).lower() not in ("true", "false"):
        raise _bad_option(name, value, "true or false.")
    return str(value).lower() == "true"


def _bad_option(name: str, value: Any, hint: str) -> InvalidIrShapes:
    return InvalidIrShapes(
        f"planner option {name}={value!r} is not possible.", reason="planner_option", node_id="", hint=hint
    )
