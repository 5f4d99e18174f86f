"""What to hold across a step and what to make again behind it, at the least cost: a minimum cut (Chen and others 2016
asked the question; that a cut answers it is AOTAutograd's observation, here with a price on recomputing as well).

Across a step some storages are needed later. Each of them is held, which costs its bytes (times a price), or made
again, which costs its producer's FLOPs and needs what that one reads. With a vertex "needed" for each storage and a
vertex "run again" for each node this is a cut: *needed and not run again* pays the bytes, *run again* pays the FLOPs,
and *run again and not needed* for something that the node reads may not be. Dinic's algorithm on columns, compiled.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tmmu_core.compiled import njit
from tmmu_core.fit.recompute.model import I64, Mask, RecomputeModel

INFINITE = np.int64(2**61)
FINEST = 2**44
"""Capacities are scaled so that all of them together stay below this: the cut is exact to one part in 2^44."""


@dataclass(frozen=True, eq=False)
class Boundary:
    """A step of the order as given, and what is before and behind it."""

    position: int
    before: I64
    """Storages that are born up to here, are not persistent, and could be read later."""
    needed: Mask
    """Shape (storages,): read later by the graph as given."""
    gap: I64
    """Shape (storages,): the last use up to here, a place in ``in_idx``; −1 − a place in ``out_idx`` for its birth."""
    gap_end: I64
    """Shape (storages,): position of the first use behind here; that of the last node where there is none."""
    gap_start: I64
    """Shape (storages,): position of the last use up to here."""


def boundary(model: RecomputeModel, position: int) -> Boundary:
    """The boundary behind the node at ``position``. O(operands)."""
    count, positions = len(model.size), len(model.node_at)
    reader = np.repeat(np.arange(positions, dtype=np.int64), np.diff(model.in_ptr))
    maker = np.repeat(np.arange(positions, dtype=np.int64), np.diff(model.out_ptr))
    gap = np.full(count, -1, np.int64)
    start = np.full(count, -1, np.int64)
    early = np.flatnonzero(maker <= position)
    start[model.out_idx[early]] = maker[early]
    gap[model.out_idx[early]] = -1 - early
    reads = np.flatnonzero(reader <= position)
    gap[model.in_idx[reads]] = reads  # the last assignment stays: edges come in order
    start[model.in_idx[reads]] = reader[reads]
    end = np.full(count, positions - 1, np.int64)
    late = np.flatnonzero(reader > position)[::-1]
    end[model.in_idx[late]] = reader[late]
    needed = np.zeros(count, np.bool_)
    needed[model.in_idx[late]] = True
    there = model.at_start.copy()
    there[model.out_idx[early]] = True
    needed &= there
    return Boundary(position, np.flatnonzero(there), needed, gap, end, start)


def cheapest(model: RecomputeModel, at: Boundary, price: I64) -> Mask:
    """Shape (positions,): nodes to run again, so that FLOPs and the price of what is held are least together.

    ``price`` (storages,) is what holding each across the boundary costs, in FLOPs. O(V²·E) in the worst case, about
    linear on graphs of networks.
    """
    vertex = np.empty(len(model.size), np.int64)
    vertex[at.before] = 2 + np.arange(len(at.before))
    producers = model.producer[at.before]
    droppable = model.droppable[at.before]
    nodes = np.unique(producers[droppable])
    node_vertex = np.empty(len(model.node_at), np.int64)
    node_vertex[nodes] = 2 + len(at.before) + np.arange(len(nodes))

    cost = np.concatenate([price[at.before], model.made_of[nodes]])
    unit = max(1, int(cost.astype(np.float64).sum()) // FINEST)
    held_price = price[at.before] // unit
    run_price = model.made_of[nodes] // unit + 1  # ties go to holding

    tails, heads, capacities = [], [], []

    def edges(tail: I64, head: I64, capacity: I64 | np.int64) -> None:
        tails.append(tail)
        heads.append(head)
        capacities.append(np.broadcast_to(capacity, tail.shape))

    needed = at.before[at.needed[at.before]]
    edges(np.zeros(len(needed), np.int64), vertex[needed], INFINITE)
    edges(vertex[at.before[droppable]], node_vertex[producers[droppable]], held_price[droppable])
    # What cannot be dropped is held where anything needs it; what the graph itself reads later is there anyway.
    kept = ~droppable & ~at.needed[at.before] & ~model.held[at.before]
    edges(vertex[at.before[kept]], np.ones(int(kept.sum()), np.int64), held_price[kept])
    edges(node_vertex[nodes], np.ones(len(nodes), np.int64), run_price)
    reads = np.concatenate([np.arange(model.in_ptr[n], model.in_ptr[n + 1]) for n in nodes] or [np.zeros(0, np.int64)])
    of = np.repeat(nodes, model.in_ptr[nodes + 1] - model.in_ptr[nodes])
    edges(node_vertex[of], vertex[model.in_idx[reads]], INFINITE)
    side = minimum_cut(
        2 + len(at.before) + len(nodes), np.concatenate(tails), np.concatenate(heads), np.concatenate(capacities)
    )
    chosen = np.zeros(len(model.node_at), np.bool_)
    chosen[nodes] = side[node_vertex[nodes]]
    return chosen


def minimum_cut(vertices: int, tail: I64, head: I64, capacity: I64) -> Mask:
    """Shape (vertices,): the side of the source (vertex 0) in the minimum cut from the sink (vertex 1)."""
    both_tail = np.concatenate([tail, head])
    order = np.argsort(both_tail, kind="stable")
    count = len(tail)
    place = np.empty(2 * count, np.int64)
    place[order] = np.arange(2 * count)
    twin = np.concatenate([np.arange(count, 2 * count), np.arange(count)])
    start = np.zeros(vertices + 1, np.int64)
    np.cumsum(np.bincount(both_tail, minlength=vertices), out=start[1:])
    room = np.concatenate([capacity, np.zeros(count, np.int64)])[order]
    to = np.concatenate([head, tail])[order]
    side: Mask = _dinic(start, to, room, place[twin][order])
    return side


@njit
def _dinic(start, to, room, twin):  # type: ignore[no-untyped-def]  # columns: residual edges grouped by tail
    vertices = len(start) - 1
    level = np.empty(vertices, np.int64)
    queue = np.empty(vertices, np.int64)
    at = np.empty(vertices, np.int64)
    path = np.empty(vertices + 1, np.int64)
    while True:
        level[:] = -1
        level[0] = 0
        queue[0] = 0
        done, filled = 0, 1
        while done < filled:
            v = queue[done]
            done += 1
            for e in range(start[v], start[v + 1]):
                if room[e] > 0 and level[to[e]] < 0:
                    level[to[e]] = level[v] + 1
                    queue[filled] = to[e]
                    filled += 1
        if level[1] < 0:
            return level >= 0
        for v in range(vertices):
            at[v] = start[v]
        depth, v = 0, 0
        while True:
            if v == 1:
                pushed = room[path[0]]
                for d in range(1, depth):
                    pushed = min(pushed, room[path[d]])
                back = depth
                for d in range(depth - 1, -1, -1):
                    e = path[d]
                    room[e] -= pushed
                    room[twin[e]] += pushed
                    if room[e] == 0:
                        back = d
                depth = back
                v = to[twin[path[back]]]
                continue
            moved = False
            while at[v] < start[v + 1]:
                e = at[v]
                if room[e] > 0 and level[to[e]] == level[v] + 1:
                    path[depth] = e
                    depth += 1
                    v = to[e]
                    moved = True
                    break
                at[v] += 1
            if moved:
                continue
            if depth == 0:
                break
            level[v] = -1
            depth -= 1
            v = to[twin[path[depth]]]
            at[v] += 1
