"""Find the largest size of a dimension at which a plan fits, with moves of the allowed kinds.

A model file is read at three sizes only: its graph at another size is extrapolated from these.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

import msgspec

from tmmu_core.base.errors import ContractError
from tmmu_core.fitting.moves.settings import FittedSize, bisect_size, dim_bounds
from tmmu_core.fitting.problem.answer import Allowed, Capacity, Fitted
from tmmu_core.fitting.problem.planner_calls import initial_candidate
from tmmu_core.fitting.search.candidates import with_size
from tmmu_core.fitting.search.fit_search import fit
from tmmu_core.graph.assumed_sizes import refuse_unused_dims, size_range
from tmmu_core.graph.model import Dim, Graph
from tmmu_core.planners.problem import Progress
from tmmu_core.plans.making.request import PlanRequest


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

    ``read`` reads the model file of ``graph`` at other sizes (dimension name → size). Without it, or if the file has
    one size only, the shapes of ``graph`` must contain the dimension. Raises ``InvalidIrShapes`` for an unknown
    dimension (``unknown_dimension``) or one that no tensor uses (``unused_dim``).
    """
    others = replace(allowed, kinds=allowed.kinds - {"sizes"})

    def fit_graph(at_size: Graph, size: int) -> Fitted:
        start = initial_candidate(at_size, request.but(dims={**request.dims, name: size}))
        return fit(start, capacity, others, progress)

    if read is not None and (name in graph.ranges or name in graph.assumed):
        read_at = cache(lambda size: read({**request.dims, name: size}))
        return _largest_of_model(size_range(graph, name), graph.dims[name].max, read_at, fit_graph)
    start = initial_candidate(graph, request, progress)
    bounds = dim_bounds(start.plan_input, name)
    refuse_unused_dims(start.plan_input.graph, [name])
    return bisect_size(bounds, cache(lambda size: fit(with_size(start, name, size), capacity, others, progress)))


def _largest_of_model(
    sizes: Dim, first: int, read_at: Callable[[int], Graph], fit_graph: Callable[[Graph, int], Fitted]
) -> FittedSize:
    """Search over graphs that are extrapolated from the model's graphs at three sizes.

    Search again and read every graph if the result's graph differs from the model's, or if extrapolation is impossible.
    """

    def search(graph_at: Callable[[int], Graph]) -> FittedSize:
        return _largest_by_doubling(sizes, first, cache(lambda size: fit_graph(graph_at(size), size)))

    first_sample = max(2, sizes.min, min(first, sizes.max - 2))
    if first_sample + 2 <= sizes.max:
        with suppress(ContractError):  # a size cannot be read, or the extrapolated graph is invalid
            graphs = [read_at(first_sample + k) for k in range(3)]

            def extrapolated(size: int) -> Graph:
                return sized_graph(graphs, size - first_sample) or read_at(size)

            found = search(extrapolated)
            size = sizes.min if found.size is None else found.size
            if extrapolated(size) == read_at(size):
                return found
    return search(read_at)


def _largest_by_doubling(sizes: Dim, first: int, fit_at: Callable[[int], Fitted]) -> FittedSize:
    """Return the largest size that fits. Doubling from ``first`` avoids graphs of huge allowed sizes."""
    best = fit_at(first)
    if best.answer != "fits":
        return bisect_size(Dim(sizes.min, first), fit_at)
    low = first
    while low < sizes.max and not best.stopped:
        high = min(max(2 * low, 1), sizes.max)
        fitted = fit_at(high)
        if fitted.answer != "fits":
            return bisect_size(Dim(low, high), fit_at)
        low, best = high, fitted
    return FittedSize(low, best)


def sized_graph(graphs: Sequence[Graph], steps: int) -> Graph | None:
    """Return the graph at the size of the first graph plus ``steps``; every number is a polynomial of the size.

    ``graphs`` have consecutive sizes: two for linear numbers, three for quadratic ones. Return ``None`` if they
    differ in more than integers, or if a number would be negative.
    """
    try:
        return msgspec.convert(_extended([msgspec.to_builtins(each) for each in graphs], steps), type(graphs[0]))
    except ValueError:
        return None


def _extended(values: list[Any], steps: int) -> Any:
    first = values[0]
    if all(value == first for value in values):
        return first
    if all(isinstance(value, dict) and value.keys() == first.keys() for value in values):
        return {key: _extended([value[key] for value in values], steps) for key in first}
    if all(isinstance(value, list | tuple) and len(value) == len(first) for value in values):
        return [_extended(list(parts), steps) for parts in zip(*values, strict=True)]
    if not all(type(value) is int for value in values) or (number := _newton(values, steps)) < 0:
        raise ValueError
    return number


def _newton(values: list[int], steps: int) -> int:
    """Return the value at ``steps`` of the polynomial with ``values`` at 0, 1, …, by forward differences."""
    number, binomial = 0, 1
    for k in range(len(values)):
        number += binomial * values[0]
        binomial = binomial * (steps - k) // (k + 1)
        values = [second - first for first, second in pairwise(values)]
    return number
