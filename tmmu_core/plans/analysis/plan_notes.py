"""The notes of a plan: warnings, the memory of each tensor in a plan over several memories, and the search progress."""

from dataclasses import dataclass
from itertools import pairwise

from tmmu_core.planners.exact import PROGRESS_NOTE
from tmmu_core.plans.model import ASSUMED, GIVEN_OFFSETS, NO_CONTENT_HASH, READ, UNPLANNED, Plan

# --- warnings: conditions that changed a plan or limit its proofs, one sentence each (contract §12) -------------------


def plan_warnings(plan: Plan) -> tuple[str, ...]:
    """Return the warnings that follow from a plan alone, in a fixed order."""
    return (*input_warnings(plan), *reuse_warnings(plan))


def input_warnings(plan: Plan) -> tuple[str, ...]:
    """Return the warnings about the input: remarks of its reader, assumed sizes, and parts without a plan."""
    missing = f"incomplete: {plan.remark(UNPLANNED) or 'a part of the graph is not planned'}"
    return (*remarks(plan), *([missing] if plan.incomplete else []))


def remarks(plan: Plan) -> tuple[str, ...]:
    """Return the reader's remarks, the use of given offsets, assumed sizes, and a missing content hash."""
    sizes, given = plan.remark(ASSUMED), plan.remark(GIVEN_OFFSETS)
    texts = [plan.remark(READ), f"{given}; {plan.planner} places the other buffers." if given else ""]
    texts.append(f"sizes {sizes}" if sizes else "")
    if plan.remark(NO_CONTENT_HASH):
        texts.append("the file has no content hash; its claims were not checked.")
    return tuple(filter(None, texts))


def reuse_warnings(plan: Plan) -> tuple[str, ...]:
    """Return a warning if the planner left permitted in-place reuse unused."""
    untaken = len(plan.taken) - sum(plan.taken)
    noun = "in-place reuse" if untaken == 1 else "in-place reuses"
    return (f"{untaken:,} {noun} of {len(plan.taken):,} not taken by the planner.",) if untaken else ()


# --- memories ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Residence:
    """The memory of a storage and the reason for it."""

    memory: str
    decided_by: str
    """``rule 2``, ``tensor`` (the tensor's ``arena``) or ``order`` (the first memory that has room)."""
    spilled: str = ""
    """Reason why the storage is not in its preferred memory; empty if it is."""


def residences(plan: Plan) -> list[Residence | None]:
    """Return the residence of each row, ``None`` for rows of arenas without recorded rules; empty without memories."""
    if not any("said_by" in plan.notes.get(arena.name, {}) for arena in plan.arenas):
        return []
    of_storage: dict[int, set[str]] = {}
    for storage, tensor_id in zip(plan.storage.tolist(), plan.tensor_ids, strict=True):
        of_storage.setdefault(storage, set()).add(tensor_id)
    found: list[Residence | None] = []
    for storage, arena in zip(plan.storage.tolist(), plan.arena.tolist(), strict=True):
        notes, ids = plan.notes.get(plan.arenas[arena].name, {}), of_storage[storage]
        if "said_by" not in notes:
            found.append(None)
            continue
        decider = next((by for by, names in notes["said_by"].items() if ids.intersection(names)), "order")
        why = next((str(spill["reason"]) for spill in notes["spills"] if spill["storage"] in ids), "")
        found.append(Residence(notes["memory"], decider, why))
    return found


def cells(residence: Residence | None) -> dict[str, str]:
    """Return the table cells of a residence by column; empty texts without one."""
    memory, decider = ("", "") if residence is None else (residence.memory, residence.decided_by)
    return {"memory": memory, "put_there_by": decider}


# --- search progress --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Moment:
    """The best extent and bound (bytes) from this point of a search to the next."""

    nodes: int
    """Search nodes visited up to this point."""
    extent: int
    bound: int


def course(plan: Plan, arena: str) -> tuple[Moment, ...]:
    """Return the search progress for the size of ``arena``, from the greedy start to the last improvement.

    Empty without a recorded progress, or if a file's record is impossible: nodes must ascend, extents must not rise,
    bounds must not fall or exceed the extents.
    """
    notes = plan.notes.get(arena)
    rows = notes.get(PROGRESS_NOTE) if isinstance(notes, dict) else None
    if not isinstance(rows, list):
        return ()
    moments = []
    for row in rows:
        if not (isinstance(row, list) and len(row) == 3 and all(type(n) is int and n >= 0 for n in row)):
            return ()
        moments.append(Moment(*row))
    for now, then in pairwise(moments):
        if not (now.nodes < then.nodes and now.extent >= then.extent and now.bound <= then.bound):
            return ()
    return tuple(moments) if all(moment.bound <= moment.extent for moment in moments) else ()
