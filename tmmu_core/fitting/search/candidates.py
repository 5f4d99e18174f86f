"""Candidates of a fit: apply moves to a plan input and plan the result.

Only ``kind`` and ``details`` of a move are read, so the moves of a recipe give the same result. Nodes that a move adds
are part of the ``execution_order``.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import groupby
from typing import Any

import msgspec

from tmmu_core.base.errors import source_of_errors
from tmmu_core.fitting.move import Kind, Move
from tmmu_core.fitting.moves import offload
from tmmu_core.fitting.moves.settings import apply_alignment, apply_shards, apply_sizes, dim_bounds
from tmmu_core.fitting.problem.in_place import apply_inplace
from tmmu_core.fitting.problem.planner_calls import Candidate, PlanInput, extents, solve_input
from tmmu_core.fitting.recompute import recompute_moves
from tmmu_core.fitting.recompute.drop_moves import apply_drops

BEST_PLANNER = "auto"
COSTLY: dict[Kind, Any] = {"recompute": recompute_moves, "offload": offload}
"""Kind of moves that cost compute or transfers → its module.

* ``single_moves(plan_input)`` yields moves that each lower the peak live bytes, most bytes first, without planning.
* ``lists_of_moves(plan_input, capacity, report)`` yields complete lists of moves, cheapest first, each with a lower
  peak than the list before.
"""


def apply_planner(plan_input: PlanInput, move: Move) -> PlanInput:
    """Apply a move whose ``details`` are ``{"planner": NAME, "options": {…}}``."""
    return replace(plan_input, planner=move.details["planner"], options=dict(move.details.get("options", {})))


def apply_order(plan_input: PlanInput, move: Move) -> PlanInput:
    """Apply a move whose ``details`` are ``{"order": [node id, …]}``, all nodes of the graph."""
    order = tuple(move.details["order"])
    return replace(plan_input, graph=msgspec.structs.replace(plan_input.graph, execution_order=order))


APPLY: dict[Kind, Callable[[PlanInput, Move], PlanInput]] = {
    "planner": apply_planner,
    "order": apply_order,
    "inplace": apply_inplace,
    "sizes": apply_sizes,
    "alignment": apply_alignment,
    "shards": apply_shards,
}
"""Kind that is not in ``COSTLY`` → the function that applies one move."""


def apply_moves(plan_input: PlanInput, moves: Iterable[Move]) -> PlanInput:
    """Return the plan input after ``moves``, applied in order."""
    for kind, of_kind in groupby(moves, key=lambda move: move.kind):
        if kind in COSTLY:  # together, because each application writes the whole graph
            plan_input = apply_drops(plan_input, kind, of_kind)
        else:
            for move in of_kind:
                plan_input = APPLY[kind](plan_input, move)
    return plan_input


def plan_moves(base: Candidate, moves: tuple[Move, ...]) -> Candidate:
    """Return the plan of ``base`` after further moves; the last move gets the rest of the saving as ``Move.bytes``."""
    if not moves:
        return base
    plan_input = apply_moves(base.plan_input, moves)
    solution = solve_input(plan_input)
    *earlier, last = moves
    saved = base.extent_bytes - sum(extents(solution.plan).values())
    last = replace(last, bytes=saved - sum(move.bytes for move in earlier))
    return Candidate(plan_input, (*base.moves, *earlier, last), solution)


def with_size(start: Candidate, name: str, size: int) -> Candidate:
    """Return the plan at another upper bound of a dimension. Raises ``InvalidIrShapes`` for an unknown dimension."""
    if dim_bounds(start.plan_input, name).max == size:
        return start
    why = "the same computation on smaller tensors, such as a smaller batch"
    with source_of_errors(f"{start.plan.ir_name or 'the graph'} at {name} = {size}"):
        return plan_moves(start, (Move("sizes", f"{name} = {size}", why, details={"dims": {name: size}}),))


def planner_move(planner: str) -> Move:
    """Return the move from ``planner`` to the best planner."""
    what = f"pack with {BEST_PLANNER!r} instead of {planner!r}"
    return Move("planner", what, "the execution order does not change", details={"planner": BEST_PLANNER})


def pareto(candidates: Iterable[Candidate]) -> tuple[Candidate, ...]:
    """Return the candidates that no other one dominates in cost and bytes, by rising cost."""
    found: list[Candidate] = []
    for candidate in sorted(candidates, key=lambda c: c.key):
        if not found or candidate.extent_bytes < found[-1].extent_bytes:
            found.append(candidate)
    return tuple(found)
