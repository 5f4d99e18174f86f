"""The curve of bytes against cost, from the initial plan towards the lower bound; each point is a plan."""

from dataclasses import replace

from tmmu_core.fitting.problem.answer import Allowed, Capacity
from tmmu_core.fitting.problem.lower_bounds import lower_bound
from tmmu_core.fitting.problem.planner_calls import Candidate
from tmmu_core.fitting.search.candidates import COSTLY, pareto
from tmmu_core.fitting.search.fit_search import fit, reachable_bound, smallest_of
from tmmu_core.planners.problem import Progress

POINTS = 8  # number of capacities from the smallest plan without cost down to the lower bound


def curve(
    start: Candidate, allowed: Allowed | None = None, progress: Progress | None = None, points: int = POINTS
) -> tuple[Candidate, ...]:
    """Return plans by rising cost, each smaller than all cheaper ones; if stopped, return the plans found so far."""
    allowed = allowed or Allowed()
    with_cost = replace(allowed, kinds=allowed.kinds & COSTLY.keys())
    without_cost = replace(allowed, kinds=allowed.kinds - with_cost.kinds)
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
