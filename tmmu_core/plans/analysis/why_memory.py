"""The rule that assigned a tensor to its memory, and the bytes missing in the next better memory."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tmmu_core.planners.columns import align_up, free_gap
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
    row = plan.row_of[tensor_id]
    notes = plan.notes.get(plan.arenas[plan.arena[row]].name, {})
    if "said_by" not in notes:
        return None
    mates = plan.storage == plan.storage[row]
    ids = {plan.tensor_ids[mate] for mate in np.flatnonzero(mates).tolist()}
    decider = next((decider for decider, names in notes["said_by"].items() if ids.intersection(names)), "order")
    why = next((str(spill["reason"]) for spill in notes["spills"] if spill["storage"] in ids), "")
    found = Uplift(decider, notes["memory"], why)
    memories = read_platform(plan.planner_options).memories
    names = [memory.name for memory in memories]
    if notes["memory"] not in names:
        return found  # memories of an arena configuration: the plan does not record their order
    better = memories[: names.index(notes["memory"])]
    fit = [memory for memory in better if memory.writable or notes["role"] == "constant"]
    return (
        replace(found, above=fit[-1].name, lacking_bytes=_lacking(plan, mates, notes["role"], fit[-1]))
        if fit
        else found
    )


def over_memories(plan: Plan) -> bool:
    """Whether the plan records why tensors are in their memories."""
    return any("said_by" in plan.notes.get(arena.name, {}) for arena in plan.arenas)


def uplifts(plan: Plan) -> list[Uplift | None] | None:
    """Return :func:`uplift` for every row of a plan over memories; ``None`` for other plans."""
    if not over_memories(plan):
        return None
    row_of = dict(zip(plan.storage.tolist(), plan.tensor_ids, strict=True))
    of_storage = {storage: uplift(plan, name) for storage, name in row_of.items()}
    return [of_storage[storage] for storage in plan.storage.tolist()]


def cells(found: Uplift | None) -> dict[str, str | int]:
    """Return the table cells of an uplift by column; empty texts without an uplift."""
    if found is None:
        return {"memory": "", "put_there_by": "", "one_memory_up": "", "lacking_bytes": ""}
    return {
        "memory": found.memory,
        "put_there_by": found.decided_by,
        "one_memory_up": found.above,
        "lacking_bytes": found.lacking_bytes if found.above else "",
    }


def _lacking(plan: Plan, mates: NDArray[np.bool_], role: str, above: Memory) -> int:
    """Return the bytes by which ``above`` would be over its size with a storage, the rows ``mates``, in it."""
    if above.max_size is None:
        return 0
    size = int((plan.offset + plan.size)[mates].max() - plan.offset[mates].min())
    regions = {
        name: Region(
            notes["role"],
            notes["memory"],
            notes["source_memory"],
            notes["alignment"],
            plan.arena_of[name].extent_bytes,
        )
        for name, notes in plan.notes.items()
        if name in plan.arena_of and "said_by" in notes
    }
    grid = max(int(plan.alignment[mates].max()), above.arena_alignment or 1)
    own = next((r for r in regions.values() if (r.role, r.memory) == (role, above.name)), None)
    end = align_up(own.used if own else 0, grid) + size
    if role == "scratch" and own is not None:
        birth, death = plan.birth[mates].min(), plan.held_until[mates].max()
        arena = [each.name for each in plan.arenas].index(own.name)
        beside = (plan.arena == arena) & (plan.birth < death) & (plan.held_until > birth)
        blocked = zip(plan.offset[beside].tolist(), (plan.offset + plan.size)[beside].tolist(), strict=True)
        end = max(own.used, free_gap(blocked, size, grid) + size)
    source, floor = (own.source_memory, own.alignment) if own else (above.name, 16)
    candidate = Region(role, above.name, source, max(grid, floor), end)
    return max(0, filled([*(r for r in regions.values() if r is not own), candidate], above.name) - above.max_size)
