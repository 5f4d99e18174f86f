"""Explain the offset of a storage: the storages below it, its slot, and the effect of another offset.

Works on any finished :class:`Plan`. ::

    offset │        ┌──────────┐  the storage: its place is legal, and so may lower ones be
           │   ┌────┴───┐ ┌────┤  walls: storages that are alive together with it
           │   └────────┘ │    │
           │  ░░░░░░░░░░  └────┘  rooms: free for its whole life, and too small for it (or off its grid)
           └──────────────────────► step

Two storages are alive together where their half-open ranges meet (:attr:`PlanStorages.death` counts a giver that is
not taken over through the step that reads it). Cost: O(n) for the arena's n storages, and a sort of those that meet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tmmu_core.plans.figures.plan_storages import PlanStorages, align_up, by_birth, moments, storages_of
from tmmu_core.plans.model import I64, Plan


@dataclass(frozen=True)
class Wall:
    """Bytes ``[start, end)`` that another storage occupies."""

    row: int
    """Row of the tensor that occupies the bytes."""
    start: int
    end: int
    step: int
    """The first step at which both are live."""


@dataclass(frozen=True)
class SlotMade:
    """The slot of a storage, in a plan with slots."""

    slot: int
    backing: int
    """Size of the slot in bytes."""
    largest: int
    """Row of the largest tenant, which determines the size; of equal ones the first."""
    unused: int
    """Bytes of the slot beyond the storage in question."""
    held: tuple[tuple[int, int], ...]
    """``(slot, row)`` of the lower slots that were occupied at the storage's birth, by slot."""


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
    """Storages of the arena."""
    walls: tuple[Wall, ...]
    """Storages that block the bytes below, by start; only those placed earlier if the order is known."""
    rooms: tuple[tuple[int, int], ...]
    """Free ranges ``[start, end)`` below it, by start."""
    lowest: int
    """The lowest legal offset if all other storages keep theirs."""
    slot: SlotMade | None


def why_here(plan: Plan, tensor_id: str, order: Sequence[int] | None = None) -> WhyHere:
    """Explain the offset of the storage of ``tensor_id``. Raises ``KeyError`` for an unknown tensor.

    ``order`` holds the storage numbers of its arena as they were placed
    (:func:`tmmu_core.plans.making.placement_order.placed_in`).
    """
    s = storages_of(plan)
    me = int(plan.storage[plan.row_of[tensor_id]])
    here = np.flatnonzero(s.arena == s.arena[me])
    met = _meeting(s, here, me, int(s.birth[me]), int(s.death[me]))
    lowest = _lowest(s, met, int(s.size[me]), _grid(plan, s, me))
    turn = None
    if order is not None:
        turn = list(order).index(me)
        met = met[np.isin(met, np.array(order[:turn], np.int64))]
    below = met[s.offset[met] < s.offset[me]]
    walls = []
    for i in _by_start(s, below):
        start = int(s.offset[i])
        walls.append(Wall(int(s.head[i]), start, start + int(s.size[i]), max(int(s.birth[me]), int(s.birth[i]))))
    return WhyHere(
        row=int(s.head[me]),
        offset=int(s.offset[me]),
        size=int(s.size[me]),
        turn=turn,
        of=len(here),
        walls=tuple(walls),
        rooms=_rooms(walls, int(s.offset[me])),
        lowest=lowest,
        slot=_slot(s, here, me) if plan.has_slots else None,
    )


def _grid(plan: Plan, s: PlanStorages, me: int) -> int:
    return max(int(s.alignment[me]), plan.arenas[int(s.arena[me])].alignment_bytes)


def _meeting(s: PlanStorages, among: I64, me: int, birth: int, death: int) -> I64:
    """Return the other storages with bytes that are live at a step of ``[birth, death)``."""
    alive = (s.birth[among] < death) & (s.death[among] > birth) & (s.size[among] > 0) & (among != me)
    found: I64 = among[alive] if s.size[me] else among[:0]
    return found


def _by_start(s: PlanStorages, storages: I64) -> list[int]:
    found: list[int] = storages[np.lexsort((s.head[storages], s.offset[storages]))].tolist()
    return found


def _rooms(walls: Sequence[Wall], top: int) -> tuple[tuple[int, int], ...]:
    rooms, edge = [], 0
    for wall in walls:
        if wall.start > edge:
            rooms.append((edge, wall.start))
        edge = max(edge, wall.end)
    return tuple([*rooms, (edge, top)] if edge < top else rooms)


