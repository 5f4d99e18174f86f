"""The rule that assigned a tensor to its memory, and the bytes missing in the next better memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tmmu_core.planners.helia import Region, filled
from tmmu_core.planners.platform import Memory, read_platform
from tmmu_core.plans.model import Plan


@dataclass(frozen=True)
class Uplift:
    """Why a storage is in its memory, and what the next better memory lacks."""

    decided_by: str
    """``rule 2``, ``tensor`` (its own ``arena``) or ``order`` (the first memory that has room)."""
    memory: str
    spilled: str = ""
    """Reason why it is not in its preferred memory; empty if it is."""
    above: str = ""
    """The next better memory; empty if there is none."""
    lacking_bytes: int = 0
    """Bytes that the better memory lacks; 0: it has space, but a rule selects another memory."""


def uplift(plan: Plan, tensor_id: str) -> Uplift | None:
    """Explain the memory of a tensor; ``None`` without several memories. Raises ``KeyError`` for an unknown tensor."""
    row = plan.row(plan.row_of[tensor_id])
    notes = plan.notes.get(row.arena, {})
    if "said_by" not in notes:
        return None
    mates = np.flatnonzero(plan.storage == plan.storage[plan.row_of[tensor_id]]).tolist()
    ids = {plan.tensor_ids[mate] for mate in mates}
    decider = next((decider for decider, names in notes["said_by"].items() if ids.intersection(names)), "order")
    why = next((str(spill["reason"]) for spill in notes["spills"] if spill["storage"] in ids), "")
    found = Uplift(decider, notes["memory"], why)
    above = _above(plan, notes)
    if above is None:
        return found
    return replace(found, above=above.name, lacking_bytes=_lacking(plan, mates, notes, above))


def over_memories(plan: Plan) -> bool:
    """Whether the plan records why tensors are in their memories."""
    return any("said_by" in plan.notes.get(arena.name, {}) for arena in plan.arenas)


def uplifts(plan: Plan) -> list[Uplift | None] | None:
    """Return :func:`uplift` for every row of a plan over memories; ``None`` for other plans."""
    if not over_memories(plan):
        return None
    of_storage: dict[int, Uplift | None] = {}
    for row, storage in enumerate(plan.storage.tolist()):
        if storage not in of_storage:
            of_storage[storage] = uplift(plan, plan.tensor_ids[row])
    return [of_storage[storage] for storage in plan.storage.tolist()]


def cells(found: Uplift | None) -> dict[str, str | int]:
    """Return the table cells of an uplift by column; empty texts without an uplift."""
    if found is None:
        return {"memory": "", "put_there_by": "", "one_memory_up": "", "lacking_bytes": ""}
    lacking = found.lacking_bytes if found.above else ""
    return {
        "memory": found.memory,
        "put_there_by": found.decided_by,
        "one_memory_up": found.above,
        "lacking_bytes": lacking,
    }


def _above(plan: Plan, notes: dict[str, Any]) -> Memory | None:
    """Return the next better memory that allows the same role."""
    memories = read_platform(plan.planner_options).memories
    names = [memory.name for memory in memories]
    if notes["memory"] not in names:
        return None  # memories of an arena configuration: the plan does not record their order
    better = memories[: names.index(notes["memory"])]
    fit = [memory for memory in better if memory.writable or notes["role"] == "constant"]
    return fit[-1] if fit else None


def _lacking(plan: Plan, mates: list[int], notes: dict[str, Any], above: Memory) -> int:
    if above.max_size is None:
        return 0
    start = min(int(plan.offset[mate]) for mate in mates)
    size = max(int(plan.offset[mate]) + int(plan.size[mate]) for mate in mates) - start
    grid = max(int(plan.alignment[mate]) for mate in mates)
    named = {
        name: Region(
            region["role"],
            region["memory"],
            region["source_memory"],
            region["alignment"],
            plan.arena_of[name].extent_bytes,
        )
        for name, region in plan.notes.items()
        if name in plan.arena_of and "said_by" in region
    }
    regions = list(named.values())
    wanted = (notes["role"], above.name)
    arena = next((name for name, region in named.items() if (region.role, region.memory) == wanted), None)
    own = None if arena is None else named[arena]
    grid = max(grid, above.arena_alignment or 1)
    used = own.used if own else 0
    if notes["role"] == "scratch" and arena is not None:
        end = max(used, _first_fit(plan, mates, arena, (size, grid)) + size)
    else:
        end = -(-used // grid) * grid + size
    source = own.source_memory if own else above.name
    candidate = Region(notes["role"], above.name, source, max(grid, own.alignment if own else 16), end)
    return max(0, filled([*(r for r in regions if r is not own), candidate], above.name) - above.max_size)


def _first_fit(plan: Plan, mates: list[int], arena: str, wanted: tuple[int, int]) -> int:
    """Return the lowest offset in the arena for ``(size, alignment)`` without an overlap."""
    size, grid = wanted
    birth = min(int(plan.birth[mate]) for mate in mates)
    death = max(int(plan.held_until[mate]) for mate in mates)
    names = [each.name for each in plan.arenas]
    beside = np.flatnonzero((plan.arena == names.index(arena)) & (plan.birth < death) & (plan.held_until > birth))
    at = 0
    for offset, end in sorted((int(plan.offset[i]), int(plan.offset[i]) + int(plan.size[i])) for i in beside.tolist()):
        if at + size > offset and end > at:
            at = -(-end // grid) * grid
    return at
