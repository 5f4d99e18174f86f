"""Compute the metrics of a plan (contract §7), the totals of all arenas, and the live bytes of a snapshot by line."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tmmu_core.base.errors import U64_MAX, AllocationOverflow
from tmmu_core.graph.model import ROLES
from tmmu_core.liveness.timeline import Liveness, view_roots
from tmmu_core.planners.columns import align_up
from tmmu_core.plans.figures.live_bytes import alive_at, peak_of_ranges, storages_of
from tmmu_core.plans.model import ArenaSummary, Plan


def committed_bytes(extent: int, page_size: int, *, arena: str = "") -> int:
    """Return ``extent`` rounded up to whole pages of ``page_size`` bytes (0: as is). Raises ``AllocationOverflow``."""
    committed = align_up(extent, page_size) if page_size else extent
    if committed > U64_MAX:
        message = f"arena {arena!r}: {extent} bytes, rounded up to pages of {page_size} bytes, exceed 2^64 − 1."
        hint = "Give the arena a smaller page size."
        raise AllocationOverflow(message, arena=arena, offset=0, size=extent, hint=hint)
    return committed


def ratio(part: int, whole: int) -> float:
    """Return ``part / whole``; 0.0 if the whole is 0."""
    return part / whole if whole else 0.0


@dataclass(frozen=True)
class Totals:
    """The figures of a plan over all arenas (contract §11)."""

    peak_live_bytes: int  # most bytes in use at one step
    peak_step: int  # the first step with this peak
    extent_bytes: int  # sum of the extents: the bytes to reserve
    lower_bound_bytes: int  # sum of the lower bounds of the arenas: no plan has a smaller sum of extents
    reserved_peak_bytes: int | None = None  # most bytes that a snapshot's allocator reserved; ``None``: no snapshot
    reuse_cost: int | None = None  # sum of the active reuse penalties; ``None`` for plans without reuse terms

    def as_dict(self) -> dict[str, int]:
        """Return the figures that are not ``None``, by name."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @property
    def gap(self) -> tuple[int, int]:
        """The gap as a fraction: ``(extents − bounds, bounds)``, in bytes."""
        return self.extent_bytes - self.lower_bound_bytes, self.lower_bound_bytes


def totals_of(arenas: Sequence[ArenaSummary], peak: tuple[int, int], reserved_peak_bytes: int | None = None) -> Totals:
    """Return the totals of arenas; ``peak`` is (step, bytes) of the peak over all arenas."""
    costs = [a.reuse_cost for a in arenas if a.reuse_cost is not None]
    extent, bound = sum(a.extent_bytes for a in arenas), sum(a.bound_bytes for a in arenas)
    peak_step, peak_bytes = peak
    return Totals(peak_bytes, peak_step, extent, bound, reserved_peak_bytes, sum(costs) if costs else None)


def totals(plan: Plan) -> Totals:
    """Return the totals in the plan's metrics. If they are missing or have other keys, compute them from the rows."""
    recorded = plan.metrics.get("totals")
    optional = {"reserved_peak_bytes", "reuse_cost"}
    if isinstance(recorded, dict) and recorded.keys() | optional == Totals.__dataclass_fields__.keys():
        return Totals(**recorded)
    s = storages_of(plan)
    return totals_of(plan.arenas, peak_of_ranges(s.birth, s.death, s.size, plan.end))


def reserved_bytes(plan: Plan, arena: str) -> int:
    """Return the number of reserved bytes in an arena's extent."""
    total = last = 0
    for begin, end in sorted(plan.constraints.reserved.get(arena, ())) if plan.constraints is not None else ():
        end = min(end, plan.arena_of[arena].extent_bytes)
        total, last = total + max(0, end - max(begin, last)), max(last, end)
    return total


def plan_metrics(
    arenas: Sequence[ArenaSummary], totals: Totals, *, retained: tuple[int, int] = (0, 0), allocation_time_ns: int = 0
) -> dict[str, Any]:
    """Return ``Plan.metrics`` (TMMU v2 0.I and §7, contract §7); ``retained``: see :func:`activation_retention`."""
    # The arenas may have their peaks at different steps; ``max_live`` and the fragmentation use sums of these peaks.
    slots, storages = sum(a.slots for a in arenas), sum(a.storages for a in arenas)
    peaks, extents = sum(a.peak_live_bytes for a in arenas), sum(a.extent_bytes for a in arenas)
    return {
        "peak_logical_slots": slots,
        "max_live": sum(a.max_live for a in arenas),
        "storages": storages,
        "peak_live_bytes": totals.peak_live_bytes,
        "extent_bytes": totals.extent_bytes,
        "totals": totals.as_dict(),
        "committed_bytes": sum(a.committed_bytes for a in arenas),
        "peak_physical_bytes_per_arena": {a.name: a.extent_bytes for a in arenas},
        "peak_tmmu_usage_per_arena": {a.name: a.peak_live_bytes for a in arenas},
        "memory_reuse_ratio": ratio(storages - slots, storages),
        "internal_fragmentation_ratio": ratio(extents - peaks, extents),
        "activation_bytes_retained": retained[0],
        "activation_bytes": retained[1],
        "activation_retention_ratio": ratio(*retained),
        "allocation_failures": 0,
        "allocation_time_ns": allocation_time_ns,
    }


