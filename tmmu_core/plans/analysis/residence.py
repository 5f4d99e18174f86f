"""The memory of each tensor in a plan over several memories, and the rule that assigned it."""

from dataclasses import dataclass

from tmmu_core.plans.model import Plan


@dataclass(frozen=True)
class Residence:
    """The memory of a storage and the reason for it."""

    memory: str
    decided_by: str
    """``rule 2``, ``tensor`` (its own ``arena``) or ``order`` (the first memory that has room)."""
    spilled: str = ""
    """Reason why it is not in its preferred memory; empty if it is."""


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
