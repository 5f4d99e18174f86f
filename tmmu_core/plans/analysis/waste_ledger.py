"""Compute the waste ledger: the bytes of an arena at every step, divided into five accounts (contract §7).

A *tenant* of a slot is a storage in it. A *block* is a slot with a live tenant; its length is the slot's backing
(:attr:`.PlanStorages.backing`, the size of the largest tenant). At each step, every byte of ``[0, extent)`` belongs to
one account:

========================  =============================================================================================
live                      bytes of the live tenants
slot rounding             bytes of the blocks above their live tenant: backing − size
alignment gaps            free bytes between neighbouring blocks, to the next multiple of the upper block's alignment
holes                     all other free bytes below the end of the highest block
tail                      bytes above the end of the highest block (the whole extent if nothing is live)
========================  =============================================================================================

The sum of the accounts is the extent, or more if blocks overlap (in an invalid plan). Without slots, each storage is a
block of its own size, so the slot rounding is 0.
"""

from bisect import bisect_left
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from tmmu_core.plans.figures.live_bytes import (
    CurvePoints,
    PlanStorages,
    arena_number,
    curve_points_of,
    live_bytes_of,
    storages_of,
)
from tmmu_core.plans.figures.metrics import ratio
from tmmu_core.plans.model import I64, U64, Plan, group_numbers

ACCOUNTS = ("live", "alignment_gaps", "slot_rounding", "holes", "tail")  # the accounts in display order


@dataclass(frozen=True, eq=False)
class WasteLedger:
    """The accounts of one arena in bytes, as columns with a row per curve point (:class:`CurvePoints`)."""

    arena: str
    extent: int
    live: U64
    alignment_gaps: U64
    slot_rounding: U64
    holes: U64
    tail: U64
    steps: I64  # the first step of each row

    def at(self, step: int) -> dict[str, int]:
        """Return the accounts at one step, by name, in the order of :data:`ACCOUNTS`."""
        point = max(0, int(np.searchsorted(self.steps, step, side="right")) - 1)
        return {account: int(getattr(self, account)[point]) for account in ACCOUNTS}

    @property
    def worst_step(self) -> int:
        """The step with the most gaps, slot rounding and holes; on a tie, the first with the most live bytes."""
        wasted = self.alignment_gaps + self.slot_rounding + self.holes
        return int(self.steps[np.lexsort((-self.steps, self.live, wasted))[-1]])


def waste_ledger(plan: Plan, arena: str) -> WasteLedger:
    """Return the accounts of an arena at every curve point of the plan."""
    s, points, number = storages_of(plan), curve_points_of(plan), arena_number(plan, arena)
    here = np.flatnonzero((s.arena == number) & (s.backing > 0))
    extent = plan.arenas[number].extent_bytes
    live = live_bytes_of(points.birth[here], points.death[here], s.size[here], len(points))
    occupied = live_bytes_of(points.birth[here], points.death[here], s.backing[here], len(points))
    gaps, top = _gaps_and_top(s, here, points)
    used = occupied + gaps
    holes = np.where(top > used, top - used, np.uint64(0))
    tail = np.uint64(extent) - np.minimum(top, np.uint64(extent))
    return WasteLedger(arena, extent, live, gaps, occupied - live, holes, tail, points.steps)


