"""Plan the ranks of a sharded graph; ranks with equal shares are planned once (TMMU v2 II.I).

The graph is sharded *as run*: its backward pass is synthesised first, so that the spec can contain gradients. The plans
of all ranks have the ``ir_hash`` of the global graph; ``rank``, ``world_size`` and ``shard_spec_hash`` make the plan
hash of each rank unique.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tmmu_core.base.errors import ContractError
from tmmu_core.graph.model import Graph
from tmmu_core.graph.sharding.rank_share import Sharding, local_graph_of
from tmmu_core.graph.sharding.shard_spec import ShardSpec, check_world, read_spec
from tmmu_core.graph.sharding.splits import shard
from tmmu_core.planners.problem import Progress
from tmmu_core.plans import canonical
from tmmu_core.plans.making.engine import Solution, solve
from tmmu_core.plans.making.request import PlanRequest, timeline_of, with_arena_settings
from tmmu_core.plans.model import I64, U64, Plan


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
        for each in self.classes:
            hashes |= zip(each.ranks, canonical.hashes_of_ranks(each.solution.plan, each.ranks)[0], strict=True)
        return tuple([hashes[rank] for rank in range(self.world_size)])


def plan_ranks(
    graph: Graph, request: PlanRequest, progress: Progress | None = None, *, over_limits: bool = False
) -> RankPlans:
    """Plan every rank of ``graph`` under the request's shard spec.

    The request's ``world_size`` must be the size of the mesh (the default). Its ``rank`` and the result of ``progress``
    are ignored. ``over_limits``: see :func:`.engine.solve`. Raises the errors of planning and sharding; the error
    contains the first rank that fails.
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
    timeline = timeline_of(graph, request)
    sharding = shard(timeline.graph, spec, request.dims)
    return sharding, request.but(world_size=world, order=timeline.order), canonical.ir_hash(graph)


def _solved(sharding: Sharding, request: PlanRequest, ir_hash: bytes, over_limits: bool) -> Solution:
    """Return the solution of the request's rank. Raises the errors of sharding and planning, with the rank."""
    try:
        return solve(local_graph_of(sharding, request.rank), request, ir_hash=ir_hash, over_limits=over_limits)
    except ContractError as error:
        error.fill(rank=request.rank)
        raise
