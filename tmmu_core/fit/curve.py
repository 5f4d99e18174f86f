"""Bytes against cost: from today's plan down to what no plan goes below, each point a plan that can be opened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tmmu_core.fit.answer import Allowed
from tmmu_core.fit.asking import Candidate
from tmmu_core.fit.bounds import lower_bound
from tmmu_core.fit.candidates import pareto
from tmmu_core.fit.capacity import Capacity
from tmmu_core.fit.fitting import PAID, fit
from tmmu_core.planners.problem import Progress

POINTS = 8
"""Capacities tried between the least that costs nothing and the bound."""


def curve(
    start: Candidate,
    allowed: Allowed | None = None,
    progress: Progress | None = None,
    found: Callable[[tuple[Candidate, ...]], None] | None = None,
    points: int = POINTS,
) -> tuple[Candidate, ...]:
    """Plans by rising cost, each smaller than all cheaper ones; the first costs nothing.

    ``found`` is given the curve as it stands whenever a point is added. Told to stop, it gives what it has.
    """
    allowed = allowed or Allowed()
    # Asked for what no step can do without, a search tries everything: asked for less it would only say why not.
    free = replace(allowed, kinds=allowed.kinds - frozenset(PAID))
    first = fit(start, Capacity(_least(start, free)), free, progress)
    known = list(first.curve)
    if found is not None:
        found(tuple(known))
    paid = replace(allowed, kinds=allowed.kinds & frozenset(PAID))
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
    return lower_bound(start.question, start.solution, allowed.kinds).bytes
