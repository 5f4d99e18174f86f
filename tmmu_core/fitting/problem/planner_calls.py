"""Lower the graph of a fit to a ``PlanInput``, and plan it: a ``Candidate``.

Lowering writes the mode, preset, order and sizes of a request into the graph itself. A plan of the lowered graph with
default options then has the live ranges of the request. So moves do not depend on the mode, and a fitted file needs no
options. No other module of ``fitting`` calls planners.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from tmmu_core.fitting.move import Cost, Kind, Move, total_cost
from tmmu_core.graph.checks import arena_fields, assumed_at, read_arenas
from tmmu_core.graph.model import OFFLOAD_ARENA, ONE_MEMORY, Arena, Dim, Graph
from tmmu_core.liveness.analyse import analyse
from tmmu_core.liveness.timeline import Liveness, Timeline, build_timeline, default_mode, default_preset, view_roots
from tmmu_core.planners import planner_named
from tmmu_core.planners.problem import Progress
from tmmu_core.plans.analysis.plan_notes import remarks, unplanned_parts
from tmmu_core.plans.making.engine import Solution, solve
from tmmu_core.plans.making.make import make_plan
from tmmu_core.plans.making.plan_rows import arena_problems, packed_arena
from tmmu_core.plans.making.request import DEFAULT_PLANNER, PlanRequest, arena_config
from tmmu_core.plans.making.request_options import OPTION_SPECS, option_texts
from tmmu_core.plans.model import Plan


def in_one_memory(graph: Graph) -> Graph:
    """Return the graph with every tensor in the arena ``memory``, except offloaded copies."""
    tensors = list(graph.tensors)
    for i, tensor in enumerate(tensors):
        if tensor.arena != OFFLOAD_ARENA and tensor.view is None:
            tensors[i] = msgspec.structs.replace(tensor, arena=ONE_MEMORY)
    return msgspec.structs.replace(graph, tensors=tuple(tensors))


def lower_graph(timeline: Timeline, dims: Mapping[str, int] | None = None) -> Graph:
    """Return the graph as executed: nodes in order, tensors that are live, ``dims`` as upper bounds of dimensions."""
    graph, index, dims = timeline.graph, timeline.index, dims or {}
    step_of = np.append(timeline.step_of, 0)  # tensors without a producer have producer −1, which selects this 0
    is_removed = (step_of[index.producer[index.written_base]] < 0) & ~index.is_persistent[index.written_base]
    removed = {index.tensor_ids[i] for i in np.flatnonzero(is_removed).tolist()}
    nodes = [graph.nodes[k] for k in timeline.node_at.tolist() if k >= 0]
    # A graph without backward nodes is planned in mode ``inference``, which runs forward nodes only.
    if all(node.phase != "backward" for node in nodes):
        nodes = [msgspec.structs.replace(node, phase="forward") for node in nodes]
    outputs = dict.fromkeys(graph.outputs)
    if timeline.mode == "forward" and timeline.retain:
        # Saved tensors and their bases become outputs, unless they are persistent, or nothing computes or loads them.
        roots, _ = view_roots(index)
        has_bytes = ((index.producer >= 0) | index.is_input | (index.base >= 0)) & ~index.is_persistent
        saved = [k for i, tensor in enumerate(graph.tensors) if tensor.saved_for_backward for k in (i, int(roots[i]))]
        outputs |= dict.fromkeys(index.tensor_ids[k] for k in saved if has_bytes[k])
    keeps_saved = timeline.mode == "backward" and timeline.retain
    tensors = []
    for tensor in [tensor for tensor in graph.tensors if tensor.id not in removed]:
        separate = tuple(name for name in tensor.must_not_alias if name not in removed)
        marks = {"saved_for_backward": tensor.saved_for_backward and keeps_saved, "remat": False}
        tensors.append(msgspec.structs.replace(tensor, must_not_alias=separate, **marks))
    bounds = {name: Dim(min(graph.dims[name].min, size), size) for name, size in dims.items() if name in graph.dims}
    return msgspec.structs.replace(
        graph,
        tensors=tuple(tensors),
        nodes=tuple(nodes),
        outputs=tuple(name for name in outputs if name not in removed),
        dims=graph.dims | bounds,
        assumed=assumed_at(graph, dims),
        safepoints=tuple(filter(frozenset(timeline.order).__contains__, graph.safepoints)),
        execution_order=timeline.order,
    )


@dataclass(frozen=True, eq=False)
class PlanInput:
    """A lowered graph (its mode, preset and sizes are fixed), a planner and an arena configuration."""

    graph: Graph
    """A graph with an ``execution_order``. The planner, its options, and the alignment if all arenas share one, are
    copied into the graph. So the plan of the graph with default options is the plan of this input."""
    planner: str = "slots"
    options: Mapping[str, Any] = field(default_factory=dict)
    arenas: Mapping[str, Arena | Mapping[str, Any]] | None = None  # as given; capacities are ignored
    state_bytes: int = 16  # bytes of the saved state of a random generator; default: Philox, a seed and an offset

    def __post_init__(self) -> None:
        planner = "" if self.planner == DEFAULT_PLANNER else self.planner
        own: dict[str, Any] = {"planner": planner, "planner_options": dict(self.options)}
        config = read_arenas(self.arenas)
        alignments = {arena.alignment_bytes for name, arena in config.items() if name != OFFLOAD_ARENA}
        if len(alignments) == 1 and alignments != {self.graph.alignment or Arena().alignment_bytes}:
            own["alignment"] = alignments.pop()
        if any(getattr(self.graph, name) != value for name, value in own.items()):
            object.__setattr__(self, "graph", msgspec.structs.replace(self.graph, **own))


@dataclass(frozen=True, eq=False)
class Candidate:
    """A plan input after moves, and its plan."""

    plan_input: PlanInput
    moves: tuple[Move, ...]  # in the order in which they were applied
    solution: Solution
    warnings: tuple[str, ...] = ()  # about the request and its graph; empty after moves

    @property
    def plan(self) -> Plan:
        """The plan."""
        return self.solution.plan

    @property
    def liveness(self) -> Liveness:
        """The live ranges of the plan."""
        return self.solution.liveness

    @property
    def cost(self) -> Cost:
        """Sum of the costs of all moves."""
        return total_cost(self.moves)

    def has(self, kind: Kind) -> bool:
        """Return whether a move has this kind."""
        return any(move.kind == kind for move in self.moves)

    @property
    def extent_bytes(self) -> int:
        """Sum of the extents of all arenas except ``offload``."""
        return sum(extents(self.plan).values())

    @property
    def key(self) -> tuple[int, int, int, int]:
        """Sort key: cost, then bytes, then number of moves."""
        return (*self.cost.key, self.extent_bytes, len(self.moves))


def initial_candidate(graph: Graph, request: PlanRequest, progress: Progress | None = None) -> Candidate:
    """Return the initial candidate: ``graph`` lowered for ``request``, planned without capacities or budget.

    If the request has a shard spec, the graph is the share of the request's rank. Raises ``ContractError``.
    """
    limits: dict[str, Any] = {"capacities": {}, "budget": None, "one_memory": request.is_one_memory}
    unlimited = request.but(token=None, seed=None, arenas=_unlimited(request.arenas), **limits).with_defaults(graph)
    planner, options = unlimited.planner or DEFAULT_PLANNER, unlimited.options
    if not planner_named(planner).defines_arenas:  # use a fast planner: the offsets of this plan are not used
        unlimited = unlimited.but(planner="greedy", options={})
    result = make_plan(graph, unlimited, progress)
    assert result.solution is not None
    config = arena_config(graph, unlimited, tuple(arena.name for arena in result.plan.arenas))
    lowered = lower_graph(result.solution.liveness.timeline, request.dims)
    if request.is_one_memory:  # store the option in the fitted graph
        lowered = in_one_memory(lowered)
    plan_input = PlanInput(lowered, planner, options, config)
    given, warnings = option_texts(request), []
    unused = [OPTION_SPECS[name].option for name in ("budget", "token", "seed", "addressing") if name in given]
    if unused:
        warnings.append(f"These options have no effect on fit: {', '.join(unused)}.")
    if request.capacities and any("capacity_bytes" in arena for arena in arena_fields(request.arenas).values()):
        warnings.append("--capacity replaces the capacities in --arenas.")
    warnings += (*result.warnings, *remarks(result.plan), *unplanned_parts(result.plan))
    return Candidate(plan_input, (), solve_input(plan_input), tuple(warnings))


def solve_input(plan_input: PlanInput) -> Solution:
    """Return the plan of an input, without capacities. Raises ``ContractError``."""
    request = PlanRequest(planner=plan_input.planner, options=plan_input.options, arenas=_unlimited(plan_input.arenas))
    return solve(plan_input.graph, request)


def extents_of(plan_input: PlanInput) -> dict[str, int]:
    """Return :func:`extents` of the plan of an input; with most planners, without making the rows of the plan."""
    entry = planner_named(plan_input.planner)
    if entry.defines_arenas:
        return extents(solve_input(plan_input).plan)
    config = read_arenas(_unlimited(plan_input.arenas))
    mode = default_mode(plan_input.graph)
    liveness = analyse(build_timeline(plan_input.graph, mode, default_preset(mode)), config)
    problems = arena_problems(liveness, config)
    options = entry.checked_options(plan_input.options)
    arenas = [packed_arena(problem, entry.pack(problem, options)) for problem in problems]
    return {arena.problem.arena: arena.extent for arena in arenas if arena.problem.arena != OFFLOAD_ARENA}


def extents(plan: Plan) -> dict[str, int]:
    """Return arena → extent in bytes, without the arena ``offload``."""
    return {arena.name: arena.extent_bytes for arena in plan.arenas if arena.name != OFFLOAD_ARENA}


def bounds(plan: Plan) -> dict[str, int]:
    """Return arena → lower bound of its extent in the plan's order, in bytes."""
    return {arena.name: arena.lower_bound_bytes or 0 for arena in plan.arenas if arena.name != OFFLOAD_ARENA}


def _unlimited(arenas: Mapping[str, Arena | Mapping[str, Any]] | None) -> dict[str, Any] | None:
    """Return the configuration without capacities, so that a plan over capacity is no error."""
    if arenas is None:
        return None
    items = arena_fields(arenas).items()
    return {name: {key: value for key, value in arena.items() if key != "capacity_bytes"} for name, arena in items}
