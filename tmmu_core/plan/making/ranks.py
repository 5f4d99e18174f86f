"""A plan per rank of a sharded graph; ranks that run the same graph are planned once (seed II.I).

The local graph is cut from the graph *as run*: a synthesised backward pass is written first, so that the spec can
speak of gradients. ``ir_hash`` stays the global graph's; ``rank, world_size, shard_spec_hash`` make each rank's hash
its own::

    tmmu_plan_hash(rank) = H(["tmmu_plan_v1", [ir_hash, …, rank, world_size, shard_spec_hash, tables]])
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tmmu_core.errors import ContractError
from tmmu_core.graph.model import Graph
from tmmu_core.graph.sharding import Sharding, ShardSpec, check_world, local_graph_of, read_spec, shard
from tmmu_core.liveness.model import Timeline
from tmmu_core.liveness.timeline import build_timeline, default_mode, default_preset
from tmmu_core.plan import canonical
from tmmu_core.plan.making.engine import Solution, plan_graph
from tmmu_core.plan.model import Plan
from tmmu_core.planners.problem import Progress

I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class RankClass:
    """Ranks that run one and the same local graph."""

    ranks: tuple[int, ...]
    solution: Solution
    """As planned for the first of them."""


@dataclass(frozen=True, eq=False)
class RankPlans:
    """The plans of all ranks."""

    graph: Graph
    """The global graph, as given."""
    spec: ShardSpec
    classes: tuple[RankClass, ...]
    """By their first rank."""
    class_of: I64
    """Shape (world_size,): the class of each rank."""

    @property
    def world_size(self) -> int:
        """How many ranks there are."""
        return len(self.class_of)

    @cached_property
    def arena_names(self) -> tuple[str, ...]:
        """The arenas that any rank uses, by name bytes."""
        return tuple(sorted({arena.name for c in self.classes for arena in c.solution.plan.arenas}))

    @cached_property
    def extents(self) -> U64:
        """Shape (world_size, arenas): each rank's extent of each arena, in bytes."""
        return self.figures("extent_bytes")

    def figures(self, field: str) -> U64:
        """Shape (world_size, arenas): a field of :class:`ArenaSummary` (bytes or a count); 0 where unused."""
        of_class = np.zeros((len(self.classes), len(self.arena_names)), np.uint64)
        for row, one in enumerate(self.classes):
            for arena in one.solution.plan.arenas:
                of_class[row, self.arena_names.index(arena.name)] = getattr(arena, field)
        return of_class[self.class_of]

    def plan(self, rank: int) -> Plan:
        """Rank ``rank``'s own plan: its class's, under its own number and hash."""
        return replace(self.solution(rank).plan, rank=rank, tmmu_plan_hash=self.plan_hashes[rank])

    def solution(self, rank: int) -> Solution:
        """What the plan was made from: the local graph, its liveness, and the plan of the class's first rank."""
        return self.classes[self.class_of[rank]].solution

    @cached_property
    def plan_hashes(self) -> tuple[bytes, ...]:
        """``tmmu_plan_hash`` of every rank. The tables are encoded once a class, and hashed once a rank."""
        hashes = [b""] * self.world_size
        for one in self.classes:
            tail = _tables(one.solution.plan)
            for rank in one.ranks:
                hashes[rank] = _hash(one.solution.plan, rank, tail)
        return tuple(hashes)


def plan_ranks(
    graph: Graph,
    spec: Mapping[str, Any],
    world_size: int | None = None,
    *,
    progress: Progress | None = None,
    **how: Any,
) -> RankPlans:
    """Plan every rank of ``graph`` under a shard spec (see ``graph/sharding.py``).

    ``world_size`` must be the mesh's, whose it is by default. ``how`` are further arguments of :func:`plan_graph`
    (``mode``, ``preset``, ``planner``, ``options``, ``arenas``, ``order``, ``token``, ``seed``, ``dims``, ``budget``).
    Raises what :func:`plan_graph` and the sharding raise, with the first rank concerned in the record.
    """
    read = read_spec(spec)
    world = check_world(read, world_size)
    timeline, sharding = _sharded(graph, read, how)
    how = {**how, "ir_hash": canonical.ir_hash(graph)}
    members: dict[tuple[int, ...], list[int]] = {}
    for rank in range(world):
        members.setdefault(sharding.class_of(rank), []).append(rank)
    class_of = np.zeros(world, np.int64)
    classes = []
    for number, ranks in enumerate(members.values()):
        class_of[ranks] = number
        if progress is not None:
            progress("rank classes", number, len(members))
        classes.append(RankClass(tuple(ranks), _plan(timeline, sharding, spec, ranks[0], world, how)))
    return RankPlans(graph, read, tuple(classes), class_of)


def plan_rank(graph: Graph, spec: Mapping[str, Any], rank: int, world_size: int | None = None, **how: Any) -> Solution:
    """Plan one rank; the same plan as ``plan_ranks(…).plan(rank)``."""
    read = read_spec(spec)
    world = check_world(read, world_size, rank)
    timeline, sharding = _sharded(graph, read, how)
    return _plan(timeline, sharding, spec, rank, world, {**how, "ir_hash": canonical.ir_hash(graph)})


def _sharded(graph: Graph, spec: ShardSpec, how: Mapping[str, Any]) -> tuple[Timeline, Sharding]:
    """The global graph as run, and its splits."""
    mode = how.get("mode") or default_mode(graph)
    preset = how.get("preset") or default_preset(mode)
    timeline = build_timeline(graph, mode, preset, order=how.get("order"), dims=how.get("dims"))
    return timeline, shard(timeline.graph, spec, how.get("dims"))


def _plan(
    timeline: Timeline, sharding: Sharding, spec: Mapping[str, Any], rank: int, world: int, how: Mapping[str, Any]
) -> Solution:
    try:
        local = local_graph_of(sharding, rank)
    except ContractError as error:
        error.fill(rank=rank)
        raise
    fixed = {"mode": timeline.mode, "preset": timeline.preset, "order": timeline.order}
    return plan_graph(local, **{**how, **fixed}, rank=rank, world_size=world, shard_spec=spec)


def _tables(plan: Plan) -> bytes:
    """The two tables that end the hashed value, in canonical bytes."""
    names = [arena.name for arena in plan.arenas]
    slots = canonical.slot_rows(plan.tensor_ids, names, plan.arena, plan.logical_slot)
    addresses = canonical.logical_address_table(names, plan.arena, plan.logical_slot, plan.offset)
    assigned = canonical.slot_assignment_table(plan.replay_token, slots)
    return b"".join([*canonical.cbor_chunks(assigned), *canonical.cbor_chunks(addresses)])


def _hash(plan: Plan, rank: int, tables: bytes) -> bytes:
    """The plan's hash under another rank: two lists' heads, the short values, the tables."""
    values: list[Any] = [plan.ir_hash, plan.mode, plan.arena_config_hash, plan.execution_order_hash]
    values += [rank, plan.world_size, plan.shard_spec_hash]
    head = b"\x82" + canonical.cbor_canonical("tmmu_plan_v1") + b"\x89"
    body = b"".join(map(canonical.cbor_canonical, values))
    return hashlib.sha256(head + body + tables).digest()
