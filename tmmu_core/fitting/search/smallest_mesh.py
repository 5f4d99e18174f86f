"""The smallest mesh axis at which the share of every rank fits.

Rank 0 has the largest share (the first ``d % p`` parts of an axis have one more row), so that all ranks fit if it fits.
Shares shrink as the axis grows: about log₂ of the largest size are fitted.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tmmu_core.base.errors import InvalidIrShapes
from tmmu_core.fitting.move import Move
from tmmu_core.fitting.problem.answer import Allowed, Fitted
from tmmu_core.fitting.problem.capacity import Capacity
from tmmu_core.fitting.problem.planner_calls import Candidate, PlanInput, initial_candidate, solve_input
from tmmu_core.fitting.search.fit_search import fit
from tmmu_core.graph.model import Graph
from tmmu_core.graph.sharding.rank_share import local_graph_of
from tmmu_core.graph.sharding.shard_spec import read_spec
from tmmu_core.graph.sharding.splits import shard
from tmmu_core.planners.problem import Progress
from tmmu_core.plans.making.request import PlanRequest

MOST_PARTS = 2**20
WHY = "each rank stores and computes its part; communication is part of the model"
TOO_MANY = frozenset({"shard_too_small", "shard_mesh", "shard_axis"})
"""Reasons for which a size of an axis is rejected."""


@dataclass(frozen=True, eq=False)
class SmallestMesh:
    """The result of the search."""

    size: int | None
    """Parts along the axis; ``None`` if no possible size fits."""
    fitted: Fitted
    """The fit of rank 0 at that size; at the largest size tried if none fits."""


def smallest_mesh(
    graph: Graph,
    request: PlanRequest,
    axis: str,
    limits: tuple[Capacity, Allowed],
    progress: Progress | None = None,
) -> SmallestMesh:
    """Return the smallest number of parts along ``axis`` at which the allowed moves make every rank fit.

    Other axes keep the size of the request's shard spec, else 1. Raises ``InvalidIrShapes`` (reason ``shard_mesh``)
    for an axis that splits nothing.
    """
    capacity, allowed = limits
    spec = _spec(graph, request.shard_spec or {}, axis)
    whole = initial_candidate(graph, request.but(shard_spec=None, rank=0, world_size=None), progress)

    def at(size: int) -> Fitted | None:
        start = with_mesh(whole, _with(spec, axis, size), {axis: size})
        return None if start is None else fit(start, capacity, allowed, progress)

    low, high, tried = 0, 1, at(1)
    assert tried is not None
    last = tried
    while last.answer != "fits" and not last.stopped and high < MOST_PARTS:
        low, high = high, 2 * high
        tried = at(high)
        if tried is None:
            break
        last = tried
    found = last if last.answer == "fits" else None
    if found is None and tried is not None:
        low = high  # the largest size tried does not fit either
    while high - low > 1 and not last.stopped:
        middle = (low + high) // 2
        tried = at(middle)
        if tried is None:
            high = middle
        elif tried.answer == "fits":
            high, found = middle, tried
        else:
            low, last = middle, tried
    return SmallestMesh(high, found) if found is not None else SmallestMesh(None, last)


def apply_shards(plan_input: PlanInput, move: Move) -> PlanInput:
    """Apply a move whose ``details`` are ``{"spec": {…}}``: return the share of rank 0."""
    graph = plan_input.graph
    local = local_graph_of(shard(graph, read_spec(move.details["spec"])), 0)
    return replace(plan_input, graph=local)


def with_mesh(whole: Candidate, spec: Mapping[str, Any], sizes: Mapping[str, int]) -> Candidate | None:
    """Return the planned share of rank 0; ``None`` if the graph cannot be split into this many parts."""
    description = ", ".join(f"{axis} = {size}" for axis, size in sizes.items())
    move = Move("shards", f"{description}: the share of rank 0", WHY, details={"spec": dict(spec)})
    try:
        plan_input = apply_shards(whole.plan_input, move)
    except InvalidIrShapes as error:
        if error.diagnostics.get("reason") in TOO_MANY:
            return None
        raise
    solution = solve_input(plan_input)
    candidate = Candidate(plan_input, (), solution)
    return replace(candidate, moves=(replace(move, bytes=whole.extent_bytes - candidate.extent_bytes),))


def _spec(graph: Graph, given: Mapping[str, Any], axis: str) -> dict[str, Any]:
    """Return the spec with all axes of the graph in its mesh."""
    known = {name for name, _ in read_spec(given).mesh}
    declared = {tensor.shard.mesh for tensor in graph.tensors if tensor.shard is not None}
    if axis not in known | declared:
        axes = ", ".join(sorted(known | declared))
        hint = (
            f"Mesh axes: {axes}." if axes else 'Declare it with "shard": {"axis": 0, "mesh": "tp"} or in a shard spec.'
        )
        what = f"no tensor is split along the mesh axis {axis!r}."
        raise InvalidIrShapes(what, reason="shard_mesh", node_id="", hint=hint)
    spec = dict(given)
    for name in sorted(declared - known):
        spec = _with(spec, name, 1)
    return spec


def _with(spec: Mapping[str, Any], axis: str, size: int) -> dict[str, Any]:
    """Return the spec with ``axis`` of the given size."""
    mesh = [{"name": name, "size": size if name == axis else parts} for name, parts in read_spec(spec).mesh]
    if all(each["name"] != axis for each in mesh):
        mesh.append({"name": axis, "size": size})
    return {**spec, "mesh": mesh}
