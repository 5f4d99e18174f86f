"""Sizes: the same graph on less, a smaller batch or a shorter sequence. How far, ``largest`` says."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from tmmu_core.errors import InvalidIrShapes
from tmmu_core.fit.asking import Candidate, Question, ask
from tmmu_core.fit.moves import Move
from tmmu_core.graph.model import Dim

WHY = "it computes the same on less: a smaller batch, a shorter sequence"


def apply_sizes(question: Question, move: Move) -> Question:
    """``details``: ``{"dims": {name: size}}``: the upper end of each envelope."""
    dims = dict(question.graph.dims)
    for name, size in move.details["dims"].items():
        dims[name] = Dim(min(envelope_of(question, name).min, size), size)
    return replace(question, graph=msgspec.structs.replace(question.graph, dims=dims))


def sized(start: Candidate, name: str, size: int) -> Candidate:
    """Today's plan at another size. Raises ``InvalidIrShapes`` for a dimension that there is not."""
    if envelope_of(start.question, name).max == size:
        return start
    move = Move("sizes", f"{name} = {size}", WHY, details={"dims": {name: size}})
    question = apply_sizes(start.question, move)
    solution = ask(question)
    made = Candidate(question, (), solution)
    return replace(made, moves=(*start.moves, replace(move, bytes=start.extent_bytes - made.extent_bytes)))


def envelope_of(question: Question, name: str) -> Dim:
    """What the graph says of a named dimension. Raises ``InvalidIrShapes`` (``unknown_dimension``)."""
    dims = question.graph.dims
    if name not in dims:
        raise InvalidIrShapes(
            f"the graph names no dimension {name!r}.",
            reason="unknown_dimension",
            node_id="",
            hint=f"Its named dimensions: {', '.join(sorted(dims)) or 'none'}.",
        )
    return dims[name]
