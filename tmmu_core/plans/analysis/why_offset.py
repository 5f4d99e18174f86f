"""Explain the offset of a storage: the storages below it, its slot, and the effect of another offset.

Two storages are *live together* if their half-open live ranges intersect. O(n) for the n storages of the arena, and a
sort of the storages that are live together with the storage in question.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from tmmu_core.planners.columns import free_gap
from tmmu_core.plans.figures.live_bytes import PlanStorages, by_birth, storages_of
from tmmu_core.plans.model import Plan


@dataclass(frozen=True)
class Wall:
    """Bytes ``[start, end)`` of another storage that is live together with the storage in question."""

    row: int
    """The row that names the other storage."""
    start: int
    end: int
    step: int
    """The first step at which both are live."""


@dataclass(frozen=True)
class SlotOfStorage:
    """The slot of a storage, in a plan with slots."""

    slot: int
    backing: int
    largest: int
    """Row of the largest tenant, whose size is the size of the slot; of equal tenants the first-born."""
    unused: int
    """Bytes of the slot above the storage."""
    held: tuple[tuple[int, int], ...]
    """``(slot, row)`` of the lower slots that are occupied at the storage's birth, by slot."""


@dataclass(frozen=True)
class WhyHere:
    """The reasons for the offset of a storage. Offsets and sizes in bytes."""

    row: int
    """The row that names the storage."""
    offset: int
    size: int
    turn: int | None
    """Its position in the placement order of its arena, from 0; ``None`` if the order is unknown."""
    of: int
    """Number of storages in the arena."""
    walls: tuple[Wall, ...]
    """Storages that block the bytes below, by start; only those placed earlier if the order is known."""
    rooms: tuple[tuple[int, int], ...]
    """Free ranges ``[start, end)`` below it, by start."""
    lowest: int
    """The lowest free offset, if all other storages keep their offsets."""
    slot: SlotOfStorage | None


def why_here(plan: Plan, tensor_id: str, order: Sequence[int] | None = None) -> WhyHere:
    """Explain the offset of the storage of ``tensor_id``. Raises ``KeyError`` for an unknown tensor.

    ``order`` holds the storage numbers of its arena as they were placed
    (:func:`tmmu_core.plans.making.placement_order.placed_in`).
    """
    s = storages_of(plan)
    me = int(plan.storage[plan.row_of[tensor_id]])
    offset, size = int(s.offset[me]), int(s.size[me])
    others = _live_together(s, me, int(s.birth[me]), int(s.death[me]))
    turn = None if order is None else list(order).index(me)
    earlier = None if order is None else set(order[:turn])
    walls = tuple(
        Wall(int(s.head[i]), start, end, max(int(s.birth[me]), int(s.birth[i])))
        for i, start, end in others
        if start < offset and (earlier is None or i in earlier)
    )
    rooms, edge = [], 0
    for start, end in [*((wall.start, wall.end) for wall in walls), (offset, offset)]:
        if start > edge:
            rooms.append((edge, start))
        edge = max(edge, end)
    return WhyHere(
        row=int(s.head[me]),
        offset=offset,
        size=size,
        turn=turn,
        of=int((s.arena == s.arena[me]).sum()),
        walls=walls,
        rooms=tuple(rooms),
        lowest=free_gap([(start, end) for _, start, end in others], size, _grid(plan, s, me)),
        slot=_slot(s, me) if plan.has_slots else None,
    )


def _grid(plan: Plan, s: PlanStorages, me: int) -> int:
    return max(int(s.alignment[me]), plan.arenas[int(s.arena[me])].alignment_bytes)


def _live_together(s: PlanStorages, me: int, birth: int, death: int) -> list[tuple[int, int, int]]:
    """Return ``(storage, start, end)`` of the other storages with bytes that are live in ``[birth, death)``, by start.

    Empty for a storage without bytes, which conflicts with none.
    """
    is_live = (s.arena == s.arena[me]) & (s.birth < death) & (s.death > birth) & (s.size > 0) & (s.size[me] > 0)
    is_live[me] = False
    others = np.flatnonzero(is_live)
    others = others[np.lexsort((s.head[others], s.offset[others]))]
    return list(zip(others.tolist(), s.offset[others].tolist(), (s.offset + s.size)[others].tolist(), strict=True))


