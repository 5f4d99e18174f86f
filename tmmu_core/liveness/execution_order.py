"""The execution order: a given one, checked, or the default (contract §2).

The default is a topological order, with the lowest node id among ready nodes. Ids compare by UTF-8 bytes, which
equals Python's ``str`` order.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

import numpy as np
from numpy.typing import NDArray

from tmmu_core.base import strict
from tmmu_core.base.cycles import nodes_on_cycles
from tmmu_core.base.errors import InvalidIrShapes, LivenessCycle
from tmmu_core.graph.index import GraphIndex

I64 = NDArray[np.int64]


def source_of(index: GraphIndex, roots: I64) -> I64:
    """Shape (tensors,): the node that must run before a tensor can be read, or −1.

    For a view without a producer, the producer of its root base.
    """
    source = index.producer.copy()
    unproduced_view = (index.base >= 0) & (source < 0)
    source[unproduced_view] = index.producer[roots[unproduced_view]]
    return source


def dependencies(index: GraphIndex, source: I64, inside: NDArray[np.bool_]) -> tuple[I64, I64]:
    """Return edges (before, after) between nodes of the timeline."""
    after = np.repeat(np.arange(len(index.node_ids), dtype=np.int64), np.diff(index.in_ptr))
    before = source[index.in_idx]
    keep = (before >= 0) & inside[after]
    before, after = before[keep], after[keep]
    outside = ~inside[before]
    if outside.any():
        # The reader of lowest id, and its first such input.
        at = min(np.flatnonzero(outside).tolist(), key=lambda edge: (index.node_ids[after[edge]], edge))
        raise InvalidIrShapes(
            f"node {index.node_ids[after[at]]!r} reads what node {index.node_ids[before[at]]!r} writes, "
            "and that node is not part of this mode's timeline.",
            reason="producer_outside_mode",
            node_id=index.node_ids[after[at]],
            hint="Choose mode 'backward', or mark the producer with phase 'forward'.",
        )
    return before, after


def default_order(index: GraphIndex, edges: tuple[I64, I64], inside: NDArray[np.bool_]) -> I64:
    """Return a topological order by Kahn's algorithm with a heap of node-id ranks.

    O((nodes + edges) log nodes); O(nodes + edges) where ids ascend. Raises ``LivenessCycle`` with the lowest node on
    a cycle.
    """
    ids = index.node_ids
    numbers = index.node_names.by_bytes
    numbers = numbers[inside[numbers]]
    rank = np.zeros(len(ids), np.int64)  # of nodes inside the timeline
    rank[numbers] = np.arange(len(numbers))
    before, after = rank[edges[0]], rank[edges[1]]
    if bool((before < after).all()):  # no order by ready ids comes before the order of the ids themselves
        return numbers

    by_id = numbers.tolist()
    waits_for = np.bincount(after, minlength=len(by_id)).tolist()
    sorting = np.argsort(before, kind="stable")
    followers = after[sorting].tolist()
    start = np.zeros(len(by_id) + 1, np.int64)
    np.cumsum(np.bincount(before, minlength=len(by_id)), out=start[1:])
    first = start.tolist()

    ready = [r for r, waiting in enumerate(waits_for) if waiting == 0]
    heapify(ready)
    order: list[int] = []
    while ready:
        done = heappop(ready)
        order.append(by_id[done])
        for follower in followers[first[done] : first[done + 1]]:
            waits_for[follower] -= 1
            if waits_for[follower] == 0:
                heappush(ready, follower)
    if len(order) < len(by_id):
        stuck = _on_a_cycle(by_id, order, edges)
        raise LivenessCycle(
            f"the graph has a cycle: node {ids[stuck]!r} depends on itself through its inputs.",
            node_id=ids[stuck],
            hint="Break the cycle: every tensor must be written before it is read.",
        )
    return np.array(order, np.int64)


def _on_a_cycle(by_id: list[int], ordered: list[int], edges: tuple[I64, I64]) -> int:
    """Return the lowest node (by id) that lies on a cycle."""
    left = set(by_id) - set(ordered)
    pairs = zip(edges[0].tolist(), edges[1].tolist(), strict=True)
    on_cycles = nodes_on_cycles(pair for pair in pairs if left.issuperset(pair))
    return next(node for node in by_id if node in on_cycles)


def given_order(index: GraphIndex, order: Sequence[str], edges: tuple[I64, I64], inside: NDArray[np.bool_]) -> I64:
    """Check that ``order`` is a permutation of the timeline's nodes that respects every dependency.

    Nodes outside this mode's timeline are skipped, so one order serves all modes.
    """
    node_of = index.node_of
    nodes: list[int] = []
    at = np.full(len(index.node_ids), -1, np.int64)
    for position, node_id in enumerate(order):
        node = node_of.get(node_id)
        if node is None:
            near = strict.closest_hint(node_id, index.node_ids)
            raise _bad_order("order_unknown_node", node_id, position, "is not a node of the graph", near)
        if not inside[node]:
            continue
        if at[node] >= 0:
            raise _bad_order("order_duplicate_node", node_id, position, "appears twice")
        at[node] = len(nodes)
        nodes.append(node)
    missing = np.flatnonzero(inside & (at < 0))
    if len(missing):
        node_id = min(index.node_ids[i] for i in missing.tolist())
        raise _bad_order("order_missing_node", node_id, len(order), "is missing")
    before, after = edges
    wrong = np.flatnonzero(at[before] >= at[after])
    if len(wrong):
        first = int(at[after[wrong]].min())
        node_id = index.node_ids[nodes[first]]
        culprit = wrong[at[after[wrong]] == first][0]
        raise LivenessCycle(
            f"the execution order runs node {node_id!r} before node {index.node_ids[before[culprit]]!r}, "
            "whose output it reads.",
            t=first + bool(index.graph.inputs),
            node_id=node_id,
            hint="Move it after its producers, or omit the order to use the default.",
        )
    return np.array(nodes, np.int64)


def _bad_order(reason: str, node_id: str, position: int, what: str, hint: str = "") -> InvalidIrShapes:
    return InvalidIrShapes(
        f"the execution order is not a permutation of the nodes: {strict.shown(node_id)} {what} (position {position}).",
        reason=reason,
        node_id=node_id,
        path=f"$.execution_order[{position}]",
        hint=hint or "List every node of the mode's timeline exactly once.",
    )
