"""Plans over a capacity or the budget, returned instead of an error so that they can be shown.

The limits stay in the plan: each arena has the requested capacity, the configuration hash is that of the request, and
the verifier reports the exceeded capacity. Such a plan cannot be applied.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from tmmu_core.base.errors import AllocationFailure, ArenaTooSmall, ContractError
from tmmu_core.graph.arenas import as_given, read_arenas
from tmmu_core.graph.model import Arena, Graph
from tmmu_core.planners.problem import PlainInstance, Progress
from tmmu_core.plans import canonical
from tmmu_core.plans.making.arena_settings import capacities_by_name, with_arena_settings
from tmmu_core.plans.making.make import PlanningResult, make_plan
from tmmu_core.plans.making.ranks import RankPlans, plan_ranks
from tmmu_core.plans.making.request import PlanRequest
from tmmu_core.plans.model import Plan

T = TypeVar("T")


def make_plan_anyway(
    source: Graph | PlainInstance, request: PlanRequest, progress: Progress | None = None
) -> PlanningResult:
    """Return :func:`make_plan`, or, if a limit is exceeded, the unlimited plan labelled with the requested limits.

    Raises everything else that planning raises; an arena that is not declared is still refused.
    """
    made, is_over = _with_fallback(lambda changed: make_plan(source, changed, progress), request)
    if not is_over:
        return made
    plan = _under_limits(made.plan, source, request)
    solution = None if made.solution is None else replace(made.solution, plan=plan)
    return replace(made, request=request.spelled_out(source), plan=plan, solution=solution)


def plan_ranks_anyway(graph: Graph, request: PlanRequest, progress: Progress | None = None) -> RankPlans:
    """Return :func:`plan_ranks`, or, if a rank exceeds a limit, unlimited plans labelled with the requested limits.

    Raises as :func:`make_plan_anyway`.
    """
    planned, is_over = _with_fallback(lambda changed: plan_ranks(graph, changed, progress), request)
    if not is_over:
        return planned
    classes = (
        replace(one, solution=replace(one.solution, plan=_under_limits(one.solution.plan, graph, request)))
        for one in planned.classes
    )
    return replace(planned, classes=tuple(classes))


def _with_fallback(make: Callable[[PlanRequest], T], request: PlanRequest) -> tuple[T, bool]:
    """Return ``(result, whether it is over a limit)`` of the request, else of the request without its limits."""
    try:
        return make(request), False
    except (ArenaTooSmall, AllocationFailure) as error:
        if isinstance(error, ArenaTooSmall) and error.undeclared:
            raise
        try:
            return make(without_limits(request)), True
        except ContractError:
            raise error from None


def without_limits(request: PlanRequest) -> PlanRequest:
    """Return the request without capacities and budget."""
    arenas = None
    if request.arenas is not None:
        arenas = {
            name: {key: value for key, value in arena.items() if key != "capacity_bytes"}
            for name, arena in as_given(request.arenas).items()
        }
    return request.but(arenas=arenas, capacities={}, budget=None, one_memory=request.is_one_memory)


def _capacities(source: Graph | PlainInstance, request: PlanRequest, plan: Plan) -> dict[str, int]:
    names = tuple(arena.name for arena in plan.arenas)
    config = read_arenas(request.arenas)
    found = {name: arena.capacity_bytes for name, arena in config.items()}
    if isinstance(source, PlainInstance) and not found:
        found = {problem.arena: problem.capacity for problem in source.problems}
    return found | capacities_by_name(request.capacities, names if len(names) == 1 or found == {} else tuple(found))


def _under_limits(plan: Plan, source: Graph | PlainInstance, request: PlanRequest) -> Plan:
    """Return the plan with the request's limits: same layout, hash of the requested configuration."""
    capacities = _capacities(source, request, plan)
    if isinstance(source, Graph):
        config = as_given(with_arena_settings(source, request.spelled_out(source)).arenas)
    else:
        arena = plan.arenas[0]
        limits = {"capacity_bytes": capacities[arena.name], "alignment_bytes": arena.alignment_bytes}
        config = {arena.name: limits}
    unlimited = Arena().capacity_bytes
    arenas = tuple(replace(arena, capacity_bytes=capacities.get(arena.name, unlimited)) for arena in plan.arenas)
    limited = replace(plan, arenas=arenas, arena_config_hash=canonical.arena_config_hash(config))
    whole, _ = canonical.plan_digests(limited)
    return replace(limited, tmmu_plan_hash=whole)


def packing_may_do(plan: Plan, budget: int | None = None) -> bool:
    """Whether no lower bound is over its limit: another packing of the same lives may keep all limits, or none may."""
    if any(arena.bound_bytes > arena.capacity_bytes for arena in plan.arenas):
        return False
    return budget is None or sum(arena.bound_bytes for arena in plan.arenas) <= budget


def over_limits(plan: Plan, budget: int | None = None) -> dict[str, int]:
    """Arena → bytes that its extent is over its capacity; ``""`` → bytes that all of them are over the quota."""
    found = {a.name: a.extent_bytes - a.capacity_bytes for a in plan.arenas if a.extent_bytes > a.capacity_bytes}
    needed = sum(arena.extent_bytes for arena in plan.arenas)
    return found | ({"": needed - budget} if budget is not None and needed > budget else {})
