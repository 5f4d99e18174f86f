"""List the reuse penalties that a plan pays, and find the least reuse cost for each capacity (contract §12)."""

from dataclasses import dataclass, replace
from itertools import product

from tmmu_core.base.errors import ArenaTooSmall
from tmmu_core.planners.problem import UNLIMITED, Problem, packing_extent
from tmmu_core.planners.reuse import plan_reuse
from tmmu_core.plans.making.arena_summary import reuse_cost
from tmmu_core.plans.model import Plan, rows_of_parts

MOST_POINTS = 24
EFFORT = {"rounds": 4_000, "work": 300_000_000}  # limits of the planner ``reuse`` for each search of a curve


@dataclass(frozen=True)
class CostlyReuse:
    """A reuse penalty that the plan pays: two rows share the bytes ``[low, high)`` of their arena."""

    first: int  # the row that is written first
    second: int
    cost: int
    low: int
    high: int


def costly_reuses(plan: Plan) -> list[CostlyReuse]:
    """Return every penalty that the plan pays, highest cost first.

    A tensor with gaps in its live range has a row per live part. A penalty is listed for the two rows closest in time.
    """
    reuses: list[CostlyReuse] = []
    for a, b, cost in plan.constraints.reuse_penalties if plan.constraints is not None else ():
        parts = product(rows_of_parts(plan, a), rows_of_parts(plan, b))
        pairs = [sorted((i, j), key=plan.birth.__getitem__) for i, j in parts if plan.arena[i] == plan.arena[j]]
        if not pairs or not cost:
            continue
        i, j = min(pairs, key=lambda pair: int(plan.birth[pair[1]]) - int(plan.death[pair[0]]))
        low = max(int(plan.offset[i]), int(plan.offset[j]))
        high = min(int(plan.offset[i] + plan.size[i]), int(plan.offset[j] + plan.size[j]))
        if low < high:
            reuses.append(CostlyReuse(i, j, cost, low, high))
    return sorted(reuses, key=lambda reuse: (-reuse.cost, plan.birth[reuse.second], reuse.low))


@dataclass(frozen=True)
class CostPoint:
    """The least reuse cost found for capacities in ``[extent, extent of the point before)`` (first: unlimited)."""

    extent: int
    cost: int
    bound: int  # lower bound of the cost for these capacities


def cost_curve(problem: Problem) -> list[CostPoint]:
    """Return the curve of reuse cost over capacity, largest extent first; at most ``MOST_POINTS`` points."""
    points, capacity = list[CostPoint](), UNLIMITED
    while len(points) < MOST_POINTS and capacity >= 0:
        try:
            packing = plan_reuse(replace(problem, capacity=capacity), EFFORT)
        except ArenaTooSmall:
            break
        extent = packing_extent(packing.offset, problem.size)
        point = CostPoint(extent, reuse_cost(problem, packing) or 0, packing.cost_bound or 0)
        if points and point.cost == points[-1].cost:
            # The new point replaces the last one. The bound for larger capacities also holds for smaller ones.
            point = replace(point, bound=points.pop().bound)
        points.append(point)
        capacity = extent - 1
    return points
