"""Every figure of contract §7, as pure functions over columns: this is the only place where a figure is computed.

Figures are integers (bytes, steps, counts); a ratio is one division at the very end. The words are those of
``docs/glossary.md``. Two kinds of columns go in:

* *storage columns* (birth, death, size), as liveness and planners have them, for the figures that need no placement;
* a :class:`~tmmu_core.plan.model.Plan`, whose rows :func:`storages_of` gathers into :class:`PlanStorages`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tmmu_core.errors import U64_MAX, AllocationOverflow
from tmmu_core.graph.model import ROLES
from tmmu_core.liveness.model import Liveness
from tmmu_core.liveness.views import view_roots
from tmmu_core.plan.model import ArenaSummary, Plan

I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]

# --- live bytes --------------------------------------------------------------------------------------------------


def exact_sum(values: U64) -> int:
    """Σ of uint64 values as a Python integer: never wraps."""
    high = int((values >> np.uint64(32)).sum(dtype=np.uint64))
    low = int((values & np.uint64(0xFFFFFFFF)).sum(dtype=np.uint64))
    return (high << 32) + low


def live_bytes_of(birth: I64, death: I64, size: U64, steps: int) -> U64:
    """Shape (steps,): Σ ``size`` (bytes) over the ranges ``[birth, death)`` that hold each step.

    Raises ``AllocationOverflow`` past 2^64 − 1.
    """
    if exact_sum(size) > U64_MAX:
        return _live_bytes_exact(birth, death, size, steps)
    # Differences are taken modulo 2^64; the sums themselves fit, so the running sum is exact.
    change = np.zeros(steps + 1, np.uint64)
    np.add.at(change, birth, size)
    np.subtract.at(change, death, size)
    return np.cumsum(change[:steps], dtype=np.uint64)


def _live_bytes_exact(birth: I64, death: I64, size: U64, steps: int) -> U64:
    change = [0] * (steps + 1)
    for b, d, s in zip(birth.tolist(), death.tolist(), size.tolist(), strict=True):
        change[b] += s
        change[d] -= s
    live, curve = 0, np.zeros(steps, np.uint64)
    for t in range(steps):
        live += change[t]
        if live > U64_MAX:
            raise AllocationOverflow(
                f"{live} bytes are alive at step {t}, more than 64 bits can count.", t=t, offset=0, size=live
            )
        curve[t] = live
    return curve


def live_count_of(birth: I64, death: I64, steps: int) -> I64:
    """Shape (steps,): how many of the ranges ``[birth, death)`` hold each step."""
    change = np.bincount(birth, minlength=steps + 1) - np.bincount(death, minlength=steps + 1)
    return np.cumsum(change[:steps], dtype=np.int64)


def max_live_of(birth: I64, death: I64, steps: int) -> int:
    """The most ranges that hold one step; 0 when there are none."""
    return int(live_count_of(birth, death, steps).max(initial=0))


def peak_of(curve: U64 | I64) -> tuple[int, int]:
    """``(step, value)`` of the curve's first maximum; ``(0, 0)`` for an empty curve."""
    if not len(curve):
        return 0, 0
    step = int(np.argmax(curve))
    return step, int(curve[step])


def peak_and_count(birth: I64, death: I64, size: U64, steps: int) -> tuple[int, int]:
    """``(peak live bytes, max live)`` without a curve over all steps, which a plain instance may have 2^40 of."""
    _, birth, death, steps = _squeezed(birth, death, steps)
    return peak_of(live_bytes_of(birth, death, size, steps))[1], max_live_of(birth, death, steps)


def peak_together(birth: I64, death: I64, size: U64, steps: int) -> tuple[int, int]:
    """``(step, bytes)``: the first step at which the most bytes of the ranges ``[birth, death)`` are in use."""
    times, birth, death, steps = _squeezed(birth, death, steps)
    if exact_sum(size) > U64_MAX:  # arenas that fit 64 bits one by one need not do so together
        step, most = _peak_exact(birth, death, size)
    else:
        step, most = peak_of(live_bytes_of(birth, death, size, steps))
    return (0 if not most else step if times is None else int(times[step])), most


