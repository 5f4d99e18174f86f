"""Read the notes of a plan: warnings, the memory that planner ``helia`` chose for a tensor, and the search progress."""

from dataclasses import dataclass
from typing import NamedTuple

from tmmu_core.planners.exact import PROGRESS_NOTE
from tmmu_core.plans.figures.live_bytes import storages_of
from tmmu_core.plans.model import ASSUMED, GIVEN_OFFSETS, NO_CONTENT_HASH, READ, UNPLANNED, Plan


def plan_warnings(plan: Plan) -> tuple[str, ...]:
    """Return the warnings that follow from a plan alone, in a fixed order."""
    return (*remarks(plan), *unplanned_parts(plan), *reuse_warnings(plan))


def unplanned_parts(plan: Plan) -> tuple[str, ...]:
    """Return a warning that names the parts of the graph without a plan; none for a complete plan."""
    if not plan.incomplete:
        return ()
    return (f"incomplete: {plan.remark(UNPLANNED) or 'a part of the graph is not planned'}",)


def remarks(plan: Plan) -> tuple[str, ...]:
    """Return the reader's remarks, and warnings about given offsets, assumed sizes and a missing content hash."""
    given_offsets = plan.remark(GIVEN_OFFSETS)
    texts = (
        plan.remark(READ),
        f"{given_offsets}; {plan.planner} places the other buffers." if given_offsets else "",
        plan.remark(ASSUMED),
        "the file has no content hash; its claims were not checked." if plan.remark(NO_CONTENT_HASH) else "",
    )
    return tuple(filter(None, texts))


def reuse_warnings(plan: Plan) -> tuple[str, ...]:
    """Return a warning with the number of in-place reuses that are not used; ``()`` if no plan can be smaller."""
    unused = len(plan.taken) - sum(plan.taken) if any(arena.open_bytes for arena in plan.arenas) else 0
    noun = "in-place reuse" if unused == 1 else "in-place reuses"
    return (f"{unused:,} {noun} of {len(plan.taken):,} not taken by the planner.",) if unused else ()


@dataclass(frozen=True)
class Residence:
    """The memory of a storage, chosen by ``helia``, and the reason for it."""

    memory: str
    decided_by: str  # ``rule N`` (from 1), ``tensor`` (its ``arena``) or ``order`` (the first memory with room)
    spilled: str = ""  # reason why the storage is not in its preferred memory; empty if it is


def residences(plan: Plan) -> list[Residence | None]:
    """Return each row's residence (``None``: not in the notes); ``[]`` if ``helia`` made no arena of the plan."""
    residence_of: dict[str, Residence] = {}
    notes_of_helia = [notes for arena in plan.arenas if "said_by" in (notes := plan.arena_notes(arena.name))]
    for notes in notes_of_helia:
        reasons = {spill["storage"]: spill["reason"] for spill in notes["spills"]}
        for decider, storages in notes["said_by"].items():
            residence_of |= {name: Residence(notes["memory"], decider, reasons.get(name, "")) for name in storages}
    heads = storages_of(plan).head[plan.storage].tolist()
    return [residence_of.get(plan.tensor_ids[head]) for head in heads] if notes_of_helia else []


def cells(residence: Residence | None) -> dict[str, str]:
    """Return the columns of a residence in a plan table; empty texts for ``None``."""
    residence = residence or Residence("", "")
    return {"memory": residence.memory, "decided_by": residence.decided_by}


class SearchPoint(NamedTuple):
    """The best extent and bound (bytes) of a search after a number of nodes."""

    nodes: int
    extent: int
    bound: int


def search_progress(plan: Plan, arena: str) -> tuple[SearchPoint, ...]:
    """Return the search progress in the notes of ``arena``, from the greedy start to the last improvement."""
    return tuple([SearchPoint(*point) for point in plan.arena_notes(arena).get(PROGRESS_NOTE, ())])
