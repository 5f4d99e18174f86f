"""The waste ledger: where an arena's extent goes at every step, to the byte (contract §7).

At a step t a *block* is a slot with a tenant alive at t; it spans the slot's backing (its greatest tenant's bytes, at
least 1). Every byte of ``[0, extent)`` then belongs to exactly one of five accounts:

========================  =============================================================================================
live                      bytes of the tenants alive at t
slot rounding             bytes of the blocks above their tenant: backing − size
alignment gaps            between two neighbouring blocks, up to the next multiple of the upper one's alignment
holes                     every other byte below the highest block's end that is free at t
tail                      bytes above the highest block's end (all of the extent when nothing is alive)
========================  =============================================================================================

so ``live + alignment_gaps + slot_rounding + holes + tail == extent``. A planner that places bytes has one tenant to a
slot, so the same words hold for it; its slot rounding is 0 but for the byte that backs a zero-size tensor.

The sum holds for every plan that the verifier passes. Where blocks overlap, bytes would be counted twice: ``holes``
then stops at 0 and the sum is over the extent.

Beside it: the tenants of each slot, and the resource ledger of seed II.J.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from tmmu_core.planners.native import native
from tmmu_core.planners.native.load import library
from tmmu_core.plans.figures.live_bytes import live_bytes_of
from tmmu_core.plans.figures.metrics import fragmentation_ratio
from tmmu_core.plans.figures.plan_storages import (
    Beats,
    PlanStorages,
    align_up,
    arena_number,
    beats_of,
    slot_numbers,
    storages_of,
)
from tmmu_core.plans.model import I64, U64, Plan

Kind = Literal["live", "alignment_gaps", "slot_rounding", "holes", "tail"]
ACCOUNTS: tuple[Kind, ...] = get_args(Kind)
"""The accounts in display order; they sum to the extent."""


@dataclass(frozen=True, eq=False)
class WasteLedger:
    """One arena's accounts at each beat (``metrics.Beats``), which is each step but in plans of very many: columns."""

    arena: str
    extent: int
    live: U64
    alignment_gaps: U64
    slot_rounding: U64
    holes: U64
    tail: U64
    steps: I64
    """The step from which each row holds."""

    def at(self, step: int) -> dict[str, int]:
        """The accounts at one step, by name, in the order of :data:`ACCOUNTS`."""
        beat = max(0, int(np.searchsorted(self.steps, step, side="right")) - 1)
        return {account: int(getattr(self, account)[beat]) for account in ACCOUNTS}


@dataclass(frozen=True)
class Region:
    """Bytes ``[start, end)`` of an arena at one step, and the account they belong to."""

    start: int
    end: int
    kind: Kind
    tensor_id: str | None = None
    """The storage's name where the region is live or the rounding above it."""


def regions_at(plan: Plan, arena: str, step: int) -> tuple[Region, ...]:
    """``[0, extent)`` cut into regions at ``step``, bottom up; empty ones are left out."""
    s, number = storages_of(plan), arena_number(plan, arena)
    alive = np.flatnonzero((s.arena == number) & (s.backing > 0) & (s.birth <= step) & (step < s.death))
    alive = alive[np.lexsort((s.slot[alive], s.offset[alive]))]
    regions: list[Region] = []
    top = 0
    for i, k in enumerate(alive.tolist()):
        start, size, backing = int(s.offset[k]), int(s.size[k]), int(s.backing[k])
        name = plan.tensor_ids[s.head[k]]
        grid = min(align_up(top, int(s.slot_alignment[k])), start) if i else 0
        regions += [
            Region(top, max(grid, top), "alignment_gaps"),
            Region(max(grid, top), start, "holes"),
            Region(start, start + size, "live", name),
            Region(start + size, start + backing, "slot_rounding", name),
        ]
        top = max(top, start + backing)
    regions.append(Region(top, plan.arenas[number].extent_bytes, "tail"))
    return tuple(region for region in regions if region.end > region.start)


def waste_at(plan: Plan, arena: str, step: int) -> dict[str, int]:
    """The accounts at one step, by name, without computing the others."""
    accounts: dict[str, int] = dict.fromkeys(ACCOUNTS, 0)
    for region in regions_at(plan, arena, step):
        accounts[region.kind] += region.end - region.start
    return accounts


