"""The search model: units (storages with a common offset) and sections (sets of pairwise conflicting units).

A *section* is a maximal set of storages alive at one moment, or a pair that conflicts without overlap in time (must
not alias, in-place reuse not taken). A *unit* is a storage, or a chain of storages joined by in-place reuse; it has a
height in each of its sections.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations, product
from math import gcd

import numpy as np

from tmmu_core.planners.columns import HANDOFF, Columns
from tmmu_core.planners.problem import I64


@dataclass(frozen=True, eq=False)
class Model:
    """n units and m sections as ragged tables; see :class:`.search_tables.Tables`."""

    members: tuple[tuple[int, ...], ...]
    """Storages of each unit."""
    entry_of: I64
    section: I64
    height: I64
    sections: int
    align: I64
    fixed: I64
    grain: int
    """Every extent is a multiple of this."""
    length: I64
    """Lifetime of each unit in steps."""

    def __len__(self) -> int:
        return len(self.members)

    @cached_property
    def owner(self) -> I64:
        """Unit of each entry."""
        return np.repeat(np.arange(len(self), dtype=np.int64), np.diff(self.entry_of))

    def greatest(self, column: I64) -> I64:
        """Return, per unit, the greatest value of a column over its entries (none negative)."""
        found = np.zeros(len(self), dtype=np.int64)
        np.maximum.at(found, self.owner, column)
        return found

    def fullest(self) -> I64:
        """Return, per unit, the bytes of its fullest section."""
        total = np.zeros(self.sections, dtype=np.int64)
        np.add.at(total, self.section, self.height)
        return self.greatest(total[self.section])

    @property
    def work(self) -> int:
        """Number of table entries that a search may need."""
        return len(self) * (len(self) + self.sections)


def possible_handoffs(cols: Columns) -> tuple[tuple[int, int], ...]:
    """Return the pairs (i, j) where j can have i's offset, by sizes and fixed offsets."""
    pairs = []
    giver = cols.problem.handoff_from
    for j, i in enumerate(giver.tolist() if giver is not None else ()):
        if i >= 0 and (i, HANDOFF) in cols.extra_conflicts[j]:
            here = {at for at in (cols.fixed[i], cols.fixed[j]) if at >= 0}
            grid = max(cols.align[i], cols.align[j])
            if len(here) < 2 and all(at % grid == 0 for at in here):
                pairs.append((i, j))
    return tuple(pairs)


def units_of(cols: Columns, taken: Sequence[tuple[int, int]]) -> tuple[tuple[int, ...], ...] | None:
    """Return the storages of each unit for a choice of in-place reuses; ``None`` if the choice is inconsistent.

    Inconsistent: two storages of a unit conflict, or fixed offsets contradict each other.
    """
    if not taken:
        return tuple([(i,) for i in range(len(cols))])
    group = list(range(len(cols)))
    members = {i: [i] for i in group}
    for i, j in taken:
        one, two = group[i], group[j]
        if one == two or any(_in_conflict(cols, a, b) for a in members[one] for b in members[two] if (a, b) != (i, j)):
            return None
        joined = (*members[one], *members[two])
        fixed, grid = {cols.fixed[a] for a in joined if cols.fixed[a] >= 0}, max(cols.align[a] for a in joined)
        if len(fixed) > 1 or any(at % grid for at in fixed):  # a fixed offset applies to the whole unit
            return None
        members[one] += members.pop(two)
        for a in members[one]:
            group[a] = one
    if _fixed_units_overlap(cols, members.values()):
        return None
    return tuple(tuple(sorted(members[g])) for g in sorted(members))


def _fixed_units_overlap(cols: Columns, units: Iterable[list[int]]) -> bool:
    """Return whether conflicting storages overlap because of fixed offsets in their units."""
    offsets = [(max(cols.fixed[i] for i in unit), unit) for unit in units]
    for (one, ours), (two, others) in combinations([row for row in offsets if row[0] >= 0], 2):
        for i, j in product(ours, others) if len(ours) + len(others) > 2 else ():
            if one < two + cols.size[j] and two < one + cols.size[i] and _in_conflict(cols, i, j):
                return True
    return False


def greedy_handoffs(cols: Columns) -> tuple[tuple[int, int], ...]:
    """Return as many in-place reuses as can be taken one after another, in normative order."""
    taken: list[tuple[int, int]] = []
    for pair in possible_handoffs(cols):
        if units_of(cols, [*taken, pair]) is not None:
            taken.append(pair)
    return tuple(taken)


