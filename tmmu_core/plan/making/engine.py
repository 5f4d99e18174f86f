"""``PlanMemory_v2``: a graph goes in, a plan comes out. The one engine behind every view, file and command.

::

    index ─► timeline ─► liveness ─► one problem per arena ─► planner ─► rows ─► hashes ─► Plan
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tmmu_core.errors import ContractError, InvalidIrShapes
from tmmu_core.graph.arenas import as_given, read_arenas
from tmmu_core.graph.document import many_small_values
from tmmu_core.graph.model import MODES, PRESETS, Arena, ArenaConfig, Graph, Mode, Preset
from tmmu_core.liveness.analyse import analyse
from tmmu_core.liveness.model import Liveness, Timeline
from tmmu_core.liveness.timeline import build_timeline, default_mode, default_preset
from tmmu_core.plan import canonical, metrics
from tmmu_core.plan.making.assemble import assemble
from tmmu_core.plan.making.memories import spread_over_memories
from tmmu_core.plan.making.problems import arena_problems
from tmmu_core.plan.making.rows import as_used, plan_columns
from tmmu_core.plan.making.summary import check_budget, check_capacity, summarise
from tmmu_core.plan.model import Plan
from tmmu_core.planners import PLANNERS, PlannerEntry, planner_named
from tmmu_core.planners.problem import Packing, Problem, Progress


@dataclass(frozen=True, eq=False)
class Solution:
    """A plan together with what it was made from, so that every "why" has an answer."""

    graph: Graph
    liveness: Liveness
    plan: Plan


@dataclass(frozen=True, eq=False)
class _Request:
    """What is asked of the engine beside the graph, defaults settled."""

    mode: Mode
    preset: Preset
    planner: PlannerEntry
    options: Mapping[str, Any]
    arenas: Mapping[str, Arena | Mapping[str, Any]] | None
    order: Sequence[str] | None
    token: bytes
    rank: int
    world_size: int
    shard_spec: Mapping[str, Any] | None
    dims: Mapping[str, int] | None
    budget: int | None
    ir_hash: bytes | None
    progress: Progress | None


def plan_graph(
    graph: Graph,
    *,
    mode: Mode | None = None,
    preset: Preset | None = None,
    planner: str = "slots",
    options: Mapping[str, Any] | None = None,
    arenas: Mapping[str, Arena | Mapping[str, Any]] | None = None,
    order: Sequence[str] | None = None,
    token: bytes | None = None,
    seed: int | None = None,
    rank: int = 0,
    world_size: int = 1,
    shard_spec: Mapping[str, Any] | None = None,
    dims: Mapping[str, int] | None = None,
    budget: int | None = None,
    ir_hash: bytes | None = None,
    progress: Progress | None = None,
) -> Solution:
    """Plan ``graph``.

    ``arenas`` is the configuration as given (it is hashed so); ``order`` overrides the graph's; ``token`` is the
    32-byte replay token, or is made from ``seed`` (0 when neither is given); ``dims`` a point inside the envelopes;
    ``budget`` the quota in bytes; ``ir_hash`` the graph's hash where it is known. Defaults are those of contract §10.

    Raises a ``ContractError`` with every field of its record filled: ``InvalidIrShapes``, ``LivenessCycle``,
    ``AlignmentViolation``, ``AllocationOverflow``, ``ArenaTooSmall``, ``AllocationFailure``.
    """
    token = token if token is not None else canonical.token_from_seed(seed or 0)
    try:
        chosen = _mode(mode, graph)
        request = _Request(
            mode=chosen,
            preset=_preset(preset, chosen),
            planner=planner_named(planner),
            options=options or {},
            arenas=arenas,
            order=order,
            token=token,
            rank=rank,
            world_size=world_size,
            shard_spec=shard_spec,
            dims=dims,
            budget=budget,
            ir_hash=ir_hash,
            progress=progress,
        )
        return _planned(graph, request)
    except ContractError as error:
        error.fill(replay_token=token.hex(), rank=rank)
        if "ir_hash" in error.required:
            error.fill(ir_hash=_hash_or_unknown(graph, ir_hash))
        raise


def _mode(mode: Mode | None, graph: Graph) -> Mode:
    if mode is None:
        return default_mode(graph)
    if mode not in MODES:
        raise _unknown("mode", mode, MODES)
    return mode


def _preset(preset: Preset | None, mode: Mode) -> Preset:
    if preset is None:
        return default_preset(mode)
    if preset not in PRESETS:
        raise _unknown("preset", preset, PRESETS)
    return preset


def _unknown(what: str, value: str, known: Sequence[str]) -> InvalidIrShapes:
    return InvalidIrShapes(
        f"there is no {what} {value!r}.",
        reason=f"unknown_{what}",
        node_id="",
        hint=f"Choose one of: {', '.join(known)}.",
    )


def _hash_or_unknown(graph: Graph, known: bytes | None) -> str:
    try:
        return (known or canonical.ir_hash(graph)).hex()
    except ContractError:
        return "unknown"


def _planned(graph: Graph, asked: _Request) -> Solution:
    started = time.perf_counter_ns()
    config = read_arenas(asked.arenas)
    timeline = build_timeline(graph, asked.mode, asked.preset, order=asked.order, dims=asked.dims)
    liveness, config, problems, packings = _packed(timeline, config, asked)
    placement = as_used(liveness, problems, packings)

    summaries = []
    for problem, packing in zip(problems, packings, strict=True):
        rows = placement.rows_of[problem.arena]
        slots = int(placement.slot[rows].max(initial=-1)) + 1
        death = placement.liveness.storages.death[rows]
        extent = placement.extent[problem.arena]
        summaries.append(summarise(problem, packing, config, timeline.steps, slots, extent, death))
    for problem, summary in zip(problems, summaries, strict=True):
        check_capacity(problem, summary)
    check_budget(summaries, asked.budget)

    with many_small_values():
        columns = plan_columns(liveness, placement, summaries)
    plan = assemble(
        columns,
        summaries,
        ir_hash=asked.ir_hash or canonical.ir_hash(graph),
        arena_config_hash=canonical.arena_config_hash(as_given(asked.arenas)),
        shard_spec_hash=canonical.shard_spec_hash(asked.shard_spec),
        planner=asked.planner.name,
        planner_options=dict(asked.options),
        ir_name=graph.name,
        mode=asked.mode,
        preset=asked.preset,
        places="slots" if asked.planner.has_slots else "bytes",
        own_arenas=asked.planner.across,
        replay_token=asked.token,
        rank=asked.rank,
        world_size=asked.world_size,
        steps=timeline.steps,
        has_inputs_step=timeline.has_inputs_step,
        execution_order=timeline.order,
        retained=metrics.activation_retention(liveness),
        started=started,
        notes={problem.arena: dict(p.notes) for problem, p in zip(problems, packings, strict=True) if p.notes},
    )
    return Solution(graph, placement.liveness, plan)


def _packed(
    timeline: Timeline, config: ArenaConfig, asked: _Request
) -> tuple[Liveness, ArenaConfig, list[Problem], list[Packing]]:
    """The planner's answer, arena by arena; one that spreads over memories names arenas of its own."""
    options = asked.planner.checked_options(asked.options)
    if asked.planner.across:
        spread = spread_over_memories(timeline, options, config)
        return spread.liveness, spread.config, spread.problems, spread.packings
    liveness = analyse(timeline, config)
    problems = arena_problems(liveness, config)
    return liveness, config, problems, [asked.planner.pack(problem, options, asked.progress) for problem in problems]


__all__ = ["PLANNERS", "Solution", "plan_graph"]
