"""Find the largest size of a dimension at which a plan fits, with moves of the allowed kinds."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache

from tmmu_core.base.errors import ContractError
from tmmu_core.fitting.moves.sizes import FittedSize, bisect_size, dim_bounds
from tmmu_core.fitting.problem.answer import Allowed, Fitted
from tmmu_core.fitting.problem.capacity import Capacity
from tmmu_core.fitting.problem.planner_calls import Candidate, initial_candidate
from tmmu_core.fitting.search.candidates import with_size
from tmmu_core.fitting.search.fit_search import fit
from tmmu_core.fitting.search.sized_graph import sized_graph
from tmmu_core.graph.assumed_sizes import refuse_unused_dims, size_range
from tmmu_core.graph.model import Dim, Graph
from tmmu_core.planners.problem import Progress
from tmmu_core.plans.making.request import PlanRequest


@dataclass(frozen=True)
class ResizableModel:
    """A model file that can be read at several sizes of a dimension."""

    sizes: Dim  # the sizes at which it can be read
    first: int  # the size of the initial graph
    read: Callable[[int], Graph]  # returns the graph at a size
    planned: Callable[[Graph, int], Candidate]  # returns the plan of the graph at a size, before any move


def resizable_model(
    graph: Graph, request: PlanRequest, name: str, read: Callable[[Mapping[str, int]], Graph]
) -> ResizableModel | None:
    """Return how to read the model at other sizes of dimension ``name``; ``None`` if that dimension is fixed.

    ``read`` returns the graph at given sizes (dimension name → size).
    """
    if name not in graph.ranges and name not in graph.assumed:
        return None

    @cache
    def read_at(size: int) -> Graph:
        return read({**request.dims, name: size})

    def planned(at_size: Graph, size: int) -> Candidate:
        return initial_candidate(at_size, request.but(dims={**request.dims, name: size}))

    return ResizableModel(size_range(graph, name), graph.dims[name].max, read_at, planned)


def largest_that_fits(
    start: Candidate,
    name: str,
    capacity: Capacity,
    allowed: Allowed,
    progress: Progress | None = None,
    model: ResizableModel | None = None,
) -> FittedSize:
    """Return the largest size of ``name`` within its bounds at which the allowed moves make the plan fit.

    ``model`` is read at the sizes to try; without a model, the shapes of ``start`` must contain the dimension. Raises
    ``InvalidIrShapes`` for an unknown dimension (``unknown_dimension``) or one that no tensor uses (``unused_dim``).
    """
    bounds = dim_bounds(start.plan_input, name)
    others = replace(allowed, kinds=allowed.kinds - {"sizes"})

    def search(candidate_at: Callable[[int], Candidate]) -> FittedSize:
        @cache
        def fit_at(size: int) -> Fitted:
            return fit(candidate_at(size), capacity, others, progress)

        return bisect_size(bounds, fit_at) if model is None else _largest_by_doubling(model.sizes, model.first, fit_at)

    if model is not None:
        return _largest_of_model(model, search)
    refuse_unused_dims(start.plan_input.graph, [name])
    return search(lambda size: with_size(start, name, size))


def _largest_of_model(model: ResizableModel, search: Callable[[Callable[[int], Candidate]], FittedSize]) -> FittedSize:
    """Search over graphs that are extrapolated from the graphs at three sizes.

    If the model's graph at the resulting size differs from the extrapolated one, search again and read every graph.
    """
    first_sample = max(2, model.sizes.min, min(model.first, model.sizes.max - 2))
    if first_sample + 2 <= model.sizes.max:
        with suppress(ContractError):  # a size cannot be read, or the extrapolated graph is invalid
            graphs = [model.read(first_sample + k) for k in range(3)]

            def extrapolated(size: int) -> Graph:
                return sized_graph(graphs, size - first_sample) or model.read(size)

            found = search(lambda size: model.planned(extrapolated(size), size))
            size = model.sizes.min if found.size is None else found.size
            if extrapolated(size) == model.read(size):
                return found
    return search(lambda size: model.planned(model.read(size), size))


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