def _gaps_and_top(s: PlanStorages, here: I64, points: CurvePoints) -> tuple[U64, U64]:
    """Return ``(alignment gaps, end of the highest block)`` at each point for the storages ``here``.

    A sweep over time keeps a list of live blocks by address and the sum of the gaps between neighbours in the list.
    """
    slot, n = group_numbers(s.slot[here])
    block = np.zeros((3, n), np.uint64)
    block[:, slot] = s.offset[here], s.offset[here] + s.backing[here], s.slot_alignment[here]
    by_address = np.lexsort((np.arange(n), block[0]))
    start, end, alignment = block[:, by_address].tolist()
    block_of = np.argsort(by_address)[slot].tolist()
    events: list[list[tuple[int, int]]] = [[] for _ in range(len(points) + 1)]
    for change, ends in ((-1, points.death), (1, points.birth)):
        for point, block_number in zip(ends[here].tolist(), block_of, strict=True):
            events[point].append((change, block_number))
    tenants, live, gap_total = [0] * n, list[int](), 0

    def gap(lower: int, upper: int) -> int:
        return min(-end[lower] % alignment[upper], max(0, start[upper] - end[lower]))

    gaps, top = np.zeros((2, len(points)), np.uint64)
    for point in range(len(points)):
        for change, changed in events[point]:
            was_live = tenants[changed] > 0
            tenants[changed] += change
            if was_live == (tenants[changed] > 0):
                continue
            at = bisect_left(live, changed)
            if was_live:
                del live[at]
            below, above = live[at - 1 : at], live[at : at + 1]
            gaps_around = sum(gap(other, changed) for other in below) + sum(gap(changed, other) for other in above)
            gap_change = gaps_around - sum(gap(lower, upper) for lower in below for upper in above)
            gap_total += -gap_change if was_live else gap_change
            if not was_live:
                live.insert(at, changed)
        gaps[point], top[point] = gap_total, end[live[-1]] if live else 0
    return gaps, top


@dataclass(frozen=True)
class SlotReport:
    """The use of a slot by its tenants."""

    slot: int
    offset_bytes: int
    backing_bytes: int
    tenants: int  # number of its tenants
    largest: str  # name of the largest tenant
    busy_steps: int  # number of steps with a live tenant
    unused_byte_steps: int  # sum over its tenants: (backing − size) × live steps


def slot_reports(plan: Plan, arena: str) -> tuple[SlotReport, ...]:
    """Return one report per slot of the arena, by slot number."""
    s = storages_of(plan)
    here = np.flatnonzero(s.arena == arena_number(plan, arena))
    by_slot = here[np.argsort(s.slot[here], kind="stable")].tolist()
    reports: list[SlotReport] = []
    for slot, group in groupby(by_slot, key=lambda k: int(s.slot[k])):
        tenants = list(group)
        backing, steps = int(s.backing[tenants[0]]), [int(s.death[k] - s.birth[k]) for k in tenants]
        unused = sum((backing - int(s.size[k])) * count for k, count in zip(tenants, steps, strict=True))
        largest = plan.tensor_ids[max((int(s.size[k]), int(s.head[k])) for k in tenants)[1]]
        offset = int(s.offset[tenants[0]])
        reports.append(SlotReport(slot, offset, backing, len(tenants), largest, sum(steps), unused))
    return tuple(reports)


def resource_ledger(plan: Plan) -> list[dict[str, int | float]]:
    """Return the resource ledger over all arenas: a row per curve point, with the keys of TMMU v2 II.J.

    ``bytes_allocated``: backing of the slots that are occupied at step ``t``. ``peak_bytes``: the highest end of an
    occupied slot up to step ``t``, summed over the arenas. ``internal_fragmentation_ratio`` covers the steps up to
    ``t``. Its last value is that of ``Plan.metrics``, except for a snapshot, whose extent covers the reserved bytes.
    """
    s, points = storages_of(plan), curve_points_of(plan)
    steps = len(points)
    peak_bytes, peak_live = np.zeros((2, steps), np.uint64)
    for number in range(len(plan.arenas)):
        here = s.arena == number
        highest = np.zeros(steps + 1, np.uint64)  # one more: in a damaged plan, a storage may begin after the end
        np.maximum.at(highest, points.birth[here], s.offset[here] + s.backing[here])
        peak_bytes += np.maximum.accumulate(highest[:steps])
        live = live_bytes_of(points.birth[here], points.death[here], s.size[here], steps)
        peak_live += np.maximum.accumulate(live)
    allocated = live_bytes_of(points.birth, points.death, s.backing, steps)
    columns = (points.steps, allocated, peak_bytes, peak_live)
    return [
        {
            "t": t,
            "bytes_allocated": at_step,
            "peak_bytes": peak,
            "allocation_failures": int(plan.metrics.get("allocation_failures", 0)),
            "internal_fragmentation_ratio": ratio(peak - live_so_far, peak),
        }
        for t, at_step, peak, live_so_far in zip(*(column.tolist() for column in columns), strict=True)
    ]
