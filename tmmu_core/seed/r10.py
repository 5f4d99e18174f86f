"""The classes of the r10 memory planner (seed document 002): lifetimes, allocation plan and memory binding.

The algorithm is first-fit decreasing over whole regions, as in :mod:`~tmmu_core.planners.ffd`, without fixed offsets
and in-place reuse. Tensors are placed largest first, ties by id: in the first region with an aligned offset and no
overlapping lifetime, or else in a new region at the next aligned offset. A lifetime is a bit mask over the intervals
between births and deaths, so one ``and`` compares a tensor with all tensors of a region.
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
    """Two tensors that can share a region, found by an analyzer. Their order has no meaning."""

    first: str
    second: str


class SharingPairs(Collection[tuple[str, str]]):
    """All pairs of tensors in one region, the earlier placed first; computed on demand, as they may be many."""

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
    """Bytes saved compared with one region per tensor in the same order."""

    @property
    def pool_bytes(self) -> int:
        """The end of the highest region."""
        return max((region.end for region in self.allocations.values()), default=0)

    def is_valid(self, lifetimes: Iterable[TensorLifetime]) -> bool:
        """Return whether every lifetime has a region and no two tensors that are live together share a byte.

        Each tensor is compared with the tensors that are live at its birth. Adjacent regions and lifetimes do not
        overlap.
        """
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
        rows = sorted((-e.size_bytes, e.tensor_id, e.birth, e.death, e.alignment) for e in self.lifetimes)
        masks, peak = _masks(rows)
        allowed = None
        if self.opportunities is not None:
            allowed = {frozenset((pair.first, pair.second)) for pair in self.opportunities}
        regions: list[tuple[MemoryRegion, list[str]]] = []
        busy: list[int] = []
        allocations: dict[str, MemoryRegion] = {}
        top = isolated = 0
        for (negative, name, _, _, alignment), mask in zip(rows, masks, strict=True):
            grid = alignment - 1
            if alignment < 1 or alignment & grid:
                what, hint = f"the alignment {alignment} of {name!r} is not a power of two.", "Give a power of two ≥ 1."
                raise AlignmentViolation(what, arena="pool", logical_slot=-1, hint=hint)
            isolated = ((isolated + grid) & ~grid) - negative
            for k, taken in enumerate(busy):
                if not taken & mask:
                    region, tenants = regions[k]
                    may = allowed is None or all(frozenset((name, other)) in allowed for other in tenants)
                    if may and not region.offset_bytes & grid:
                        busy[k] = taken | mask
                        tenants.append(name)
                        break
            else:
                offset = (top + grid) & ~grid
                region = MemoryRegion(offset, -negative)
                top = offset - negative
                regions.append((region, [name]))
                busy.append(mask)
            allocations[name] = region
        if top > U64_MAX:
            raise AllocationOverflow("the pool is past 2^64 − 1 bytes.", arena="pool", offset=0, size=str(top))
        pairs = SharingPairs([tenants for _, tenants in regions])
        return AllocationPlan(allocations, pairs, peak, max(0, isolated - top))


_Row = tuple[int, str, int, int, int]
"""(−bytes, id, birth, death, alignment)."""


def _masks(rows: Sequence[_Row]) -> tuple[list[int], int]:
    """Return the lifetimes as bit masks over intervals of time, and the peak of the live bytes."""
    steps = sorted({step for row in rows for step in row[2:4]})
    place = {step: k for k, step in enumerate(steps)}
    change = [0] * len(steps)
    masks = []
    for negative, _, birth, death, _ in rows:
        low = place[birth]
        high = max(low, place[death])
        change[low] -= negative
        change[high] += negative
        masks.append((1 << high) - (1 << low))
    return masks, max(accumulate(change), default=0)
