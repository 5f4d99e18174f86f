"""Search for the smallest plan if no plan fits the capacity."""

from collections.abc import Callable
from dataclasses import replace

from tmmu_core.fitting.problem.answer import Allowed, Fitted
from tmmu_core.fitting.problem.capacity import Capacity
from tmmu_core.fitting.problem.planner_calls import Candidate, extents
from tmmu_core.fitting.search.candidates import pareto
from tmmu_core.fitting.search.fit_search import SMALL_GRAPH, best_of, fit
from tmmu_core.planners.problem import Progress

ROUNDS = 4  # maximum number of searches at a capacity halfway between the lower bound and the smallest plan


def fit_or_smallest(
    start: Candidate,
    capacity: Capacity,
    allowed: Allowed | None = None,
    progress: Progress | None = None,
    found: Callable[[Candidate], None] | None = None,
    *,
    after_proof: bool = True,
) -> Fitted:
    """Search as :func:`fit`; if no plan fits, search for the smallest plan, which may fit after the answer ``open``.

    A search stops early if the capacity is proven too small. Further searches use the proven lower bound as the
    capacity, then capacities halfway from there to the best plan. With a maximum cost, one search suffices, because
    no proof stops it. ``after_proof``: search also after the proof that no plan fits.
    """
    best_ordered: set[int] = set()
    fitted = last = fit(start, capacity, allowed, progress, found, best_ordered)
    is_proven = fitted.answer == "cannot" and not after_proof
    if fitted.answer == "fits" or is_proven or fitted.allowed.max_cost is not None:
        return fitted
    while last.answer == "cannot" and not last.stopped:
        raised = _raised_capacity(last)
        if raised.key == last.capacity.key:
            break
        last = fit(start, raised, allowed, progress, found, best_ordered)
        fitted = _with_smaller(fitted, last)
    for _ in range(ROUNDS if len(start.plan_input.graph.nodes) <= SMALL_GRAPH else 0):
        before = fitted
        if not last.stopped:
            last = fit(start, _raised_capacity(fitted, halfway=True), allowed, progress, found, best_ordered)
            fitted = _with_smaller(fitted, last)
        if fitted.best.extent_bytes == before.best.extent_bytes:
            break
    return fitted


def _with_smaller(fitted: Fitted, other: Fitted) -> Fitted:
    curve = tuple(pareto([*fitted.curve, *other.curve]))
    best = best_of((fitted.best, other.best, *curve), fitted.capacity)
    bound = max(fitted.bound, other.bound, key=lambda each: each.bytes)
    proven = max(fitted.proven_bytes, other.proven_bytes)
    answer = fitted.answer if fitted.capacity.over(extents(best.plan)) else "fits"
    return replace(
        fitted, answer=answer, best=best, curve=curve, bound=bound, proven_bytes=proven, stopped=other.stopped
    )


def _raised_capacity(fitted: Fitted, halfway: bool = False) -> Capacity:
    """Return the limits raised to the lower bounds, or ``halfway`` from there to the extents of the best plan."""
    given, best, bound_of = fitted.capacity, fitted.best.plan, fitted.bound.bytes_of
    reached = extents(best)

    def between(limit: int, bound: int, extent: int) -> int:
        least = max(limit, bound)
        return least + max(0, extent - least) * halfway // 2

    total = None if given.total is None else between(given.total, fitted.lower_bound_bytes, given.limited_bytes(best))
    arenas = {name: between(limit, bound_of.get(name, 0), reached.get(name, 0)) for name, limit in given.arenas.items()}
    return Capacity(total, arenas)
