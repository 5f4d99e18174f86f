"""Shard moves: split the graph over ranks and take the share of the first rank."""

from __future__ import annotations

from dataclasses import replace

from tmmu_core.fitting.move import Move
from tmmu_core.fitting.problem.planner_calls import PlanInput
from tmmu_core.graph.sharding.rank_share import local_graph_of
from tmmu_core.graph.sharding.shard_spec import read_spec
from tmmu_core.graph.sharding.splits import shard


def apply_shards(plan_input: PlanInput, move: Move) -> PlanInput:
    """Apply a move whose ``details`` are ``{"spec": {…}}``: return the share of rank 0."""
    graph = plan_input.graph
    local = local_graph_of(shard(graph, read_spec(move.details["spec"])), 0)
    return replace(plan_input, graph=local)
