"""The curve of bytes against cost, from the initial plan to the lower bound; each point is a plan."""

from collections.abc import Callable
from dataclasses import replace

from tmmu_core.fitting.problem.answer import Allowed
from tmmu_core.fitting.problem.capacity import Capacity
from tmmu_core.fitting.problem.lower_bounds import lower_bound
from tmmu_core.fitting.problem.planner_calls import Candidate
from tmmu_core.fitting.search.candidates import pareto
from tmmu_core.fitting.search.fit_search import COSTLY, fit
from tmmu_core.planners.problem import Progress

POINTS = 8
"""Number of capacities between the smallest free plan and the lower bound."""


def curve(
    start: Candidate,
    allowed: Allowed | None = None,
    progress: Progress | None = None,
    found: Callable[[tuple[Candidate, ...]], None] | None = None,
    points: int = POINTS,
) -> tuple[Candidate, ...]:
    """Return plans by rising cost, each smaller than all cheaper ones; the first is free.

    ``found`` receives the curve after each new point. If stopped, the curve so far is returned.
    """
    allowed = allowed or Allowed()
    # At the lower bound the search tries everything; below it, it would only return a proof.
    free = replace(allowed, kinds=allowed.kinds - frozenset(COSTLY))
    first = fit(start, Capacity(_least(start, free)), free, progress)
    known = list(first.curve)
    if found is not None:
        found(tuple(known))
    paid = replace(allowed, kinds=allowed.kinds & frozenset(COSTLY))
    if not paid.kinds or first.stopped:
        return tuple(known)
    base = min((c for c in known if not c.cost.weight), key=lambda c: c.extent_bytes)
    lowest = _least(base, paid)
    for k in range(1, points + 1):
        target = base.extent_bytes - (base.extent_bytes - lowest) * k // points
        fitted = fit(base, Capacity(target), paid, progress)
        known = list(pareto([*known, *fitted.curve]))
        if found is not None:
            found(tuple(known))
        if fitted.stopped:
            break
    return tuple(known)


def _least(start: Candidate, allowed: Allowed) -> int:
    return lower_bound(start.plan_input, start.solution, allowed.kinds).bytes
