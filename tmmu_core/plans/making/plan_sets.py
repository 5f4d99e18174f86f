"""Make one plan of a graph per size of a dimension, per iteration (TMMU v2 II.H), or per rank (TMMU v2 II.I).

The plans of all ranks have the ``ir_hash`` of the global graph. Ranks with equal shares are planned once.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from tmmu_core.base.cbor import H
from tmmu_core.base.errors import ContractError, InvalidIrShapes
from tmmu_core.graph import checks
from tmmu_core.graph.model import Dim, Graph
from tmmu_core.graph.sharding.shard_spec import ShardSpec, check_world, read_spec
from tmmu_core.graph.sharding.splits import Sharding, local_graph_of, shard
from tmmu_core.planners.problem import Progress
from tmmu_core.plans import canonical
from tmmu_core.plans.figures.metrics import over_limits
from tmmu_core.plans.making.engine import Solution, solve
from tmmu_core.plans.making.request import PlanRequest, timeline_of, with_arena_settings
from tmmu_core.plans.model import I64, U64, Plan

CURVE_POINTS = 33  # maximum number of points of a curve: both ends of the envelope and evenly spaced values between


@dataclass(frozen=True, eq=False)
class DimCurve:
    """Figures of one plan per size of a dimension. ``peak_live_bytes`` and ``extent_bytes``: shape (values, arenas)."""

    dim: str
    values: U64  # the planned sizes, ascending
    arena_names: tuple[str, ...]
    peak_live_bytes: U64
    extent_bytes: U64
    fits: NDArray[np.bool_]  # whether the plan of a size exceeds no capacity and no budget
    refused: tuple[tuple[int, ContractError], ...] = ()  # the sizes that cannot be planned, each with its error


def peak_over_dim(graph: Graph, dim: str, request: PlanRequest, progress: Progress | None = None) -> DimCurve:
    """Return the figures of one plan per size of ``dim`` in :func:`sample_points`. Plans over a limit are included.

    If ``progress`` returns ``False``, the remaining sizes are left out. Raises ``KeyError`` for an unknown ``dim``, and
    ``InvalidIrShapes`` if ``request.dims`` (the other sizes) has an unknown dimension, or a size outside its envelope.
    """
    request = with_arena_settings(graph, request)
    sizes = sample_points(graph.dims[dim])
    plans, refused = {}, []
    for number, size in enumerate(sizes):
        if progress is not None and not progress(dim, number, len(sizes)):
            break
        dims = checks.resolve_dims(graph, {**request.dims, dim: size})
        try:
            plans[size] = solve(graph, request.but(dims=dims), over_limits=True).plan
        except ContractError as error:
            refused.append((size, error))
    names = tuple(sorted({arena.name for plan in plans.values() for arena in plan.arenas}))
    figures = np.zeros((2, len(plans), len(names)), np.uint64)
    for row, plan in enumerate(plans.values()):
        for arena in plan.arenas:
            figures[:, row, names.index(arena.name)] = arena.peak_live_bytes, arena.extent_bytes
    fits = np.array([not over_limits(plan, request.budget) for plan in plans.values()], np.bool_)
    return DimCurve(dim, np.array(list(plans), np.uint64), names, figures[0], figures[1], fits, tuple(refused))


def sample_points(dim: Dim) -> list[int]:
    """Return all sizes of an envelope; above ``CURVE_POINTS``, this many evenly spaced sizes with both ends."""
    span = dim.max - dim.min
    intervals = min(span, CURVE_POINTS - 1)
    return [dim.min + span * k // max(intervals, 1) for k in range(intervals + 1)]


class Iteration(NamedTuple):
    """The plan of one iteration."""

    solution: Solution
    key: tuple[bytes, str, bytes]  # the replan key of TMMU v2 §10: ``(shape_envelope_hash, mode, arena_config_hash)``
    replan: dict[str, Any] | None = None  # the trace record if the graph was planned again for this iteration


def replan_session(
    graph: Graph, shapes: Iterable[Mapping[str, int]], request: PlanRequest | None = None
) -> Iterator[Iteration]:
    """Yield the plan of each iteration; ``shapes`` has the sizes of the dimensions in each iteration.

    The plan for the largest sizes of the envelopes (size ranges) is valid for all sizes in them. If a size is outside
    its envelope, the graph is planned again. The wider envelope also applies to later iterations. With the policy
    ``ABORT``, or without a safepoint in the execution order, raises ``InvalidIrShapes`` instead. Raises ``KeyError``
    for an unknown dimension, and the errors of :func:`.engine.solve`.
    """
    dims = dict(graph.dims)
    request = request or PlanRequest()
    current = _planned(graph, dims, request)
    for number, shape in enumerate(shapes):
        outside = {name: size for name, size in shape.items() if not dims[name].min <= size <= dims[name].max}
        order = current.solution.plan.execution_order
        safepoints = [node_id for node_id in order if node_id in graph.safepoints]
        if outside and (graph.replan_policy == "ABORT" or not safepoints):
            reason = "dim_out_of_envelope" if graph.replan_policy == "ABORT" else "no_safepoint"
            hint = "Declare wider dimensions, or the policy REPLAN_AT_SAFEPOINT with a safepoint."
            message = f"iteration {number} has sizes outside of the declared ranges: {outside}."
            raise InvalidIrShapes(message, reason=reason, node_id="", hint=hint, iteration=number)
        record = None
        if outside:
            dims |= {name: Dim(min(dims[name].min, size), max(dims[name].max, size)) for name, size in outside.items()}
            old_plan, current = current.solution.plan, _planned(graph, dims, request)
            record = {
                "record": "replan",
                "iteration": number,
                "safepoint": safepoints[-1],
                "old_tmmu_plan_hash": old_plan.tmmu_plan_hash.hex(),
                "new_tmmu_plan_hash": current.solution.plan.tmmu_plan_hash.hex(),
                "shape_envelope_hash": current.key[0].hex(),
            }
        yield current._replace(replan=record)


def _planned(graph: Graph, dims: Mapping[str, Dim], request: PlanRequest) -> Iteration:
    """Return a plan for the largest sizes of ``dims``; its ``ir_hash`` is that of the graph as declared."""
    widened = msgspec.structs.replace(graph, dims=dict(dims))
    largest = request.but(dims={name: dim.max for name, dim in dims.items()})
    solution = solve(widened, largest, ir_hash=canonical.ir_hash(graph))
    envelope_hash = H({name: [dim.min, dim.max] for name, dim in dims.items()})
    return Iteration(solution, (envelope_hash, solution.plan.mode, solution.plan.arena_config_hash))


@dataclass(frozen=True, eq=False)
class RankClass:
    """Ranks with equal shares."""

    ranks: tuple[int, ...]
    solution: Solution  # the solution of the first rank


@dataclass(frozen=True, eq=False)
class RankPlans:
    """The plans of all ranks."""

    graph: Graph  # the global graph, as given
    spec: ShardSpec
    classes: tuple[RankClass, ...]  # rank classes, sorted by their first rank
    class_of: I64  # shape (world_size,): each rank's index into ``classes``

    @property
    def world_size(self) -> int:
        """The number of ranks."""
        return len(self.class_of)

    @cached_property
    def arena_names(self) -> tuple[str, ...]:
        """The arenas that any rank uses, sorted by name."""
        return tuple(sorted({arena.name for c in self.classes for arena in c.solution.plan.arenas}))

    @cached_property
    def extents(self) -> U64:
        """Shape (world_size, arenas): each rank's extent of each arena, in bytes; 0 for an unused arena."""
        arenas = [{a.name: a.extent_bytes for a in c.solution.plan.arenas} for c in self.classes]
        rows = [[extents.get(name, 0) for name in self.arena_names] for extents in arenas]
        return np.array(rows, np.uint64)[self.class_of]

    def plan(self, rank: int) -> Plan:
        """Return the plan of ``rank``: the plan of its class, with the rank and its hash."""
        return replace(self.solution(rank).plan, rank=rank, tmmu_plan_hash=self.plan_hashes[rank])

    def solution(self, rank: int) -> Solution:
        """Return the solution of the rank's class: the share, its liveness, and the plan of the first rank."""
        return self.classes[self.class_of[rank]].solution

    @cached_property
    def plan_hashes(self) -> tuple[bytes, ...]:
        """``tmmu_plan_hash`` of every rank. The tables are encoded once per class and hashed once per rank."""
        hashes: dict[int, bytes] = {}
        for c in self.classes:
            hashes |= zip(c.ranks, canonical.hashes_of_ranks(c.solution.plan, c.ranks)[0], strict=True)
        return tuple([hashes[rank] for rank in range(self.world_size)])


