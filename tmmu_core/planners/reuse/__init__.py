"""Find placements that fit the capacity, with the least reuse cost, then the least extent (contract §12).

A reuse penalty is a pair of buffers with a cost that is paid once if their bytes overlap: on hardware with
asynchronous engines the second buffer then waits for the first (Böhnlein et al. 2026, "DSA with reuse penalties").
:mod:`.local_search` finds placements, :mod:`.cost_bound` bounds the cost from below. The same input gives the same
placement on every machine: budgets are counts, and all numbers are integers.
"""

from collections.abc import Mapping
from dataclasses import replace
from operator import add
from typing import Any

import numpy as np

from tmmu_core.base.errors import ArenaTooSmall, InvalidIrShapes
from tmmu_core.planners.auto import auto
from tmmu_core.planners.bounds import lower_bound
from tmmu_core.planners.problem import I64, U64, Meter, Packing, Problem, Progress, ReuseTerms, count_option
from tmmu_core.planners.reuse.cost_bound import bounding_cliques, is_infeasible, with_search_bounds
from tmmu_core.planners.reuse.local_search import Placement, ReuseModel, repair, reuse_model

EXTENT_ROUNDS = 1_000  # rounds of each local search for a smaller extent
RESTARTS = 3  # number of runs of the local search, each with its own random numbers
THRESHOLD = 3  # greatest increase of the cost that a local search accepts at its start; restart k adds k
RESTART_UNITS = 100  # maximum number of units (single or colocated buffers) for restarts
LARGE_FACTOR = 10  # above ``RESTART_UNITS``, rounds are multiplied by this, and each initial placement has one run
WORK = 4_000_000_000  # maximum number of offset comparisons in the exhaustive search of an arena: a few seconds


def plan_reuse(problem: Problem, options: Mapping[str, Any], progress: Progress | None = None) -> Packing:
    """Return the placement of least reuse cost found, with a proven bound. Without reuse terms, call ``auto``.

    Options: ``rounds`` of each local search (see :data:`LARGE_FACTOR`), ``work`` of the exhaustive search (see
    :data:`WORK`), ``max_nodes`` (:class:`.Meter`; a local search counts as one node). Raises ``ArenaTooSmall`` if no
    fitting placement was found, ``InvalidIrShapes`` (reason ``constraints``) if constraints contradict each other.
    """
    meter = Meter.of(progress, options)
    if observed_by_all(problem) and not (problem.reuse and problem.reuse.penalties):
        return replace(auto(problem, {}, meter), cost_bound=0)
    model = reuse_model(_with_in_place_reuse(problem, problem.fixed))
    if model.contradiction:
        message = f"arena {problem.arena!r} has no placement: {model.contradiction}."
        raise InvalidIrShapes(message, reason="constraints", node_id="", hint="Drop a constraint, or shorten a range.")
    rounds, work = count_option(options, "rounds", 20_000), count_option(options, "work", WORK)
    is_small = len(model) <= RESTART_UNITS
    rounds *= 1 if is_small else LARGE_FACTOR
    best = (len(model) + 1, 0, [-1] * len(model))  # number of unplaced units, cost, offsets
    starts = [first_placement(model)]
    if -1 in starts[0] and observed_by_all(problem):
        packed = auto(problem, {}, meter)
        if (packed.lower_bound or 0) > problem.capacity:
            raise _too_small(problem, packed.lower_bound)
        model = reuse_model(_with_in_place_reuse(problem, packed.offset))
        at = np.zeros(len(model), np.int64)
        at[model.unit_of] = packed.offset
        starts = [np.where(at <= model.capacity - model.size, at, -1).tolist(), first_placement(model)]
    # The bound must hold for every choice of in-place reuses: in ``free``, the input and the output may share bytes.
    free = model if problem.handoff_from is None else reuse_model(replace(problem, handoff_from=None))
    cost_groups = bounding_cliques(free)
    runs = [(starts[0], seed) for seed in range(RESTARTS)] if is_small else [(start, 0) for start in starts]
    for k, (start, seed) in enumerate(runs):
        bound = sum(cost for cost, _ in cost_groups) + free.unavoidable - model.unavoidable
        if best[:2] <= (0, bound):
            break
        if k and not meter("reuse", k, len(runs)):
            meter.halt()
        if k and meter.ended():
            break
        meter.used += 1
        best = min(best, repair(model, start, rounds, THRESHOLD + seed, seed, bound), key=lambda found: found[:2])
        if k == 0 and not best[0]:
            found = np.zeros(len(free), np.int64)
            found[free.unit_of] = np.array(best[2])[model.unit_of]
            offset = found.tolist()
            cost_groups = with_search_bounds(free, cost_groups, offset, work)
            if free is model:
                best = 0, Placement(model, offset).cost(), offset
    missing, _, offset = best
    bound = sum(cost for cost, _ in cost_groups) + free.unavoidable
    if missing:
        least_extent = lower_bound(problem).bytes
        is_proven = least_extent > problem.capacity or is_infeasible(free, work)
        raise _too_small(problem, max(least_extent, problem.capacity + 1) if is_proven else None)
    offset = moved_down(model, offset)
    offset = _with_smaller_extent(problem, model, offset, meter)
    cost = Placement(model, offset).cost() + model.unavoidable
    final = np.where(model.size > 0, offset, model.empty_at).astype(np.uint64)[model.unit_of]
    storages = reversed([*enumerate(free.unit_of.tolist())])  # reversed: the first storage of full size remains
    largest = {u: problem.ids[i] for i, u in storages if problem.size[i] == free.size[u]}
    witness = tuple([tuple([largest[u] for u in group]) for _, group in cost_groups]) or None
    return Packing(final, stopped=meter.ended(), cost_bound=bound, cost_witness=witness, notes={"reuse_cost": cost})