def _lowest(s: PlanStorages, met: I64, size: int, grid: int) -> int:
    at = 0
    for other in _by_start(s, met):
        if int(s.offset[other]) >= at + size:
            break
        at = max(at, align_up(int(s.offset[other]) + int(s.size[other]), grid))
    return at


def _slot(s: PlanStorages, here: I64, me: int) -> SlotMade:
    tenants = here[s.slot[here] == s.slot[me]]
    largest = min(tenants.tolist(), key=lambda t: (-int(s.size[t]), int(s.birth[t]), int(s.head[t])))
    t = int(s.birth[me])
    lower = here[(s.slot[here] < s.slot[me]) & (s.birth[here] <= t) & (t < s.death[here])]
    held = sorted({int(s.slot[i]): int(s.head[i]) for i in lower.tolist()}.items())
    backing = int(s.backing[me])
    return SlotMade(int(s.slot[me]), backing, int(s.head[largest]), backing - int(s.size[me]), tuple(held))


# --- another place -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ghost:
    """The effect of another offset for one storage, with all others unchanged."""

    row: int
    offset: int
    birth: int
    death: int
    conflicts: tuple[int, ...]
    """Rows of the storages that it would overlap in bytes and steps, by start."""
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

    Its life keeps its length, and is cut to the timeline. ``extent`` is the highest end of all storages of the arena,
    backings of slots included, except that of the storage itself. Raises ``KeyError`` for an unknown tensor.
    """
    s = storages_of(plan)
    me = int(plan.storage[plan.row_of[tensor_id]])
    life = int(s.death[me] - s.birth[me])
    born = int(s.birth[me]) if birth is None else max(0, min(birth, moments(plan) - life))
    offset = max(0, offset)
    end = offset + int(s.size[me])
    here = np.flatnonzero(s.arena == s.arena[me])
    met = _meeting(s, here, me, born, born + life)
    hit = [i for i in _by_start(s, met) if int(s.offset[i]) < end and offset < int(s.offset[i]) + int(s.size[i])]
    arena = plan.arenas[int(s.arena[me])]
    tops = [int(s.offset[i]) + int(s.size[i]) for i in here.tolist() if i != me]
    return Ghost(
        row=int(s.head[me]),
        offset=offset,
        birth=born,
        death=born + life,
        conflicts=tuple([int(s.head[i]) for i in hit]),
        aligned=offset % _grid(plan, s, me) == 0,
        extent=max([end, *tops]),
        before=arena.extent_bytes,
    )


def on_grid(plan: Plan, tensor_id: str, offset: int) -> int:
    """Return the aligned offset nearest to ``offset`` for the storage of ``tensor_id``; of two, the lower one."""
    s = storages_of(plan)
    grid = _grid(plan, s, int(plan.storage[plan.row_of[tensor_id]]))
    return max(0, (offset + (grid - 1) // 2) // grid * grid)


# --- the first difference of two plans ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Parting:
    """The first different placement of two plans of one problem. ``None`` on a side: no further placement."""

    alike: int
    """Number of equal placements before it."""
    by: str
    """Order in which placements are compared: the planners' own (``size``, ``birth`` …), or ``birth``."""
    left: str | None
    """Id of the storage that the baseline places."""
    right: str | None
    left_offset: int | None
    right_offset: int | None


def parting(
    left: Plan, right: Plan, arena: str, orders: tuple[Sequence[int], Sequence[int]] | None = None, by: str = "birth"
) -> Parting | None:
    """Return the first different placement in ``arena``; ``None`` if all are equal or a plan lacks the arena.

    ``orders`` are the arena's storages as each side placed them, ``by`` what that order is called; without them both
    are walked as their storages are born (contract §1: birth, −bytes, id).
    """
    if arena not in left.arena_of or arena not in right.arena_of:
        return None
    placed: list[list[tuple[str, int]]] = []
    for k, plan in enumerate((left, right)):
        s = storages_of(plan)
        order = orders[k] if orders else by_birth(plan, s, arena)
        placed.append([(plan.tensor_ids[s.head[i]], int(s.offset[i])) for i in order])
    one, two = placed
    alike = next((k for k, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), min(len(one), len(two)))
    if alike == len(one) == len(two):
        return None
    a = one[alike] if alike < len(one) else (None, None)
    b = two[alike] if alike < len(two) else (None, None)
    return Parting(alike, by if orders else "birth", a[0], b[0], a[1], b[1])
