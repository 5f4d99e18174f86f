"""Figures of a plan (contract §7): whole pages, ratios, the totals over all arenas and the metrics record.

Figures are integers (bytes, steps, counts); a ratio is one division at the very end. ``docs/glossary.md`` defines the
words. The figures are computed from :mod:`.live_bytes`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tmmu_core.base.errors import U64_MAX, AllocationOverflow
from tmmu_core.graph.model import ROLES
from tmmu_core.liveness.live_model import Liveness
from tmmu_core.liveness.live_ranges import view_roots
from tmmu_core.planners.columns import align_up
from tmmu_core.plans.figures.live_bytes import exact_sum, moments, peak_together, storages_of
from tmmu_core.plans.model import ArenaSummary, Plan


def committed_bytes(extent: int, page_size: int, *, arena: str = "") -> int:
    """Return the extent in bytes, rounded up to whole pages (``page_size`` 0: not rounded)."""
    committed = align_up(extent, page_size) if page_size else extent
    if committed > U64_MAX:
        message = f"arena {arena!r}: {extent} bytes, rounded up to pages of {page_size} bytes, exceed 2^64 − 1."
        hint = "Give the arena a smaller page size."
        raise AllocationOverflow(message, arena=arena, offset=0, size=extent, hint=hint)
    return committed


def ratio(part: int, whole: int) -> float:
    """Return ``part / whole``; 0.0 if the whole is 0."""
    return part / whole if whole else 0.0


def reuse_ratio(slots: int, storages: int) -> float:
    """Return ``memory_reuse_ratio`` = 1 − slots / storages; 0 without storages."""
    return ratio(storages - slots, storages)


def fragmentation_ratio(peak_live: int, extent: int) -> float:
    """Return ``internal_fragmentation_ratio`` = 1 − Σ peak live / Σ extent; 0 if the extent is 0."""
    return ratio(extent - peak_live, extent)


@dataclass(frozen=True)
class Totals:
    """A plan's figures over all arenas (contract §11)."""

    peak_live_bytes: int
    """Maximum number of bytes in use together, at one step."""
    peak_step: int
    """The first such step."""
    extent_bytes: int
    """Σ extents: the bytes to reserve."""
    lower_bound_bytes: int
    """Σ lower bounds: no plan of these arenas has a smaller sum of extents."""
    reserved_peak_bytes: int | None = None
    """Maximum number of bytes that the allocator of a snapshot reserved; ``None`` for other plans."""
    reuse_cost: int | None = None
    """Σ costs of the active reuse penalties; ``None`` for plans without penalties."""

    def written(self) -> dict[str, int]:
        """Return the figures that are known, by name."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @property
    def gap(self) -> tuple[int, int]:
        """The gap as a fraction: ``(extents − bounds, bounds)``, in bytes."""
        return self.extent_bytes - self.lower_bound_bytes, self.lower_bound_bytes


def totals_of(arenas: Sequence[ArenaSummary], peak: tuple[int, int], reserved_peak_bytes: int | None = None) -> Totals:
    """Return the totals of arenas; ``peak`` is (step, bytes) of the peak over all arenas."""
    step, most = peak
    costs = [a.reuse_cost for a in arenas if a.reuse_cost is not None]
    extent, bound = sum(a.extent_bytes for a in arenas), sum(a.bound_bytes for a in arenas)
    return Totals(most, step, extent, bound, reserved_peak_bytes, sum(costs) if costs else None)


def totals(plan: Plan) -> Totals:
    """Return the totals of a plan: as stated, or computed for a file of an older version."""
    stated = plan.metrics.get("totals")
    optional = {"reserved_peak_bytes", "reuse_cost"}
    if isinstance(stated, dict) and stated.keys() | optional == Totals.__dataclass_fields__.keys():
        return Totals(**stated)
    s = storages_of(plan)
    return totals_of(plan.arenas, peak_together(s.birth, s.death, s.size, moments(plan)))


def plan_metrics(
    arenas: Sequence[ArenaSummary],
    totals: Totals,
    *,
    retained: tuple[int, int] = (0, 0),
    allocation_time_ns: int = 0,
) -> dict[str, Any]:
    """Return ``Plan.metrics``: sums over the arenas (TMMU v2 0.I and §7, contract §7).

    ``retained`` is the result of :func:`activation_retention`. ``internal_fragmentation_ratio`` and ``max_live`` sum
    the peaks and counts of each arena, which may be at different steps. ``allocation_time_ns`` is never hashed and
    never compared.
    """
    slots, storages = sum(a.slots for a in arenas), sum(a.storages for a in arenas)
    peaks, extents = sum(a.peak_live_bytes for a in arenas), sum(a.extent_bytes for a in arenas)
    return {
        "peak_logical_slots": slots,
        "max_live": sum(a.max_live for a in arenas),
        "storages": storages,
        "peak_live_bytes": totals.peak_live_bytes,
        "extent_bytes": totals.extent_bytes,
        "totals": totals.written(),
        "committed_bytes": sum(a.committed_bytes for a in arenas),
        "peak_physical_bytes_per_arena": {a.name: a.extent_bytes for a in arenas},
        "peak_tmmu_usage_per_arena": {a.name: a.peak_live_bytes for a in arenas},
        "memory_reuse_ratio": reuse_ratio(slots, storages),
        "internal_fragmentation_ratio": fragmentation_ratio(peaks, extents),
        "activation_bytes_retained": retained[0],
        "activation_bytes": retained[1],
        "activation_retention_ratio": ratio(*retained),
        "allocation_failures": 0,
        "allocation_time_ns": allocation_time_ns,
    }


def renewed_metrics(old: Plan, new: Plan) -> dict[str, Any]:
    """Return the metrics of ``old``, a plan of an older version, with the totals and peaks of ``new``.

    A figure that differs from the one computed from the arenas of ``old`` is kept.
    """
    metrics, counted = dict(old.metrics), totals(new)
    then = plan_metrics(old.arenas, counted) | {"peak_live_bytes": sum(a.peak_live_bytes for a in old.arenas)}
    now = plan_metrics(new.arenas, counted)
    for key in ("peak_live_bytes", "max_live", "peak_tmmu_usage_per_arena", "internal_fragmentation_ratio"):
        if metrics.get(key) == then[key]:
            metrics[key] = now[key]
    return {**metrics, "totals": now["totals"]}


def written_metrics(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metrics that are the same on every run."""
    return {key: value for key, value in metrics.items() if key != "allocation_time_ns"}


