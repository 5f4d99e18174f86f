"""Size moves: a smaller dimension, such as a batch or a sequence length, and bisection for the largest that fits."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import msgspec

from tmmu_core.base import strict
from tmmu_core.base.errors import InvalidIrShapes
from tmmu_core.fitting.move import Move
from tmmu_core.fitting.problem.answer import Fitted
from tmmu_core.fitting.problem.planner_calls import Candidate, PlanInput, solve_input
from tmmu_core.graph.assumed_sizes import assumed_at
from tmmu_core.graph.model import Dim

WHY = "the same computation on smaller tensors, such as a smaller batch"


def apply_sizes(plan_input: PlanInput, move: Move) -> PlanInput:
    """Apply a move whose ``details`` are ``{"dims": {name: size}}``: the new upper bounds."""
    dims = dict(plan_input.graph.dims)
    for name, size in move.details["dims"].items():
        dims[name] = Dim(min(dim_bounds(plan_input, name).min, size), size)
    assumed = assumed_at(plan_input.graph, move.details["dims"])
    return replace(plan_input, graph=msgspec.structs.replace(plan_input.graph, dims=dims, assumed=assumed))


def with_size(start: Candidate, name: str, size: int) -> Candidate:
    """Return the plan at another size of a dimension. Raises ``InvalidIrShapes`` for an unknown dimension."""
    if dim_bounds(start.plan_input, name).max == size:
        return start
    move = Move("sizes", f"{name} = {size}", WHY, details={"dims": {name: size}})
    plan_input = apply_sizes(start.plan_input, move)
    solution = solve_input(plan_input)
    candidate = Candidate(plan_input, (), solution)
    return replace(candidate, moves=(*start.moves, replace(move, bytes=start.extent_bytes - candidate.extent_bytes)))


def dim_bounds(plan_input: PlanInput, name: str) -> Dim:
    """Return the bounds of a dimension. Raises ``InvalidIrShapes`` (``unknown_dimension``)."""
    dims = plan_input.graph.dims
    if name not in dims:
        what, hint = f"the graph has no dimension {name!r}.", strict.closest_hint(name, sorted(dims))
        raise InvalidIrShapes(what, reason="unknown_dimension", node_id="", hint=hint)
    return dims[name]


@dataclass(frozen=True, eq=False)
class Largest:
    """The result of a bisection."""

    size: int | None
    """``None`` if no size fits."""
    fitted: Fitted
    """The fit at that size; at the smallest size if none fits."""


def bisect_size(envelope: Dim, at: Callable[[int], Fitted]) -> Largest:
    """Return the largest size of the envelope whose fit succeeds; memory grows with a size. About log₂ fits."""
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
