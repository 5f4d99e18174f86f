"""Candidates: plans after moves, and the Pareto front of several."""

from __future__ import annotations

from dataclasses import replace

from tmmu_core.fitting.move import Move
from tmmu_core.fitting.problem.planner_calls import Candidate, PlanInput, extents, solve_input
from tmmu_core.fitting.search.apply_moves import apply_moves
from tmmu_core.plans.making.engine import Solution
from tmmu_core.plans.model import Plan

BEST_PLANNER = "auto"


def plan_moves(base: Candidate, moves: tuple[Move, ...]) -> Candidate:
    """Plan ``base`` after further moves, with the ``bytes`` of each move.

    Only the final plan input is planned: earlier moves keep the estimate of the live curve, the last one gets the rest.
    """
    plan_input = apply_moves(base.plan_input, moves)
    solution: Solution = solve_input(plan_input) if moves else base.solution
    after = sum(extents(solution.plan).values())
    *earlier, last = moves or (None,)
    made = [move for move in earlier if move is not None]
    if last is not None:
        made.append(replace(last, bytes=base.extent_bytes - sum(move.bytes for move in made) - after))
    return Candidate(plan_input, (*base.moves, *made), solution)


def names_of(plan: Plan) -> tuple[str, ...]:
    """Return the names of the arenas of this memory, sorted."""
    return tuple(sorted(extents(plan)))


def planner_move(plan_input: PlanInput) -> Move:
    """Return the move to the best planner."""
    return Move(
        "planner",
        f"pack with {BEST_PLANNER!r} instead of {plan_input.planner!r}",
        "another packing of the same live ranges",
        details={"planner": BEST_PLANNER},
    )


def pareto(candidates: list[Candidate]) -> tuple[Candidate, ...]:
    """Return the candidates that no other one dominates in cost and bytes, by rising cost."""
    found: list[Candidate] = []
    for candidate in sorted(candidates, key=lambda c: c.key):
        if not found or candidate.extent_bytes < found[-1].extent_bytes:
            found.append(candidate)
    return tuple(found)