def _slot(s: PlanStorages, me: int) -> SlotOfStorage:
    here, t = s.arena == s.arena[me], int(s.birth[me])
    tenants = np.flatnonzero(here & (s.slot == s.slot[me])).tolist()
    largest = min(tenants, key=lambda k: (-int(s.size[k]), int(s.birth[k]), int(s.head[k])))
    lower = np.flatnonzero(here & (s.slot < s.slot[me]) & (s.birth <= t) & (t < s.death)).tolist()
    held = sorted({int(s.slot[i]): int(s.head[i]) for i in lower}.items())
    backing = int(s.backing[me])
    return SlotOfStorage(int(s.slot[me]), backing, int(s.head[largest]), backing - int(s.size[me]), tuple(held))


# --- another place -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ghost:
    """The effect of another offset or birth of one storage, if no other storage changes."""

    row: int
    offset: int
    birth: int
    death: int
    conflicts: tuple[int, ...]
    """Rows of the storages that the moved storage would overlap, by start."""
    aligned: bool
    """Whether the offset has the storage's alignment."""
    extent: int
    """Extent that the arena would have, in bytes."""
    before: int
    """Extent of the arena in the plan, in bytes."""

    @property
    def legal(self) -> bool:
        """Whether the offset is free."""
        return self.aligned and not self.conflicts


def ghost(plan: Plan, tensor_id: str, offset: int, birth: int | None = None) -> Ghost:
    """Return the effect of ``offset`` (bytes) and of the first step ``birth`` on the storage of ``tensor_id``.

    The life of the storage keeps its length and stays within the timeline. ``extent`` is the highest end of all
    storages of the arena, with this one at its new offset. Raises ``KeyError`` for an unknown tensor.
    """
    s = storages_of(plan)
    me = int(plan.storage[plan.row_of[tensor_id]])
    life = int(s.death[me] - s.birth[me])
    birth = int(s.birth[me]) if birth is None else max(0, min(birth, plan.end - life))
    offset = max(0, offset)
    end = offset + int(s.size[me])
    others = s.arena == s.arena[me]
    others[me] = False
    live = _live_together(s, me, birth, birth + life)
    return Ghost(
        row=int(s.head[me]),
        offset=offset,
        birth=birth,
        death=birth + life,
        conflicts=tuple(int(s.head[i]) for i, start, stop in live if start < end and offset < stop),
        aligned=offset % _grid(plan, s, me) == 0,
        extent=max(end, int((s.offset + s.size)[others].max(initial=0))),
        before=plan.arenas[int(s.arena[me])].extent_bytes,
    )


def on_grid(plan: Plan, tensor_id: str, offset: int) -> int:
    """Return the aligned offset nearest to ``offset`` for the storage of ``tensor_id``; if two are, the lower one."""
    s = storages_of(plan)
    grid = _grid(plan, s, int(plan.storage[plan.row_of[tensor_id]]))
    return max(0, (offset + (grid - 1) // 2) // grid * grid)


# --- the first difference of two plans ------------------------------------------------------------------------------


@dataclass(frozen=True)
class PlacementDifference:
    """The first different placement of two plans of one problem; ``None`` for a plan without further placements."""

    alike: int
    """Number of equal placements before the first different one."""
    by: str
    """Order in which placements are compared: the planners' own (``size``, ``birth`` …), or ``birth``."""
    left: str | None
    """Id of the storage in the baseline."""
    right: str | None
    left_offset: int | None
    right_offset: int | None


def first_different_placement(
    left: Plan, right: Plan, arena: str, orders: tuple[Sequence[int], Sequence[int]] | None = None, by: str = "birth"
) -> PlacementDifference | None:
    """Return the first different placement in ``arena``; ``None`` if all are equal or a plan lacks the arena.

    ``orders``: the storages of the arena in the placement order of each plan, and ``by`` the name of this order.
    Without orders, the storages are compared in the normative order (contract §1: birth, −bytes, id).
    """
    if arena not in left.arena_of or arena not in right.arena_of:
        return None
    placed: list[list[tuple[str, int]]] = []
    for k, plan in enumerate((left, right)):
        s = storages_of(plan)
        order = orders[k] if orders else by_birth(plan, arena)
        placed.append([(plan.tensor_ids[s.head[i]], int(s.offset[i])) for i in order])
    for alike, (a, b) in enumerate(zip_longest(*placed, fillvalue=(None, None))):
        if a != b:
            return PlacementDifference(alike, by if orders else "birth", a[0], b[0], a[1], b[1])
    return None
