"""The search model: units (storages with a common offset) and sections (sets of pairwise conflicting storages).

A *section* is a maximal set of storages that are live at one step, a pair that conflicts at any time (must not alias,
in-place reuse not taken), or a storage that is never live. A *unit* is a storage, or a chain of storages joined by
in-place reuse. In each of its sections, a unit has one storage; the bytes of this storage are its *height* there.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import gcd

import numpy as np

from tmmu_core.planners.columns import HANDOFF, Columns
from tmmu_core.planners.problem import I64


@dataclass(frozen=True, eq=False)
class Model:
    """n units and their sections. An *entry* is a unit in one of its sections."""

    members: tuple[tuple[int, ...], ...]  # storages of each unit
    entry_of: I64  # shape (n + 1,): the entries of unit u are rows ``entry_of[u]:entry_of[u + 1]``
    section: I64  # section of each entry, ascending in a unit
    height: I64  # bytes of the unit at each entry
    sections: int  # number of sections
    align: I64
    fixed: I64  # offset of each unit, or −1
    grain: int  # in bytes; the least extent and all capacities tried are multiples of it
    length: I64  # lifetime of each unit in steps

    def __len__(self) -> int:
        return len(self.members)

    @cached_property
    def owner(self) -> I64:
        """Unit of each entry."""
        return np.repeat(np.arange(len(self), dtype=np.int64), np.diff(self.entry_of))

    def greatest(self, column: I64) -> I64:
        """Return, per unit, the greatest value of ``column`` (a value ≥ 0 per entry) over its entries."""
        greatest = np.zeros(len(self), dtype=np.int64)
        np.maximum.at(greatest, self.owner, column)
        return greatest

    @cached_property
    def max_height(self) -> I64:
        """Greatest height of each unit."""
        return self.greatest(self.height)

    @cached_property
    def fullest(self) -> I64:
        """Bytes of the fullest section of each unit."""
        total = np.zeros(self.sections, dtype=np.int64)
        np.add.at(total, self.section, self.height)
        return self.greatest(total[self.section])

    @cached_property
    def log_traits(self) -> I64:
        """Shape (4, n): :func:`log2_fixed` of a unit's fullest section, number of sections, height and lifetime."""
        return log2_fixed(np.array((self.fullest, np.diff(self.entry_of), self.max_height, self.length)))


def log2_fixed(x: I64) -> I64:
    """Return log₂ of integers from 1 to 2^62, in units of 1/4096, rounded down, with integer arithmetic."""
    whole = np.searchsorted(1 << np.arange(63), x, side="right") - 1
    scaled = x.astype(np.uint64) << (62 - whole).astype(np.uint64) >> np.uint64(31)  # in [2^31, 2^32)
    for _ in range(12):
        scaled = scaled * scaled >> np.uint64(31)
        bit = scaled >> np.uint64(32)
        whole = whole << 1 | bit.astype(np.int64)
        scaled >>= bit
    return whole


def possible_handoffs(cols: Columns) -> tuple[tuple[int, int], ...]:
    """Return the pairs (i, j) of in-place reuses that ``must_not_alias``, fixed offsets and alignments permit."""
    handoff_from, units = cols.problem.handoff_from, _Units(cols)
    pairs = [(i, j) for j, i in enumerate(handoff_from.tolist() if handoff_from is not None else ()) if i >= 0]
    return tuple([(i, j) for i, j in pairs if (i, HANDOFF) in cols.extra_conflicts[j] and units.merged(i, j)])


def units_of(cols: Columns, taken: Sequence[tuple[int, int]]) -> tuple[tuple[int, ...], ...] | None:
    """Return the storages of each unit for a choice of in-place reuses; ``None`` if the choice is inconsistent.

    It is inconsistent if storages of a unit conflict or cannot share an offset, or if fixed, conflicting units overlap.
    """
    units = _Units(cols)
    for pair in taken:
        unit = units.merged(*pair)
        if unit is None:
            return None
        units.add(unit)
    found = sorted(dict.fromkeys(units.of), key=lambda unit: unit.storages[0])
    if any(units.collides(unit) for unit in found if len(unit.storages) > 1):
        return None
    return tuple(tuple(sorted(unit.storages)) for unit in found)


@dataclass(frozen=True, eq=False)
class _Unit:
    storages: list[int]
    parts: I64  # rows of its live parts in the columns
    align: int
    fixed: int


class _Units:
    """The units for the in-place reuses taken so far. At first, every storage is a unit."""

    def __init__(self, cols: Columns) -> None:
        self.cols = cols
        parts = [np.arange(begin, end) for begin, end in pairwise(cols.part_of.tolist())]
        self.of = [_Unit([i], parts[i], cols.align[i], cols.fixed[i]) for i in range(len(cols))]  # unit of each storage

    def merged(self, i: int, j: int) -> _Unit | None:
        """Return the union of the units of i and j; ``None`` if two storages conflict or cannot share an offset."""
        cols, one, two = self.cols, self.of[i], self.of[j]
        fixed = {unit.fixed for unit in (one, two) if unit.fixed >= 0}
        align = max(one.align, two.align)
        if one is two or len(fixed) > 1 or any(offset % align for offset in fixed):
            return None
        parts = np.concatenate([one.parts, two.parts])
        parts = parts[np.argsort(cols.part_lo[parts])]
        smaller, larger = sorted((one, two), key=lambda unit: len(unit.storages))
        extra = ((a, b) for a in smaller.storages for b, _ in cols.extra_conflicts[a] if self.of[b] is larger)
        if (cols.part_hi[parts[:-1]] > cols.part_lo[parts[1:]]).any() or any({*pair} != {i, j} for pair in extra):
            return None
        return _Unit([*one.storages, *two.storages], parts, align, max(fixed, default=-1))

    def collides(self, unit: _Unit) -> bool:
        """Return whether fixed offsets make ``unit`` overlap a storage that it conflicts with."""
        cols = self.cols
        for j, other in enumerate(self.of if unit.fixed >= 0 else ()):
            for i in unit.storages if other.fixed >= 0 and j not in unit.storages else ():
                overlaps = unit.fixed < other.fixed + cols.size[j] and other.fixed < unit.fixed + cols.size[i]
                if overlaps and (cols.overlap_in_time(i, j) or i in [k for k, _ in cols.extra_conflicts[j]]):
                    return True
        return False

    def add(self, unit: _Unit) -> None:
        for i in unit.storages:
            self.of[i] = unit


