"""The largest size of a dimension at which the other moves make the plan fit."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache

from tmmu_core.base.errors import ContractError
from tmmu_core.fitting.moves.sizes import Largest, bisect_size, dim_bounds, with_size
from tmmu_core.fitting.problem.answer import Allowed, Fitted
from tmmu_core.fitting.problem.capacity import Capacity
from tmmu_core.fitting.problem.planner_calls import Candidate, initial_candidate
from tmmu_core.fitting.search.fit_search import fit
from tmmu_core.fitting.search.sized_graph import sized_graph
from tmmu_core.graph.assumed_sizes import refuse_unused_dims, size_range
from tmmu_core.graph.model import Dim, Graph
from tmmu_core.planners.problem import Progress
from tmmu_core.plans.making.request import PlanRequest


@dataclass(frozen=True)
class Rereading:
    """A model that is read again at each size of a dimension: its shapes are formulas of the size."""

    sizes: Dim
    """The sizes at which it can be read."""
    first: int
    """The size at which it was read."""
    read: Callable[[int], Graph]
    """Returns the model at a size."""
    planned: Callable[[Graph, int], Candidate]
    """Returns the plan of the model as read at a size, before any move."""


def rereading(
    graph: Graph, request: PlanRequest, name: str, read: Callable[[Mapping[str, int]], Graph]
) -> Rereading | None:
    """Return the model as readable at other sizes of ``name``; ``None`` if its reader supports no other size.

    ``read`` takes the size of each dimension by name and returns the graph.
    """
    if name not in graph.ranges and name not in graph.assumed:
        return None

    @cache
    def read_at(size: int) -> Graph:
        return read({**request.dims, name: size})

    def planned(at_size: Graph, size: int) -> Candidate:
        return initial_candidate(at_size, request.but(dims={**request.dims, name: size}))

    return Rereading(size_range(graph, name), graph.dims[name].max, read_at, planned)


def largest_that_fits(
    start: Candidate,
    name: str,
    capacity: Capacity,
    allowed: Allowed,
    progress: Progress | None = None,
    again: Rereading | None = None,
) -> Largest:
    """Return the largest size of ``name`` within its bounds at which the allowed moves fit ``capacity``.

    Raises ``InvalidIrShapes`` for a dimension that the graph does not define (``unknown_dimension``) or no tensor uses
    (``unused_dim``).
    """
    envelope = dim_bounds(start.plan_input, name)
    others = replace(allowed, kinds=allowed.kinds - {"sizes"})

    def search(planned: Callable[[int], Candidate]) -> Largest:
        @cache
        def at(size: int) -> Fitted:
            return fit(planned(size), capacity, others, progress)

        return bisect_size(envelope, at) if again is None else _largest_by_doubling(again.sizes, again.first, at)

    if again is not None:
        return _largest_as_read(again, search)
    refuse_unused_dims(start.plan_input.graph, [name])
    return search(lambda size: with_size(start, name, size))


def _largest_as_read(again: Rereading, search: Callable[[Callable[[int], Candidate]], Largest]) -> Largest:
    """Return the result of ``search`` over graphs that are extrapolated from three sizes of the model.

    Every number of the graph is taken as quadratic in the size. At the result the model is read once to check this. If
    the graphs differ, the search is repeated with a graph that is read at each size.
    """
    near = max(2, again.sizes.min, min(again.first, again.sizes.max - 2))
    if near + 2 <= again.sizes.max:
        with suppress(ContractError):  # a size that cannot be read, or numbers that make no valid graph
            graphs = [again.read(near + k) for k in range(3)]

            def extended(size: int) -> Graph:
                return sized_graph(graphs, size - near) or again.read(size)

            found = search(lambda size: again.planned(extended(size), size))
            size = again.sizes.min if found.size is None else found.size
            if extended(size) == again.read(size):
                return found
    return search(lambda size: again.planned(again.read(size), size))


def _largest_by_doubling(sizes: Dim, first: int, at: Callable[[int], Fitted]) -> Largest:
    """Return the largest size that fits, by doubling from ``first``, because the largest allowed size can be huge."""
    best = at(first)
    if best.answer != "fits":
        return bisect_size(Dim(sizes.min, first), at)
    low = first
    while low < sizes.max and not best.stopped:
        high = min(max(2 * low, 1), sizes.max)
        tried = at(high)
        if tried.answer != "fits":
            return bisect_size(Dim(low, high), at)
        low, best = high, tried
    return Largest(low, best)
