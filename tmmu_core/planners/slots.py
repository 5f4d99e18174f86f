"""Planners of whole slots: ``slots``, ``naive`` and ``ffd``.

``slots`` is the planner of the specification (TMMU v2 §5, ``AssignLogicalSlots_v1`` and ``MapToVirtualAddresses_v1``).

Interval graph colouring: visit the storages by birth, free the slots of dead storages, take the lowest free slot. A
storage keeps its slot during the steps of its lifetime at which it takes no bytes (``Problem.gaps``). Without such
steps and without ``must_not_alias``, the number of slots is minimal: the maximum number of storages that are live
together (interval graphs are perfect). A slot is as large as its largest storage; slots follow each other::

    slot 2          ┌────┐                 offset 2 = align_up(offset 1 + size 1, alignment 2)
    slot 1     ┌────┴┬───┤
    slot 0  ───┴─────┴───┴───

O(N log N) time and O(N) space without ``must_not_alias``. The number of bytes is not minimal: a small tensor in a large
slot wastes bytes, which the waste ledger calls slot rounding.

``ffd``, the planner of seed document 002 (r10), is first-fit decreasing over whole regions. Storages are placed largest
first, each in the first region that has an aligned offset and no conflicting storage. If there is none, a region is
opened at the next aligned offset. The first storage of a region is the largest, so later ones fit. Lifetimes are bit
masks over compressed time. O(n · regions) mask operations.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any

import numpy as np

from tmmu_core.base.errors import U64_MAX
from tmmu_core.planners.columns import HANDOFF, align_up, columns, extent_of, offset_column
from tmmu_core.planners.problem import I64, U64, Packing, Problem, Progress


def plan_slots(problem: Problem, options: Mapping[str, Any], progress: Progress | None = None) -> Packing:
    """Return slots and offsets of one arena. No options."""
    slot = assign_slots(problem)
    return Packing(offset=slot_offsets(problem, slot)[slot], slot=slot)


def plan_naive(problem: Problem, options: Mapping[str, Any], progress: Progress | None = None) -> Packing:
    """Return the packing of ``naive``: one slot per storage, the baseline without reuse. No options."""
    slot = np.arange(len(problem), dtype=np.int64)
    return Packing(offset=slot_offsets(problem, slot), slot=slot)


def assign_slots(problem: Problem) -> I64:
    """Return the slot of each storage, an array of shape (n,).

    A storage gets the lowest slot that is free at its birth. Slots of storages that it must not alias are excluded.
    """
    conflicts: dict[int, list[int]] = {}
    for i, j in () if problem.must_not_alias is None else problem.must_not_alias.tolist():
        conflicts.setdefault(i, []).append(j)
        conflicts.setdefault(j, []).append(i)
    slot = [-1] * len(problem)
    free: list[int] = []
    slot_count = freed = 0
    order = np.argsort(problem.death, kind="stable")
    by_death, death = order.tolist(), problem.death[order].tolist()
    for i, birth in enumerate(problem.birth.tolist()):
        # Live ranges are not empty, so a storage that is dead at ``birth`` comes earlier in the order and has a slot.
        while death[freed] <= birth:
            heappush(free, slot[by_death[freed]])
            freed += 1
        excluded = {slot[j] for j in conflicts[i]} if i in conflicts else ()
        skipped = []
        while free and free[0] in excluded:
            skipped.append(heappop(free))
        if free:
            slot[i] = heappop(free)
        else:
            slot[i] = slot_count
            slot_count += 1
        for number in skipped:
            heappush(free, number)
    return np.array(slot, np.int64)


def slot_sizes(problem: Problem, slot: I64) -> tuple[U64, U64]:
    """Return the sizes (at least 1) and the alignments of the slots in bytes, two arrays of shape (slots,)."""
    slots = int(slot.max()) + 1 if len(slot) else 0
    size = np.ones(slots, np.uint64)
    alignment = np.full(slots, problem.arena_alignment, np.uint64)
    np.maximum.at(size, slot, problem.size)
    np.maximum.at(alignment, slot, problem.alignment)
    return size, alignment


def slot_offsets(problem: Problem, slot: I64) -> U64:
    """Return the aligned offsets of consecutive slots, shape (slots,). Raises ``AllocationOverflow`` past 2^64 − 1."""
    sizes, alignments = slot_sizes(problem, slot)
    offsets = np.zeros(len(sizes), np.uint64)
    end = 0
    for k, (size, alignment) in enumerate(zip(sizes.tolist(), alignments.tolist(), strict=True)):
        offset = align_up(end, alignment)
        end = offset + size
        if end > U64_MAX:
            raise problem.overflow(f"slot {k}", offset, size)
        offsets[k] = offset
    return offsets


@dataclass
class _Region:
    offset: int
    storages: set[int]
    life: int = 0  # bit mask of the compressed steps at which a storage of the region is live


def ffd(problem: Problem, options: Mapping[str, Any], progress: Progress | None = None) -> Packing:
    """Pack by first-fit decreasing, above all fixed storages. No options. Raises AllocationOverflow past 2^64 − 1."""
    cols = columns(problem)
    order = sorted(range(len(cols)), key=lambda i: (-cols.size[i], i))
    fixed = [i for i in order if cols.fixed[i] >= 0]
    fixed_regions: dict[int, _Region] = {}  # by offset; only storages with this fixed offset are in the region
    for i in fixed:
        fixed_regions.setdefault(cols.fixed[i], _Region(cols.fixed[i], set())).storages.add(i)
    end = unshared_end = max((cols.fixed[i] + cols.size[i] for i in fixed), default=0)
    lows, highs = cols.part_lo.tolist(), cols.part_hi.tolist()
    regions: list[_Region] = []
    for i in order:
        if cols.fixed[i] >= 0:
            continue
        unshared_end = align_up(unshared_end, cols.align[i]) + cols.size[i]
        rows = range(cols.part_of[i], cols.part_of[i + 1])
        life = sum((1 << highs[row]) - (1 << lows[row]) for row in rows)
        excluded = {j for j, kind in cols.extra_conflicts[i] if kind != HANDOFF}
        for region in regions:
            is_free = not region.life & life and region.storages.isdisjoint(excluded)
            if is_free and region.offset % cols.align[i] == 0:
                break
        else:
            region = _Region(align_up(end, cols.align[i]), set())
            end = region.offset + cols.size[i]
            regions.append(region)
        region.life |= life
        region.storages.add(i)
    regions += fixed_regions.values()
    offset = [0] * len(cols)
    for region in regions:
        for i in region.storages:
            offset[i] = region.offset
    shared = sum(len(region.storages) * (len(region.storages) - 1) // 2 for region in regions)
    notes = {"regions": len(regions), "sharing_pairs": shared, "saved_bytes": unshared_end - extent_of(cols, offset)}
    return Packing(offset_column(cols, offset), notes=notes)