def search_model(cols: Columns, units: tuple[tuple[int, ...], ...], *, pairs: bool = True) -> Model:
    """Return the model of units; with ``pairs=False`` a relaxation without the conflicts of untaken in-place reuse."""
    unit_of = np.empty(len(cols), dtype=np.int64)
    for u, members in enumerate(units):
        for i in members:
            unit_of[i] = u
    moments, storage, section = _time_sections(cols)
    # A storage without live steps has no conflicts, but needs an offset: it has a section of its own.
    isolated = [((0, 2, i), (i,)) for i in range(len(cols)) if cols.part_of[i] == cols.part_of[i + 1]]
    others = [*_pair_sections(cols, unit_of, pairs), *isolated]
    if others:
        keys = [*((column, 0, 0) for column in moments.tolist()), *(key for key, _ in others)]
        place = np.empty(len(keys), dtype=np.int64)
        place[sorted(range(len(keys)), key=keys.__getitem__)] = np.arange(len(keys))
        more = [(i, k) for k, (_, storages) in enumerate(others, len(moments)) for i in storages]
        storage = np.concatenate([storage, np.array([i for i, _ in more], dtype=np.int64)])
        section = place[np.concatenate([section, np.array([k for _, k in more], dtype=np.int64)])]
    unit, height = unit_of[storage], cols.sizes[storage]
    ascends = (unit[1:] > unit[:-1]) | ((unit[1:] == unit[:-1]) & (section[1:] > section[:-1]))
    if not ascends.all():  # they ascend where each storage is a unit and all conflicts are overlaps in time
        by_unit = np.lexsort((height, section, unit))
        section, height = section[by_unit], height[by_unit]
    entry_of = np.zeros(len(units) + 1, dtype=np.int64)
    entry_of[1:] = np.cumsum(np.bincount(unit, minlength=len(units)))
    align, length = np.ones(len(units), dtype=np.int64), np.zeros(len(units), dtype=np.int64)
    fixed = np.full(len(units), -1, dtype=np.int64)
    np.maximum.at(align, unit_of, cols.aligns)
    np.maximum.at(fixed, unit_of, np.asarray(cols.fixed, dtype=np.int64))
    np.add.at(length, unit_of, cols.problem.death - cols.problem.birth)
    grain = common_step(cols.size, cols.fixed, cols.align)
    return Model(units, entry_of, section, height, len(moments) + len(others), align, fixed, grain, length)


def common_step(sizes: Iterable[int], fixed: Iterable[int], grids: Iterable[int]) -> int:
    """Return the greatest step that divides all sizes and fixed offsets and is a multiple or a divisor of each
    alignment.
    """
    step = gcd(*sizes, *(at for at in set(fixed) if at >= 0)) or 1
    grids = set(grids)
    while coarser := [each for each in grids if step % each and each % step]:
        step = gcd(step, *coarser)
    return step


Section = tuple[tuple[int, int, int], tuple[int, ...]]
"""Sort key in time, and the storages."""


def _time_sections(cols: Columns) -> tuple[I64, I64, I64]:
    """Return the moments (columns) of the maximal sets of live storages, and the storage and moment of each entry.

    At each of these moments a storage dies before the next one is born.
    """
    dies = np.zeros(len(cols.births) + 1, dtype=bool)
    dies[cols.part_hi] = True
    moments = np.flatnonzero(dies[1:])
    begin = np.searchsorted(moments, cols.part_lo)
    count = np.searchsorted(moments, cols.part_hi) - begin
    number = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count - begin, count)
    return moments, np.repeat(cols.storage_of_part, count), number


def _pair_sections(cols: Columns, unit_of: I64, pairs: bool) -> list[Section]:
    """Return a section for each pair of units that conflicts without overlap in time."""
    found: list[Section] = []
    for i, row in enumerate(cols.extra_conflicts or ()):
        for j, kind in row:
            if i < j and unit_of[i] != unit_of[j] and (pairs or kind != HANDOFF):
                parts = [row for k in (i, j) for row in range(cols.part_of[k], cols.part_of[k + 1])]
                later = max((int(cols.part_lo[row]) for row in parts), default=0)
                found.append(((later, 1, len(found)), (i, j)))
    return found


def _in_conflict(cols: Columns, i: int, j: int) -> bool:
    for a in range(cols.part_of[i], cols.part_of[i + 1]):
        for b in range(cols.part_of[j], cols.part_of[j + 1]):
            if cols.part_lo[a] < cols.part_hi[b] and cols.part_lo[b] < cols.part_hi[a]:
                return True
    return any(other == j for other, _ in cols.extra_conflicts[i])


# ------------------------------------------------------------------------------------------------------------ ranks

Weights = tuple[int, int, int, int]
"""Weights of the logarithms of a unit's fullest section, number of sections, height and lifetime."""


@lru_cache(maxsize=1 << 16)
def log2_fixed(x: int) -> int:
    """Return log₂ of an integer ≥ 1 in 1/4096, rounded down, by integers only."""
    whole = x.bit_length() - 1
    scaled = (x << 62) >> whole  # in [2^62, 2^63)
    bits = 0
    for _ in range(12):
        scaled = (scaled * scaled) >> 62
        bits <<= 1
        if scaled >> 63:
            bits |= 1
            scaled >>= 1
    return (whole << 12) | bits


def weighted_ranks(model: Model) -> Callable[[Weights, I64 | None], I64]:
    """Return a function from weights (and noise per unit, in 1/4096) to ranks: 0 goes first among equal offsets."""
    n, wide, max_height = len(model), np.diff(model.entry_of), model.greatest(model.height)
    traits = [
        np.array([log2_fixed(x) for x in column.tolist()], dtype=np.int64)
        for column in (model.fullest(), wide, max_height, model.length)
    ]

    def rank(weights: Weights, noise: I64 | None) -> I64:
        key = np.zeros(n, dtype=np.int64) if noise is None else noise.copy()
        for weight, trait in zip(weights, traits, strict=True):
            key += weight * trait
        ranks = np.empty(n, dtype=np.int64)
        ranks[np.argsort(-key, kind="stable")] = np.arange(n)
        return ranks

    return rank
