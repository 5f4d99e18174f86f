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
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tmmu_core.planners.native import native
from tmmu_core.planners.native.load import library
from tmmu_core.plans.figures.live_bytes import live_bytes_of
from tmmu_core.plans.figures.plan_storages import (
    Beats,
    PlanStorages,
    align_up,
    arena_number,
    beats_of,
    slot_numbers,
    storages_of,
)
from tmmu_core.plans.model import Plan

I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]

ACCOUNTS = ("live", "alignment_gaps", "slot_rounding", "holes", "tail")
"""The accounts in display order; they sum to the extent."""

Kind = Literal["live", "alignment_gaps", "slot_rounding", "holes", "tail"]


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
    accounts = dict.fromkeys(ACCOUNTS, 0)
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
    """The plain Python form of ``tmmu_waste``: the tree's root holds the sum of alignment gaps between neighbours.

    A node holds its first block, its last block (−1: none) and the gaps between the blocks inside it.
    """
    start, end, alignment, place, born, births, gone, deaths = (column.tolist() for column in columns.values())
    n = len(start)
    leaves = 1 << max(n - 1, 0).bit_length()
    first, last, inside = [-1] * (2 * leaves), [-1] * (2 * leaves), [0] * (2 * leaves)
    tenants = [0] * n

    def change(p: int, by: int) -> None:
        tenants[p] += by
        k = leaves + p
        block = p if tenants[p] > 0 else -1
        if first[k] == block:
            return
        first[k] = last[k] = block
        k //= 2
        while k:
            left, right = 2 * k, 2 * k + 1
            first[k] = first[left] if first[left] >= 0 else first[right]
            last[k] = last[right] if last[right] >= 0 else last[left]
            inside[k] = inside[left] + inside[right]
            lower, upper = last[left], first[right]
            if lower >= 0 and upper >= 0 and start[upper] > end[lower]:
                inside[k] += min(-end[lower] % alignment[upper], start[upper] - end[lower])
            k //= 2

    gaps, top = [0] * steps, [0] * steps
    b = d = 0
    for t in range(steps):
        while d < len(deaths) and deaths[d] == t:
            change(place[gone[d]], -1)
            d += 1
        while b < len(births) and births[b] == t:
            change(place[born[b]], 1)
            b += 1
        gaps[t] = inside[1]
        top[t] = end[last[1]] if last[1] >= 0 else 0
    return np.array(gaps, np.uint64), np.array(top, np.uint64)
