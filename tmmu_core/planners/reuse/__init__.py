"""Placements of least reuse cost: fit the capacity, then the least cost, then the least extent (contract §12).

A reuse penalty is a pair of buffers with a cost that is paid once where their bytes overlap: on hardware with
asynchronous engines the second one then waits for the first (Böhnlein et al. 2026, "DSA with reuse penalties").
:mod:`.repair` finds placements, :mod:`.cost_bound` bounds the cost from below. The same input gives the same placement
on every machine: budgets are counts, and all numbers are integers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tmmu_core.base.errors import ArenaTooSmall, InvalidIrShapes
from tmmu_core.planners.columns import count_option
from tmmu_core.planners.meter import metered
from tmmu_core.planners.problem import I64, Packing, Problem, Progress
from tmmu_core.planners.reuse.repair import Placement, repair
from tmmu_core.planners.reuse.reuse_model import LARGEST, ReuseModel, reuse_model

RESTARTS = 3
"""Runs of the local search with other random numbers."""


def plan_reuse(problem: Problem, options: Mapping[str, Any], progress: Progress | None = None) -> Packing:
    """Return the placement of least reuse cost found, with the proven lower bound of the cost.

    Options: ``rounds`` of each local search, ``budget`` (nodes of the proof), ``max_nodes`` (:mod:`..meter`). Raises
    ``ArenaTooSmall`` where none was found that fits, ``InvalidIrShapes`` (reason ``constraints``) for constraints that
    contradict each other.
    """
    model, meter = reuse_model(problem), metered(progress, options)
    if model.contradiction:
        raise InvalidIrShapes(
            f"arena {problem.arena!r} has no placement: {model.contradiction}.",
            reason="constraints",
            node_id="",
            hint="Drop one of the two constraints.",
        )
    rounds = count_option(options, "rounds", 20_000)
    best = (len(model) + 1, 0, [-1] * len(model))
    for seed in range(RESTARTS):
        if best[:2] > (0, 0) and (seed == 0 or meter("reuse", seed, RESTARTS)):
            best = min(best, repair(model, _first(model), rounds, 3 + seed, seed), key=lambda found: found[:2])
    missing, cost, offset = best
    if missing:
        raise _too_small(problem, model)
    offset = settled(model, offset)
    cost += model.unavoidable
    at = np.array(offset, np.uint64)[model.unit_of] if len(problem) else np.zeros(0, np.uint64)
    return Packing(at, cost_bound=0 if not cost else model.unavoidable, notes={"reuse_cost": cost})


def _first(model: ReuseModel) -> list[int]:
    """Return a first placement: units by size and number of edges, each at the lowest of its cheapest offsets."""
    place = Placement(model)
    degree: I64 = np.diff(model.first)
    for u in np.lexsort((-degree, -model.size, model.pin < 0)).tolist():
        place.put(u)
    return place.offset


def settled(model: ReuseModel, offset: list[int]) -> list[int]:
    """Return the placement with every unit moved down as long as the cost does not grow."""
    place = Placement(model, offset)
    moved = True
    while moved:
        moved = False
        for u in sorted(range(len(offset)), key=lambda u: (place.offset[u], u)):
            before = place.offset[u]
            cost = place.price(u, before)
            lower = (at for at in place.offers(u) if at < before and 0 <= place.price(u, at) <= cost)
            place.offset[u] = min(lower, default=before)
            moved |= place.offset[u] != before
    return place.offset


def _too_small(problem: Problem, model: ReuseModel) -> ArenaTooSmall:
    free = LARGEST if model.capacity >= LARGEST else model.capacity
    return ArenaTooSmall(
        f"no placement was found that keeps every constraint of arena {problem.arena!r} within {free:,} B.",
        arena=problem.arena,
        capacity=problem.capacity,
        required=problem.capacity + 1,
        hint="Raise the capacity, or turn separations into reuse penalties.",
    )
