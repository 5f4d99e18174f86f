"""Shards: the smallest size of a mesh axis at which every rank's share fits.

The first rank has the most of everything (the first ``d % p`` parts of an axis get one row more), so where its share
fits all do. Shares shrink as the axis grows, as long as tensors can be split further: about log₂ of the largest size
that the graph allows are fitted, each with every other move that is allowed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tmmu_core.errors import InvalidIrShapes
from tmmu_core.fit.answer import Allowed, Fitted
from tmmu_core.fit.asking import Candidate, ask, question_of
from tmmu_core.fit.capacity import Capacity
from tmmu_core.fit.fitting import fit
from tmmu_core.fit.moves import Move
from tmmu_core.fit.shards import apply_shards
from tmmu_core.graph.model import Graph
from tmmu_core.graph.shard_spec import read_spec
from tmmu_core.plan.making.request import PlanRequest
from tmmu_core.planners.problem import Progress

MOST_PARTS = 2**20
WHY = "each rank holds and computes its part; what ranks say to each other is the model's business"
TOO_MANY = frozenset({"shard_too_small", "shard_mesh", "shard_axis"})
"""Reasons for which an axis of that size is refused."""


@dataclass(frozen=True, eq=False)
class SmallestMesh:
    """What a search ended with."""

    size: int | None
    """Parts along the axis; ``None``: no size that the graph allows fits."""
    fitted: Fitted
    """The first rank's share at that size; at the largest that was tried where none fits."""


def smallest_mesh(
    graph: Graph,
    request: PlanRequest,
    axis: str,
    limits: tuple[Capacity, Allowed],
    progress: Progress | None = None,
) -> SmallestMesh:
    """The fewest parts along ``axis`` with which the other allowed moves make every rank fit.

    Other axes keep the size that the request's shard spec gives them, 1 where it names none. Raises ``InvalidIrShapes``
    (reason ``shard_mesh``) for an axis along which nothing is split.
    """
    capacity, allowed = limits
    spec = _spec(graph, request.shard_spec or {}, axis)
    whole = question_of(graph, request.but(shard_spec=None, rank=0, world_size=None), progress)

    def at(size: int) -> Fitted | None:
        start = meshed(whole, _with(spec, axis, size), {axis: size})
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
        low = high  # not even the most parts that are tried
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


def meshed(whole: Candidate, spec: Mapping[str, Any], sizes: Mapping[str, int]) -> Candidate | None:
    """The first rank's share, planned; ``None`` where the graph cannot be split so far."""
    said = ", ".join(f"{axis} = {size}" for axis, size in sizes.items())
    move = Move("shards", f"{said}: the share of rank 0", WHY, details={"spec": dict(spec)})
    try:
        question = apply_shards(whole.question, move)
    except InvalidIrShapes as error:
        if error.diagnostics.get("reason") in TOO_MANY:
            return None
        raise
    solution = ask(question)
    made = Candidate(question, (), solution)
    return replace(made, moves=(replace(move, bytes=whole.extent_bytes - made.extent_bytes),))


def _declared(graph: Graph) -> set[str]:
    return {tensor.shard.mesh for tensor in graph.tensors if tensor.shard is not None}


def _spec(graph: Graph, given: Mapping[str, Any], axis: str) -> dict[str, Any]:
    """The spec with every axis that the graph names in its mesh."""
    known = {name for name, _ in read_spec(given).mesh}
    declared = _declared(graph)
    if axis not in known | declared:
        there = ", ".join(sorted(known | declared))
        raise InvalidIrShapes(
            f"nothing is split along a mesh axis {axis!r}.",
            reason="shard_mesh",
            node_id="",
            hint=f"Mesh axes: {there}."
            if there
            else 'Tensors say it with "shard": {"axis": 0, "mesh": "tp"}, or a shard spec does.',
        )
    spec = dict(given)
    for name in sorted(declared - known):
        spec = _with(spec, name, 1)
    return spec


def _with(spec: Mapping[str, Any], axis: str, size: int) -> dict[str, Any]:
    """The spec with ``axis`` in so many parts, its mesh written as a list."""
    mesh = [{"name": name, "size": size if name == axis else parts} for name, parts in read_spec(spec).mesh]
    if all(each["name"] != axis for each in mesh):
        mesh.append({"name": axis, "size": size})
    return {**spec, "mesh": mesh}
