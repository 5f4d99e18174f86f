"""Find the order in which a planner placed the storages of an arena.

A greedy planner records its order and its placement rule in the plan's notes. :func:`placed_in` repeats the placement
and returns the recorded order if the offsets are equal. Else, for example after a search, the order is not known, and
the storages are sorted by offset.
"""

from dataclasses import dataclass

import numpy as np

from tmmu_core.graph.model import Arena
from tmmu_core.liveness.analyse import analyse
from tmmu_core.planners.columns import columns
from tmmu_core.planners.greedy import ORDERS, place, sorted_storages
from tmmu_core.planners.problem import Problem, without_empty
from tmmu_core.plans.figures.live_bytes import by_birth, storages_of
from tmmu_core.plans.making.engine import Solution
from tmmu_core.plans.making.plan_rows import arena_problems
from tmmu_core.plans.model import Plan, rows_of_parts

BOTTOM_UP = "offset"


@dataclass(frozen=True)
class Placed:
    """The storages of an arena in placement order."""

    storages: tuple[int, ...]
    """Storage numbers of the plan; the live parts of a buffer with gaps follow each other."""
    by: str
    """Sort key: ``birth``, one of ``greedy.ORDERS``, or ``offset`` if the placement order is not known."""
    fit: str
    """Placement rule: ``slot`` (lowest free slot), ``lowest`` or ``tightest`` (offset); ``""`` if not known."""

    @property
    def is_known(self) -> bool:
        """Whether the planner placed the storages in this order."""
        return self.by != BOTTOM_UP


def problem_of(solution: Solution, arena: str) -> Problem | None:
    """Return the problem of an arena; ``None`` if the planner defines the arenas itself."""
    return next((problem for problem in problems_of(solution) if problem.arena == arena), None)


def problems_of(solution: Solution) -> list[Problem]:
    """Return the problem of each arena; [] if the planner defines the arenas itself."""
    plan = solution.plan
    if plan.own_arenas:
        return []
    config = {a.name: Arena(a.capacity_bytes, a.alignment_bytes, a.page_size) for a in plan.arenas}
    return arena_problems(analyse(solution.liveness.timeline, config), config)


def placed_in(plan: Plan, arena: str, problem: Problem | None = None) -> Placed:
    """Return the placement order of ``arena``. A plan without slots needs ``problem``, else its order is not known."""
    s = storages_of(plan)
    if plan.has_slots:
        return Placed(tuple(by_birth(plan, arena)), "birth", "slot")
    notes = plan.arena_notes(arena)
    order, _, fit = str(notes.get("start", "")).partition("/")
    order, fit = str(notes.get("order", order)), str(notes.get("fit", fit))
    if problem is not None and order in ORDERS:
        nonempty, _ = without_empty(problem)
        cols = columns(nonempty)
        sequence = sorted(sorted_storages(cols, order), key=lambda i: cols.fixed[i] < 0)  # fixed offsets come first
        last = None if nonempty.gaps else 1  # without gaps, a storage has one live part
        parts = [plan.storage[rows_of_parts(plan, name)[:last]] for name in nonempty.ids]
        if parts and [set(s.offset[part].tolist()) for part in parts] == [{at} for at in place(cols, sequence, fit)]:
            storages = np.concatenate([parts[i] for i in sequence]).tolist()
            empty = [i for i in by_birth(plan, arena) if not s.size[i]]
            return Placed((*storages, *empty), order, "lowest" if fit == "free_list" else fit)
    by_offset = sorted(by_birth(plan, arena), key=lambda i: int(s.offset[i]))  # stable: at equal offsets, by birth
    return Placed(tuple(by_offset), BOTTOM_UP, "")
