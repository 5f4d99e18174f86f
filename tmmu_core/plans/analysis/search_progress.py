"""The extents and lower bounds of an anytime search over its nodes."""

from dataclasses import dataclass
from itertools import pairwise

from tmmu_core.planners.exact import PROGRESS_NOTE
from tmmu_core.plans.model import Plan


@dataclass(frozen=True)
class Moment:
    """Until the next moment, stopping would have given ``extent`` and ``bound`` (bytes)."""

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