def _peak_exact(birth: I64, death: I64, size: U64) -> tuple[int, int]:
    change: dict[int, int] = {}
    for b, d, s in zip(birth.tolist(), death.tolist(), size.tolist(), strict=True):
        change[b] = change.get(b, 0) + s
        change[d] = change.get(d, 0) - s
    live, peak = 0, (0, 0)
    for step in sorted(change):
        live += change[step]
        peak = (step, live) if live > peak[1] else peak
    return peak


def _squeezed(birth: I64, death: I64, steps: int) -> tuple[I64 | None, I64, I64, int]:
    """Where steps are many and events few, only the steps at which something happens, and which those are."""
    if steps <= 8 * len(birth) + 1024:
        return None, birth, death, steps
    if not len(birth):
        return None, birth, death, 1
    times, event = np.unique(np.concatenate([birth, death]), return_inverse=True)
    return times, event[: len(birth)], event[len(birth) :], len(times)


def change_points(curve: U64 | I64, steps: I64 | None = None) -> tuple[I64, U64 | I64]:
    """``(steps, values)``: the step at which each value of a step curve begins, repeats left out. For drawing.

    ``steps`` are the beats of the curve where they are not all steps.
    """
    if not len(curve):
        return np.zeros(0, np.int64), curve
    begins = np.concatenate([[0], np.flatnonzero(curve[1:] != curve[:-1]) + 1]).astype(np.int64)
    return (begins if steps is None else steps[begins]), curve[begins]


# --- sizes of arenas ---------------------------------------------------------------------------------------------


