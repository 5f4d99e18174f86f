"""Explain the offset of a storage: the storages below it, its slot, and the effect of another offset.

Two storages are *live together* if their half-open live ranges intersect. ``row``: the plan's row that names a storage.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from tmmu_core.planners.columns import columns, free_gap
from tmmu_core.planners.greedy import ORDERS, place, sorted_storages
from tmmu_core.planners.problem import Problem, without_empty
from tmmu_core.plans.figures.live_bytes import by_birth, storages_of
from tmmu_core.plans.model import Plan, rows_of_parts

BOTTOM_UP = "offset"


@dataclass(frozen=True)
class PlacementOrder:
    """The storages of an arena in placement order."""

    storages: tuple[int, ...]  # storage numbers of the plan; the live parts of a buffer with gaps follow each other
    by: str  # sort key: ``birth``, one of ``greedy.ORDERS``, or ``offset`` if the placement order is not known
    fit: str  # rule: ``slot`` (lowest free slot), ``lowest`` (also for ``free_list``), ``tightest``; ``""``: unknown

    @property
    def is_known(self) -> bool:
        """Whether the planner placed the storages in this order."""
        return self.by != BOTTOM_UP


def placed_in(plan: Plan, arena: str, problems: Sequence[Problem] = ()) -> PlacementOrder:
    """Return the order in which a planner placed the storages of ``arena``; by offset, if it is not known."""
    problem = next((candidate for candidate in problems if candidate.arena == arena), None)
    s = storages_of(plan)
    if plan.has_slots:
        return PlacementOrder(tuple(by_birth(plan, arena)), "birth", "slot")
    # The notes name an order. It counts as known if placing the storages in this order gives the plan's offsets.
    notes = plan.arena_notes(arena)
    order, _, fit = str(notes.get("start", "")).partition("/")
    order, fit = str(notes.get("order", order)), str(notes.get("fit", fit))
    if problem is not None and order in ORDERS:
        nonempty, _ = without_empty(problem)
        cols = columns(nonempty)
        sequence = sorted(sorted_storages(cols, order), key=lambda i: cols.fixed[i] < 0)  # fixed offsets come first
        most_parts = None if nonempty.gaps else 1  # without gaps, ``x@part1`` is a tensor, and no live part of ``x``
        parts = [plan.storage[rows_of_parts(plan, name)[:most_parts]] for name in nonempty.ids]
        if parts and [set(s.offset[part].tolist()) for part in parts] == [{at} for at in place(cols, sequence, fit)]:
            storages = np.concatenate([parts[i] for i in sequence]).tolist()
            empty = [i for i in by_birth(plan, arena) if not s.size[i]]
            return PlacementOrder((*storages, *empty), order, "lowest" if fit == "free_list" else fit)
    by_offset = sorted(by_birth(plan, arena), key=lambda i: int(s.offset[i]))  # stable: at equal offsets, by birth
    return PlacementOrder(tuple(by_offset), BOTTOM_UP, "")


@dataclass(frozen=True)
class Blocker:
    """Bytes ``[start, end)`` of a storage that is live together with the explained one."""

    row: int
    start: int
    end: int
    step: int  # the first step at which both are live


@dataclass(frozen=True)
class SlotOfStorage:
    """The slot of a storage, in a plan with slots."""

    slot: int
    backing: int
    largest: int  # row of the slot's largest storage (of equal ones, the one born first), which has the slot's size
    occupied_below: tuple[tuple[int, int], ...]  # ``(slot, row of its storage)`` of the lower slots in use at the birth


@dataclass(frozen=True)
class OffsetReasons:
    """The reasons for the offset of a storage. Offsets and sizes in bytes."""

    row: int
    offset: int
    size: int
    position: int | None  # its position in the placement order of its arena, from 0; ``None`` if the order is unknown
    storages: int  # number of storages in the arena
    blockers: tuple[Blocker, ...]  # storages that block bytes below it, by start; if the order is known, earlier ones
    free_ranges: tuple[tuple[int, int], ...]  # byte ranges ``[start, end)`` below it without a blocker, by start
    lowest: int  # the lowest free aligned offset, if all other storages keep their offsets
    slot: SlotOfStorage | None  # ``None`` in a plan without slots


def explain_offset(plan: Plan, tensor_id: str, order: Sequence[int] | None = None) -> OffsetReasons:
    """Explain the offset of ``tensor_id``'s storage; ``order``: see :func:`placed_in`. Raises ``KeyError``."""
    s = storages_of(plan)
    k = int(plan.storage[plan.row_of[tensor_id]])
    offset, size = int(s.offset[k]), int(s.size[k])
    # The other storages with bytes in the arena that are live together with this one, by start.
    is_live = (s.arena == s.arena[k]) & (s.birth < s.death[k]) & (s.death > s.birth[k]) & (s.size > 0) & (size > 0)
    is_live[k] = False
    live = np.flatnonzero(is_live)
    live = live[np.lexsort((s.head[live], s.offset[live]))]
    others = list(zip(live.tolist(), s.offset[live].tolist(), (s.offset + s.size)[live].tolist(), strict=True))
    position = None if order is None else list(order).index(k)
    earlier = None if order is None else set(order[:position])
    blockers = tuple(
        Blocker(int(s.head[i]), start, end, max(int(s.birth[k]), int(s.birth[i])))
        for i, start, end in others
        if start < offset and (earlier is None or i in earlier)
    )
    free_ranges, covered_end = [], 0
    for start, end in [*((blocker.start, blocker.end) for blocker in blockers), (offset, offset)]:
        if start > covered_end:
            free_ranges.append((covered_end, start))
        covered_end = max(covered_end, end)
    row, storages = int(s.head[k]), plan.arenas[s.arena[k]].storages
    alignment = max(int(s.alignment[k]), plan.arenas[s.arena[k]].alignment_bytes)
    lowest = free_gap([(start, end) for _, start, end in others], size, alignment)
    slot = None
    if plan.has_slots:
        in_slot = np.flatnonzero((s.arena == s.arena[k]) & (s.slot == s.slot[k])).tolist()
        largest = min(in_slot, key=lambda i: (-int(s.size[i]), int(s.birth[i]), int(s.head[i])))
        is_below = (s.arena == s.arena[k]) & (s.slot < s.slot[k])
        below = np.flatnonzero(is_below & (s.birth <= s.birth[k]) & (s.birth[k] < s.death))
        occupied = sorted(zip(s.slot[below].tolist(), s.head[below].tolist(), strict=True))
        slot = SlotOfStorage(int(s.slot[k]), int(s.backing[k]), int(s.head[largest]), tuple(occupied))
    return OffsetReasons(row, offset, size, position, storages, blockers, tuple(free_ranges), lowest, slot)


