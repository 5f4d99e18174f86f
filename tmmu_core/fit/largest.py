"""Largest: the size of a named dimension up to which the other moves make the plan fit."""

from __future__ import annotations

from dataclasses import replace

from tmmu_core.fit.answer import Allowed, Fitted
from tmmu_core.fit.asking import Candidate
from tmmu_core.fit.bisecting import Largest, bisected
from tmmu_core.fit.capacity import Capacity
from tmmu_core.fit.fitting import fit
from tmmu_core.fit.sizes import envelope_of, sized
from tmmu_core.planners.problem import Progress


def largest_that_fits(
    start: Candidate, name: str, capacity: Capacity, allowed: Allowed, progress: Progress | None = None
) -> Largest:
    """The largest size of ``name`` within its envelope that the other allowed moves make fit ``capacity``.

    Raises ``InvalidIrShapes`` (reason ``unknown_dimension``) for a dimension that the graph does not name.
    """
    envelope = envelope_of(start.question, name)
    others = replace(allowed, kinds=allowed.kinds - {"sizes"})

    def at(size: int) -> Fitted:
        return fit(sized(start, name, size), capacity, others, progress)

    return bisected(envelope, at)
