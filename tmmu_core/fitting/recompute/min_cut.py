"""Minimum cut: which storages to keep across a step and which to recompute after it, at the least cost.

Chen et al. 2016 pose the problem; AOTAutograd solves it by a minimum cut, but without a cost of recomputation. A
storage that is needed later is kept at its ``price`` or recomputed. Recomputation costs the FLOPs of the producer and
needs its inputs. In the flow network, storages on the side of the source are needed, and nodes on that side run again.
Dinic's algorithm runs in the native library (``planners/native/recompute.c``) if it is loaded, otherwise in Python.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from tmmu_core.fitting.recompute.recompute_model import I64, Mask, RecomputeModel
from tmmu_core.planners.native import library, native

INFINITE = np.int64(2**61)
SCALED_SUM = 2**44
"""Larger sums of capacities are scaled down to about this. Scaling rounds a capacity by at most 2^-44 of the sum."""


@dataclass(frozen=True, eq=False)
class Boundary:
    """A position of the initial order, and the uses of each storage before and after it."""

    position: int
    present: I64  # storages that exist at the position: the inputs, and the outputs of the nodes up to it
    read_later: Mask  # shape (storages,): whether it is present, and a later node of the initial graph reads it
    gap_end: I64  # shape (storages,): position of the first use after the boundary; the last position if there is none
    gap_start: I64  # shape (storages,): position of the last use up to the boundary, else of the producer, else −1

    def idle(self, storages: Mask) -> I64:
        """Return those of the ``storages`` that exist at the boundary and are read after it."""
        return self.present[storages[self.present] & self.read_later[self.present]]


def boundary(model: RecomputeModel, position: int) -> Boundary:
    """Return the boundary after the node at ``position``. O(operands)."""
    count, positions = len(model.size), len(model.node_at)
    reader, producer = model.reader, model.producer
    start = np.where(producer <= position, producer, -1)
    reads = np.flatnonzero(reader <= position)
    start[model.in_idx[reads]] = reader[reads]  # the last assignment wins: edges are in order
    end = np.full(count, positions - 1, np.int64)
    later_reads = np.flatnonzero(reader > position)[::-1]
    end[model.in_idx[later_reads]] = reader[later_reads]
    exists = model.starts_live | ((producer >= 0) & (producer <= position))
    read_later = np.zeros(count, np.bool_)
    read_later[model.in_idx[later_reads]] = True
    return Boundary(position, np.flatnonzero(exists), read_later & exists, end, start)


def nodes_to_recompute(model: RecomputeModel, at: Boundary, price: I64) -> Mask:
    """Return a mask of shape (positions,): the nodes to recompute for the least sum of FLOPs and prices.

    ``price`` (storages,) is the cost of keeping each storage across the boundary, in FLOPs. O(V²·E) in the worst case,
    about linear on graphs of neural networks.
    """
    vertex = np.empty(len(model.size), np.int64)
    vertex[at.present] = 2 + np.arange(len(at.present))
    producers = model.producer[at.present]
    droppable = model.droppable[at.present]
    nodes = np.unique(producers[droppable])
    node_vertex = np.empty(len(model.node_at), np.int64)
    node_vertex[nodes] = 2 + len(at.present) + np.arange(len(nodes))

    cost = np.concatenate([price[at.present], model.node_flops[nodes]])
    unit = max(1, int(cost.astype(np.float64).sum()) // SCALED_SUM)
    keep_price = price[at.present] // unit
    run_price = model.node_flops[nodes] // unit + 1  # ties keep the storage

    source, sink = 0, 1
    needed = at.present[at.read_later[at.present]]
    # A storage that cannot be dropped costs its price if a recomputed node reads it, unless it is kept anyway.
    undroppable = ~droppable & ~at.read_later[at.present] & ~model.stays_live[at.present]
    reads = np.flatnonzero(np.isin(model.reader, nodes))
    edges: list[tuple[Any, Any, Any]] = [
        (source, vertex[needed], INFINITE),
        (vertex[at.present[droppable]], node_vertex[producers[droppable]], keep_price[droppable]),
        (vertex[at.present[undroppable]], sink, keep_price[undroppable]),
        (node_vertex[nodes], sink, run_price),
        (node_vertex[model.reader[reads]], vertex[model.in_idx[reads]], INFINITE),
    ]
    columns = zip(*(np.broadcast_arrays(*columns) for columns in edges), strict=True)
    side = minimum_cut(2 + len(at.present) + len(nodes), *map(np.concatenate, columns))
    chosen = np.zeros(len(model.node_at), np.bool_)
    chosen[nodes] = side[node_vertex[nodes]]
    return chosen


def minimum_cut(vertices: int, tail: I64, head: I64, capacity: I64) -> Mask:
    """Return a mask of shape (vertices,): the source side of the minimum cut between source (0) and sink (1).

    The arrays ``tail``, ``head`` and ``capacity`` describe the edges.
    """
    count = len(tail)
    tails, heads = np.concatenate([tail, head]), np.concatenate([head, tail])
    order = np.argsort(tails, kind="stable")
    start = np.searchsorted(tails[order], np.arange(vertices + 1))
    residual = np.concatenate([capacity, np.zeros(count, np.int64)])[order]
    twin = np.argsort(order)[(order + count) % max(1, 2 * count)]
    columns = (start, heads[order], residual, twin)
    loops = library()
    level = _dinic(*(column.tolist() for column in columns)) if loops is None else native.minimum_cut(loops, *columns)
    return np.array(level, np.int64) >= 0


def _dinic(start: list[int], to: list[int], residual: list[int], twin: list[int]) -> list[int]:
    """Return the level of each vertex after the last phase: ≥ 0 on the side of the source.

    Residual edges are grouped by tail: vertex v has the edges ``start[v]:start[v + 1]``. ``residual`` is the capacity
    left on each edge, which this function changes. ``twin`` is the edge in the other direction.
    """
    while True:
        level = _levels(start, to, residual)
        if level[1] < 0:
            return level
        at, path, v = start[:-1], list[int](), 0
        while True:
            if v == 1:
                pushed = min(residual[e] for e in path)
                for e in path:
                    residual[e] -= pushed
                    residual[twin[e]] += pushed
                saturated = next(d for d, e in enumerate(path) if residual[e] == 0)
                v = to[twin[path[saturated]]]
                del path[saturated:]
                continue
            edges = range(at[v], start[v + 1])
            at[v] = next((e for e in edges if residual[e] > 0 and level[to[e]] == level[v] + 1), start[v + 1])
            if at[v] < start[v + 1]:
                path.append(at[v])
                v = to[at[v]]
            elif path:
                level[v] = -1
                v = to[twin[path.pop()]]
                at[v] += 1
            else:
                break


def _levels(start: list[int], to: list[int], residual: list[int]) -> list[int]:
    """Return the length of a shortest path from the source to each vertex by edges with capacity left, else −1."""
    level = [-1] * (len(start) - 1)
    level[0] = 0
    queue = [0]
    for v in queue:
        for e in range(start[v], start[v + 1]):
            if residual[e] > 0 and level[to[e]] < 0:
                level[to[e]] = level[v] + 1
                queue.append(to[e])
    return level
