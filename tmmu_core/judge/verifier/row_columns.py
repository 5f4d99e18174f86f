"""Group the rows of a plan by storage and by slot, for the checks of the verifier. Near-linear."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tmmu_core.base.errors import U64_MAX
from tmmu_core.plans.model import Plan

I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Slots:
    """The slots in use as columns, sorted by (arena, number)."""

    arena: I64
    number: I64
    start: U64  # the lowest start of a storage in the slot
    backing: U64  # bytes of the largest storage in the slot, at least 1 unless ``plan.places`` is ``bytes``


class PlanFacts:
    """The storages of a plan as columns by storage number. The plan must pass ``check_columns``."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.end = plan, plan.end
        owner = plan.storage
        count = self.storages = int(owner.max(initial=-1)) + 1
        # The hull of the storage's rows, in steps and bytes
        self.birth: I64 = _reduce_into(np.minimum, np.full(count, self.end, np.int64), owner, plan.birth)
        self.death: I64 = _reduce_into(np.maximum, np.zeros(count, np.int64), owner, plan.death)
        self.start: U64 = _reduce_into(np.minimum, np.full(count, U64_MAX, np.uint64), owner, plan.offset)
        self.stop: U64 = _reduce_into(np.maximum, np.zeros(count, np.uint64), owner, plan.offset + plan.size)
        self.size: U64 = self.stop - self.start
        self.alignment: U64 = _reduce_into(np.maximum, np.ones(count, np.uint64), owner, plan.alignment)
        self.is_view = np.array([base is not None for base in plan.base_tensor_uids], np.bool_)
        reversed_rows = np.lexsort((np.arange(len(plan)), self.is_view, plan.birth))[::-1]
        # The row that names the storage: earliest birth, bases before views, then by id
        self.first_row: I64 = np.zeros(count, np.int64)
        self.first_row[owner[reversed_rows]] = reversed_rows  # reversed: the first row is assigned last
        self.arena, self.slot = plan.arena[self.first_row], plan.logical_slot[self.first_row]
        self.by_slot: I64 = np.lexsort((self.start, self.birth, self.slot, self.arena))  # the storages, sorted
        arena, slot = self.arena[self.by_slot], self.slot[self.by_slot]
        self.opens_slot = np.ones(count, np.bool_)  # per entry of ``by_slot``, whether it is the first of its slot
        self.opens_slot[1:] = (arena[1:] != arena[:-1]) | (slot[1:] != slot[:-1])
        self.slot_of: I64 = np.zeros(count, np.int64)  # per storage, its position in ``slots``
        self.slot_of[self.by_slot] = np.cumsum(self.opens_slot) - 1
        opener = self.by_slot[self.opens_slot]
        lowest = _reduce_into(np.minimum, self.start[opener], self.slot_of, self.start)
        backing = np.full(len(opener), plan.places != "bytes", np.uint64)
        backing = _reduce_into(np.maximum, backing, self.slot_of, self.size)
        self.slots = Slots(self.arena[opener].astype(np.int64), self.slot[opener], lowest, backing)

    @cached_property
    def overlaps_slot_below(self) -> Mask:
        """Per slot, whether it starts before the end of the slot at the next lower offset."""
        slots = self.slots
        space = np.zeros_like(slots.arena) if self.plan.places == "sparse" else slots.arena  # sparse: one space
        order = np.lexsort((slots.number, slots.start, space))
        space, start, end = space[order], slots.start[order], (slots.start + slots.backing)[order]
        is_overlap = np.zeros(len(order), np.bool_)
        is_overlap[order[1:]] = (space[1:] == space[:-1]) & (start[1:] < end[:-1])
        return is_overlap

    @cached_property
    def reused_by(self) -> dict[int, tuple[int, int]]:
        """Source storage → (step, target storage) of each in-place reuse of the plan between two storages."""
        row_of, storage = self.plan.row_of, self.plan.storage
        reused_by: dict[int, tuple[int, int]] = {}
        for step, source_id, target_id in self.plan.handoffs:
            if source_id in row_of and target_id in row_of:
                source, target = int(storage[row_of[source_id]]), int(storage[row_of[target_id]])
                if source != target:
                    reused_by[source] = (step, target)
        return reused_by

    @cached_property
    def read_until(self) -> I64:
        """Per storage, its death. For the source of an in-place reuse at step k, at least k + 1: step k reads it."""
        until = self.death.copy()
        for source, (step, _) in self.reused_by.items():
            until[source] = max(int(until[source]), min(step + 1, self.end))
        return until

    @cached_property
    def held_until(self) -> I64:
        """Per storage, the step from which its bytes are free: its reuse at the same offset, else ``read_until``."""
        until = self.read_until.copy()
        for source, (step, target) in self.reused_by.items():
            if self.has_same_start(source, target):
                until[source] = max(int(self.death[source]), min(step, self.end))
        return until

    def has_same_start(self, a: int, b: int) -> bool:
        """Return whether two storages have the same arena and offset."""
        return bool(self.arena[a] == self.arena[b] and self.start[a] == self.start[b])

    def name(self, storage: int) -> str:
        """Return the tensor that names a storage."""
        return self.plan.tensor_ids[self.first_row[storage]]

    def arena_name(self, storage: int) -> str:
        """Return the name of a storage's arena."""
        return self.plan.arenas[self.arena[storage]].name

    def max_live(self, arena: int, until: I64) -> int:
        """Return the largest number of an arena's storages live at one step; each is live in ``[birth, until)``."""
        storages = np.flatnonzero(self.arena == arena)
        end = np.minimum(until[storages], self.end)
        return live_peak(self.birth[storages], end, np.ones(len(storages), np.uint64))[1]

    def live_peak_of(self, storages: I64) -> tuple[int, int]:
        """Return ``(step, bytes)`` of the first peak of the live bytes of ``storages``."""
        return live_peak(self.birth[storages], self.held_until[storages], self.size[storages])


def _reduce_into(extreme: np.ufunc, column: NDArray[Any], owner: I64, values: NDArray[Any]) -> NDArray[Any]:
    """Reduce the ``values`` of each owner into its entry of ``column`` with ``extreme``, and return ``column``."""
    extreme.at(column, owner, values)
    return column


def live_peak(birth: I64, end: I64, size: U64) -> tuple[int, int]:
    """Return ``(step, bytes)`` of the first peak of blocks that are live in ``[birth, end)``."""
    change: dict[int, int] = {}  # only steps with a change: there may be 2^60 steps
    for first, after, nbytes in zip(birth.tolist(), end.tolist(), size.tolist(), strict=True):
        change[first] = change.get(first, 0) + nbytes
        change[after] = change.get(after, 0) - nbytes
    live = peak = peak_step = 0
    for step in sorted(change):
        live += change[step]
        if live > peak:
            peak, peak_step = live, step
    return peak_step, peak
