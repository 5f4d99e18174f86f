"""The smallest plan, for a capacity that no plan is found for."""

from collections.abc import Callable
from dataclasses import replace

from tmmu_core.fitting.problem.answer import Allowed, Fitted
from tmmu_core.fitting.problem.capacity import Capacity
from tmmu_core.fitting.problem.planner_calls import Candidate, extents
from tmmu_core.fitting.search.candidates import pareto
from tmmu_core.fitting.search.fit_search import SMALL_GRAPH, best_of, fit
from tmmu_core.planners.problem import Progress

ROUNDS = 4  # maximum number of searches at the mean of the lower bound and the smallest plan


def fit_or_smallest(
    start: Candidate,
    capacity: Capacity,
    allowed: Allowed | None = None,
    progress: Progress | None = None,
    found: Callable[[Candidate], None] | None = None,
) -> Fitted:
    """Search as :func:`fit`; if no plan fits, search for the smallest plan.

    A proof ends a search before it tries all moves, so the search is repeated at the proven bound until no proof ends
    it. Moves depend on the capacity, so further searches use the mean of the bound (or the capacity) and the best plan.
    With a maximum cost, no proof ends a search, so one search suffices.
    """
    fitted = last = fit(start, capacity, allowed, progress, found)
    if fitted.answer == "fits" or fitted.allowed.max_cost is not None:
        return fitted
    while last.answer == "cannot" and not last.stopped:
        raised = _capacity_at(last, 0)
        if raised.key == last.capacity.key:
            break
        last = fit(start, raised, allowed, progress, found)
        fitted = _with_smaller(fitted, last)
    for _ in range(ROUNDS if len(start.plan_input.graph.nodes) <= SMALL_GRAPH else 0):
        before = fitted
        if not last.stopped:
            last = fit(start, _capacity_at(fitted, 1), allowed, progress, found)
            fitted = _with_smaller(fitted, last)
        if fitted.best.extent_bytes == before.best.extent_bytes:
            break
    return fitted


def _with_smaller(fitted: Fitted, other: Fitted) -> Fitted:
    """Return ``fitted`` with the smaller plan and the higher bound of the two fits."""
    curve = tuple(pareto([*fitted.curve, *other.curve]))
    best = best_of((fitted.best, other.best, *curve), fitted.capacity)
    bound = max(fitted.bound, other.bound, key=lambda each: each.bytes)
    proven = max(fitted.proven_bytes, other.proven_bytes)
    answer = fitted.answer if fitted.capacity.over(extents(best.plan)) else "fits"
    return replace(
        fitted, answer=answer, best=best, curve=curve, bound=bound, proven_bytes=proven, stopped=other.stopped
    )


def _capacity_at(fitted: Fitted, part: int) -> Capacity:
    """Return the limits raised to the lower bound, plus ``part`` / 2 of the way to the best plan."""
    given, bytes_of, reached = fitted.capacity, fitted.bound.bytes_of, extents(fitted.best.plan)

    def between(limit: int, bound: int, extent: int) -> int:
        least = max(limit, bound)
        return least + max(0, extent - least) * part // 2

    total = None
    if given.total is not None:
        total = between(given.total, fitted.lower_bound_bytes, given.limited_bytes(fitted.best.plan))
    arenas = {name: between(limit, bytes_of.get(name, 0), reached.get(name, 0)) for name, limit in given.arenas.items()}
    return Capacity(total, arenas)
