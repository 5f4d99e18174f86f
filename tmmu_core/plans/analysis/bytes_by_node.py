"""Live bytes at a step, by the node that wrote them."""

from __future__ import annotations

import numpy as np

from tmmu_core.graph.index import I64, GraphIndex
from tmmu_core.plans.figures.plan_storages import PlanStorages, arena_number
from tmmu_core.plans.model import Plan


def held_by_writer(plan: Plan, own: PlanStorages, index: GraphIndex, step: int, arena: str) -> tuple[I64, int]:
    """``(bytes per node, bytes that no node wrote)`` of an arena's storages that are alive at ``step``.

    ``own`` are the plan's storages, ``index`` the graph as run. A storage belongs to the node that writes its head;
    inputs and what is persistent belong to none. The sum of all is the live bytes of the step. The array's shape is
    (nodes,). O(storages). ``KeyError`` for an arena that the plan does not have.
    """
    by_node = np.zeros(len(index.node_ids), np.int64)
    alive = np.flatnonzero((own.arena == arena_number(plan, arena)) & (own.birth <= step) & (step < own.death))
    heads = [index.tensor_of[plan.tensor_ids[row]] for row in own.head[alive].tolist()]
    writer = index.producer[heads] if heads else np.zeros(0, np.int64)
    size = own.size[alive].astype(np.int64)
    np.add.at(by_node, writer[writer >= 0], size[writer >= 0])
    return by_node, int(size[writer < 0].sum())
