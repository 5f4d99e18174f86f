"""The classes of the memory planner r10 (seed document 002): lifetimes, allocation plan and memory binding.

The planner is :func:`~tmmu_core.planners.slots.ffd` (first-fit decreasing). Tensors with a common byte share a region.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Self

import numpy as np

from tmmu_core.graph.checks import check_alignment
from tmmu_core.judge.verifier.check_bytes import overlapping
from tmmu_core.planners import ARENA_PLANNERS
from tmmu_core.planners.problem import Problem
from tmmu_core.plans.figures.live_bytes import peak_of_ranges


@dataclass(frozen=True)
class MemoryRegion:
    """Bytes ``[offset_bytes, offset_bytes + size_bytes)`` of the pool."""

    offset_bytes: int
    size_bytes: int

    @property
    def end(self) -> int:
        """Byte after the last."""
        return self.offset_bytes + self.size_bytes

    def overlaps(self, other: Self) -> bool:
        """Return whether the two have a byte in common."""
        return max(self.offset_bytes, other.offset_bytes) < min(self.end, other.end)


@dataclass(frozen=True)
class TensorLifetime:
    """A tensor's steps ``[birth, death)``, its size in bytes and its alignment."""

    tensor_id: str
    birth: int
    death: int
    size_bytes: int = 0
    alignment: int = 1

    def overlaps(self, other: Self) -> bool:
        """Return whether both are live at a common step."""
        return max(self.birth, other.birth) < min(self.death, other.death)


@dataclass(frozen=True)
class SharingOpportunity:
    """An unordered pair of tensors that may share a region, found by an analyzer."""

    first: str
    second: str


@dataclass(frozen=True)
class AllocationPlan:
    """The region of each tensor, in placement order, and the bytes saved by sharing."""

    allocations: Mapping[str, MemoryRegion]
    peak_bytes: int = 0  # maximum number of live bytes at a step
    saved_bytes: int = 0  # bytes saved compared with one region per tensor in the same order; never negative

    @property
    def pool_bytes(self) -> int:
        """The end of the highest region."""
        return max((region.end for region in self.allocations.values()), default=0)

    @property
    def sharing_pairs(self) -> list[tuple[str, str]]:
        """All pairs of tensors in one region, the earlier placed first."""
        names_in: dict[MemoryRegion, list[str]] = {}
        for name, region in self.allocations.items():
            names_in.setdefault(region, []).append(name)
        return [pair for names in names_in.values() for pair in combinations(names, 2)]

    def is_valid(self, lifetimes: Iterable[TensorLifetime]) -> bool:
        """Return whether every lifetime has a region and no two tensors that are live together share a byte."""
        lives = [(life, self.allocations.get(life.tensor_id)) for life in lifetimes]
        if any(region is None for _, region in lives):
            return False
        boxes = [(life.birth, life.death, region.offset_bytes, region.end) for life, region in lives if region]
        return not any(overlapping(boxes))


@dataclass(frozen=True)
class MemoryBinding:
    """The address of each tensor of a plan in memory."""

    model_id: str
    plan: AllocationPlan
    bound_regions: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def bind(cls, model_id: str, plan: AllocationPlan, base: int) -> Self:
        """Bind every tensor of a plan to a pool that begins at address ``base``."""
        return cls(model_id, plan, {name: base + region.offset_bytes for name, region in plan.allocations.items()})

    def is_bound(self, tensor_id: str) -> bool:
        """Return whether the tensor has an address."""
        return tensor_id in self.bound_regions

    def get_ptr(self, tensor_id: str) -> int:
        """Return the tensor's address. Precondition: :meth:`is_bound`."""
        assert self.is_bound(tensor_id), f"tensor {tensor_id!r} is not bound"
        return self.bound_regions[tensor_id]


class MemoryPlanner:
    """r10's planner for one set of analyzed lifetimes."""

    def __init__(
        self, lifetimes: Iterable[TensorLifetime], opportunities: Iterable[SharingOpportunity] | None = None
    ) -> None:
        """``opportunities``: pairs that may share a region (``None``: all) if they are not live together."""
        self.lifetimes = tuple(lifetimes)
        self.opportunities = None if opportunities is None else tuple(opportunities)

    def generate_plan(self) -> AllocationPlan:
        """Return the plan. Raises ``AlignmentViolation``, and ``AllocationOverflow`` past 2^64 − 1."""
        lives = sorted(self.lifetimes, key=lambda life: life.tensor_id)
        for life in lives:
            check_alignment(life.alignment, arena=life.tensor_id)
        columns = [[life.birth, life.death, life.size_bytes, life.alignment] for life in lives]
        birth, death, size, alignment = np.array(columns, np.uint64).reshape(-1, 4).T
        ids = tuple([life.tensor_id for life in lives])
        problem = Problem("pool", ids, birth.astype(np.int64), death.astype(np.int64), size, alignment)
        if self.opportunities is not None:
            number = {name: k for k, name in enumerate(ids)}
            must_not_share = np.ones((len(ids), len(ids)), np.bool_)
            for pair in self.opportunities:
                i, j = number[pair.first], number[pair.second]
                must_not_share[i, j] = must_not_share[j, i] = False
            problem = replace(problem, must_not_alias=np.argwhere(np.triu(must_not_share, 1)))
        packing = ARENA_PLANNERS["ffd"].pack(problem, {})
        # Tensors at one offset share the region of the largest. Tensors without bytes have empty regions.
        regions: dict[tuple[int, bool], MemoryRegion] = {}
        allocations: dict[str, MemoryRegion] = {}
        for k in sorted(range(len(ids)), key=lambda k: -lives[k].size_bytes):
            offset, size_bytes = int(packing.offset[k]), lives[k].size_bytes
            allocations[ids[k]] = regions.setdefault((offset, size_bytes > 0), MemoryRegion(offset, size_bytes))
        _, peak = peak_of_ranges(problem.birth, problem.death, size, int(problem.death.max(initial=0)))
        return AllocationPlan(allocations, peak, packing.notes["saved_bytes"])
