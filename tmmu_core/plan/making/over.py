"""A plan that is over its capacities or its quota, given instead of refused: so that it can be looked at (and mended).

The limits stay in the plan: each arena has the capacity that was asked for, the configuration's hash is that of the
request, and the judge finds the capacity exceeded. Nothing of this kind is ever applied to memory.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tmmu_core.errors import AllocationFailure, ArenaTooSmall, ContractError
from tmmu_core.graph.arenas import as_given, read_arenas
from tmmu_core.graph.model import Arena, Graph
from tmmu_core.plan import canonical
from tmmu_core.plan.making.configured import capacities_by_name, settled
from tmmu_core.plan.making.make import Made, make_plan
from tmmu_core.plan.making.request import PlanRequest
from tmmu_core.plan.model import Plan
from tmmu_core.planners.problem import PlainInstance, Progress


def make_plan_anyway(asked: Graph | PlainInstance, request: PlanRequest, progress: Progress | None = None) -> Made:
    """:func:`make_plan`, but where a limit is exceeded the plan without limits, under the limits that were asked for.

    Raises everything else that planning raises; an arena that is not declared is still refused.
    """
    try:
        return make_plan(asked, request, progress)
    except (ArenaTooSmall, AllocationFailure) as error:
        if isinstance(error, ArenaTooSmall) and error.undeclared:
            raise
        try:
            made = make_plan(asked, without_limits(request), progress)
        except ContractError:
            raise error from None
        plan = _limited(made.plan, _capacities(asked, request, made.plan), _config_hash(asked, request, made.plan))
        solution = None if made.solution is None else replace(made.solution, plan=plan)
        return replace(made, request=request.spelled_out(asked), plan=plan, solution=solution)


def without_limits(request: PlanRequest) -> PlanRequest:
    """The request without its capacities and its quota."""
    arenas = None
    if request.arenas is not None:
        arenas = {
            name: {key: value for key, value in said.items() if key != "capacity_bytes"}
            for name, said in as_given(request.arenas).items()
        }
    return request.but(arenas=arenas, capacities={}, budget=None)


def _capacities(asked: Graph | PlainInstance, request: PlanRequest, plan: Plan) -> dict[str, int]:
    names = tuple(arena.name for arena in plan.arenas)
    config = read_arenas(request.arenas)
    found = {name: arena.capacity_bytes for name, arena in config.items()}
    if isinstance(asked, PlainInstance) and not found:
        found = {asked.problem.arena: asked.problem.capacity}
    return found | capacities_by_name(request.capacities, names if len(names) == 1 or found == {} else tuple(found))


def _config_hash(asked: Graph | PlainInstance, request: PlanRequest, plan: Plan) -> bytes:
    if isinstance(asked, Graph):
        return canonical.arena_config_hash(as_given(settled(asked, request.spelled_out(asked)).arenas))
    arena = plan.arenas[0]
    capacity = _capacities(asked, request, plan)[arena.name]
    config: dict[str, Any] = {"capacity_bytes": capacity, "alignment_bytes": arena.alignment_bytes}
    return canonical.arena_config_hash({arena.name: config})


def _limited(plan: Plan, capacities: dict[str, int], config_hash: bytes) -> Plan:
    """The plan under these limits; its layout stays, its hash is that of the configuration asked for."""
    unlimited = Arena().capacity_bytes
    arenas = tuple(replace(arena, capacity_bytes=capacities.get(arena.name, unlimited)) for arena in plan.arenas)
    limited = replace(plan, arenas=arenas, arena_config_hash=config_hash)
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
