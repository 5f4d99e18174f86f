"""Find the largest size of a dimension, or the smallest mesh axis, at which a plan fits with the allowed moves.

A model file is read at three sizes; graphs at other sizes are extrapolated. The found size is then read to compare.

If a mesh axis splits ``d`` rows into ``p`` parts, the first ``d % p`` parts have one more row. So rank 0 has the
largest share, and its offsets are valid for all ranks. But a planner can need more bytes for a smaller share: if moves
must not change the planner, each different share is fitted. A larger axis can give a larger share, because a tensor
with fewer rows than parts is not split. So the search sorts the sizes by excess over the capacity, and bisects them.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from itertools import pairwise
from math import isqrt
from typing import Any

import msgspec

from tmmu_core.base.errors import ContractError, InvalidIrShapes
from tmmu_core.fitting.move import Move
from tmmu_core.fitting.problem.answer import Allowed, Capacity, Fitted
from tmmu_core.fitting.problem.planner_calls import Candidate, bounds, extents, initial_candidate
from tmmu_core.fitting.search.candidates import FittedSize, bisect_size, dim_bounds, plan_moves, with_size
from tmmu_core.fitting.search.fit_search import fit
from tmmu_core.graph.checks import refuse_unused_dims, size_range
from tmmu_core.graph.model import Dim, Graph
from tmmu_core.graph.sharding.shard_spec import read_spec
from tmmu_core.graph.sharding.splits import shard
from tmmu_core.planners.problem import Progress
from tmmu_core.plans.making.request import PlanRequest

MOST_PARTS = 2**20  # largest size of a mesh axis that is tried
EVERY_SIZE_UP_TO = 16  # of larger sizes, only powers of two and divisors of dimensions are tried first
WHY = "each rank stores and computes its part; communication is part of the model"
IMPOSSIBLE = frozenset({"shard_too_small", "shard_mesh", "shard_view"})  # errors that depend on the size of the axis


def largest_that_fits(
    graph: Graph,
    request: PlanRequest,
    name: str,
    capacity: Capacity,
    allowed: Allowed,
    progress: Progress | None = None,
    read: Callable[[Mapping[str, int]], Graph] | None = None,
) -> FittedSize:
    """Return the largest size of dimension ``name`` within its bounds at which the allowed moves make the plan fit.

    ``read`` reads the model file of ``graph`` at other sizes (dimension name → size). Without ``read``, or if the file
    has one size only, the shapes of ``graph`` must contain the dimension. Raises ``InvalidIrShapes`` for an unknown
    dimension (``unknown_dimension``) or one that no tensor uses (``unused_dim``).
    """
    others = replace(allowed, kinds=allowed.kinds - {"sizes"})
    if read is not None and (name in graph.ranges or name in graph.assumed):
        sizes, given = size_range(graph, name), graph.dims[name].max

        def search(graph_at: Callable[[int], Graph]) -> FittedSize:
            @cache
            def fit_at(size: int) -> Fitted:
                start = initial_candidate(graph_at(size), request.but(dims={**request.dims, name: size}))
                return fit(start, capacity, others, progress)

            low, best = given, fit_at(given)
            if best.answer != "fits":
                return bisect_size(Dim(sizes.min, given), fit_at)
            while low < sizes.max and not best.stopped:  # doubling avoids graphs at huge sizes
                high = min(max(2 * low, 1), sizes.max)
                if fit_at(high).answer != "fits":
                    return bisect_size(Dim(low, high), fit_at)
                low, best = high, fit_at(high)
            return FittedSize(low, best)

        first = max(2, sizes.min, min(given, sizes.max - 2))
        return search_sizes(cache(lambda size: read({**request.dims, name: size})), sizes, first, (3,), search)
    start = initial_candidate(graph, request, progress)
    bounds = dim_bounds(start.plan_input, name)
    refuse_unused_dims(start.plan_input.graph, [name])
    return bisect_size(bounds, cache(lambda size: fit(with_size(start, name, size), capacity, others, progress)))


def search_sizes(
    read_at: Callable[[int], Graph],
    sizes: Dim,
    first: int,
    counts: Iterable[int],
    search: Callable[[Callable[[int], Graph]], FittedSize],
) -> FittedSize:
    """Search for the largest of ``sizes`` on graphs that are extrapolated from the model's graphs at a few sizes.

    ``search`` receives a function from size to graph. ``counts``: how many sizes, from ``first`` on, to read. If the
    graph at the found size differs from the model's, the next count is tried. At last, every size is read.
    """
    for count in counts:
        if first + count - 1 <= sizes.max:
            with suppress(ContractError):  # a size cannot be read, or the extrapolated graph is invalid
                graphs = [read_at(first + k) for k in range(count)]

                def extrapolated(size: int, graphs: Sequence[Graph] = graphs) -> Graph:
                    try:
                        values = list(map(msgspec.to_builtins, graphs))
                        return msgspec.convert(_extrapolate(values, size - first), Graph)
                    except ValueError:
                        return read_at(size)

                found = search(extrapolated)
                size = sizes.min if found.size is None else found.size
                if extrapolated(size) == read_at(size):
                    return found
    return search(read_at)


def _extrapolate(values: list[Any], increase: int) -> Any:
    """Return plain data at the first size plus ``increase``; every number is a polynomial of the size.

    ``values`` is the data at consecutive sizes: two for linear numbers, three for quadratic ones. Raises ``ValueError``
    if they differ in more than integers, or if a number would be negative.
    """
    first = values[0]
    if all(value == first for value in values):
        return first
    if all(isinstance(value, dict) and value.keys() == first.keys() for value in values):
        return {key: _extrapolate([value[key] for value in values], increase) for key in first}
    if all(isinstance(value, list | tuple) and len(value) == len(first) for value in values):
        return [_extrapolate(list(parts), increase) for parts in zip(*values, strict=True)]
    if not all(type(value) is int for value in values):
        raise ValueError
    number, binomial = 0, 1
    for k in range(len(values)):  # Newton's forward differences
        number += binomial * values[0]
        binomial = binomial * (increase - k) // (k + 1)
        values = [second - first for first, second in pairwise(values)]
    if number < 0:
        raise ValueError
    return number


def smallest_mesh(
    graph: Graph, request: PlanRequest, axis: str, limits: tuple[Capacity, Allowed], progress: Progress | None = None
) -> FittedSize:
    """Return the smallest size of the mesh axis ``axis`` at which the allowed moves make every rank fit.

    ``limits``: the capacity of a rank, and the allowed moves. Other axes have their size in the request's shard spec,
    or 1. Raises ``InvalidIrShapes`` (reason ``shard_mesh``) for an axis along which nothing is split.
    """
    capacity, allowed = limits
    spec = _spec_with_all_axes(graph, request.shard_spec or {}, axis)
    unsharded = initial_candidate(graph, request.but(shard_spec=None, rank=0, world_size=None), progress)
    fitted: dict[int, Fitted] = {}

    def fits(size: int) -> bool:
        if _share_of(unsharded, spec, axis, size) is None:
            return False
        sharding = shard(unsharded.plan_input.graph, read_spec(_with_axis(spec, axis, size)))
        ranks = range(1 if "planner" in allowed.kinds else sharding.spec.world_size)
        # Fit one rank of each class of equal shares. Rank 0 is fitted last, so ``fitted`` keeps its fit.
        for rank in sorted({sharding.class_of(rank): rank for rank in reversed(ranks)}.values(), reverse=True):
            start = _share_of(unsharded, spec, axis, size, rank)
            assert start is not None
            fitted[size] = fit(start, capacity, allowed, progress)
            if fitted[size].answer != "fits":
                return False
        return True

    excess: dict[int, tuple[int, int]] = {}  # size → bytes over the capacity, of (lower bound, plan)
    # Sizes to try first. Above one of them, up to the next, the share of a rank does not grow with the size.
    split = unsharded.plan_input.graph
    lengths = {split.dims[d].max if isinstance(d, str) else d for tensor in split.tensors for d in tensor.shape}
    longest = max(1, min(MOST_PARTS, max(lengths, default=1)))
    possible = {*range(1, EVERY_SIZE_UP_TO + 1), *(1 << bit for bit in range(longest.bit_length()))}
    for length in lengths:
        small = [size for size in range(1, isqrt(length) + 1) if length % size == 0]
        possible.update(small, (length // size for size in small))
    sizes = sorted(size for size in possible if size <= longest)
    for k, size in enumerate(sizes):
        if (start := _share_of(unsharded, spec, axis, size)) is not None:
            excess[size] = (capacity.over(bounds(start.plan)), capacity.over(extents(start.plan)))
        if excess.get(size) == (0, 0) or (progress is not None and not progress("mesh sizes", k, len(sizes))):
            break
    ranked = sorted(excess, key=lambda size: excess[size], reverse=True)
    if not fits(ranked[-1]):
        return FittedSize(None, fitted[ranked[-1]])
    high = min(ranked[bisect_left(ranked, True, hi=len(ranked) - 1, key=fits) :])
    low = max((size for size in sizes if size < high), default=0)  # does not fit
    smallest = bisect_left(range(high), True, lo=low + 1, key=fits)
    if smallest not in fitted:
        fits(smallest)
    smallest = min(size for size, found in fitted.items() if found.answer == "fits")
    return FittedSize(smallest, fitted[smallest])


def _share_of(unsharded: Candidate, spec: Mapping[str, Any], axis: str, size: int, rank: int = 0) -> Candidate | None:
    """Return the planned share of ``rank``; ``None`` if the graph cannot be split into this many parts."""
    details = {"spec": _with_axis(spec, axis, size), **({"rank": rank} if rank else {})}
    move = Move("shards", f"{axis} = {size}: the share of rank {rank}", WHY, details=details)
    try:
        return plan_moves(unsharded, (move,))
    except InvalidIrShapes as error:
        if size > 1 and error.diagnostics.get("reason") in IMPOSSIBLE:
            return None
        raise


def _spec_with_all_axes(graph: Graph, spec: Mapping[str, Any], axis: str) -> dict[str, Any]:
    """Return the spec, with size 1 for mesh axes that it lacks. Raise ``InvalidIrShapes`` for an unknown ``axis``."""
    parsed = read_spec(spec)
    splits = (*parsed.tensors.values(), *(split for _, split in parsed.rules), *parsed.contracts.values())
    in_spec, in_graph = {name for name, _ in parsed.mesh}, {t.shard.mesh for t in graph.tensors if t.shard is not None}
    if axis not in (splitting := in_graph | {mesh_axis for split in splits for _, mesh_axis in split}):
        axes = ", ".join(sorted(splitting))
        hint = f"Mesh axes: {axes}." if axes else 'Write "shard": {"axis": 0, "mesh": "tp"}, or a shard spec.'
        what = f"no tensor is split along the mesh axis {axis!r}."
        raise InvalidIrShapes(what, reason="shard_mesh", node_id="", hint=hint)
    for name in sorted(in_graph - in_spec):
        spec = _with_axis(spec, name, 1)
    return dict(spec)


def _with_axis(spec: Mapping[str, Any], axis: str, size: int) -> dict[str, Any]:
    sizes = dict(read_spec(spec).mesh) | {axis: size}
    return {**spec, "mesh": [{"name": name, "size": parts} for name, parts in sizes.items()]}
