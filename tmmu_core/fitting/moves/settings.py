"""Moves that change the settings of a plan instead of its order or nodes: alignments, sizes of dimensions, shards.

A smaller alignment needs the support of the hardware. If all arenas except ``offload`` have the same alignment, the
fitted graph contains it. Otherwise a plan of the graph needs the alignments from ``--arenas FILE``.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from tmmu_core.base.errors import InvalidIrShapes
from tmmu_core.fitting.move import Move
from tmmu_core.fitting.problem.answer import Fitted
from tmmu_core.fitting.problem.planner_calls import Candidate, PlanInput, extents
from tmmu_core.graph.checks import arena_fields, assumed_at, dimension_hint, read_arenas
from tmmu_core.graph.dtypes import itemsize
from tmmu_core.graph.model import Arena, Dim
from tmmu_core.graph.sharding.shard_spec import read_spec
from tmmu_core.graph.sharding.splits import local_graph_of, shard

ALIGNMENT_WHY = "the live ranges stay the same; the hardware must support this alignment"


def apply_alignment(plan_input: PlanInput, move: Move) -> PlanInput:
    """Apply a move whose ``details`` are ``{"alignment": bytes, "arenas": [name, …]}``."""
    config: dict[str, Any] = dict(arena_fields(plan_input.arenas or {}))
    before = read_arenas(plan_input.arenas)
    for name in move.details["arenas"]:
        alignment = min(int(move.details["alignment"]), before.get(name, Arena()).alignment_bytes)
        config[name] = {**config.get(name, {}), "alignment_bytes": alignment}
    return replace(plan_input, arenas=config)


def smaller_alignments(base: Candidate) -> Iterator[Move]:
    """Yield a move for every smaller alignment of the arenas, down to the widest element type, largest first."""
    arenas = sorted(extents(base.plan))
    largest = max((base.plan.arena_of[name].alignment_bytes for name in arenas), default=1)
    widest = max((itemsize(tensor.dtype) for tensor in base.plan_input.graph.tensors), default=1)
    alignment = largest // 2
    while alignment >= widest:
        what = f"align to {alignment} B instead of {largest} B"
        yield Move("alignment", what, ALIGNMENT_WHY, details={"alignment": alignment, "arenas": arenas})
        alignment //= 2


def apply_sizes(plan_input: PlanInput, move: Move) -> PlanInput:
    """Apply a move whose ``details`` are ``{"dims": {name: size}}``: set the upper bounds of dimensions."""
    dims = dict(plan_input.graph.dims)
    for name, size in move.details["dims"].items():
        dims[name] = Dim(min(dim_bounds(plan_input, name).min, size), size)
    assumed = assumed_at(plan_input.graph, move.details["dims"])
    return replace(plan_input, graph=msgspec.structs.replace(plan_input.graph, dims=dims, assumed=assumed))


def apply_shards(plan_input: PlanInput, move: Move) -> PlanInput:
    """Return the share of a rank after a move whose ``details`` are ``{"spec": {…}, "rank": rank}`` (default: 0)."""
    sharding = shard(plan_input.graph, read_spec(move.details["spec"]))
    return replace(plan_input, graph=local_graph_of(sharding, move.details.get("rank", 0)))


def dim_bounds(plan_input: PlanInput, name: str) -> Dim:
    """Return the bounds of a dimension. Raises ``InvalidIrShapes`` (``unknown_dimension``)."""
    dims = plan_input.graph.dims
    if name not in dims:
        message, hint = f"the graph has no dimension {name!r}.", dimension_hint(name, dims)
        raise InvalidIrShapes(message, reason="unknown_dimension", node_id="", hint=hint)
    return dims[name]


@dataclass(frozen=True, eq=False)
class FittedSize:
    """The result of a search for a size."""

    size: int | None  # ``None`` if no size fits
    fitted: Fitted  # the fit at ``size``; if no size fits, the fit that needs the least memory


def bisect_size(
    bounds: Dim, fit_at: Callable[[int], Fitted], is_excluded: Callable[[int], bool] | None = None
) -> FittedSize:
    """Return the largest size within ``bounds`` that fits. Memory must grow with the size.

    ``is_excluded`` is a quick proof that a size does not fit. ``fit_at`` runs about log₂ (max − min) times, but only
    once if the largest size that is not excluded fits. If a fit is stopped, return the largest size that fits so far.
    """
    if is_excluded is not None:
        count = bisect_left(range(bounds.min + 1, bounds.max + 1), True, key=is_excluded)
        bounds = Dim(bounds.min, bounds.min + count)
    last = fit_at(bounds.max)
    if last.answer == "fits":
        return FittedSize(bounds.max, last)
    best = last if bounds.min == bounds.max else fit_at(bounds.min)
    if best.answer != "fits":
        return FittedSize(None, best)
    low, high = bounds.min, bounds.max
    while high - low > 1 and not last.stopped:
        middle = (low + high) // 2
        last = fit_at(middle)
        if last.answer == "fits":
            low, best = middle, last
        else:
            high = middle
    return FittedSize(low, replace(best, stopped=last.stopped))
