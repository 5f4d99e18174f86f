"""Dynamic shapes: the peak memory as a function of a dimension, and a plan per iteration of a program (TMMU v2 II.H).

An iteration's plan is identified by the replan key of TMMU v2 §10.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import numpy as np

from tmmu_core.base.cbor import H
from tmmu_core.base.errors import ContractError, InvalidIrShapes
from tmmu_core.graph import checks
from tmmu_core.graph.model import Dim, Graph
from tmmu_core.planners.problem import Progress
from tmmu_core.plans import canonical
from tmmu_core.plans.making.engine import Solution, solve
from tmmu_core.plans.making.request import PlanRequest, with_arena_settings
from tmmu_core.plans.model import I64, U64

CURVE_POINTS = 33
"""Maximum number of points of a curve: both ends of the envelope and evenly spaced values between."""


@dataclass(frozen=True, eq=False)
class DimCurve:
    """Figures of one plan per value of a dimension. Both arrays have the shape (values, arenas), in bytes."""

    dim: str
    values: I64
    """Planned values, ascending. A value that cannot be planned is in ``refused``."""
    arena_names: tuple[str, ...]
    peak_live_bytes: U64
    extent_bytes: U64
    refused: tuple[tuple[int, ContractError], ...] = ()


def peak_over_dim(graph: Graph, dim: str, request: PlanRequest, progress: Progress | None = None) -> DimCurve:
    """Return the figures of a plan for each size of :func:`sample_points` of the dimension ``dim``.

    Other dimensions have their requested or default sizes. Raises ``InvalidIrShapes`` if ``request.dims`` names an
    unknown dimension, or a size outside of its envelope.
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
    """Return all sizes of an envelope, or ``CURVE_POINTS`` evenly spaced sizes with both ends."""
    span = dim.max - dim.min
    count = min(span, CURVE_POINTS - 1)
    return sorted({dim.min + span * k // max(count, 1) for k in range(count + 1)})


# --- a plan per iteration --------------------------------------------------------------------------------------------


ReplanKey = tuple[bytes, str, bytes]
"""``(shape_envelope_hash, mode, arena_config_hash)``."""


class Iteration(NamedTuple):
    """The plan of one iteration; ``replan`` is the trace record if the graph was planned again for it."""

    solution: Solution
    key: ReplanKey
    replan: dict[str, Any] | None = None


def replan_session(
    graph: Graph, shapes: Iterable[Mapping[str, int]], request: PlanRequest | None = None
) -> Iterator[Iteration]:
    """Yield the plan of each iteration; ``shapes`` has the sizes of all dimensions per iteration.

    A plan at the upper end of the envelopes is valid for every shape inside. A shape outside raises ``InvalidIrShapes``
    under the policy ``ABORT`` or without a safepoint; under ``REPLAN_AT_SAFEPOINT`` it widens the envelopes of all
    later iterations.
    """
    dims = dict(graph.dims)
    current = _planned(graph, dims, request or PlanRequest())
    for number, shape in enumerate(shapes):
        outside = {name: size for name, size in shape.items() if not dims[name].min <= size <= dims[name].max}
        if outside and (graph.replan_policy == "ABORT" or not graph.safepoints):
            reason = "dim_out_of_envelope" if graph.replan_policy == "ABORT" else "no_safepoint"
            hint = "Declare wider dimensions, or the policy REPLAN_AT_SAFEPOINT with a safepoint."
            what = f"iteration {number} leaves the shape envelope: {outside}."
            raise InvalidIrShapes(what, reason=reason, node_id="", hint=hint, iteration=number)
        record = None
        if outside:
            dims |= {name: Dim(min(dims[name].min, size), max(dims[name].max, size)) for name, size in outside.items()}
            old, current = current, _planned(graph, dims, request or PlanRequest())
            order = current.solution.plan.execution_order
            record = {
                "record": "replan",
                "iteration": number,
                "safepoint": max(graph.safepoints, key=order.index),
                "old_tmmu_plan_hash": old.solution.plan.tmmu_plan_hash.hex(),
                "new_tmmu_plan_hash": current.solution.plan.tmmu_plan_hash.hex(),
                "shape_envelope_hash": current.key[0].hex(),
            }
        yield current._replace(replan=record)


def _planned(graph: Graph, dims: Mapping[str, Dim], request: PlanRequest) -> Iteration:
    """Return a plan at the upper ends of ``dims``; its ``ir_hash`` is that of the graph with the declared envelopes."""
    wide = msgspec.structs.replace(graph, dims=dict(dims))
    upper = request.but(dims={name: dim.max for name, dim in dims.items()})
    solution = solve(wide, upper, ir_hash=canonical.ir_hash(graph))
    envelope_hash = H({name: [dim.min, dim.max] for name, dim in dims.items()})
    return Iteration(solution, (envelope_hash, solution.plan.mode, solution.plan.arena_config_hash))