def waste_ledger(plan: Plan, arena: str) -> WasteLedger:
    """The accounts at every step. O(n log n) for n storages: a segment tree over the slots follows the free space."""
    s, number = storages_of(plan), arena_number(plan, arena)
    here = np.flatnonzero((s.arena == number) & (s.backing > 0))
    extent = plan.arenas[number].extent_bytes
    beats = beats_of(plan, s)
    live = live_bytes_of(beats.birth[here], beats.death[here], s.size[here], len(beats))
    occupied = live_bytes_of(beats.birth[here], beats.death[here], s.backing[here], len(beats))
    gaps, top = _follow(s, here, beats)
    used = occupied + gaps
    return WasteLedger(
        arena=arena,
        extent=extent,
        live=live,
        alignment_gaps=gaps,
        slot_rounding=occupied - live,
        holes=np.where(top > used, top - used, np.uint64(0)),
        tail=np.uint64(extent) - np.minimum(top, np.uint64(extent)),
        steps=beats.steps,
    )


def _follow(s: PlanStorages, here: I64, beats: Beats) -> tuple[U64, U64]:
    """``(alignment gaps, end of the highest block)`` at each beat for the storages ``here``."""
    steps, birth, death = len(beats), beats.birth[here], beats.death[here]
    if not len(here):
        return np.zeros(steps, np.uint64), np.zeros(steps, np.uint64)
    slot, n = slot_numbers(np.zeros(len(here), np.int64), s.slot[here])
    start, end, alignment = np.zeros(n, np.uint64), np.zeros(n, np.uint64), np.zeros(n, np.uint64)
    start[slot], end[slot] = s.offset[here], s.offset[here] + s.backing[here]
    alignment[slot] = s.slot_alignment[here]
    by_place = np.lexsort((np.arange(n), start))
    place = np.empty(n, np.int64)
    place[by_place] = np.arange(n)
    born, gone = np.argsort(birth, kind="stable"), np.argsort(death, kind="stable")
    columns = {
        "start": start[by_place],
        "end": end[by_place],
        "alignment": alignment[by_place],
        "place": place[slot],
        "born": born,
        "births": birth[born],
        "gone": gone,
        "deaths": death[gone],
    }
    loops = library()
    return native.waste(loops, steps, **columns) if loops is not None else _sweep(columns, steps)


def _sweep(columns: dict[str, NDArray[Any]], steps: int) -> tuple[U64, U64]:
    """Return :func:`_follow` in plain Python: the live blocks in order, and the sum of the gaps between neighbours."""
    start, end, alignment, place, born, births, gone, deaths = (column.tolist() for column in columns.values())
    tenants, live, total = [0] * len(start), list[int](), 0

    def gap(lower: int, upper: int) -> int:
        return min(-end[lower] % alignment[upper], max(0, start[upper] - end[lower]))

    def change(block: int, by: int) -> None:
        nonlocal total
        was_live = tenants[block] > 0
        tenants[block] += by
        if was_live == (tenants[block] > 0):
            return
        at = bisect_left(live, block)
        if was_live:
            del live[at]
        below, above = live[at - 1 : at], live[at : at + 1]
        around = sum(gap(k, block) for k in below) + sum(gap(block, k) for k in above)
        added = around - sum(gap(lower, upper) for lower in below for upper in above)
        total += -added if was_live else added
        if not was_live:
            live.insert(at, block)

    gaps, top = [0] * steps, [0] * steps
    b = d = 0
    for t in range(steps):
        while d < len(deaths) and deaths[d] == t:
            change(place[gone[d]], -1)
            d += 1
        while b < len(births) and births[b] == t:
            change(place[born[b]], 1)
            b += 1
        gaps[t], top[t] = total, end[live[-1]] if live else 0
    return np.array(gaps, np.uint64), np.array(top, np.uint64)


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


@dataclass(frozen=True, eq=False)
class ResourceLedger:
    """Counters at each beat (:class:`Beats`: each step, in all but plans of very many), over all arenas, as columns.

    A row covers the run up to and including its step, so the last row agrees with ``Plan.metrics``.
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
        highest = np.zeros(steps + 1, np.uint64)  # one more: a damaged plan's storage may begin behind the end
        np.maximum.at(highest, beats.birth[here], s.offset[here] + s.backing[here])
        peak_bytes += np.maximum.accumulate(highest[:steps])
        live = live_bytes_of(beats.birth[here], beats.death[here], s.size[here], steps)
        peak_live += np.maximum.accumulate(live)
    failures = np.full(steps, int(plan.metrics.get("allocation_failures", 0)), np.int64)
    allocated = live_bytes_of(beats.birth, beats.death, s.backing, steps)
    return ResourceLedger(allocated, peak_bytes, peak_live, failures, beats.steps)
