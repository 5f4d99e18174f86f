"""Bisection for the largest size that fits; about log₂(envelope) fits.

Memory grows with a size, so that all smaller sizes fit as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tmmu_core.fitting.problem.answer import Fitted
from tmmu_core.graph.model import Dim


@dataclass(frozen=True, eq=False)
class Largest:
    """The result of a bisection."""

    size: int | None
    """``None`` if no size fits."""
    fitted: Fitted
    """The fit at that size; at the smallest size if none fits."""


def bisect_size(envelope: Dim, at: Callable[[int], Fitted]) -> Largest:
    """Return the largest size of the envelope whose fit succeeds."""
    top = at(envelope.max)
    if top.answer == "fits" or envelope.min == envelope.max or top.stopped:
        return Largest(envelope.max if top.answer == "fits" else None, top)
    bottom = at(envelope.min)
    if bottom.answer != "fits":
        return Largest(None, bottom)
    low, high, best = envelope.min, envelope.max, bottom
    while high - low > 1 and not best.stopped:
        middle = (low + high) // 2
        tried = at(middle)
        if tried.answer == "fits":
            low, best = middle, tried
        else:
            high = middle
    return Largest(low, best)
