"""Dynamic shapes: a session over a sequence of shapes, and the peak as a function of a dimension (seed II.H).

A plan made at the upper end of the envelopes holds for every shape inside. When a shape leaves them, the graph's
``replan_policy`` decides: ``ABORT`` ends the session; ``REPLAN_AT_SAFEPOINT`` widens the envelope until the shape is
inside and plans again, at the boundary before that iteration, which the graph must have declared by a safepoint.

::

    iteration   B      envelope [1, 4]                envelope [1, 6]
        0       4      plan a ──────────
        1       2      plan a           ╲ safepoint
        2       6                        plan b   ← replan record: old a, new b
        3       3                        plan b

A plan is made at the upper end of its envelope, and is identified by the replan key
``(shape_envelope_hash, mode, arena_config_hash)``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import msgspec
import numpy as np

from tmmu_core.base import strict
from tmmu_core.base.cbor import H
from tmmu_core.base.errors import ContractError, InvalidIrShapes
from tmmu_core.graph import checks
from tmmu_core.graph.model import Dim, Graph
from tmmu_core.planners.problem import Progress
from tmmu_core.plans import canonical
from tmmu_core.plans.making.engine import Solution, solve
from tmmu_core.plans.making.request import PlanRequest, with_arena_settings
from tmmu_core.plans.model import I64, U64

Point = tuple[tuple[str, int], ...]
"""Values of all named dimensions, by name bytes."""
CURVE_POINTS = 33
"""Maximum number of points of a curve: both ends of the envelope and evenly spaced values between."""


class ReplanKey(NamedTuple):
    """The replan key (seed §10)."""

    shape_envelope_hash: bytes
    mode: str
    arena_config_hash: bytes


@dataclass(frozen=True, eq=False)
class Iteration:
    """One iteration of a session."""

    number: int
    point: Point
    """The shape of the iteration."""
    planned_at: Point
    """The shape its plan was made for, at least as large."""
    key: ReplanKey
    solution: Solution
    replanned: bool


@dataclass(eq=False)
class ReplanLog:
    """The result of a session."""

    iterations: list[Iteration] = field(default_factory=list)
    replans: list[dict[str, Any]] = field(default_factory=list)
    """Trace records, for :func:`tmmu_core.formats.planfile.trace.records`."""
    aborted: ContractError | None = None
    """Reason for an early end; ``None`` otherwise."""


def envelope_hash(dims: Mapping[str, Dim]) -> bytes:
    """``H({dim: [min, max]})``."""
    return H({name: [dim.min, dim.max] for name, dim in dims.items()})


def replan_session(
    graph: Graph,
    shapes: Sequence[Mapping[str, int]],
    policy: str | None = None,
    *,
    request: PlanRequest | None = None,
) -> ReplanLog:
    """Run a session over ``shapes``: one mapping of dimensions per iteration; missing ones are at their upper end.

    ``policy`` replaces that of the graph; the ``dims`` of ``request`` are ignored. A shape that the policy rejects ends
    the session with the log's error, reason ``dim_out_of_envelope``, or ``no_safepoint`` where a replan is allowed and
    the graph declares no place for it. Raises what planning the first shape raises, and ``InvalidIrShapes`` for an
    unknown dimension, a negative size, or an unknown policy.
    """
    policy = policy or graph.replan_policy
    if policy not in ("ABORT", "REPLAN_AT_SAFEPOINT"):
        raise _refusal(
            "replan_policy", f"there is no replan policy {policy!r}.", "Choose ABORT or REPLAN_AT_SAFEPOINT."
        )
    checks.resolve_dims(graph, None)
    request = with_arena_settings(graph, request or PlanRequest())
    dims, log = dict(graph.dims), ReplanLog()
    for number, shape in enumerate(shapes):
        whole = {name: shape.get(name, dim.max) for name, dim in graph.dims.items()}
        try:
            outside = _outside(shape, dims)
            if outside and policy == "ABORT":
                name, dim = outside[0], dims[outside[0]]
                what = f"iteration {number}: {name} = {shape[name]} leaves the envelope [{dim.min}, {dim.max}], "
                what += "and the replan policy is ABORT."
                hint = "Declare a wider envelope, or the policy REPLAN_AT_SAFEPOINT with a safepoint."
                raise _refusal("dim_out_of_envelope", what, hint, dim=name, value=shape[name])
            before = log.iterations[-1] if log.iterations else _planned(graph, dims, request)
            now = replace(before, number=number, point=_point(whole), replanned=False)
            if outside:
                safepoint = _safepoint(graph, number, before.solution.plan.execution_order)
                dims = {name: Dim(min(dim.min, whole[name]), max(dim.max, whole[name])) for name, dim in dims.items()}
                planned = _planned(graph, dims, request)
                now = replace(planned, number=number, point=_point(whole), replanned=True)
                log.replans.append(_record(now, before, safepoint))
            log.iterations.append(now)
        except ContractError as error:
            if not log.iterations:
                raise
            error.fill(iteration=number)
            log.aborted = error
            break
    return log


def _planned(graph: Graph, dims: Mapping[str, Dim], request: PlanRequest) -> Iteration:
    """Plan at the upper end of the envelopes ``dims``."""
    upper = {name: dim.max for name, dim in dims.items()}
    # The program is the one that was given; what changed is the envelope, which the replan key holds.
    wide = msgspec.structs.replace(graph, dims=dict(dims))
    solution = solve(wide, request.but(dims=upper), ir_hash=canonical.ir_hash(graph))
    key = ReplanKey(envelope_hash(dims), solution.plan.mode, solution.plan.arena_config_hash)
    return Iteration(0, _point(upper), _point(upper), key, solution, replanned=False)


def _outside(shape: Mapping[str, int], dims: Mapping[str, Dim]) -> list[str]:
    """Return the dimensions of ``shape`` outside of their envelopes, by name."""
    for name, value in sorted(shape.items()):
        if name not in dims:
            hint = strict.closest_hint(name, sorted(dims))
            raise _refusal("unknown_dim", f"the graph has no dimension {name!r}.", hint)
        if value < 0:
            raise _refusal("negative_dim", f"{name} = {value} is negative.", "Give a size ≥ 0.")
    return sorted(name for name, value in shape.items() if not dims[name].min <= value <= dims[name].max)


def _safepoint(graph: Graph, number: int, order: Sequence[str]) -> str:
    """Return the last declared safepoint of an execution order."""
    if not graph.safepoints:
        what = f"iteration {number} needs another plan, but the graph declares no safepoint at which to change it."
        hint = 'Declare the last node of an iteration: "safepoints": ["<node_id>"].'
        raise _refusal("no_safepoint", what, hint)
    place = {node_id: step for step, node_id in enumerate(order)}
    return max(graph.safepoints, key=lambda node_id: (place.get(node_id, -1), node_id))


def _refusal(reason: str, what: str, hint: str, **more: Any) -> InvalidIrShapes:
    return InvalidIrShapes(what, reason=reason, node_id="", hint=hint, **more)


def _point(values: Mapping[str, int]) -> Point:
    return tuple(sorted(values.items()))


def _record(now: Iteration, before: Iteration, safepoint: str) -> dict[str, Any]:
    """The trace record of a replan."""
    old, new = before.solution.plan, now.solution.plan
    return {
        "record": "replan",
        "iteration": now.number,
        "safepoint": safepoint,
        "reason": "left_envelope",
        "dims": dict(now.point),
        "planned_at": dict(now.planned_at),
        "old_tmmu_plan_hash": old.tmmu_plan_hash.hex(),
        "new_tmmu_plan_hash": new.tmmu_plan_hash.hex(),
        "shape_envelope_hash": now.key.shape_envelope_hash.hex(),
        "mode": now.key.mode,
        "arena_config_hash": now.key.arena_config_hash.hex(),
        "old_extent_bytes": sum(arena.extent_bytes for arena in old.arenas),
        "new_extent_bytes": sum(arena.extent_bytes for arena in new.arenas),
    }


# --- the curve over an envelope ----------------------------------------------------------------------------------


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


def peak_over_dim(
    graph: Graph,
    dim: str,
    *,
    values: Sequence[int] | None = None,
    request: PlanRequest | None = None,
    progress: Progress | None = None,
) -> DimCurve:
    """Return the peak as a function of ``dim`` over its envelope; other dimensions as requested or at their upper ends.

    ``values`` are the points; by default all sizes of the envelope, or ``CURVE_POINTS`` of them. Raises
    ``InvalidIrShapes`` (``unknown_dim``, ``dim_out_of_envelope``); a size that cannot be planned is in ``refused``.
    """
    request = with_arena_settings(graph, request or PlanRequest())
    point = checks.resolve_dims(graph, {**request.dims, **({dim: values[0]} if values else {})})
    if dim not in point:
        checks.resolve_dims(graph, {dim: 0})
    chosen = sorted(set(values)) if values else sample_points(graph.dims[dim])
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
