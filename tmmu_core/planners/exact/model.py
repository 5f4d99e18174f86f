"""From columns to what the search works on: units, sections, and the ranks that steer it.

A *section* is a set of storages that are pairwise in conflict: those alive at one moment, where no later moment holds
them all; and every pair that time does not tell (must not alias, a hand-off not taken). A *unit* is what gets one
offset: a storage, or a chain of storages in which each hands its place on to the next; it has a height per section.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, product
from math import gcd

import numpy as np

from tmmu_core.once import cached_property
from tmmu_core.planners.columns import HANDOFF, Columns
from tmmu_core.planners.problem import I64


@dataclass(frozen=True, eq=False)
class Model:
    """n units and m sections as ragged tables; see :class:`tmmu_core.planners.exact.kernel.Shape`."""

    members: tuple[tuple[int, ...], ...]
    """Per unit, its storages."""
    entry_of: I64
    section: I64
    height: I64
    sections: int
    align: I64
    fixed: I64
    grain: int
    """Every extent that can come about is a multiple of it."""
    length: I64
    """Steps of each unit's life."""

    def __len__(self) -> int:
        return len(self.members)

    @cached_property
    def owner(self) -> I64:
        """Of each entry, the unit. A unit has one at least."""
        return np.repeat(np.arange(len(self), dtype=np.int64), np.diff(self.entry_of))

    def greatest(self, column: I64) -> I64:
        """Per unit, the greatest value of a column over entries, none of which is negative."""
        found = np.zeros(len(self), dtype=np.int64)
        np.maximum.at(found, self.owner, column)
        return found

    def fullest(self) -> I64:
        """Per unit, the bytes of the fullest section it is in."""
        total = np.zeros(self.sections, dtype=np.int64)
        np.add.at(total, self.section, self.height)
        return self.greatest(total[self.section])

    @property
    def work(self) -> int:
        """Entries that a search may have to keep on its trails."""
        return len(self) * (len(self) + self.sections)


def handoffs(cols: Columns) -> tuple[tuple[int, int], ...]:
    """Pairs (i, j) where j may lie at i's very offset, as far as sizes and fixed offsets allow."""
    pairs = []
    giver = cols.problem.handoff_from
    for j, i in enumerate(giver.tolist() if giver is not None else ()):
        if i >= 0 and cols.odd is not None and (i, HANDOFF) in cols.odd[j]:
            here = {at for at in (cols.fixed[i], cols.fixed[j]) if at >= 0}
            grid = max(cols.align[i], cols.align[j])
            if len(here) < 2 and all(at % grid == 0 for at in here):
                pairs.append((i, j))
    return tuple(pairs)


def chains(cols: Columns, taken: Sequence[tuple[int, int]]) -> tuple[tuple[int, ...], ...] | None:
    """Storages joined by the hand-offs taken, one tuple per unit; ``None`` where they cannot all be taken: two of a
    unit conflict, or it has to lie where another one lies."""
    if not taken:
        return tuple([(i,) for i in range(len(cols))])
    group = list(range(len(cols)))
    members = {i: [i] for i in group}
    for i, j in taken:
        one, two = group[i], group[j]
        if one == two or any(_conflict(cols, a, b) for a in members[one] for b in members[two] if (a, b) != (i, j)):
            return None
        joined = (*members[one], *members[two])
        given, grid = {cols.fixed[a] for a in joined if cols.fixed[a] >= 0}, max(cols.align[a] for a in joined)
        if len(given) > 1 or any(at % grid for at in given):  # all of a chain lie where one of it must
            return None
        members[one] += members.pop(two)
        for a in members[one]:
            group[a] = one
    if _collide(cols, members.values()):
        return None
    return tuple(tuple(sorted(members[g])) for g in sorted(members))


def _collide(cols: Columns, units: Iterable[list[int]]) -> bool:
    """Whether storages that conflict would lie on common bytes, one of them where another one of its unit has to."""
    given = [(max(cols.fixed[i] for i in unit), unit) for unit in units] if max(cols.fixed) >= 0 else []
    given = [(at, unit) for at, unit in given if at >= 0]
    for (one, ours), (two, theirs) in combinations(given, 2):
        for i, j in product(ours, theirs) if len(ours) + len(theirs) > 2 else ():
            if one < two + cols.size[j] and two < one + cols.size[i] and _conflict(cols, i, j):
                return True
    return False


def take_all(cols: Columns) -> tuple[tuple[int, int], ...]:
    """As many hand-offs as can be taken one after another, by the taker's place in the normative order."""
    taken: list[tuple[int, int]] = []
    for pair in handoffs(cols):
        if chains(cols, [*taken, pair]) is not None:
            taken.append(pair)
    return tuple(taken)


