"""Read the notes of a plan: warnings, the memory of each tensor in a plan over memories, and the search progress."""

from dataclasses import dataclass
from itertools import pairwise

from tmmu_core.planners.exact import PROGRESS_NOTE
from tmmu_core.plans.model import ASSUMED, GIVEN_OFFSETS, NO_CONTENT_HASH, READ, UNPLANNED, Plan

# --- warnings: conditions that changed a plan or limit its proofs, one sentence each (contract §12) -------------------


def plan_warnings(plan: Plan) -> tuple[str, ...]:
    """Return the warnings that follow from a plan alone, in a fixed order."""
    return (*input_warnings(plan), *reuse_warnings(plan))


def input_warnings(plan: Plan) -> tuple[str, ...]:
    """Return the warnings about the input: remarks of its reader, assumed sizes, and unplanned parts of the graph."""
    return (*remarks(plan), *unplanned_parts(plan))


def unplanned_parts(plan: Plan) -> tuple[str, ...]:
    """Return a warning that names the parts of the graph without a plan; none for a complete plan."""
    if not plan.incomplete:
        return ()
    return (f"incomplete: {plan.remark(UNPLANNED) or 'a part of the graph is not planned'}",)


def remarks(plan: Plan) -> tuple[str, ...]:
    """Return warnings about the reader's remarks, given offsets, assumed sizes, and a missing content hash."""
    given_offsets = plan.remark(GIVEN_OFFSETS)
    texts = (
        plan.remark(READ),
        f"{given_offsets}; {plan.planner} places the other buffers." if given_offsets else "",
        plan.remark(ASSUMED),
        "the file has no content hash; its claims were not checked." if plan.remark(NO_CONTENT_HASH) else "",
    )
    return tuple(filter(None, texts))


def reuse_warnings(plan: Plan) -> tuple[str, ...]:
    """Return a warning if the planner does not use every permitted in-place reuse."""
    untaken = len(plan.taken) - sum(plan.taken)
    noun = "in-place reuse" if untaken == 1 else "in-place reuses"
    return (f"{untaken:,} {noun} of {len(plan.taken):,} not taken by the planner.",) if untaken else ()


@dataclass(frozen=True)
class Residence:
    """The memory of a storage and the reason for it."""

    memory: str
    decided_by: str
    """``rule 2``, ``tensor`` (the tensor's ``arena``) or ``order`` (the first memory that has room)."""
    spilled: str = ""
    """Reason why the storage is not in its preferred memory; empty if it is."""


def residences(plan: Plan) -> list[Residence | None]:
    """Return the residence of each row; ``None`` in an arena without recorded rules. Empty without such rules."""
    if not any("said_by" in plan.notes.get(arena.name, {}) for arena in plan.arenas):
        return []
    of_storage: dict[int, set[str]] = {}
    for storage, tensor_id in zip(plan.storage.tolist(), plan.tensor_ids, strict=True):
        of_storage.setdefault(storage, set()).add(tensor_id)
    residence_of_row: list[Residence | None] = []
    for storage, arena in zip(plan.storage.tolist(), plan.arena.tolist(), strict=True):
        notes, ids = plan.notes.get(plan.arenas[arena].name, {}), of_storage[storage]
        if "said_by" not in notes:
            residence_of_row.append(None)
            continue
        decider = next((by for by, names in notes["said_by"].items() if ids.intersection(names)), "order")
        why = next((str(spill["reason"]) for spill in notes["spills"] if spill["storage"] in ids), "")
        residence_of_row.append(Residence(notes["memory"], decider, why))
    return residence_of_row


def cells(residence: Residence | None) -> dict[str, str]:
    """Return the columns of a residence in a plan table; empty texts for ``None``."""
    residence = residence or Residence("", "")
    return {"memory": residence.memory, "put_there_by": residence.decided_by}


@dataclass(frozen=True)
class Moment:
    """The best extent and bound (bytes) of a search after a number of nodes."""

    nodes: int
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