def written_metrics(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metrics without the planning time, which differs between runs."""
    return {key: value for key, value in metrics.items() if key != "allocation_time_ns"}


def activation_retention(liveness: Liveness) -> tuple[int, int]:
    """Return ``(bytes kept past the last forward use, bytes of all activations)``, the parts of the retention ratio."""
    # The last forward use is the last step at which a ``forward`` node reads the activation or a view of it; else its
    # birth. Views are no activations, and graph outputs do not count as kept.
    timeline, index = liveness.timeline, liveness.timeline.index
    is_activation = (index.role == ROLES.index("activation")) & (index.base < 0) & (liveness.birth >= 0)
    last_use = np.maximum(liveness.birth, 0)
    reader = np.repeat(np.arange(len(index.node_ids), dtype=np.int64), np.diff(index.in_ptr))
    is_use = index.is_forward[reader] & (timeline.step_of[reader] >= 0)
    root, _ = view_roots(index)
    np.maximum.at(last_use, root[index.in_idx[is_use]], timeline.step_of[reader[is_use]])
    is_output = np.zeros(len(index.tensor_ids), np.bool_)
    is_output[root[np.flatnonzero(index.is_output)]] = True
    held_until = liveness.death.copy()
    np.maximum.at(held_until, root, liveness.death)
    is_retained = is_activation & (held_until > last_use + 1) & ~is_output
    return sum(index.nbytes[is_retained].tolist()), sum(index.nbytes[is_activation].tolist())


def another_packing_may_fit(plan: Plan, budget: int | None = None) -> bool:
    """Return whether every arena's lower bound is within its capacity, and the sum of the bounds within ``budget``."""
    is_within_budget = budget is None or sum(arena.bound_bytes for arena in plan.arenas) <= budget
    return is_within_budget and all(arena.bound_bytes <= arena.capacity_bytes for arena in plan.arenas)


def over_limits(plan: Plan, budget: int | None = None) -> dict[str, int]:
    """Return the exceeded limits: arena → bytes over its capacity, and ``""`` → bytes over ``budget``."""
    excess = {a.name: a.extent_bytes - a.capacity_bytes for a in plan.arenas if a.extent_bytes > a.capacity_bytes}
    needed = sum(arena.extent_bytes for arena in plan.arenas)
    return excess | ({"": needed - budget} if budget is not None and needed > budget else {})


@dataclass(frozen=True)
class LineChange:
    """Live bytes and buffers of one line and category at the peaks of two plans."""

    line: str
    category: str
    before_bytes: int
    after_bytes: int
    before_count: int
    after_count: int

    @property
    def growth_bytes(self) -> int:
        """Bytes after − bytes before."""
        return self.after_bytes - self.before_bytes


def line_of(tensor_id: str) -> str:
    """Return the line of code in a snapshot's tensor id: ``model.py:12 forward #3`` → ``model.py:12 forward``."""
    return tensor_id.rpartition(" #")[0] or tensor_id


def live_by_line(plan: Plan, step: int) -> dict[tuple[str, str], tuple[int, int]]:
    """Return ``(line, category)`` → ``(bytes, buffers)`` live at a step of a snapshot's plan."""
    live: dict[tuple[str, str], tuple[int, int]] = {}
    for row in alive_at(plan, step).tolist():
        key = line_of(plan.tensor_ids[row]), plan.categories[row]
        size, count = live.get(key, (0, 0))
        live[key] = size + int(plan.size[row]), count + 1
    return live


def changes_at_peak(before: Plan, after: Plan) -> tuple[LineChange, ...]:
    """Return the changes of lines and categories that are live at a peak, largest first; empty without snapshots."""
    if not before.categories or not after.categories:
        return ()
    old, new = (live_by_line(plan, totals(plan).peak_step) for plan in (before, after))
    changes = []
    for key in old | new:
        (old_bytes, old_count), (new_bytes, new_count) = old.get(key, (0, 0)), new.get(key, (0, 0))
        changes.append(LineChange(*key, old_bytes, new_bytes, old_count, new_count))
    return _sorted(changes)


def by_category(changes: Iterable[LineChange]) -> tuple[LineChange, ...]:
    """Return the sums of changes by category, largest change first; their line is empty."""
    sums: dict[str, list[int]] = {}
    for change in changes:
        figures = (change.before_bytes, change.after_bytes, change.before_count, change.after_count)
        sums[change.category] = [a + b for a, b in zip(sums.get(change.category, [0] * 4), figures, strict=True)]
    return _sorted(LineChange("", category, *total) for category, total in sums.items())


def _sorted(changes: Iterable[LineChange]) -> tuple[LineChange, ...]:
    return tuple(sorted(changes, key=lambda c: (-abs(c.growth_bytes), -c.after_bytes, c.line, c.category)))
