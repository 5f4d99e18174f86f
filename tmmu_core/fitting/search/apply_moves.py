"""Apply moves to a plan input: ``APPLYING``, the table of kinds.

A function takes the plan input and a move and returns the changed plan input. It reads only ``details``, ``tensors``
and ``nodes`` of the move, so that a recipe gives the same result. Added nodes are part of the ``execution_order``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from importlib import import_module
from itertools import groupby

import msgspec

from tmmu_core.fitting.move import Kind, Move
from tmmu_core.fitting.problem.planner_calls import PlanInput

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
    "shards": ("tmmu_core.fitting.moves.shards", "apply_shards"),
    "recompute": ("tmmu_core.fitting.recompute", "apply_recompute"),
    "offload": ("tmmu_core.fitting.moves.offload", "apply_offload"),
}
"""Kind → the function, or its module and name, imported at first use."""

TOGETHER: frozenset[Kind] = frozenset({"recompute", "offload"})
"""Kinds whose function takes several moves: the graph is written once."""


def apply_moves(plan_input: PlanInput, moves: Iterable[Move]) -> PlanInput:
    """Apply ``moves`` in order; consecutive moves of a kind in ``TOGETHER`` are applied together."""
    for kind, run in groupby(moves, key=lambda move: move.kind):
        how = APPLYING[kind]
        function: Applying = how if callable(how) else getattr(import_module(how[0]), how[1])
        if kind in TOGETHER:
            plan_input = function(plan_input, *run)
        else:
            for move in run:
                plan_input = function(plan_input, move)
    return plan_input
