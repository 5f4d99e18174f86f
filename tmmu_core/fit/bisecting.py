"""The largest size at which something fits, by bisection over real plans.

Bytes grow with a size, so what fits at a size fits at a smaller one; each size that is tried is fitted with every other
move that is allowed. About log₂(envelope) fits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tmmu_core.fit.answer import Fitted
from tmmu_core.graph.model import Dim


@dataclass(frozen=True, eq=False)
class Largest:
    """What a bisection ended with."""

    size: int | None
    """``None``: not even the smallest fits."""
    fitted: Fitted
    """At that size; at the smallest where none fits."""


def bisected(envelope: Dim, at: Callable[[int], Fitted]) -> Largest:
    """The largest size in the envelope whose fit fits."""
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