@dataclass(frozen=True)
class PlacementDifference:
    """The first different placement of two plans. Id and offset are ``None`` for a plan without further placements."""

    equal_count: int  # number of equal placements before the first different one
    by: str  # order in which placements are compared: a planner's (``size`` …), or ``birth`` for the normative order
    left: str | None  # id of the storage in the baseline
    right: str | None
    left_offset: int | None
    right_offset: int | None


def first_different_placement(
    left: Plan, right: Plan, arena: str, orders: tuple[Sequence[int], Sequence[int]] | None = None, by: str = "birth"
) -> PlacementDifference | None:
    """Return the first different placement in ``arena``; ``None`` if all are equal or a plan lacks the arena."""
    # ``by`` names the placement order of ``orders``; without orders, the normative order is used (contract §1).
    if arena not in left.arena_of or arena not in right.arena_of:
        return None
    orders, by = (orders, by) if orders else ((by_birth(left, arena), by_birth(right, arena)), "birth")
    placements: list[list[tuple[str, int]]] = []
    for plan, order in zip((left, right), orders, strict=True):
        s = storages_of(plan)
        placements.append([(plan.tensor_ids[s.head[i]], int(s.offset[i])) for i in order])
    for equal_count, (a, b) in enumerate(zip_longest(*placements, fillvalue=(None, None))):
        if a != b:
            return PlacementDifference(equal_count, by, a[0], b[0], a[1], b[1])
    return None
