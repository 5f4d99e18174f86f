"""``PlanMemory_v2``: a graph goes in, a plan comes out. The one engine behind every view, file and command.

::

    index ─► timeline ─► liveness ─► one problem per arena ─► planner ─► rows ─► hashes ─► Plan
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tmmu_core.errors import AllocationFailure, ArenaTooSmall, ContractError, InvalidIrShapes
from tmmu_core.graph.arenas import as_given, read_arenas
from tmmu_core.graph.document import many_small_values
from tmmu_core.graph.model import MODES, PRESETS, Arena, Graph, Mode, Preset
from tmmu_core.liveness.analyse import analyse
from tmmu_core.liveness.model import I64, Liveness
from tmmu_core.liveness.timeline import build_timeline, default_mode, default_preset
from tmmu_core.plan import canonical, metrics
from tmmu_core.plan.certificate import certify
from tmmu_core.plan.memories import spread_over_memories
from tmmu_core.plan.model import ArenaSummary, Plan
from tmmu_core.plan.problems import arena_problems
from tmmu_core.plan.rows import PlanColumns, as_used, plan_columns
from tmmu_core.planners import PLANNERS, planner_named
from tmmu_core.planners.problem import Packing, Problem, Progress


@dataclass(frozen=True, eq=False)
class Solution:
    """A plan together with what it was made from, so that every "why" has an answer."""

    graph: Graph
    liveness: Liveness
    plan: Plan


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
        return _plan_graph(
            graph,
            _mode(mode, graph),
            preset,
            planner,
            options or {},
            arenas,
            order,
            token,
            rank,
            world_size,
            shard_spec,
            dims,
            budget,
            ir_hash,
            progress,
        )
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


def _plan_graph(
    graph: Graph,
    mode: Mode,
    preset: Preset | None,
    planner: str,
    options: Mapping[str, Any],
    arenas: Mapping[str, Arena | Mapping[str, Any]] | None,
    order: Sequence[str] | None,
    token: bytes,
    rank: int,
    world_size: int,
    shard_spec: Mapping[str, Any] | None,
    dims: Mapping[str, int] | None,
    budget: int | None,
    ir_hash: bytes | None,
    progress: Progress | None,
) -> Solution:
    started = time.perf_counter_ns()
    preset = preset or default_preset(mode)
    if preset not in PRESETS:
        raise _unknown("preset", preset, PRESETS)
    entry = planner_named(planner)
    chosen = entry.checked_options(options)
    config = read_arenas(arenas)

    timeline = build_timeline(graph, mode, preset, order=order, dims=dims)
    if entry.across:
        spread = spread_over_memories(analyse(timeline), chosen, config)
        liveness, config, problems, packings = spread.liveness, spread.config, spread.problems, spread.packings
    else:
        liveness = analyse(timeline, config)
        problems = arena_problems(liveness, config)
        packings = [entry.pack(problem, chosen, progress) for problem in problems]
    placement = as_used(liveness, problems, packings)
    summaries = [
        summarise(
            problem,
            packing,
            config,
            timeline.steps,
            int(placement.slot[placement.rows_of[problem.arena]].max(initial=-1)) + 1,
            placement.extent[problem.arena],
            placement.liveness.storages.death[placement.rows_of[problem.arena]],
        )
        for problem, packing in zip(problems, packings, strict=True)
    ]
    for problem, summary in zip(problems, summaries, strict=True):
        check_capacity(problem, summary)
    _check_budget(summaries, budget)

    with many_small_values():
        columns = plan_columns(liveness, placement, summaries)
    plan = assemble(
        columns,
        summaries,
        ir_hash=ir_hash or canonical.ir_hash(graph),
        arena_config_hash=canonical.arena_config_hash(as_given(arenas)),
        shard_spec_hash=canonical.shard_spec_hash(shard_spec),
        planner=planner,
        planner_options=dict(options),
        ir_name=graph.name,
        mode=mode,
        preset=preset,
        replay_token=token,
        rank=rank,
        world_size=world_size,
        steps=timeline.steps,
        has_inputs_step=timeline.has_inputs_step,
        execution_order=timeline.order,
        retained=metrics.activation_retention(liveness),
        started=started,
        notes={problem.arena: dict(p.notes) for problem, p in zip(problems, packings, strict=True) if p.notes},
    )
    return Solution(graph, placement.liveness, plan)


def assemble(
    columns: PlanColumns,
    summaries: Sequence[ArenaSummary],
    *,
    ir_hash: bytes,
    arena_config_hash: bytes,
    shard_spec_hash: bytes,
    mode: str,
    replay_token: bytes,
    rank: int,
    world_size: int,
    execution_order: tuple[str, ...],
    retained: tuple[int, int],
    started: int,
    **rest: Any,
) -> Plan:
    """Hash the columns (contract §6) and make the plan. ``started`` is the clock (ns) at which planning began."""
    names = [summary.name for summary in summaries]
    slots = canonical.slot_rows(columns.tensor_ids, names, columns.arena, columns.logical_slot)
    addresses = canonical.logical_address_table(names, columns.arena, columns.logical_slot, columns.offset)
    order_hash = canonical.execution_order_hash(execution_order)
    plan_hash = canonical.plan_hash(
        ir_hash=ir_hash,
        mode=mode,
        arena_config_hash=arena_config_hash,
        execution_order_hash=order_hash,
        rank=rank,
        world_size=world_size,
        shard_spec_hash=shard_spec_hash,
        slot_assignment_table=canonical.slot_assignment_table(replay_token, slots),
        logical_address_table=addresses,
    )
    return Plan(
        ir_hash=ir_hash,
        mode=mode,
        replay_token=replay_token,
        rank=rank,
        world_size=world_size,
        shard_spec_hash=shard_spec_hash,
        arena_config_hash=arena_config_hash,
        execution_order_hash=order_hash,
        tmmu_plan_hash=plan_hash,
        layout_hash=canonical.layout_hash(slots, addresses),
        execution_order=execution_order,
        arenas=tuple(summaries),
        metrics=metrics.plan_metrics(summaries, retained=retained, allocation_time_ns=time.perf_counter_ns() - started),
        **columns._asdict(),
        **rest,
    )


def summarise(
    problem: Problem,
    packing: Packing,
    config: Mapping[str, Arena],
    steps: int,
    slots: int,
    extent: int,
    death: I64,
) -> ArenaSummary:
    """The arena's figures and its certificate.

    ``death`` are the ranges' ends as planned: a hand-off that a planner could have used and did not makes its giver
    live a step longer, which the peak must show; the lower bound is that of the problem, where it is still open.
    A plan as low as a proven bound is optimal, whoever made it.
    """
    certificate = certify(problem, packing, extent, max(steps, 1))
    figures = metrics.summarise_arena(
        problem.arena,
        config.get(problem.arena, Arena()),
        birth=problem.birth,
        death=death,
        size=problem.size,
        steps=max(steps, 1),
        slots=slots,
        extent=extent,
        lower_bound=certificate.lower_bound,
        status=certificate.status,
    )
    return replace(figures, witness=certificate.witness, witness_step=certificate.step)


def check_capacity(problem: Problem, summary: ArenaSummary) -> None:
    """Raise ``ArenaTooSmall`` when the extent is over the capacity, saying whether any planner could fit."""
    if summary.extent_bytes <= summary.capacity_bytes:
        return
    possible = summary.peak_live_bytes <= summary.capacity_bytes
    raise ArenaTooSmall(
        f"arena {summary.name!r} holds {summary.capacity_bytes:,} B, the plan needs {summary.extent_bytes:,} B.",
        arena=summary.name,
        capacity=summary.capacity_bytes,
        required=summary.extent_bytes,
        peak_live_bytes=summary.peak_live_bytes,
        another_planner_may_fit=possible,
        hint=(
            f"{summary.peak_live_bytes:,} B are alive together, so a planner that places bytes may fit: try another."
            if possible
            else f"{summary.peak_live_bytes:,} B are alive together, so no planner can fit: "
            "enlarge the arena, or change the order, the batch or the retention."
        ),
    )


def _check_budget(summaries: Sequence[ArenaSummary], budget: int | None) -> None:
    needed = sum(summary.extent_bytes for summary in summaries)
    if budget is not None and needed > budget:
        largest = max(summaries, key=lambda summary: (summary.extent_bytes, summary.name))
        raise AllocationFailure(
            f"the plan needs {needed:,} B over all arenas, the budget is {budget:,} B; nothing was committed.",
            arena=largest.name,
            peak_required_bytes=needed,
            memory_bytes_budget=budget,
            allocation_failures=1,
            hint=f"The largest arena is {largest.name!r} with {largest.extent_bytes:,} B.",
        )


__all__ = ["PLANNERS", "Solution", "assemble", "plan_graph"]