def activation_retention(liveness: Liveness) -> tuple[int, int]:
    """Return ``(bytes kept past the last forward use, bytes of all activations)``, the parts of the retention ratio.

    An activation is a planned tensor of role ``activation`` that is not a view. A view has no bytes of its own: its
    reads are uses of its root, and its root's bytes are held until the last of its views is dead. The last forward use
    is the last read by a node of phase ``forward``, the birth if there is none, and the end of the timeline for a
    graph output.
    """
    timeline, index = liveness.timeline, liveness.timeline.index
    counts = (index.role == ROLES.index("activation")) & (index.base < 0) & (liveness.birth >= 0)
    last = np.maximum(liveness.birth, 0)
    reader = np.repeat(np.arange(len(index.node_ids), dtype=np.int64), np.diff(index.in_ptr))
    use = index.is_forward[reader] & (timeline.step_of[reader] >= 0)
    root, _ = view_roots(index)
    np.maximum.at(last, root[index.in_idx[use]], timeline.step_of[reader[use]])
    handed_out = np.zeros(len(index.tensor_ids), np.bool_)
    handed_out[root[np.flatnonzero(index.is_output)]] = True
    held_until = liveness.death.copy()
    np.maximum.at(held_until, root, liveness.death)
    kept = counts & (held_until > last + 1) & ~handed_out
    return exact_sum(index.nbytes[kept]), exact_sum(index.nbytes[counts])


def another_packing_may_fit(plan: Plan, budget: int | None = None) -> bool:
    """Return whether no lower bound exceeds its limit, so that another packing of the same lives may fit."""
    if any(arena.bound_bytes > arena.capacity_bytes for arena in plan.arenas):
        return False
    return budget is None or sum(arena.bound_bytes for arena in plan.arenas) <= budget


def over_limits(plan: Plan, budget: int | None = None) -> dict[str, int]:
    """Return arena → bytes over its capacity; ``""`` → bytes over the budget."""
    found = {a.name: a.extent_bytes - a.capacity_bytes for a in plan.arenas if a.extent_bytes > a.capacity_bytes}
    needed = sum(arena.extent_bytes for arena in plan.arenas)
    return found | ({"": needed - budget} if budget is not None and needed > budget else {})