def greedy_handoffs(cols: Columns) -> tuple[tuple[int, int], ...]:
    """Return a greedy choice of in-place reuses: take each, in normative order, if the choice stays consistent."""
    taken: list[tuple[int, int]] = []
    units = _Units(cols)
    for pair in possible_handoffs(cols):
        unit = units.merged(*pair)
        if unit is not None and not units.collides(unit):
            units.add(unit)
            taken.append(pair)
    return tuple(taken)


def search_model(cols: Columns, units: tuple[tuple[int, ...], ...] | None = None, *, handoffs: bool = True) -> Model:
    """Return the model of ``units``; without them, each storage is a unit.

    With ``handoffs=False``, omit the conflicts of in-place reuses that are not taken: the model is a relaxation.
    """
    units = units if units is not None else tuple([(i,) for i in range(len(cols))])
    unit_of = np.empty(len(cols), dtype=np.int64)
    for u, members in enumerate(units):
        for i in members:
            unit_of[i] = u
    # A set of live storages is maximal if one of them dies at or before the next birth.
    dies = np.zeros(len(cols.births) + 1, dtype=bool)
    dies[cols.part_hi] = True
    moments = np.flatnonzero(dies[1:])  # the compressed steps of the maximal sets
    begin = np.searchsorted(moments, cols.part_lo)
    count = np.searchsorted(moments, cols.part_hi) - begin
    storage = np.repeat(cols.storage_of_part, count)
    section = np.arange(len(storage)) - np.repeat(np.cumsum(count) - count - begin, count)
    # Other sections: each storage without live steps (no set above has it, but it needs an offset), and each pair of
    # storages of two units that conflicts at any time. Sections are sorted by (compressed step, kind, number).
    others: list[tuple[int, ...]] = [(i,) for i in np.flatnonzero(np.diff(cols.part_of) == 0).tolist()]
    keys = [(0, 2, i) for (i,) in others]
    for i in range(len(cols)) if cols.extra_conflicts else ():
        for j, kind in cols.extra_conflicts[i]:
            if i < j and unit_of[i] != unit_of[j] and (handoffs or kind != HANDOFF):
                parts = [row for k in (i, j) for row in range(cols.part_of[k], cols.part_of[k + 1])]
                keys.append((max((int(cols.part_lo[row]) for row in parts), default=0), 1, len(others)))
                others.append((i, j))
    if others:
        keys = [*((moment, 0, 0) for moment in moments.tolist()), *keys]
        number = np.empty(len(keys), dtype=np.int64)
        number[sorted(range(len(keys)), key=keys.__getitem__)] = np.arange(len(keys))
        entries = [(i, k) for k, storages in enumerate(others, len(moments)) for i in storages]
        storage = np.concatenate([storage, np.array([i for i, _ in entries], dtype=np.int64)])
        section = number[np.concatenate([section, np.array([k for _, k in entries], dtype=np.int64)])]
    unit, height = unit_of[storage], cols.sizes[storage]
    ascends = (unit[1:] > unit[:-1]) | ((unit[1:] == unit[:-1]) & (section[1:] > section[:-1]))
    if not ascends.all():  # they ascend if each storage is a unit and all conflicts are overlaps in time
        by_unit = np.lexsort((height, section, unit))
        section, height = section[by_unit], height[by_unit]
    entry_of = np.append(0, np.cumsum(np.bincount(unit, minlength=len(units))))
    align, length = np.ones(len(units), dtype=np.int64), np.zeros(len(units), dtype=np.int64)
    fixed = np.full(len(units), -1, dtype=np.int64)
    np.maximum.at(align, unit_of, cols.aligns)
    np.maximum.at(fixed, unit_of, np.asarray(cols.fixed, dtype=np.int64))
    np.add.at(length, unit_of, cols.problem.death - cols.problem.birth)
    grain = common_grain(cols.size, cols.fixed, cols.align)
    return Model(units, entry_of, section, height, len(moments) + len(others), align, fixed, grain, length)


def common_grain(sizes: Iterable[int], fixed: Iterable[int], aligns: Iterable[int]) -> int:
    """Return the greatest divisor of the sizes and fixed offsets that is a multiple or divisor of each alignment."""
    grain = gcd(*sizes, *(offset for offset in set(fixed) if offset >= 0)) or 1
    aligns = set(aligns)
    while unrelated := [align for align in aligns if grain % align and align % grain]:
        grain = gcd(grain, *unrelated)
    return grain
