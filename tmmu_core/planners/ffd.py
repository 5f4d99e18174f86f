"""``ffd``: first-fit decreasing over whole regions, the r10 memory planner.

Tensors are taken largest first. Each joins the first region whose every tenant it can live beside (disjoint lives,
no pair that must not alias) and whose offset is on its grid; otherwise it opens a region at the next aligned offset.
A region is as large as its first tenant, so a later one always fits. Lives are bit masks over squeezed time: one
``and`` tells whether *any* tenant of a region is alive with the newcomer. O(n · regions) mask operations.

Beside the arena planner there is the plan as r10 names it (:class:`AllocationPlan`) and its counterpart at run time
(:class:`MemoryBinding`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tmmu_core.planners.columns import HANDOFF, Columns, align_up, columns, extent_of, finished
from tmmu_core.planners.problem import Packing, Problem, Progress


@dataclass(frozen=True)
class MemoryRegion:
    """Bytes ``[offset_bytes, offset_bytes + size_bytes)`` of the pool."""

    offset_bytes: int
    size_bytes: int

    @property
    def end(self) -> int:
        """Byte after the last."""
        return self.offset_bytes + self.size_bytes

    def overlaps(self, other: MemoryRegion) -> bool:
        """Whether the two have a byte in common."""
        return self.offset_bytes < other.end and other.offset_bytes < self.end


@dataclass(frozen=True)
class TensorLifetime:
    """A tensor's steps ``[birth, death)``."""

    tensor_id: str
    birth: int
    death: int


@dataclass(frozen=True)
class AllocationPlan:
    """Which region each tensor has, in placement order, and what sharing saves.

    ``peak_bytes`` is the most bytes alive at any step; ``shared_peak`` the extent of the pool; ``isolated_peak`` what
    the pool would be with a region for every tensor, laid out in the same order; ``saved_bytes`` their difference.
    """

    allocations: Mapping[str, MemoryRegion]
    tenants: tuple[tuple[str, ...], ...]
    """The tensors of each region, in the order they moved in; the first gave it its size."""
    peak_bytes: int
    shared_peak: int
    isolated_peak: int

    @property
    def saved_bytes(self) -> int:
        """Bytes the pool needs less for sharing, never below 0."""
        return self.isolated_peak - self.shared_peak

    @cached_property
    def sharing_pairs(self) -> tuple[tuple[str, str], ...]:
        """Every pair of tensors in one region, the one that moved in earlier first. Quadratic in a region's tenants."""
        return tuple((one, two) for region in self.tenants for k, one in enumerate(region) for two in region[k + 1 :])

    def is_valid(self, lifetimes: Sequence[TensorLifetime]) -> bool:
        """Whether no two tensors alive together have a byte in common: a sweep over births, not all pairs.

        Every lifetime must have a region. Touching is fine, in time and in space.
        """
        from bisect import bisect_left, insort

        born = sorted(
            (life for life in lifetimes if life.birth < life.death), key=lambda life: (life.birth, life.tensor_id)
        )
        dying = sorted(born, key=lambda life: (life.death, life.tensor_id))
        live: list[tuple[int, int, str]] = []  # (start, end, id), disjoint, by address
        gone = 0
        for life in born:
            while dying[gone].death <= life.birth:
                old = self.allocations[dying[gone].tensor_id]
                del live[bisect_left(live, (old.offset_bytes, old.end, dying[gone].tensor_id))]
                gone += 1
            region = self.allocations[life.tensor_id]
            entry = (region.offset_bytes, region.end, life.tensor_id)
            k = bisect_left(live, entry)
            if (k and live[k - 1][1] > entry[0]) or (k < len(live) and live[k][0] < entry[1]):
                return False
            insort(live, entry)
        return all(life.tensor_id in self.allocations for life in lifetimes)


@dataclass(frozen=True)
class MemoryBinding:
    """A plan laid over real memory: where in the address space each tensor's region begins."""

    model_id: str
    plan: AllocationPlan
    bound_regions: Mapping[str, int]

    @classmethod
    def bind(cls, model_id: str, plan: AllocationPlan, base: int) -> MemoryBinding:
        """Bind every tensor of a plan to a pool that begins at address ``base``."""
        return cls(model_id, plan, {name: base + region.offset_bytes for name, region in plan.allocations.items()})

    def is_bound(self, tensor_id: str) -> bool:
        """Whether the tensor has an address."""
        return tensor_id in self.bound_regions

    def get_ptr(self, tensor_id: str) -> int:
        """The tensor's address. Precondition: :meth:`is_bound`."""
        assert self.is_bound(tensor_id), f"tensor {tensor_id!r} is not bound"
        return self.bound_regions[tensor_id]


