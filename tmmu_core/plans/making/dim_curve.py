"""Peak memory as a function of a named dimension."""

from dataclasses import dataclass

import numpy as np

from tmmu_core.base.errors import ContractError
from tmmu_core.graph import checks
from tmmu_core.graph.model import Dim, Graph
from tmmu_core.planners.problem import Progress
from tmmu_core.plans.making.engine import solve
from tmmu_core.plans.making.request import PlanRequest, with_arena_settings
from tmmu_core.plans.model import I64, U64

CURVE_POINTS = 33
"""Maximum number of points of a curve: both ends of the envelope and evenly spaced values between."""


@dataclass(frozen=True, eq=False)
class DimCurve:
    """Figures of one plan per value of a dimension. Shape (values, arenas), in bytes."""

    dim: str
    values: I64
    """Values, ascending, without those in ``refused``."""
    arena_names: tuple[str, ...]
    peak_live_bytes: U64
    extent_bytes: U64
    refused: tuple[tuple[int, ContractError], ...] = ()


def peak_over_dim(graph: Graph, dim: str, request: PlanRequest, progress: Progress | None = None) -> DimCurve:
    """Return the peak at the sizes of :func:`sample_points`; other dimensions as requested or at their upper ends.

    Raises ``InvalidIrShapes`` for other dimensions of the request that do not apply; a size that cannot be planned is
    in ``refused``.
    """
    request = with_arena_settings(graph, request)
    chosen = sample_points(graph.dims[dim])
    plans, done, refused = [], [], []
    for number, value in enumerate(chosen):
        if progress is not None and not progress(dim, number, len(chosen)):
            break
        at = checks.resolve_dims(graph, {**request.dims, dim: value})
        try:
            plans.append(solve(graph, request.but(dims=at)).plan)
            done.append(value)
        except ContractError as error:
            refused.append((value, error))
    names = tuple(sorted({arena.name for plan in plans for arena in plan.arenas}))
    figures = np.zeros((2, len(plans), len(names)), np.uint64)
    for row, plan in enumerate(plans):
        for arena in plan.arenas:
            column = names.index(arena.name)
            figures[:, row, column] = arena.peak_live_bytes, arena.extent_bytes
    return DimCurve(dim, np.array(done, np.int64), names, figures[0], figures[1], tuple(refused))


def sample_points(dim: Dim) -> list[int]:
    """Return all sizes of an envelope, or ``CURVE_POINTS`` of them with both ends."""
    span = dim.max - dim.min
    count = min(span, CURVE_POINTS - 1)
    return sorted({dim.min + span * k // max(count, 1) for k in range(count + 1)})
