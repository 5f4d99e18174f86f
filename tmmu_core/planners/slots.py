"""``slots``: the normative planner (seed §5, ``AssignLogicalSlots_v1`` and ``MapToVirtualAddresses_v1``).

Interval graph colouring: visit the storages by birth, free the slots of dead ones, take the lowest free slot. This
greedy colouring uses as many slots as storages are ever live together, which is optimal (interval graphs are
perfect). A slot is as large as its largest tenant; slots follow each other::

    slot 2          ┌────┐                 offset 2 = align_up(offset 1 + size 1, alignment 2)
    slot 1     ┌────┴┬───┤
    slot 0  ───┴─────┴───┴───

O(N log N) time, O(N) space. The number of slots is optimal, the number of bytes is not: a small tensor in a large
slot wastes the rest, which the waste ledger calls slot rounding.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heappop, heappush, heappushpop
from typing import Any

import numpy as np

from tmmu_core.base.errors import U64_MAX, AllocationOverflow
from tmmu_core.planners.problem import I64, U64, Packing, Problem, Progress


def plan_slots(problem: Problem, options: Mapping[str, Any], progress: Progress | None = None) -> Packing:
    """Return slots and offsets of one arena. No options."""
    slot = assign_slots(problem)
    return Packing(offset=slot_offsets(problem, slot)[slot] if len(problem) else np.zeros(0, np.uint64), slot=slot)


def plan_naive(problem: Problem, options: Mapping[str, Any], progress: Progress | None = None) -> Packing:
    """``naive``: one slot per storage, the baseline without reuse. No options."""
    slot = np.arange(len(problem), dtype=np.int64)
    return Packing(offset=slot_offsets(problem, slot), slot=slot)


def assign_slots(problem: Problem) -> I64:
    """Shape (n,): the lowest slot free at each storage's birth, in normative order."""
    if problem.must_not_alias is not None and len(problem.must_not_alias):
        return _assign_apart(problem, *_forbidden(problem.must_not_alias, len(problem)))
    slot = [0] * len(problem)
    free: list[int] = []
    opened = 0
    # Ranges are never empty: a storage that is dead by now was placed before.
    by_death = np.argsort(problem.death, kind="stable")
    dying = by_death.tolist()
    dead_by = np.searchsorted(problem.death[by_death], problem.birth, side="right").tolist()
    gone = 0
    for i, dead in enumerate(dead_by):
        if dead == gone + 1:  # one dies, one is born
            slot[i] = heappushpop(free, slot[dying[gone]])
            gone = dead
            continue
        while gone < dead:
            heappush(free, slot[dying[gone]])
            gone += 1
        if free:
            slot[i] = heappop(free)
        else:
            slot[i] = opened
            opened += 1
    return np.array(slot, np.int64)


def _forbidden(pairs: I64, storages: int) -> tuple[I64, I64]:
    """Return ``(first, others)``: storage i must not alias ``others[first[i]:first[i + 1]]``."""
    both = np.concatenate([pairs, pairs[:, ::-1]])
    both = both[np.argsort(both[:, 0], kind="stable")]
    return np.searchsorted(both[:, 0], np.arange(storages + 1)), both[:, 1]


def _assign_apart(problem: Problem, first: I64, others: I64) -> I64:
    """Assign slots, skipping those that ever held a storage which must not alias the new one."""
    slot = np.full(len(problem), -1, np.int64)
    free: list[int] = []
    opened = gone = 0
    dying = np.argsort(problem.death, kind="stable").tolist()
    death = problem.death[dying].tolist()
    for i, birth in enumerate(problem.birth.tolist()):
        while death[gone] <= birth:
            heappush(free, int(slot[dying[gone]]))
            gone += 1
        taken = _passing_over(free, set(slot[others[first[i] : first[i + 1]]].tolist()))
        if taken < 0:
            taken = opened
            opened += 1
        slot[i] = taken
    return slot


def _passing_over(free: list[int], barred: set[int]) -> int:
    """Pop the lowest slot of the heap ``free`` that is not ``barred``; −1: none."""
    passed_over = []
    while free and free[0] in barred:
        passed_over.append(heappop(free))
    taken = heappop(free) if free else -1
    for slot in passed_over:
        heappush(free, slot)
    return taken


def slot_sizes(problem: Problem, slot: I64) -> tuple[U64, U64]:
    """Shape (slots,) each: bytes of the largest tenant (at least 1), and the greatest alignment."""
    slots = int(slot.max()) + 1 if len(slot) else 0
    size = np.ones(slots, np.uint64)
    alignment = np.full(slots, problem.arena_alignment, np.uint64)
    np.maximum.at(size, slot, problem.size)
    np.maximum.at(alignment, slot, problem.alignment)
    return size, alignment


def slot_offsets(problem: Problem, slot: I64) -> U64:
    """Shape (slots,): aligned prefix sums from 0.

    Raises ``AllocationOverflow`` at the first slot that ends past 2^64 − 1.
    """
    sizes, alignments = slot_sizes(problem, slot)
    offsets = np.zeros(len(sizes), np.uint64)
    end = 0
    for k, (size, alignment) in enumerate(zip(sizes.tolist(), alignments.tolist(), strict=True)):
        offset = (end + alignment - 1) // alignment * alignment
        end = offset + size
        if end > U64_MAX:
            raise AllocationOverflow(
                f"slot {k} of arena {problem.arena!r} would end at byte {end:,}, past 2^64 − 1.",
                arena=problem.arena,
                offset=offset,
                size=size,
                hint="The tensors of this arena are too large together for 64-bit addresses.",
            )
        offsets[k] = offset
    return offsets
