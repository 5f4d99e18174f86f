"""The one way from a request to a plan: whatever is planned, whoever asks.

::

    graph    ─► (a rank's share, under a shard spec) ─► engine ─► (the draft's addresses) ─► Made
    instance ─► its one arena as asked ──────────────► planner ────────────────────────────► Made
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tmmu_core.errors import ContractError, InvalidIrShapes
from tmmu_core.graph.arenas import check_alignment, read_arenas
from tmmu_core.graph.model import Graph
from tmmu_core.plan.canonical import is_token
from tmmu_core.plan.making.configured import capacities_by_name, settled
from tmmu_core.plan.making.engine import Solution, solve
from tmmu_core.plan.making.instance import plan_problem
from tmmu_core.plan.making.ranks import plan_rank
from tmmu_core.plan.making.request import DEFAULT_PLANNER, PlanRequest
from tmmu_core.plan.model import Plan
from tmmu_core.planners.problem import GIVEN, PlainInstance, Problem, Progress


@dataclass(frozen=True, eq=False)
class Made:
    """A plan and what it was made from."""

    request: PlanRequest
    """With mode, preset and planner said."""
    plan: Plan
    solution: Solution | None = None
    """``None`` for an instance, which has no graph."""
    cut_from: bytes | None = None
    """The ir_hash of the whole graph where the plan is one rank's."""


def make_plan(asked: Graph | PlainInstance, request: PlanRequest, progress: Progress | None = None) -> Made:
    """Plan ``asked`` as ``request`` says. Raises ``ContractError`` as the engine does, its record filled."""
    try:
        return _made(asked, request.spelled_out(asked), progress)
    except ContractError as error:
        error.fill(replay_token=request.replay_token.hex(), rank=request.rank)
        raise


def _made(asked: Graph | PlainInstance, request: PlanRequest, progress: Progress | None) -> Made:
    if not is_token(request.replay_token, of_draft=request.addressing != "offsets"):
        raise InvalidIrShapes(
            f"the replay token has {len(request.replay_token)} bytes, not 32.",
            reason="replay_token",
            node_id="",
            hint="Tokens of 64 bytes and more are the superseded draft's: --addressing blake3_sparse.",
        )
    if isinstance(asked, PlainInstance):
        return Made(request, _plan_of_instance(asked, request, progress))
    if request.shard_spec is None:
        solution = solve(asked, settled(asked, request), progress=progress)
    else:
        solution = plan_rank(asked, request)
    if request.addressing != "offsets":
        from tmmu_core.plan.making.sparse import with_sparse_addresses

        solution = replace(solution, plan=with_sparse_addresses(solution.plan))
    cut_from = solution.plan.ir_hash if request.shard_spec is not None else None
    return Made(request, solution.plan, solution, cut_from)


# --- instances ---------------------------------------------------------------------------------------------------


def _plan_of_instance(instance: PlainInstance, request: PlanRequest, progress: Progress | None) -> Plan:
    given = request.planner == GIVEN and instance.packing is not None
    problem = problem_as_asked(instance.problem, request)
    return plan_problem(
        replace(instance, problem=problem, packing=instance.packing if given else None),
        planner=DEFAULT_PLANNER if given else request.planner or DEFAULT_PLANNER,
        options=None if given else request.options,
        token=request.replay_token,
        progress=progress,
    )


def problem_as_asked(problem: Problem, request: PlanRequest) -> Problem:
    """An instance under the configuration of its one arena; where nothing is said, its own figures stay.

    Raises ``InvalidIrShapes`` (reason ``unknown_arena``) for another arena, and as ``read_arenas`` does.
    """
    changes: dict[str, Any] = {}
    if request.arenas:
        config = read_arenas(request.arenas)
        capacities_by_name(dict.fromkeys(config, 0), (problem.arena,))
        arena = config[problem.arena]
        changes |= {"capacity": arena.capacity_bytes, "arena_alignment": arena.alignment_bytes}
    capacity = capacities_by_name(request.capacities, (problem.arena,)).get(problem.arena)
    if capacity is not None:
        changes["capacity"] = capacity
    if request.alignment is not None:
        check_alignment(request.alignment, arena=problem.arena)
        changes["arena_alignment"] = request.alignment
    if "arena_alignment" in changes:
        changes["alignment"] = np.maximum(problem.alignment, np.uint64(changes["arena_alignment"]))
    return replace(problem, **changes) if changes else problem