def plan_ranks(
    graph: Graph, request: PlanRequest, progress: Progress | None = None, *, over_limits: bool = False
) -> RankPlans:
    """Plan every rank of ``graph`` under the request's shard spec.

    The request's ``world_size`` must be the size of the mesh (the default). The request's ``rank`` and the result of
    ``progress`` are ignored. ``over_limits``: see :func:`.engine.solve`. Errors name the first failing rank.
    """
    sharding, request, ir_hash = _sharded(graph, request, 0)
    ranks_by_class: dict[tuple[int, ...], list[int]] = {}
    for rank in range(sharding.spec.world_size):
        ranks_by_class.setdefault(sharding.class_of(rank), []).append(rank)
    class_of = np.zeros(sharding.spec.world_size, np.int64)
    classes = []
    for number, ranks in enumerate(ranks_by_class.values()):
        class_of[ranks] = number
        if progress is not None:
            progress("rank classes", number, len(ranks_by_class))
        solution = _solved(sharding, request.but(rank=ranks[0]), ir_hash, over_limits)
        classes.append(RankClass(tuple(ranks), solution))
    return RankPlans(graph, sharding.spec, tuple(classes), class_of)


def plan_rank(graph: Graph, request: PlanRequest, *, over_limits: bool = False) -> Solution:
    """Plan the rank of the request. The plan equals ``plan_ranks(…).plan(rank)``."""
    return _solved(*_sharded(graph, request, request.rank), over_limits)


def _sharded(graph: Graph, request: PlanRequest, rank: int) -> tuple[Sharding, PlanRequest, bytes]:
    """Return ``(sharding of the graph as run, request with defaults and order, ir_hash of the graph)``."""
    spec = read_spec(request.shard_spec or {})
    world = check_world(spec, request.world_size, rank)
    request = with_arena_settings(graph, request.with_defaults(graph))
    timeline = timeline_of(graph, request)  # with the backward pass, so that the spec can contain gradients
    sharding = shard(timeline.graph, spec, request.dims)
    return sharding, request.but(world_size=world, order=timeline.order), canonical.ir_hash(graph)


def _solved(sharding: Sharding, request: PlanRequest, ir_hash: bytes, over_limits: bool) -> Solution:
    """Return the solution of the request's rank. Raises the errors of sharding and planning, with the rank."""
    try:
        return solve(local_graph_of(sharding, request.rank), request, ir_hash=ir_hash, over_limits=over_limits)
    except ContractError as error:
        error.fill(rank=request.rank)
        raise
