"""Columns per storage and per slot, computed from the rows of a plan. Near-linear."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tmmu_core.base.errors import U64_MAX
from tmmu_core.plans.model import Plan

I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class PlanFacts:
    """Columns per storage number: the hulls of its rows in time and bytes. The columns must pass ``check_columns``."""

    plan: Plan

    @property
    def end(self) -> int:
        """The death of a tensor that is live in all steps."""
        return max(self.plan.steps, 1)

    @cached_property
    def storages(self) -> int:
        """The number of storages."""
        return int(self.plan.storage.max(initial=-1)) + 1

    @cached_property
    def birth(self) -> I64:
        """The first step, per storage."""
        first = np.full(self.storages, self.end, np.int64)
        np.minimum.at(first, self.plan.storage, self.plan.birth)
        return first

    @cached_property
    def death(self) -> I64:
        """The step after the last one, per storage."""
        last = np.zeros(self.storages, np.int64)
        np.maximum.at(last, self.plan.storage, self.plan.death)
        return last

    @cached_property
    def start(self) -> U64:
        """The first byte, per storage."""
        lowest = np.full(self.storages, U64_MAX, np.uint64)
        np.minimum.at(lowest, self.plan.storage, self.plan.offset)
        return lowest

    @cached_property
    def stop(self) -> U64:
        """The byte after the last one, per storage."""
        highest = np.zeros(self.storages, np.uint64)
        np.maximum.at(highest, self.plan.storage, self.plan.offset + self.plan.size)
        return highest

    @cached_property
    def size(self) -> U64:
        """The size in bytes, per storage."""
        return self.stop - self.start

    @cached_property
    def alignment(self) -> U64:
        """The greatest alignment of the storage's rows (contract §3), at least 1."""
        greatest = np.ones(self.storages, np.uint64)
        np.maximum.at(greatest, self.plan.storage, self.plan.alignment)
        return greatest

    @cached_property
    def first_row(self) -> I64:
        """The row that names each storage: the earliest birth, bases before views, then by id."""
        is_view = np.array([base is not None for base in self.plan.base_tensor_uids], np.bool_)
        rows = np.lexsort((np.arange(len(self.plan)), is_view, self.plan.birth))
        first = np.zeros(self.storages, np.int64)
        first[self.plan.storage[rows[::-1]]] = rows[::-1]
        return first

    @cached_property
    def arena(self) -> NDArray[np.int32]:
        """The index of the arena, per storage."""
        return self.plan.arena[self.first_row]

    @cached_property
    def slot(self) -> I64:
        """The logical slot, per storage."""
        return self.plan.logical_slot[self.first_row]

    @cached_property
    def by_slot(self) -> I64:
        """The storages, sorted by (arena, slot, birth, start)."""
        return np.lexsort((self.start, self.birth, self.slot, self.arena))

    @cached_property
    def opens_slot(self) -> Mask:
        """Whether a storage is the first of its slot, in the order of :attr:`by_slot`."""
        arena, slot = self.arena[self.by_slot], self.slot[self.by_slot]
        opens = np.ones(self.storages, np.bool_)
        opens[1:] = (arena[1:] != arena[:-1]) | (slot[1:] != slot[:-1])
        return opens

    @cached_property
    def spaces(self) -> tuple[tuple[str, I64], ...]:
        """The address spaces and their storages: each arena, or the single space of hashed addresses."""
        if self.plan.places == "sparse":
            return (("the sparse space", np.arange(self.storages)),)
        return tuple((arena.name, np.flatnonzero(self.arena == k)) for k, arena in enumerate(self.plan.arenas))

    @cached_property
    def slots(self) -> Slots:
        """The slots in use, by (arena, number)."""
        order, opens = self.by_slot, self.opens_slot
        first = np.flatnonzero(opens)
        if not len(first):
            nothing = np.zeros(0, np.int64)
            return Slots(nothing, nothing, nothing.astype(np.uint64), nothing.astype(np.uint64), nothing)
        return Slots(
            arena=self.arena[order][first].astype(np.int64),
            number=self.slot[order][first],
            start=np.minimum.reduceat(self.start[order], first),
            backing=np.maximum(np.maximum.reduceat(self.size[order], first), np.uint64(self.plan.places != "bytes")),
            tenants=np.diff(np.append(first, self.storages)),
        )

    @cached_property
    def slots_meet(self) -> Mask:
        """Whether a slot starts before the end of the slot below it, per slot."""
        slots = self.slots
        space = np.zeros_like(slots.arena) if self.plan.places == "sparse" else slots.arena
        order = np.lexsort((slots.number, slots.start, space))
        arena, start, end = space[order], slots.start[order], (slots.start + slots.backing)[order]
        meet = np.zeros(len(order), np.bool_)
        meet[order[1:]] = (arena[1:] == arena[:-1]) & (start[1:] < end[:-1])
        return meet

    @cached_property
    def slot_of(self) -> I64:
        """The row of :attr:`slots`, per storage."""
        number = np.zeros(self.storages, np.int64)
        number[self.by_slot] = np.cumsum(self.opens_slot) - 1
        return number

    @cached_property
    def granted(self) -> dict[int, tuple[int, int]]:
        """Reused storage → (step, storage that reuses it), from the plan's in-place reuse between two storages."""
        row_of, storage = self.plan.row_of, self.plan.storage
        taken: dict[int, tuple[int, int]] = {}
        for step, giver, taker in self.plan.handoffs:
            if giver in row_of and taker in row_of:
                a, b = int(storage[row_of[giver]]), int(storage[row_of[taker]])
                if a != b:
                    taken[a] = (step, b)
        return taken

    @cached_property
    def read_until(self) -> I64:
        """The step after the last read, per storage: a storage that is reused in place at step k is read at k."""
        held = self.death.copy()
        for giver, (step, _) in self.granted.items():
            held[giver] = max(int(held[giver]), min(step + 1, self.end))
        return held

    @cached_property
    def held_until(self) -> I64:
        """The step after the last one at which the storage owns its bytes: not the step that reuses them."""
        held = self.read_until.copy()
        for giver, (step, taker) in self.granted.items():
            if self.takes_over(giver, taker):
                held[giver] = max(int(self.death[giver]), min(step, self.end))
        return held

    def takes_over(self, giver: int, taker: int) -> bool:
        """Return whether both storages have the same arena and offset."""
        return bool(self.arena[giver] == self.arena[taker] and self.start[giver] == self.start[taker])

    def name(self, storage: int) -> str:
        """Return the tensor that names a storage."""
        return self.plan.tensor_ids[self.first_row[storage]]

    def most_together(self, arena: int, until: I64) -> int:
        """Return the most storages of the arena live at one step, each from its birth to ``until``."""
        here = self.arena == arena
        born, gone = self.birth[here], np.minimum(until[here], self.end)
        steps, event = np.unique(np.concatenate([born, gone]), return_inverse=True)
        change = np.bincount(event[: len(born)], minlength=len(steps))
        return int(np.cumsum(change - np.bincount(event[len(born) :], minlength=len(steps))).max(initial=0))

    def peak_live_bytes(self, arena: int) -> int:
        """Return the peak bytes of the arena, as an exact integer."""
        return self.peak_together(np.flatnonzero(self.arena == arena))[1]

    def peak_together(self, here: I64) -> tuple[int, int]:
        """Return ``(step, bytes)`` of the first peak of the storages ``here``."""
        return most_together(self.birth[here], self.held_until[here], self.size[here])


def most_together(birth: I64, end: I64, size: U64) -> tuple[int, int]:
    """Return ``(step, bytes)`` of the first peak of blocks that are live in ``[birth, end)``."""
    change: dict[int, int] = {}
    for born, gone, nbytes in zip(birth.tolist(), end.tolist(), size.tolist(), strict=True):
        change[born] = change.get(born, 0) + nbytes
        change[gone] = change.get(gone, 0) - nbytes
    live = peak = when = 0
    for step in sorted(change):
        live += change[step]
        if live > peak:
            peak, when = live, step
    return when, peak


@dataclass(frozen=True, eq=False)
class Slots:
    """Columns per slot in use."""

    arena: I64
    number: I64
    start: U64
    backing: U64
    """Bytes of the largest storage in the slot, at least 1."""
    tenants: I64
