"""Apply moves to a plan input, plan the result, and keep the best: ``APPLYING``, the table of kinds.

A function of the table returns a plan input after a move. It reads only ``details``, ``tensors`` and ``nodes`` of the
move, so that a recipe gives the same result. Added nodes are part of the ``execution_order``.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from importlib import import_module
from itertools import groupby
from typing import Any

import msgspec

from tmmu_core.fitting.move import Kind, Move
from tmmu_core.fitting.problem.planner_calls import Candidate, PlanInput, extents, solve_input
from tmmu_core.plans.model import Plan

BEST_PLANNER = "auto"

Applying = Callable[..., PlanInput]
"""``(plan_input, move) → plan_input``; for a kind in ``TOGETHER`` any number of moves."""


def change_planner(plan_input: PlanInput, move: Move) -> PlanInput:
    """Apply a move whose ``details`` are ``{"planner": NAME, "options": {…}}``."""
    return replace(plan_input, planner=move.details["planner"], options=dict(move.details.get("options", {})))


def change_order(plan_input: PlanInput, move: Move) -> PlanInput:
    """Apply a move whose ``details`` are ``{"order": [node id, …]}``, all nodes of the graph."""
    order = tuple(move.details["order"])
    return replace(plan_input, graph=msgspec.structs.replace(plan_input.graph, execution_order=order))


APPLYING: dict[Kind, Applying | tuple[str, str]] = {
    "planner": change_planner,
    "order": change_order,
    "inplace": ("tmmu_core.fitting.problem.in_place", "apply_inplace"),
    "sizes": ("tmmu_core.fitting.moves.sizes", "apply_sizes"),
    "alignment": ("tmmu_core.fitting.moves.alignment", "apply_alignment"),
    "shards": ("tmmu_core.fitting.search.smallest_mesh", "apply_shards"),
    "recompute": ("tmmu_core.fitting.recompute.recompute_moves", "apply_recompute"),
    "offload": ("tmmu_core.fitting.moves.offload", "apply_offload"),
}
"""Kind → the function, or its module and name, imported at first use."""

TOGETHER: frozenset[Kind] = frozenset({"recompute", "offload"})
"""Kinds whose function takes several moves: the graph is written once."""


def apply_moves(plan_input: PlanInput, moves: Iterable[Move]) -> PlanInput:
    """Apply ``moves`` in order; consecutive moves of a kind in ``TOGETHER`` are applied together."""
    for kind, of_kind in groupby(moves, key=lambda move: move.kind):
        entry = APPLYING[kind]
        function: Applying = entry if callable(entry) else getattr(import_module(entry[0]), entry[1])
        if kind in TOGETHER:
            plan_input = function(plan_input, *of_kind)
        else:
            for move in of_kind:
                plan_input = function(plan_input, move)
    return plan_input


PROPOSING: dict[Kind, str] = {
    "recompute": "tmmu_core.fitting.recompute.recompute_moves",
    "offload": "tmmu_core.fitting.moves.offload",
}
"""Kind of moves that cost compute or transfers → its module, imported at first use.

* ``single_moves(plan_input)`` yields single moves that may lower the peak, best first, without planning.
* ``lower(plan_input, capacity, report)`` yields complete lists of moves, cheapest first, each with a lower
  peak than the one before.
"""


def proposing(kind: Kind) -> Any:
    """Return the module of a kind in ``PROPOSING``."""
    return import_module(PROPOSING[kind])


def plan_moves(base: Candidate, moves: tuple[Move, ...]) -> Candidate:
    """Plan ``base`` after further moves, with the ``bytes`` of each move.

    Only the final plan input is planned: earlier moves keep the estimate of the live curve, the last move gets the
    difference.
    """
    if not moves:
        return base
    plan_input = apply_moves(base.plan_input, moves)
    solution = solve_input(plan_input)
    *earlier, last = moves
    saved = base.extent_bytes - sum(extents(solution.plan).values())
    last = replace(last, bytes=saved - sum(move.bytes for move in earlier))
    return Candidate(plan_input, (*base.moves, *earlier, last), solution)


def names_of(plan: Plan) -> tuple[str, ...]:
    """Return the names of all arenas except ``offload``, sorted."""
    return tuple(sorted(extents(plan)))


def planner_move(planner: str) -> Move:
    """Return the move from ``planner`` to the best planner."""
    what = f"pack with {BEST_PLANNER!r} instead of {planner!r}"
    return Move("planner", what, "another packing of the same live ranges", details={"planner": BEST_PLANNER})


def pareto(candidates: list[Candidate]) -> tuple[Candidate, ...]:
    """Return the candidates that no other one dominates in cost and bytes, by rising cost."""
    found: list[Candidate] = []
    for candidate in sorted(candidates, key=lambda c: c.key):
        if not found or candidate.extent_bytes < found[-1].extent_bytes:
            found.append(candidate)
    return tuple(found)
