"""Minimum cut: which storages to keep across a step and which to recompute after it, at the least cost.

Chen et al. 2016 pose the problem; AOTAutograd solves it by a cut, without a cost of recomputation. A storage that is
needed later is kept, which costs its bytes, or recomputed, which costs the FLOPs of its producer and needs the
producer's inputs. The cut has a vertex for each storage ("needed") and each node ("runs again"): *needed and not run
again* costs the bytes, *run again* costs the FLOPs, and *run again with an input that is not needed* is forbidden.
Dinic's algorithm runs in the native library (``planners/native/recompute.c``) where one is loaded, otherwise in plain
Python.
"""

from dataclasses import dataclass

import numpy as np

from tmmu_core.fitting.recompute.recompute_model import I64, Mask, RecomputeModel
from tmmu_core.planners.native import native
from tmmu_core.planners.native.load import library

INFINITE = np.int64(2**61)
FINEST = 2**44
"""Capacities are scaled so that their sum stays below this: the cut is exact to one part in 2^44."""


@dataclass(frozen=True, eq=False)
class Boundary:
    """A position of the initial order, and the uses of each storage before and after it."""

    position: int
    present: I64
    """Storages that exist at the step, are not persistent, and can be read later."""
    read_later: Mask
    """Shape (storages,): whether a later node of the initial graph reads the storage."""
    gap_end: I64
    """Shape (storages,): position of the first use after the step; the last position if there is none."""
    gap_start: I64
    """Shape (storages,): position of the last use up to the step, else of the birth; −1 for unused inputs."""

    def idle(self, storages: Mask) -> I64:
        """Return those of the ``storages`` that exist at the step and are read later."""
        return self.present[storages[self.present] & self.read_later[self.present]]


def boundary(model: RecomputeModel, position: int) -> Boundary:
    """Return the boundary after the node at ``position``. O(operands)."""
    count, positions = len(model.size), len(model.node_at)
    reader = np.repeat(np.arange(positions, dtype=np.int64), np.diff(model.in_ptr))
    producer_of = np.repeat(np.arange(positions, dtype=np.int64), np.diff(model.out_ptr))
    start = np.full(count, -1, np.int64)
    early = np.flatnonzero(producer_of <= position)
    start[model.out_idx[early]] = producer_of[early]
    reads = np.flatnonzero(reader <= position)
    start[model.in_idx[reads]] = reader[reads]  # the last assignment wins: edges are in order
    end = np.full(count, positions - 1, np.int64)
    late = np.flatnonzero(reader > position)[::-1]
    end[model.in_idx[late]] = reader[late]
    needed = np.zeros(count, np.bool_)
    needed[model.in_idx[late]] = True
    exists = model.starts_live.copy()
    exists[model.out_idx[early]] = True
    needed &= exists
    return Boundary(position, np.flatnonzero(exists), needed, end, start)


def cheapest(model: RecomputeModel, at: Boundary, price: I64) -> Mask:
    """Return a mask of shape (positions,): the nodes to recompute for the least FLOPs plus cost of kept storages.

    ``price`` (storages,) is the cost of keeping each storage across the boundary, in FLOPs. O(V²·E) in the worst case,
    about linear on graphs of networks.
    """
    vertex = np.empty(len(model.size), np.int64)
    vertex[at.present] = 2 + np.arange(len(at.present))
    producers = model.producer[at.present]
    droppable = model.droppable[at.present]
    nodes = np.unique(producers[droppable])
    node_vertex = np.empty(len(model.node_at), np.int64)
    node_vertex[nodes] = 2 + len(at.present) + np.arange(len(nodes))

    cost = np.concatenate([price[at.present], model.node_flops[nodes]])
    unit = max(1, int(cost.astype(np.float64).sum()) // FINEST)
    keep_price = price[at.present] // unit
    run_price = model.node_flops[nodes] // unit + 1  # ties keep the storage

    tails, heads, capacities = [], [], []

    def edges(tail: I64, head: I64, capacity: I64 | np.int64) -> None:
        tails.append(tail)
        heads.append(head)
        capacities.append(np.broadcast_to(capacity, tail.shape))

    needed = at.present[at.read_later[at.present]]
    edges(np.zeros(len(needed), np.int64), vertex[needed], INFINITE)
    edges(vertex[at.present[droppable]], node_vertex[producers[droppable]], keep_price[droppable])
    # Storages that cannot be dropped are kept if a recomputed node needs one; those read later are kept anyway.
    undroppable = ~droppable & ~at.read_later[at.present] & ~model.stays_live[at.present]
    edges(vertex[at.present[undroppable]], np.ones(int(undroppable.sum()), np.int64), keep_price[undroppable])
    edges(node_vertex[nodes], np.ones(len(nodes), np.int64), run_price)
    reads = np.concatenate([np.arange(model.in_ptr[n], model.in_ptr[n + 1]) for n in nodes] or [np.zeros(0, np.int64)])
    of = np.repeat(nodes, model.in_ptr[nodes + 1] - model.in_ptr[nodes])
    edges(node_vertex[of], vertex[model.in_idx[reads]], INFINITE)
    side = minimum_cut(
        2 + len(at.present) + len(nodes), np.concatenate(tails), np.concatenate(heads), np.concatenate(capacities)
    )
    chosen = np.zeros(len(model.node_at), np.bool_)
    chosen[nodes] = side[node_vertex[nodes]]
    return chosen


def minimum_cut(vertices: int, tail: I64, head: I64, capacity: I64) -> Mask:
    """Return an array of shape (vertices,): the source side (vertex 0) of the minimum cut to the sink (vertex 1)."""
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
    loops = library()
    if loops is not None:
        return native.minimum_cut(loops, start, to, room, place[twin][order]) >= 0
    level = _dinic(*(column.tolist() for column in (start, to, room, place[twin][order])))
    return np.array(level, np.int64) >= 0


def _dinic(start: list[int], to: list[int], room: list[int], twin: list[int]) -> list[int]:
    """Return the level of each vertex after the last phase: ≥ 0 on the side of the source.

    Residual edges are grouped by tail: those of vertex v are ``start[v]:start[v + 1]``; ``room`` is changed.
    """
    while True:
        level = _levels(start, to, room)
        if level[1] < 0:
            return level
        at = start[:-1]
        path: list[int] = []
        v = 0
        while True:
            if v == 1:
                pushed = min(room[e] for e in path)
                for e in path:
                    room[e] -= pushed
                    room[twin[e]] += pushed
                full = next(d for d, e in enumerate(path) if room[e] == 0)
                v = to[twin[path[full]]]
                del path[full:]
                continue
            while at[v] < start[v + 1]:
                e = at[v]
                if room[e] > 0 and level[to[e]] == level[v] + 1:
                    break
                at[v] += 1
            if at[v] < start[v + 1]:
                path.append(at[v])
                v = to[at[v]]
                continue
            if not path:
                break
            level[v] = -1
            v = to[twin[path.pop()]]
            at[v] += 1


def _levels(start: list[int], to: list[int], room: list[int]) -> list[int]:
    """Return the distance of each vertex from the source along edges with room; −1 if there is no path."""
    level = [-1] * (len(start) - 1)
    level[0] = 0
    queue = [0]
    for v in queue:
        for e in range(start[v], start[v + 1]):
            if room[e] > 0 and level[to[e]] < 0:
                level[to[e]] = level[v] + 1
                queue.append(to[e])
    return level