def ffd(problem: Problem, options: Mapping[str, Any], progress: Progress | None = None) -> Packing:
    """First-fit decreasing as an arena planner. No options. Raises AllocationOverflow past 2^64 − 1."""
    cols = columns(problem)
    regions = _regions(cols)
    offset = [0] * len(cols)
    for region in regions:
        for i in region.tenants:
            offset[i] = region.offset
    return Packing(finished(cols, offset), notes={"regions": len(regions)})


def generate_plan(problem: Problem) -> AllocationPlan:
    """The same, as r10's value type. Zero-size tensors are backed by one byte."""
    cols = columns(problem)
    ids = problem.ids
    regions = _regions(cols)
    placed = sorted((cols.size[i], i, region.offset) for region in regions for i in region.tenants)
    offset = {i: at for _, i, at in placed}
    isolated = 0
    for i in _decreasing(cols):
        isolated = max(isolated, cols.fixed[i] + cols.size[i]) if cols.fixed[i] >= 0 else isolated
    for i in _decreasing(cols):
        if cols.fixed[i] < 0:
            isolated = align_up(isolated, cols.align[i]) + cols.size[i]
    return AllocationPlan(
        allocations={ids[i]: MemoryRegion(offset[i], cols.size[i]) for i in _decreasing(cols)},
        tenants=tuple(tuple(ids[i] for i in region.tenants) for region in regions),
        peak_bytes=max(cols.live_bytes(), default=0),
        shared_peak=extent_of(cols, [offset[i] for i in range(len(cols))]),
        isolated_peak=isolated,
    )


@dataclass
class _Region:
    offset: int
    tenants: list[int]


def _decreasing(cols: Columns) -> list[int]:
    return sorted(range(len(cols)), key=lambda i: (-cols.size[i], i))


def _regions(cols: Columns) -> list[_Region]:
    lives = list(_masks(cols))
    order = _decreasing(cols)
    regions, busy, top = _fixed_regions(cols, [i for i in order if cols.fixed[i] >= 0], lives)
    closed = len(regions)  # a region of fixed offsets has neighbours of its own choosing: nobody else moves in
    home = {i: k for k, region in enumerate(regions) for i in region.tenants}
    for i in order:
        if cols.fixed[i] >= 0:
            continue
        life, grid = lives[i], cols.align[i] - 1
        barred = {home[j] for j, kind in cols.odd[i] if j in home and kind != HANDOFF} if cols.odd is not None else ()
        for k in range(closed, len(busy)):
            if not busy[k] & life and not regions[k].offset & grid and k not in barred:
                busy[k] |= life
                regions[k].tenants.append(i)
                home[i] = k
                break
        else:
            at = align_up(top, cols.align[i])
            top = at + cols.size[i]
            home[i] = len(regions)
            regions.append(_Region(at, [i]))
            busy.append(life)
    return regions


def _fixed_regions(cols: Columns, given: list[int], lives: list[int]) -> tuple[list[_Region], list[int], int]:
    """One closed region per given offset, and the first byte after all of them."""
    at: dict[int, _Region] = {}
    for i in given:
        at.setdefault(cols.fixed[i], _Region(cols.fixed[i], [])).tenants.append(i)
    regions = [at[offset] for offset in sorted(at)]
    busy = [0] * len(regions)
    for k, region in enumerate(regions):
        for i in region.tenants:
            busy[k] |= lives[i]
    return regions, busy, max((cols.fixed[i] + cols.size[i] for i in given), default=0)


def _masks(cols: Columns) -> Iterator[int]:
    """Per storage, the columns of squeezed time it is alive at, as bits."""
    lows, highs, first = cols.part_lo.tolist(), cols.part_hi.tolist(), cols.part_of.tolist()
    for i in range(len(cols)):
        mask = 0
        for row in range(first[i], first[i + 1]):
            mask |= (1 << highs[row]) - (1 << lows[row])
        yield mask
