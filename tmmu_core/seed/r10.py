"""The classes of the r10 memory planner (seed document 002): lifetimes, allocation plan and memory binding.

The algorithm is first-fit decreasing over whole regions, as in :mod:`~tmmu_core.planners.ffd`, without fixed offsets
and in-place reuse. Tensors are placed largest first, ties by id: in the first region with an aligned offset and no
overlapping lifetime, or else in a new region at the next aligned offset. A lifetime is a bit mask over the intervals
between births and deaths, so one ``&`` compares a tensor with all tensors of a region.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, combinations

from tmmu_core.base.errors import U64_MAX, AlignmentViolation, AllocationOverflow


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

    def overlaps(self, other: TensorLifetime) -> bool:
        """Return whether both are live at a common step."""
        return max(self.birth, other.birth) < min(self.death, other.death)


@dataclass(frozen=True)
class SharingOpportunity:
    """Two tensors that an analyzer found to be able to share a region, in any order."""

    first: str
    second: str


class SharingPairs(Collection[tuple[str, str]]):
    """All pairs of tensors in one region, the earlier placed first; computed on demand, as they may be many.

    ``tenants``: per region, its tensors in placement order.
    """

    def __init__(self, tenants: Sequence[Sequence[str]]) -> None:
        self.tenants = tenants

    def __len__(self) -> int:
        return sum(len(region) * (len(region) - 1) // 2 for region in self.tenants)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return chain.from_iterable(combinations(region, 2) for region in self.tenants)

    def __contains__(self, pair: object) -> bool:
        return any(pair == other for other in self)


@dataclass(frozen=True)
class AllocationPlan:
    """The region of each tensor, in placement order, and the bytes saved by sharing."""

    allocations: Mapping[str, MemoryRegion]
    sharing_pairs: Collection[tuple[str, str]] = ()
    peak_bytes: int = 0
    """Maximum number of bytes alive at any step."""
    saved_bytes: int = 0
    """Bytes saved compared with one region per tensor in the same order; never negative."""

    @property
    def pool_bytes(self) -> int:
        """The end of the highest region."""
        return max((region.end for region in self.allocations.values()), default=0)

    def is_valid(self, lifetimes: Iterable[TensorLifetime]) -> bool:
        """Return whether every lifetime has a region and no two tensors that are live together share a byte."""
        live: list[TensorLifetime] = []
        for life in sorted(lifetimes, key=lambda each: (each.birth, each.tensor_id)):
            if life.tensor_id not in self.allocations:
                return False
            region = self.allocations[life.tensor_id]
            live = [other for other in live if other.death > life.birth]
            if life.birth < life.death and any(region.overlaps(self.allocations[o.tensor_id]) for o in live):
                return False
            live += [life] if life.birth < life.death and region.size_bytes else []
        return True


@dataclass(frozen=True)
class MemoryBinding:
    """The address of each tensor of a plan in memory."""

    model_id: str
    plan: AllocationPlan
    bound_regions: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def bind(cls, model_id: str, plan: AllocationPlan, base: int) -> MemoryBinding:
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
        """``opportunities``: the only pairs that may share a region; ``None``: all. Each pair is checked."""
        self.lifetimes = tuple(lifetimes)
        self.opportunities = None if opportunities is None else tuple(opportunities)

    def generate_plan(self) -> AllocationPlan:
        """Return the plan. Raises ``AlignmentViolation``, and ``AllocationOverflow`` past 2^64 − 1."""
        lives = sorted(self.lifetimes, key=lambda life: (-life.size_bytes, life.tensor_id))
        masks, peak = _masks(lives)
        allowed = None
        if self.opportunities is not None:
            allowed = {frozenset((pair.first, pair.second)) for pair in self.opportunities}
        regions: list[tuple[MemoryRegion, list[str]]] = []
        region_masks: list[int] = []
        allocations: dict[str, MemoryRegion] = {}
        top = isolated = 0
        for life, mask in zip(lives, masks, strict=True):
            name, grid = life.tensor_id, life.alignment - 1
            if life.alignment < 1 or life.alignment & grid:
                message = f"the alignment {life.alignment} of {name!r} is not a power of two."
                raise AlignmentViolation(message, arena="pool", logical_slot=-1, hint="Give a power of two ≥ 1.")
            isolated = ((isolated + grid) & ~grid) + life.size_bytes
            for k, region_mask in enumerate(region_masks):
                if not region_mask & mask:
                    region, tenants = regions[k]
                    is_allowed = allowed is None or all(frozenset((name, other)) in allowed for other in tenants)
                    if is_allowed and not region.offset_bytes & grid:
                        region_masks[k] |= mask
                        tenants.append(name)
                        break
            else:
                region = MemoryRegion((top + grid) & ~grid, life.size_bytes)
                top = region.end
                regions.append((region, [name]))
                region_masks.append(mask)
            allocations[name] = region
        if top > U64_MAX:
            raise AllocationOverflow("the pool is past 2^64 − 1 bytes.", arena="pool", offset=0, size=str(top))
        pairs = SharingPairs([tenants for _, tenants in regions])
        return AllocationPlan(allocations, pairs, peak, max(0, isolated - top))


def _masks(lives: Sequence[TensorLifetime]) -> tuple[list[int], int]:
    """Return the lifetimes as bit masks over the intervals between births and deaths, and the peak live bytes."""
    steps = sorted({step for life in lives for step in (life.birth, life.death)})
    interval = {step: k for k, step in enumerate(steps)}
    change = [0] * len(steps)
    masks = []
    for life in lives:
        low = interval[life.birth]
        high = max(low, interval[life.death])
        change[low] += life.size_bytes
        change[high] -= life.size_bytes
        masks.append((1 << high) - (1 << low))
    return masks, max(accumulate(change), default=0)
