"""Searches at several capacities: for the smallest plan if none fits, and for the curve of bytes against cost."""

from collections.abc import Callable
from dataclasses import replace

from tmmu_core.fitting.problem.answer import Allowed, Capacity, Fitted
from tmmu_core.fitting.problem.lower_bounds import lower_bound
from tmmu_core.fitting.problem.planner_calls import Candidate, extents
from tmmu_core.fitting.search.candidates import COSTLY, pareto
from tmmu_core.fitting.search.fit_search import SMALL_GRAPH, best_of, fit, reachable_bound, smallest_of
from tmmu_core.planners.problem import Progress

ROUNDS = 4  # maximum number of searches at a capacity halfway between the lower bound and the smallest plan
POINTS = 8  # number of capacities from the smallest plan without cost down to the lower bound


def fit_or_smallest(
    start: Candidate,
    capacity: Capacity,
    allowed: Allowed | None = None,
    progress: Progress | None = None,
    found: Callable[[Candidate], None] | None = None,
    *,
    after_proof: bool = True,
) -> Fitted:
    """Search as :func:`fit`; if no plan fits, search for the smallest plan. After the answer ``open``, it can fit.

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
    curve = pareto([*fitted.curve, *other.curve])
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


def curve(
    start: Candidate, allowed: Allowed | None = None, progress: Progress | None = None, points: int = POINTS
) -> tuple[Candidate, ...]:
    """Return plans by rising cost, each smaller than all cheaper ones; of a stopped search, those found so far."""
    allowed = allowed or Allowed()
    costly = frozenset(COSTLY)
    without_cost = replace(allowed, kinds=allowed.kinds - costly)
    with_cost = replace(allowed, kinds=allowed.kinds & costly)
    # With the lower bound as capacity, the search tries every move. With less, it would only prove that nothing fits.
    bound = reachable_bound(start, without_cost.kinds - {"sizes"} | {"planner"}).bytes
    fitted = fit(start, Capacity(bound), without_cost, progress)
    plans = fitted.curve
    if not with_cost.kinds or fitted.stopped:
        return plans
    base = smallest_of(candidate for candidate in plans if not candidate.cost.weight)
    bound = lower_bound(base, with_cost.kinds).bytes
    for k in range(1, points + 1):
        target = base.extent_bytes - (base.extent_bytes - bound) * k // points
        fitted = fit(base, Capacity(target), with_cost, progress)
        plans = pareto([*plans, *fitted.curve])
        if fitted.stopped:
            break
    return plans
