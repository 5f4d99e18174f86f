"""Make a plan from a request and a graph, a rank's share of a graph, or an instance."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from tmmu_core.base.errors import ArenaTooSmall, ContractError
from tmmu_core.graph.checks import check_alignment, refuse_unused_dims, unused_arenas
from tmmu_core.graph.model import Graph
from tmmu_core.graph.sharding.shard_spec import read_spec
from tmmu_core.graph.sharding.splits import rules_without_effect
from tmmu_core.planners import ARENA_PLANNERS
from tmmu_core.planners.problem import GIVEN, UNLIMITED, Meter, PlainInstance, Problem, Progress, packing_extent
from tmmu_core.plans.making.engine import Solution, solve
from tmmu_core.plans.making.instance import plan_problem
from tmmu_core.plans.making.plan_sets import plan_rank
from tmmu_core.plans.making.request import (
    PlanRequest,
    capacities_by_name,
    refuse_invalid_token,
    settings_by_name,
    with_arena_settings,
)
from tmmu_core.plans.making.request_options import json_text
from tmmu_core.plans.model import Plan

BETTER = "auto"  # planner whose result is compared with the plan of the request
MOST_STORAGES = 10_000  # maximum for which :data:`BETTER` is tried; a greedy run of this size takes 0.2 seconds
SEARCH_NODES, MOST_SEARCHED_STORAGES = 500, 1_000
"""Maximum number of search nodes, and of storages for a search. With more storages, one greedy run is compared."""


@dataclass(frozen=True)
class BetterPlanner:
    """A planner that needs less memory than the planner of a plan, and the bytes that it needs."""

    planner: str
    extent_bytes: int  # sum of the arena sizes after a short search; a full run may need less memory
    is_least: bool  # whether the sum equals the lower bound, so that no planner needs less
    saved_percent: int  # saved bytes in percent of the arena sizes of the plan, rounded down; at least 1


def better_than(plan: Plan, source: Solution | PlanningResult) -> BetterPlanner | None:
    """Return the result of a short deterministic search by ``auto``; ``None`` if it saves under 1 % or is skipped."""
    extent, bound = (sum(getattr(a, name) for a in plan.arenas) for name in ("extent_bytes", "bound_bytes"))
    storages = sum(arena.storages for arena in plan.arenas)
    is_comparable = not plan.own_arenas and plan.places != "sparse" and plan.constraints is None
    if plan.planner == BETTER or not is_comparable or extent <= bound or storages > MOST_STORAGES:
        return None
    meter = Meter(None, SEARCH_NODES if storages <= MOST_SEARCHED_STORAGES else 0)
    entry, better_extent = ARENA_PLANNERS[BETTER], 0
    for problem in source.problems:
        problem = replace(problem, capacity=UNLIMITED)  # auto rejects a capacity below the lower bound
        packing = entry.pack(problem, entry.checked_options({}), meter)
        better_extent += packing_extent(packing.offset, problem.size)
    saved_percent = (extent - better_extent) * 100 // extent
    return BetterPlanner(BETTER, better_extent, better_extent <= bound, saved_percent) if saved_percent > 0 else None


@dataclass(frozen=True, eq=False)
class PlanningResult:
    """A plan, with its graph and liveness or with the problems of its instance."""

    request: PlanRequest  # with its defaults (:meth:`.PlanRequest.with_defaults`); after a fit, only ``planner`` is set
    plan: Plan
    solution: Solution | None = None  # ``None`` for an instance, which has no graph
    whole_hash: bytes | None = None  # the ir_hash of the whole graph if only one rank is planned; else ``None``
    warnings: tuple[str, ...] = ()  # for a graph, a sentence for each part of the request without effect
    problems: tuple[Problem, ...] = ()  # of an instance, with the settings of the request; empty for a graph

    @cached_property
    def better(self) -> BetterPlanner | None:
        """The result of :func:`better_than` for this plan."""
        return better_than(self.plan, self.solution or self)


def make_plan(
    source: Graph | PlainInstance, request: PlanRequest, progress: Progress | None = None, *, over_limits: bool = False
) -> PlanningResult:
    """Plan ``source`` under ``request``; ``over_limits``: see :func:`.engine.solve`. Raises ``ContractError``."""
    request = request.with_defaults(source)
    try:
        if isinstance(source, PlainInstance):
            return _planned_instance(source, request, progress, over_limits)
        refuse_unused_dims(source, request.dims)
        if request.shard_spec is None:
            configured = with_arena_settings(source, request)
            solution = solve(source, configured, progress=progress, over_limits=over_limits)
        else:
            solution = plan_rank(source, request, over_limits=over_limits)
        whole_hash = None if request.shard_spec is None else solution.plan.ir_hash
        unused = unused_arenas(request.arenas or {}, source)[1]
        warnings = [f"Arena {name!r} is declared, but no tensor uses it." for name in unused]
        if request.shard_spec is not None:
            warnings += rules_without_effect(source, read_spec(request.shard_spec), request.dims)
        notes_of_arenas = [notes for notes in solution.plan.notes.values() if isinstance(notes, dict)]
        for number, rule in enumerate(request.options.get("rules") or (), start=1):
            if not any(f"rule {number}" in notes.get("said_by", ()) for notes in notes_of_arenas):
                effect = "has no effect: no match, or earlier rules match first."
                warnings.append(f"helia rule {number} ({json_text(rule)}) {effect}")
        return PlanningResult(request, solution.plan, solution, whole_hash, tuple(warnings))
    except ContractError as error:
        error.fill(replay_token=request.replay_token.hex(), rank=request.rank)
        raise


def _planned_instance(
    instance: PlainInstance, request: PlanRequest, progress: Progress | None, over_limits: bool
) -> PlanningResult:
    refuse_invalid_token(request)
    problems = problems_as_requested(instance.problems, request)
    planner, notes = request.planner or "", instance.notes
    packing = instance.packing if planner == GIVEN else None
    if instance.packing is not None:
        effect = f"discarded: {planner} places every buffer again" if packing is None else "kept; no planner ran"
        notes = (*notes, f"all {sum(map(len, problems)):,} offsets of the input are {effect}.")
    source = replace(instance, problem=problems[0], others=problems[1:], packing=packing, notes=notes)
    settings: dict[str, Any] = {"planner": planner, "options": request.options if packing is None else {}}
    settings |= {"token": request.replay_token, "progress": progress}
    try:
        plan = plan_problem(source, **settings)
    except ArenaTooSmall:
        if not over_limits:
            raise
        plan = plan_problem(source, **settings, over_limits=True)
    return PlanningResult(request, plan, problems=problems)


def problems_as_requested(problems: tuple[Problem, ...], request: PlanRequest) -> tuple[Problem, ...]:
    """Return the problems with the requested settings. Raises ``InvalidIrShapes`` (arena), ``AlignmentViolation``."""
    names = tuple([problem.arena for problem in problems])
    capacities_by_name(dict.fromkeys(request.arenas or (), 0), names)  # rejects settings of an unknown arena
    if request.alignment is not None:
        check_alignment(request.alignment, arena=names[0])
    changed = []
    for problem, arena in zip(problems, settings_by_name(names, request).values(), strict=True):
        capacity = arena.get("capacity_bytes", problem.capacity)
        problem = replace(problem, capacity=capacity, page_size=arena.get("page_size", 0))
        if (alignment := arena.get("alignment_bytes")) is not None:
            aligned = np.maximum(problem.alignment, np.uint64(alignment))
            problem = replace(problem, arena_alignment=alignment, alignment=aligned)
        changed.append(problem)
    return tuple(changed)
