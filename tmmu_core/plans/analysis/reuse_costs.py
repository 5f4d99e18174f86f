"""Active reuse penalties of a plan, and the least reuse cost for each capacity (contract §12, "Reuse costs")."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tmmu_core.base.errors import ArenaTooSmall
from tmmu_core.planners.problem import UNLIMITED, Problem, packing_extent
from tmmu_core.planners.reuse import plan_reuse
from tmmu_core.plans.model import Plan

MOST_POINTS = 24
"""Maximum number of points of a curve."""
EFFORT = {"rounds": 4_000, "work": 300_000_000}
"""Options of the planner for each point."""


@dataclass(frozen=True)
class CostlyReuse:
    """Two rows that share bytes, so that their reuse penalty is active.

    If their live ranges are disjoint, ``first`` is the earlier row.
    """

    first: int
    second: int
    cost: int
    low: int
    high: int
    """Shared bytes ``[low, high)`` of the arena."""


def costly_reuses(plan: Plan) -> list[CostlyReuse]:
    """Return every active penalty of a plan, the highest first.

    For tensors with several live parts (one row each), the two parts closest in time are reported.
    """
    found: list[CostlyReuse] = []
    for a, b, cost in plan.constraints.reuse_penalties if plan.constraints is not None else ():
        pairs = [
            sorted((i, j), key=lambda row: int(plan.birth[row]))
            for i in _rows(plan, a)
            for j in _rows(plan, b)
            if plan.arena[i] == plan.arena[j]
        ]
        if not pairs or not cost:
            continue
        i, j = min(pairs, key=lambda pair: int(plan.birth[pair[1]]) - int(plan.death[pair[0]]))
        low = max(int(plan.offset[i]), int(plan.offset[j]))
        high = min(int(plan.offset[i] + plan.size[i]), int(plan.offset[j] + plan.size[j]))
        if low < high:
            found.append(CostlyReuse(i, j, cost, low, high))
    return sorted(found, key=lambda reuse: (-reuse.cost, plan.birth[reuse.second], reuse.low))


def _rows(plan: Plan, name: str) -> Iterator[int]:
    """Yield the rows of a tensor: one, or one per live part."""
    part, k = name, 0
    while part in plan.row_of or not k:
        if part in plan.row_of:
            yield plan.row_of[part]
        k += 1
        part = f"{name}@part{k}"


@dataclass(frozen=True)
class CostPoint:
    """The least reuse cost found for capacities from ``extent`` bytes up to the next larger extent of the curve."""

    extent: int
    cost: int
    bound: int
    """Lower bound of the cost for every capacity below the next larger extent."""


def cost_curve(problem: Problem) -> list[CostPoint]:
    """Return the curve of reuse cost over capacity, largest extent first; at most ``MOST_POINTS`` points."""
    points: list[CostPoint] = []
    capacity = UNLIMITED
    while len(points) < MOST_POINTS:
        try:
            packing = plan_reuse(replace(problem, capacity=capacity), EFFORT)
        except ArenaTooSmall:
            break
        extent = packing_extent(packing.offset, problem.size)
        point = CostPoint(extent, int(packing.notes.get("reuse_cost", 0)), packing.cost_bound or 0)
        if points and point.cost == points[-1].cost:
            # The same cost in fewer bytes replaces the last point, whose bound holds up to the next larger extent.
            point = replace(point, bound=points.pop().bound)
        points.append(point)
        capacity = extent - 1
        if capacity < 0:
            break
    return points