def _with_in_place_reuse(problem: Problem, offset: U64 | I64 | None) -> Problem:
    """Return the problem with a colocation for each in-place reuse that these offsets contain (−1: not placed)."""
    if problem.handoff_from is None or offset is None:
        return problem
    source, terms = problem.handoff_from, problem.reuse or ReuseTerms()
    is_taken = (source >= 0) & (offset == offset[source]) & (offset.astype(np.int64) >= 0)
    is_taken &= (problem.size > 0) & (problem.size[source] > 0)
    pairs = tuple([(int(source[j]), j) for j in np.flatnonzero(is_taken).tolist()])
    reuse = replace(terms, colocations=(*terms.colocations, *pairs))
    return replace(problem, handoff_from=np.where(is_taken, -1, source), reuse=reuse)


def observed_by_all(problem: Problem) -> bool:
    """Return whether every planner without slots observes all constraints: no reuse terms except penalties."""
    terms = problem.reuse or ReuseTerms()
    return not (terms.colocations or terms.exclusions or terms.reserved)


def _with_smaller_extent(problem: Problem, model: ReuseModel, offset: list[int], meter: Meter) -> list[int]:
    """Return a placement of smaller extent and no greater cost, found by bisection; ``offset`` if none is found."""
    cost, size = Placement(model, offset).cost(), model.size.tolist()
    least_extent = lower_bound(problem).bytes if observed_by_all(problem) else max(size, default=0)
    low, high = least_extent - 1, max(map(add, offset, size), default=0)
    while low + 1 < high and not meter.ended():
        lower = replace(model, capacity=(low + high) // 2)
        start = [at if at + nbytes <= lower.capacity else -1 for at, nbytes in zip(offset, size, strict=True)]
        missing, found_cost, found = repair(lower, start, EXTENT_ROUNDS, THRESHOLD, 0, cost)
        meter.used += 1
        if missing or found_cost > cost:
            low = lower.capacity
        else:
            offset = moved_down(lower, found)
            high = max(map(add, offset, size))
        if not meter("reuse", 0, 0):
            meter.halt()
    return offset


def first_placement(model: ReuseModel) -> list[int]:
    """Return a greedy placement: pinned units first, then the largest, each at the lowest of its cheapest offsets."""
    place = Placement(model)
    for u in np.lexsort((-np.diff(model.first), -model.size, model.pin < 0)).tolist():
        place.place_cheapest(u)
    return place.offset


def moved_down(model: ReuseModel, offset: list[int]) -> list[int]:
    """Return the placement after moving every unit down while the cost does not grow."""
    place = Placement(model, offset)
    moved = True
    while moved:
        moved = False
        for u in sorted(range(len(offset)), key=lambda u: (place.offset[u], u)):
            before = place.offset[u]
            old_cost = place.price(u, before)
            place.offset[u] = next((at for at, cost in place.costs(u) if at < before and cost <= old_cost), before)
            moved |= place.offset[u] != before
    return place.offset


def _too_small(problem: Problem, bound: int | None) -> ArenaTooSmall:
    where = f"arena {problem.arena!r} of {problem.capacity:,} B"
    message = f"no placement was found that keeps every constraint of {where}."
    if bound is not None:
        message = f"no placement fits {where}: at least {bound:,} B are needed {problem.assumptions} (proven)."
    penalty_hint = "" if problem.must_not_alias is None else ", or turn separations into reuse penalties"
    required, hint = bound or problem.capacity + 1, f"Raise the capacity{penalty_hint}."
    diagnostics: dict[str, Any] = {"capacity": problem.capacity, "required": required, "proven": bound is not None}
    return ArenaTooSmall(message, arena=problem.arena, hint=hint, **diagnostics)
