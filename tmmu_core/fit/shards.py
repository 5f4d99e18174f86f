"""Shards: the same graph split over ranks, and the first rank's share of it. Over how many, ``mesh`` says."""

from __future__ import annotations

from dataclasses import replace

from tmmu_core.fit.asking import Question
from tmmu_core.fit.moves import Move
from tmmu_core.graph.shard_spec import read_spec
from tmmu_core.graph.sharding import shard
from tmmu_core.graph.shares import local_graph_of


def apply_shards(question: Question, move: Move) -> Question:
    """``details``: ``{"spec": {…}}``, a shard spec: the first rank's share of the graph, backward pass and all."""
    graph = question.graph
    local = local_graph_of(shard(graph, read_spec(move.details["spec"])), 0)
    return replace(question, graph=local)