def align_up(value: int, alignment: int) -> int:
    """The least multiple of ``alignment`` (bytes) that is ≥ ``value``; not checked against 2^64 − 1."""
    return -(-value // alignment) * alignment


def committed_bytes(extent: int, page_size: int, *, arena: str = "") -> int:
    """The extent (bytes) in whole pages; the extent itself where nothing is said of pages (``page_size`` 0)."""
    committed = align_up(extent, page_size) if page_size else extent
    if committed > U64_MAX:
        raise AllocationOverflow(
            f"arena {arena!r}: {extent} bytes in whole pages of {page_size} are past 2^64 − 1.",
            arena=arena,
            offset=0,
            size=extent,
            hint="Give the arena a smaller page size.",
        )
    return committed


# --- ratios and the metrics record -------------------------------------------------------------------------------


def ratio(part: int, whole: int) -> float:
    """``part / whole``; 0.0 where the whole is empty."""
    return part / whole if whole else 0.0


def reuse_ratio(slots: int, storages: int) -> float:
    """``memory_reuse_ratio`` = 1 − slots / storages; 0 when there are no storages."""
    return ratio(storages - slots, storages)


def fragmentation_ratio(peak_live: int, extent: int) -> float:
    """``internal_fragmentation_ratio`` = 1 − Σ peak live / Σ extent; 0 when empty."""
    return ratio(extent - peak_live, extent)


@dataclass(frozen=True)
class Totals:
    """A plan's figures over all arenas (contract §11)."""

    peak_live_bytes: int
    """The most bytes in use together, at one step."""
    peak_step: int
    """The first such step."""
    extent_bytes: int
    """Σ extents: what must be reserved."""
    lower_bound_bytes: int
    """Σ lower bounds: no plan of these arenas has a smaller sum of extents."""

    @property
    def gap(self) -> tuple[int, int]:
        """The gap as a fraction: ``(extents − bounds, bounds)``, in bytes."""
        return self.extent_bytes - self.lower_bound_bytes, self.lower_bound_bytes


def totals_of(arenas: Sequence[ArenaSummary], peak: tuple[int, int]) -> Totals:
    """The totals of arenas whose bytes are at their most together at ``peak``, a pair (step, bytes)."""
    step, most = peak
    return Totals(most, step, sum(a.extent_bytes for a in arenas), sum(a.bound_bytes for a in arenas))


def totals(plan: Plan) -> Totals:
    """The totals of a plan: as it says them, or worked out where it is from before they were said."""
    said = plan.metrics.get("totals")
    if isinstance(said, dict) and sorted(said) == sorted(Totals.__dataclass_fields__):
        return Totals(**said)
    return counted_totals(plan)


def counted_totals(plan: Plan) -> Totals:
    """The totals that a plan's rows and arenas make."""
    s = storages_of(plan)
    return totals_of(plan.arenas, peak_together(s.birth, s.death, s.size, moments(plan)))


def plan_metrics(
    arenas: Sequence[ArenaSummary],
    peak: tuple[int, int],
    *,
    retained: tuple[int, int] = (0, 0),
    allocation_time_ns: int = 0,
    allocation_failures: int = 0,
) -> dict[str, Any]:
    """``Plan.metrics``: totals over the arenas (per arena: ``Plan.arenas``), seed 0.I and §7, contract §7.

    ``peak`` is the step at which the most bytes of all arenas are in use together, and those bytes; ``retained`` is
    :func:`activation_retention`'s pair. ``internal_fragmentation_ratio`` alone goes by the sum of the arenas' own peaks
    (contract §7), as ``max_live`` does by that of their own counts. ``allocation_time_ns`` is never hashed and never
    compared.
    """
    slots, storages = sum(a.slots for a in arenas), sum(a.storages for a in arenas)
    peak_live, extent = sum(a.peak_live_bytes for a in arenas), sum(a.extent_bytes for a in arenas)
    return {
        "peak_logical_slots": slots,
        "max_live": sum(a.max_live for a in arenas),
        "storages": storages,
        "peak_live_bytes": peak[1],
        "extent_bytes": extent,
        "totals": asdict(totals_of(arenas, peak)),
        "committed_bytes": sum(a.committed_bytes for a in arenas),
        "peak_physical_bytes_per_arena": {a.name: a.extent_bytes for a in arenas},
        "peak_tmmu_usage_per_arena": {a.name: a.peak_live_bytes for a in arenas},
        "memory_reuse_ratio": reuse_ratio(slots, storages),
        "internal_fragmentation_ratio": fragmentation_ratio(peak_live, extent),
        "activation_bytes_retained": retained[0],
        "activation_bytes": retained[1],
        "activation_retention_ratio": ratio(*retained),
        "allocation_failures": allocation_failures,
        "allocation_time_ns": allocation_time_ns,
    }


def renewed_metrics(old: Plan, new: Plan) -> dict[str, Any]:
    """The metrics of ``old``, a plan from before totals were counted, as ``new`` with today's peaks has them."""
    before, after = (sum(arena.peak_live_bytes for arena in plan.arenas) for plan in (old, new))
    extent, counted = sum(arena.extent_bytes for arena in new.arenas), counted_totals(new)
    changed: dict[str, tuple[Any, Any]] = {
        "peak_live_bytes": (before, counted.peak_live_bytes),
        "max_live": (sum(a.max_live for a in old.arenas), sum(a.max_live for a in new.arenas)),
        "peak_tmmu_usage_per_arena": (
            {a.name: a.peak_live_bytes for a in old.arenas},
            {a.name: a.peak_live_bytes for a in new.arenas},
        ),
        "internal_fragmentation_ratio": (fragmentation_ratio(before, extent), fragmentation_ratio(after, extent)),
    }
    metrics = {**old.metrics, "totals": asdict(counted)}
    return metrics | {key: now for key, (then, now) in changed.items() if metrics.get(key) == then}


UNWRITTEN = ("allocation_time_ns",)
"""Metrics that are never written, traced, hashed or compared: two runs of one problem write the same bytes."""


def written_metrics(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics that are the same on every run."""
    return {key: value for key, value in metrics.items() if key not in UNWRITTEN}


def activation_retention(liveness: Liveness) -> tuple[int, int]:
    """``(bytes kept past the last forward use, bytes of all activations)``: ``activation_retention_ratio`` in parts.

    An activation is a planned tensor of role ``activation`` that is no view (a view has no bytes of its own). Its last
    forward use is its last reader of phase ``forward``, of itself or of a view of it, its birth where there is none,
    and the end of the timeline for a graph output, itself or a view of it: handing it out is its use.
    """
    timeline, index = liveness.timeline, liveness.timeline.index
    counts = (index.role == ROLES.index("activation")) & (index.base < 0) & (liveness.birth >= 0)
    last = np.maximum(liveness.birth, 0)
    reader = np.repeat(np.arange(len(index.node_ids), dtype=np.int64), np.diff(index.in_ptr))
    use = index.is_forward[reader] & (timeline.step_of[reader] >= 0)
    root, _ = view_roots(index)
    whole = bool(use.all())
    read, at = (index.in_idx, reader) if whole else (index.in_idx[use], reader[use])
    np.maximum.at(last, root[read], timeline.step_of[at])
    handed_out = np.zeros(len(index.tensor_ids), np.bool_)
    handed_out[root[np.flatnonzero(index.is_output)]] = True
    kept = counts & (liveness.death > last + 1) & ~handed_out
    return exact_sum(index.nbytes[kept]), exact_sum(index.nbytes[counts])


# --- a plan's storages -------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class PlanStorages:
    """A plan's storages as columns, by storage number; gathered from its rows."""

    head: I64
    """The row that names it: first-born, bases before views, then id bytes."""
    arena: NDArray[np.int32]
    slot: I64
    offset: U64
    """Bytes: where the storage starts in its arena (the lowest of its rows)."""
    size: U64
    """Bytes: up to the highest end of its rows."""
    alignment: U64
    birth: I64
    death: I64
    """Step after the last one at which its bytes are in use (:attr:`Plan.held_until`)."""
    generation: I64
    backing: U64
    """Bytes of the slot it lies in: the greatest tenant's, at least 1 (contract §3)."""
    slot_alignment: U64
    """Bytes: the greatest alignment over the slot's tenants."""

    def __len__(self) -> int:
        return len(self.head)


def moments(plan: Plan) -> int:
    """How many moments a plan is looked at: its steps, or the one at which a plan without steps has all that lasts."""
    return max(1, plan.steps)


def storages_of(plan: Plan) -> PlanStorages:
    """Gather a plan's rows into storages: hulls of bytes, and of the steps at which they are in use.

    A giver that is not taken over is read at the step at which it dies, and holds its bytes through it. A range that
    reaches out of the timeline, which only a damaged plan has, is cut to it.
    """
    n = int(plan.storage.max(initial=-1)) + 1
    rows = np.arange(len(plan), dtype=np.int64)
    is_view = np.array([base is not None for base in plan.base_tensor_uids], np.bool_)
    head = np.zeros(n, np.int64)
    backwards = np.lexsort((rows, is_view, plan.birth))[::-1]
    head[plan.storage[backwards]] = backwards  # the last write wins: the first-born
    birth = np.full(n, np.iinfo(np.int64).max)
    np.minimum.at(birth, plan.storage, plan.birth)
    death = np.zeros(n, np.int64)
    np.maximum.at(death, plan.storage, plan.held_until)
    offset = np.full(n, U64_MAX, np.uint64)
    np.minimum.at(offset, plan.storage, plan.offset)
    end = np.zeros(n, np.uint64)
    np.maximum.at(end, plan.storage, plan.offset + plan.size)
    starts = plan.offset == offset[plan.storage]
    alignment = np.ones(n, np.uint64)
    np.maximum.at(alignment, plan.storage[starts], plan.alignment[starts])
    birth = np.clip(birth, 0, moments(plan))
    death = np.clip(death, birth, moments(plan))
    arena, slot = plan.arena[head], plan.logical_slot[head]
    slot_of, slots = slot_numbers(arena, slot)
    backing = np.full(slots, plan.places != "bytes", np.uint64)  # a slot has a byte at least
    np.maximum.at(backing, slot_of, end - offset)
    slot_alignment = np.ones(slots, np.uint64)
    np.maximum.at(slot_alignment, slot_of, alignment)
    return PlanStorages(
        head=head,
        arena=arena,
        slot=slot,
        offset=offset,
        size=end - offset,
        alignment=alignment,
        birth=birth,
        death=death,
        generation=plan.generation[head],
        backing=backing[slot_of],
        slot_alignment=slot_alignment[slot_of],
    )


def slot_numbers(arena: NDArray[np.integer[Any]], slot: I64) -> tuple[I64, int]:
    """``(number per row, how many)``: dense numbers of the (arena, slot) pairs, in that order."""
    if not len(slot):
        return np.zeros(0, np.int64), 0
    by = np.lexsort((slot, arena))
    new = np.ones(len(by), np.bool_)
    new[1:] = (arena[by][1:] != arena[by][:-1]) | (slot[by][1:] != slot[by][:-1])
    number = np.empty(len(by), np.int64)
    number[by] = np.cumsum(new) - 1
    return number, int(new.sum())


def arena_number(plan: Plan, arena: str) -> int:
    """The index of ``arena`` in ``plan.arenas``. ``KeyError`` when the plan has no such arena."""
    for number, summary in enumerate(plan.arenas):
        if summary.name == arena:
            return number
    raise KeyError(arena)


@dataclass(frozen=True, eq=False)
class Beats:
    """The steps at which curves of a plan are told, ascending from 0: each holds until the next.

    They are all steps; where those are many more than rows (a plain instance may have 2^62), those at which something
    begins or ends. So a curve is never longer than the rows make it.
    """

    steps: I64
    birth: I64
    """Per storage, the beat at which it is born."""
    death: I64
    """Per storage, the beat from which on it is gone; the number of beats where it lasts to the end."""

    def __len__(self) -> int:
        return len(self.steps)

    def at(self, step: int) -> int:
        """The number of the beat that holds a step."""
        return max(0, int(np.searchsorted(self.steps, step, side="right")) - 1)


def beats_of(plan: Plan, storages: PlanStorages | None = None) -> Beats:
    """The beats of a plan."""
    s = storages or storages_of(plan)
    end = moments(plan)
    if end <= 8 * len(s) + 1024:
        return Beats(np.arange(end, dtype=np.int64), s.birth, s.death)
    steps = np.unique(np.concatenate([np.zeros(1, np.int64), s.birth, s.death]))
    steps = steps[steps < end]
    return Beats(steps, np.searchsorted(steps, s.birth), np.searchsorted(steps, s.death))


def live_bytes(plan: Plan, arena: str, storages: PlanStorages | None = None, beats: Beats | None = None) -> U64:
    """Bytes of the arena's storages alive at each beat; without steps, of what is there to stay."""
    s = storages or storages_of(plan)
    b = beats or beats_of(plan, s)
    here = s.arena == arena_number(plan, arena)
    return live_bytes_of(b.birth[here], b.death[here], s.size[here], len(b))


def peak_step_of(plan: Plan, arena: str) -> tuple[int, int]:
    """``(step, bytes)``: the first step at which the most bytes of the arena are alive."""
    s = storages_of(plan)
    beats = beats_of(plan, s)
    beat, most = peak_of(live_bytes(plan, arena, s, beats))
    return int(beats.steps[beat]), most


@dataclass(frozen=True)
class Peak:
    """The step at which the most bytes of an arena are alive (the first such), and what is alive there."""

    arena: str
    step: int
    bytes: int
    rows: tuple[int, ...]
    """Row numbers, by size falling, then id."""


def peak(plan: Plan, arena: str) -> Peak:
    """Where ``peak_live_bytes`` comes from."""
    step, most = peak_step_of(plan, arena)
    return Peak(arena, step, most, tuple(alive_at(plan, step, arena).tolist()))


def alive_at(plan: Plan, step: int, arena: str | None = None) -> I64:
    """Rows of the tensors whose bytes are in use at ``step`` (in one arena, or in all), by size falling, then id."""
    alive = (plan.birth <= step) & (step < plan.held_until)
    if arena is not None:
        alive &= plan.arena == arena_number(plan, arena)
    rows = np.flatnonzero(alive)
    return rows[np.lexsort((rows, U64_MAX - plan.size[rows]))]


# --- slots -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tenant:
    """One storage in a slot."""

    tensor_id: str
    """The storage's name (its head)."""
    generation: int
    size_bytes: int
    birth: int
    death: int
    unused_bytes: int
    """Backing − size: the slot rounding while it lives there."""


@dataclass(frozen=True)
class SlotReport:
    """A slot's backing against each of its tenants, in generation order."""

    arena: str
    slot: int
    offset_bytes: int
    backing_bytes: int
    alignment: int
    tenants: tuple[Tenant, ...]
    busy_steps: int
    """Steps at which a tenant lives in it."""
    unused_byte_steps: int
    """Σ over its tenants of unused bytes × steps alive."""


def slot_reports(plan: Plan, arena: str) -> tuple[SlotReport, ...]:
    """One report per slot of the arena, by slot number."""
    s, number = storages_of(plan), arena_number(plan, arena)
    here = np.flatnonzero(s.arena == number)
    here = here[np.lexsort((s.generation[here], s.slot[here]))]
    reports: list[SlotReport] = []
    cuts = np.flatnonzero(np.diff(s.slot[here])) + 1
    for group in np.split(here, cuts) if len(here) else []:
        first = group[0]
        backing = int(s.backing[first])
        tenants = tuple(
            Tenant(
                plan.tensor_ids[s.head[k]],
                int(s.generation[k]),
                int(s.size[k]),
                int(s.birth[k]),
                int(s.death[k]),
                backing - int(s.size[k]),
            )
            for k in group
        )
        reports.append(
            SlotReport(
                arena=arena,
                slot=int(s.slot[first]),
                offset_bytes=int(s.offset[first]),
                backing_bytes=backing,
                alignment=int(s.slot_alignment[first]),
                tenants=tenants,
                busy_steps=sum(t.death - t.birth for t in tenants),
                unused_byte_steps=sum(t.unused_bytes * (t.death - t.birth) for t in tenants),
            )
        )
    return tuple(reports)


# --- the resource ledger (seed II.J) -----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ResourceLedger:
    """Counters at each beat (:class:`Beats`: each step, in all but plans of very many), over all arenas, as columns.

    A row tells the run up to and including its step, so the last row agrees with ``Plan.metrics``.
    """

    bytes_allocated: U64
    """Bytes of the slots occupied at step t, whole slots."""
    peak_bytes: U64
    """Σ over arenas of the highest end of a slot occupied so far; Σ extents at the last step."""
    peak_live_bytes: U64
    """Σ over arenas of the most bytes alive together so far."""
    allocation_failures: I64
    steps: I64
    """The step from which each row holds."""

    @property
    def internal_fragmentation_ratio(self) -> NDArray[np.float64]:
        """1 − peak live so far / peak bytes so far; 0 where nothing was occupied yet."""
        waste = (self.peak_bytes - self.peak_live_bytes).astype(np.float64)
        return np.divide(waste, self.peak_bytes.astype(np.float64), out=np.zeros_like(waste), where=self.peak_bytes > 0)

    def rows(self) -> list[dict[str, int | float]]:
        """One mapping per step, keys as seed II.J names them."""
        return [
            {
                "t": t,
                "bytes_allocated": int(self.bytes_allocated[k]),
                "peak_bytes": int(self.peak_bytes[k]),
                "allocation_failures": int(self.allocation_failures[k]),
                "internal_fragmentation_ratio": fragmentation_ratio(
                    int(self.peak_live_bytes[k]), int(self.peak_bytes[k])
                ),
            }
            for k, t in enumerate(self.steps.tolist())
        ]


def resource_ledger(plan: Plan) -> ResourceLedger:
    """Seed II.J's counters for each step of a plan that was made; a quota that is breached makes none (§4)."""
    s = storages_of(plan)
    beats = beats_of(plan, s)
    steps = len(beats)
    peak_bytes, peak_live = np.zeros((2, steps), np.uint64)
    for number in range(len(plan.arenas)):
        here = s.arena == number
        if not here.any():
            continue
        highest = np.zeros(steps + 1, np.uint64)  # one more: a damaged plan's storage may begin behind the end
        np.maximum.at(highest, beats.birth[here], s.offset[here] + s.backing[here])
        peak_bytes += np.maximum.accumulate(highest[:steps])
        live = live_bytes_of(beats.birth[here], beats.death[here], s.size[here], steps)
        peak_live += np.maximum.accumulate(live)
    failures = np.full(steps, int(plan.metrics.get("allocation_failures", 0)), np.int64)
    allocated = live_bytes_of(beats.birth, beats.death, s.backing, steps)
    return ResourceLedger(allocated, peak_bytes, peak_live, failures, beats.steps)