def build(cols: Columns, units: tuple[tuple[int, ...], ...], *, pairs: bool = True) -> Model:
    """The model for given units. ``pairs=False`` leaves hand-offs not taken free to overlap: a relaxation."""
    unit_of = np.empty(len(cols), dtype=np.int64)
    for u, members in enumerate(units):
        for i in members:
            unit_of[i] = u
    moments, storage, section = _time_sections(cols)
    others = [*_pair_sections(cols, unit_of, pairs), *_lone_sections(cols)]
    if others:
        keys = [*((column, 0, 0) for column in moments.tolist()), *(key for key, _ in others)]
        place = np.empty(len(keys), dtype=np.int64)
        place[sorted(range(len(keys)), key=keys.__getitem__)] = np.arange(len(keys))
        more = [(i, k) for k, (_, storages) in enumerate(others, len(moments)) for i in storages]
        storage = np.concatenate([storage, np.array([i for i, _ in more], dtype=np.int64)])
        section = place[np.concatenate([section, np.array([k for _, k in more], dtype=np.int64)])]
    unit, height = unit_of[storage], cols.sizes[storage]
    if not _ascending(unit, section):  # as they are where each storage is a unit and time alone makes sections
        by_unit = np.lexsort((height, section, unit))
        section, height = section[by_unit], height[by_unit]
    entry_of = np.zeros(len(units) + 1, dtype=np.int64)
    entry_of[1:] = np.cumsum(np.bincount(unit, minlength=len(units)))
    align, length = np.ones(len(units), dtype=np.int64), np.zeros(len(units), dtype=np.int64)
    fixed = np.full(len(units), -1, dtype=np.int64)
    np.maximum.at(align, unit_of, cols.aligns)
    np.maximum.at(fixed, unit_of, np.asarray(cols.fixed, dtype=np.int64))
    np.add.at(length, unit_of, cols.problem.death - cols.problem.birth)
    grain = step_of(cols.size, cols.fixed, cols.align)
    return Model(units, entry_of, section, height, len(moments) + len(others), align, fixed, grain, length)


def step_of(sizes: Iterable[int], given: Iterable[int], grids: Iterable[int]) -> int:
    """The bytes by which all offsets and extents can be counted: sizes and given offsets (−1: none) are multiples of
    them, and each grid is either a multiple or a part."""
    step = gcd(*sizes, *(at for at in set(given) if at >= 0)) or 1
    grids = set(grids)
    while odd := [each for each in grids if step % each and each % step]:
        step = gcd(step, *odd)
    return step


def _ascending(one: I64, two: I64) -> bool:
    """Whether pairs ascend, no two alike."""
    return bool(((one[1:] > one[:-1]) | ((one[1:] == one[:-1]) & (two[1:] > two[:-1]))).all())


Section = tuple[tuple[int, int, int], tuple[int, ...]]
"""Where it stands in time, and the storages in it."""


def _time_sections(cols: Columns) -> tuple[I64, I64, I64]:
    """One per moment at which somebody dies before anybody else is born: the maximal sets of storages alive.

    Gives the moments, as columns of squeezed time, and who is alive when: storages, and the numbers of moments.
    """
    dies = np.zeros(len(cols.births) + 1, dtype=bool)
    dies[cols.part_hi] = True
    moments = np.flatnonzero(dies[1:])
    begin = np.searchsorted(moments, cols.part_lo)
    count = np.searchsorted(moments, cols.part_hi) - begin
    number = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count - begin, count)
    return moments, np.repeat(cols.storage_of_part, count), number


def _pair_sections(cols: Columns, unit_of: I64, pairs: bool) -> list[Section]:
    found: list[Section] = []
    for i, row in enumerate(cols.odd if cols.odd is not None else ()):
        for j, kind in row:
            if i < j and unit_of[i] != unit_of[j] and (pairs or kind != HANDOFF):
                held = [row for k in (i, j) for row in range(cols.part_of[k], cols.part_of[k + 1])]
                later = max((int(cols.part_lo[row]) for row in held), default=0)
                found.append(((later, 1, len(found)), (i, j)))
    return found


def _lone_sections(cols: Columns) -> list[Section]:
    """One for each storage that never holds bytes, all its life being gaps: it meets nobody, but has an offset."""
    return [((0, 2, i), (i,)) for i in range(len(cols)) if cols.part_of[i] == cols.part_of[i + 1]]


def _conflict(cols: Columns, i: int, j: int) -> bool:
    for a in range(cols.part_of[i], cols.part_of[i + 1]):
        for b in range(cols.part_of[j], cols.part_of[j + 1]):
            if cols.part_lo[a] < cols.part_hi[b] and cols.part_lo[b] < cols.part_hi[a]:
                return True
    assert cols.odd is not None  # there is a hand-off
    return any(other == j for other, _ in cols.odd[i])


# ------------------------------------------------------------------------------------------------------------ ranks

Weights = tuple[int, int, int, int]
"""How much the logarithms of a unit's fullest section, sections, height and steps count."""


@lru_cache(maxsize=1 << 16)
def logarithm(x: int) -> int:
    """log₂ of a whole number ≥ 1 in 1/4096ths, rounded down; integers only, so the same everywhere."""
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


def ranker(model: Model) -> Callable[[Weights, I64 | None], I64]:
    """A function from weights (and noise per unit, in 1/4096ths) to ranks: 0 goes first among equal offsets."""
    n, wide, tall = len(model), np.diff(model.entry_of), model.greatest(model.height)
    traits = [
        np.array([logarithm(x) for x in column.tolist()], dtype=np.int64)
        for column in (model.fullest(), wide, tall, model.length)
    ]

    def rank(weights: Weights, noise: I64 | None) -> I64:
        key = np.zeros(n, dtype=np.int64) if noise is None else noise.copy()
        for weight, trait in zip(weights, traits, strict=True):
            key += weight * trait
        ranks = np.empty(n, dtype=np.int64)
        ranks[np.argsort(-key, kind="stable")] = np.arange(n)
        return ranks

    return rank
