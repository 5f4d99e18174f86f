"""Sizes: the largest value of a named dimension that fits, by bisection over real plans.

Bytes grow with a size, so what fits at a size fits at a smaller one; each size that is tried is fitted with every other
move that is allowed. About log₂(envelope) fits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from tmmu_core.errors import InvalidIrShapes
from tmmu_core.fit.asking import Candidate, Question, ask
from tmmu_core.fit.capacity import Capacity
from tmmu_core.fit.moves import Move
from tmmu_core.graph.model import Dim
from tmmu_core.planners.problem import Progress

if TYPE_CHECKING:
    from tmmu_core.fit.fitting import Allowed, Fitted

WHY = "it computes the same on less: a smaller batch, a shorter sequence"


@dataclass(frozen=True, eq=False)
class Largest:
    """What a bisection ended with."""

    size: int | None
    """``None``: not even the smallest fits."""
    fitted: Fitted
    """At that size; at the smallest where none fits."""


def apply_sizes(question: Question, move: Move) -> Question:
    """``details``: ``{"dims": {name: size}}``: the upper end of each envelope."""
    dims = dict(question.graph.dims)
    for name, size in move.details["dims"].items():
        dims[name] = Dim(min(_envelope(question, name).min, size), size)
    return replace(question, graph=msgspec.structs.replace(question.graph, dims=dims))


def sized(start: Candidate, name: str, size: int) -> Candidate:
    """Today's plan at another size. Raises ``InvalidIrShapes`` for a dimension that there is not."""
    if _envelope(start.question, name).max == size:
        return start
    move = Move("sizes", f"{name} = {size}", WHY, details={"dims": {name: size}})
    question = apply_sizes(start.question, move)
    solution = ask(question)
    made = Candidate(question, (), solution)
    return replace(made, moves=(*start.moves, replace(move, bytes=start.extent_bytes - made.extent_bytes)))


def largest_that_fits(
    start: Candidate, name: str, capacity: Capacity, allowed: Allowed, progress: Progress | None = None
) -> Largest:
    """The largest size of ``name`` within its envelope that the other allowed moves make fit ``capacity``.

    Raises ``InvalidIrShapes`` (reason ``unknown_dimension``) for a dimension that the graph does not name.
    """
    from tmmu_core.fit.fitting import fit

    envelope = _envelope(start.question, name)
    others = replace(allowed, kinds=allowed.kinds - {"sizes"})

    def at(size: int) -> Fitted:
        return fit(sized(start, name, size), capacity, others, progress)

    return bisected(envelope, at)


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


def _envelope(question: Question, name: str) -> Dim:
    dims = question.graph.dims
    if name not in dims:
        raise InvalidIrShapes(
            f"the graph names no dimension {name!r}.",
            reason="unknown_dimension",
            node_id="",
            hint=f"Its named dimensions: {', '.join(sorted(dims)) or 'none'}.",
        )
    return dims[name]
