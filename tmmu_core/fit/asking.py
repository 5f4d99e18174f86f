"""The one place where fitting asks for a plan.

A :class:`Question` is a graph that stands for itself: its order, its backward pass and its sizes are written out, so
that planning it needs no mode, no preset and no flags.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from tmmu_core.fit.moves import Cost, Move
from tmmu_core.fit.settling import written_out
from tmmu_core.graph.arenas import as_given, read_arenas
from tmmu_core.graph.model import OFFLOAD_ARENA, Arena, Graph
from tmmu_core.liveness.analyse import analyse
from tmmu_core.liveness.timeline import build_timeline, default_mode, default_preset
from tmmu_core.plan.making.configured import arena_config
from tmmu_core.plan.making.engine import Solution, solve
from tmmu_core.plan.making.make import make_plan
from tmmu_core.plan.making.problems import arena_problems
from tmmu_core.plan.making.request import DEFAULT_PLANNER, PlanRequest
from tmmu_core.plan.making.rows import as_used
from tmmu_core.plan.model import Plan
from tmmu_core.planners import ArenaPlannerEntry, MemoryPlannerEntry, planner_named
from tmmu_core.planners.problem import Packing, Problem, Progress


@dataclass(frozen=True, eq=False)
class Question:
    """What is planned: a graph written out, and how."""

    graph: Graph
    """With an ``execution_order``; mode and preset are the ones that it has by default."""
    planner: str = "slots"
    options: Mapping[str, Any] = field(default_factory=dict)
    arenas: Mapping[str, Arena | Mapping[str, Any]] | None = None
    """As given; capacities are held against the answer, not asked of the planner."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """A plan that moves led to."""

    question: Question
    moves: tuple[Move, ...]
    """In the order in which they were made."""
    solution: Solution

    @property
    def plan(self) -> Plan:
        """The plan itself."""
        return self.solution.plan

    @property
    def cost(self) -> Cost:
        """What all its moves cost."""
        return sum((move.cost for move in self.moves), Cost())

    @property
    def extent_bytes(self) -> int:
        """Bytes over all arenas of this memory."""
        return sum(extents(self.plan).values())

    @property
    def fitted_graph(self) -> Graph:
        """The graph that gives this plan with no further flags: it names its planner where that is not the default."""
        planner = "" if self.question.planner == DEFAULT_PLANNER else self.question.planner
        return msgspec.structs.replace(self.question.graph, planner=planner)

    @property
    def key(self) -> tuple[int, int, int, int]:
        """Sort key: cheapest first, then the fewest bytes, then the fewest moves."""
        return (*self.cost.key, self.extent_bytes, len(self.moves))


def question_of(graph: Graph, request: PlanRequest, progress: Progress | None = None) -> Candidate:
    """Today's plan: what ``request`` makes of ``graph``, written out, without capacities and quota, and planned.

    Under a shard spec it is the rank's share. Raises ``ContractError`` as planning does.
    """
    open_ended = request.but(capacities={}, budget=None, arenas=_unlimited(request.arenas), token=None, seed=None)
    made = make_plan(graph, open_ended, progress)
    assert made.solution is not None
    arenas = arena_config(graph, open_ended, tuple(arena.name for arena in made.plan.arenas))
    assert made.request.planner is not None
    question = Question(
        written_out(made.solution.liveness.timeline, request.dims), made.request.planner, request.options, arenas
    )
    return Candidate(question, (), ask(question))


def ask(question: Question, progress: Progress | None = None) -> Solution:
    """Plan it. Raises ``ContractError`` as the engine does."""
    request = PlanRequest(planner=question.planner, options=question.options, arenas=_unlimited(question.arenas))
    return solve(question.graph, request, progress=progress)


def extents_of(question: Question, known: dict[bytes, Packing] | None = None) -> dict[str, int]:
    """Arena → extent in bytes, this memory's arenas alone: planned for real, without the columns of a plan.

    ``known`` keeps packings that are at their bound, by what there was to pack: a move leaves most arenas as they are.
    """
    entry = planner_named(question.planner)
    if isinstance(entry, MemoryPlannerEntry):
        return extents(ask(question).plan)
    config = read_arenas(_unlimited(question.arenas))
    mode = default_mode(question.graph)
    liveness = analyse(build_timeline(question.graph, mode, default_preset(mode)), config)
    problems = arena_problems(liveness, config)
    options = entry.checked_options(question.options)
    kept = {} if known is None else known
    packings = [_packed(entry, problem, options, kept) for problem in problems]
    placement = as_used(liveness, problems, packings)
    return {name: extent for name, extent in placement.extent.items() if name != OFFLOAD_ARENA}


def _packed(
    entry: ArenaPlannerEntry, problem: Problem, options: Mapping[str, Any], known: dict[bytes, Packing]
) -> Packing:
    """The problem's packing, or one known for the same storages at the same places in time: only their order counts."""
    times, places = np.unique(np.concatenate([problem.birth, problem.death]), return_inverse=True)
    columns = (places, problem.size, problem.alignment, problem.handoff_from, problem.must_not_alias)
    digest = hashlib.sha256(repr((entry.name, problem.arena, len(times), sorted(options.items()))).encode())
    for column in columns:
        digest.update(b"-" if column is None else np.ascontiguousarray(column).tobytes())
    key = digest.digest()
    if key not in known:
        packing = entry.pack(problem, options, None)
        if not packing.optimal:
            return packing
        known[key] = packing
    return known[key]


def extents(plan: Plan) -> dict[str, int]:
    """Arena → extent in bytes, this memory's arenas alone."""
    return {arena.name: arena.extent_bytes for arena in plan.arenas if arena.name != OFFLOAD_ARENA}


def _unlimited(arenas: Mapping[str, Arena | Mapping[str, Any]] | None) -> dict[str, Any] | None:
    """The configuration without its capacities: a plan that is over them is an answer too."""
    if arenas is None:
        return None
    return {
        name: {key: value for key, value in said.items() if key != "capacity_bytes"}
        for name, said in as_given(arenas).items()
    }
