"""Search for the recomputation with the least extra FLOPs that fits a goal.

::

    cuts      minimum cuts across the peak at rising prices per kept byte
    segments  cuts that keep the storages between segments of the forward pass
    sweeps    drops at the first step above the goal, then at the next (sweep.py)
    nested    drops at the peak, also of recomputed storages (sweep.py)

Every choice is simulated (``live_curve.py``), so that the memory of recomputation itself is counted. This module has
the first two methods; ``recompute_moves.py`` combines all.

A **minimum cut** chooses the storages to keep across a step and those to recompute after it, at the least cost (Chen
et al. 2016 pose the problem; AOTAutograd solves it in the same way, but without a cost of recomputation). A storage
that is needed later is kept at its ``price``, or recomputed at the FLOPs of its producer, which then needs its inputs.
In the flow network, storages on the side of the source are needed, and nodes on that side run again. Dinic's algorithm
runs in the native library (``planners/native/recompute.c``) if it is loaded, otherwise in Python.

**Segments** divide the forward pass. The storages that cross the boundary between two segments are kept, and
recomputation starts from them (Chen et al. 2016). Without segments, a recurrent or deep network can recompute a long
chain at once, which then stays live for later readers. A cut across the peak does not count this memory. Dynamic
programming finds the boundaries that keep the fewest bytes, under a limit of the bytes that a segment recomputes.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np

from tmmu_core.fitting.order.order_model import csr_rows
from tmmu_core.fitting.recompute.live_curve import Choice, Run, Tables, run
from tmmu_core.fitting.recompute.recompute_model import I64, NEVER, Mask, RecomputeModel
from tmmu_core.planners.native import library, native

INFINITE = np.int64(2**61)
SCALED_SUM = 2**44
"""Larger sums of capacities are scaled down to about this. Scaling rounds a capacity by at most 2^-44 of the sum."""
MOST_CUTS = 400  # maximum number of positions where a segment can end: those that the fewest bytes cross
LIMIT_RATIO = (3, 4)  # ratio of each limit of a segment's bytes to the limit before: numerator, denominator
PRICES = tuple(int(1.6**k) for k in range(30))  # prices per kept byte, in FLOPs, from 1 to 830,767
SEGMENT_PRICES = (*PRICES[::3], PRICES[-1] * 1000)  # prices per kept byte within segments, in FLOPs
MOST_TRIALS, LEAST_TRIALS = 4_000, 300  # upper and lower limit of ``most_simulations``
SIMULATED_NODES = 16_000_000  # product of simulations and nodes that sets ``most_simulations`` between these limits

Excess = Callable[[Mapping[str, int]], int]  # from arena sizes to the excess over the goal in bytes; 0 if they fit


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
    scale = max(1, int(cost.astype(np.float64).sum()) // SCALED_SUM)
    keep_price = price[at.present] // scale
    run_price = model.node_flops[nodes] // scale + 1  # + 1: at equal cost, keep the storage
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
    if loops is None:
        return np.array(_dinic(*(column.tolist() for column in columns)), np.int64) >= 0
    level, queue, at, path = np.empty((4, vertices), np.int64)
    fields = dict(zip(("start", "to", "room", "twin"), columns, strict=True)) | {"queue": queue, "at": at, "path": path}
    native.run(loops, native.call_of("minimum_cut", vertices=vertices, level=level, **fields))
    return level >= 0


def _dinic(start: list[int], to: list[int], residual: list[int], twin: list[int]) -> list[int]:
    """Return the level of each vertex after the last phase: ≥ 0 on the side of the source.

    Residual edges are grouped by tail: vertex v has the edges ``start[v]:start[v + 1]``. ``residual`` is the capacity
    left on each edge, which this function changes. ``twin`` is the edge in the other direction.
    """
    while True:
        level = [0, *[-1] * (len(start) - 2)]  # length of a shortest path from the source by edges with capacity left
        queue = [0]
        for v in queue:  # the loop appends to the list
            for e in range(start[v], start[v + 1]):
                if residual[e] > 0 and level[to[e]] < 0:
                    level[to[e]] = level[v] + 1
                    queue.append(to[e])
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


def segmentations(model: RecomputeModel, at: Boundary) -> Iterator[Mask]:
    """Yield masks of shape (storages,): the storages kept between segments, for falling limits of a segment's bytes.

    O(cuts · (positions + storages)) once, and O(cuts · (cuts + storages)) per mask.
    """
    after_forward = np.flatnonzero(model.is_after_forward)
    forward_end = min(at.position, int(after_forward[0]) - 1 if len(after_forward) else at.position)
    in_forward = model.droppable & (model.producer <= forward_end)
    last = np.full(len(model.size), -1, np.int64)
    edges = np.flatnonzero(model.reader <= forward_end)
    last[model.in_idx[edges]] = model.reader[edges]
    crossing = np.flatnonzero(in_forward & (last > model.producer))
    # Cuts: the start (−1), the end, and local minima of the bytes that cross a position. Of equal neighbours, the last
    # before a rise is a minimum. If nothing rises (a chain of equal tensors), all without a lower neighbour are minima.
    change = np.zeros(forward_end + 2, np.int64)
    np.add.at(change, model.producer[crossing], model.size[crossing])
    np.subtract.at(change, last[crossing], model.size[crossing])
    live = np.cumsum(change)
    inner = np.arange(1, max(1, forward_end))
    inner = inner[(live[inner] <= live[inner - 1]) & (live[inner] <= live[inner + 1])]
    before_rise = inner[live[inner] < live[inner + 1]]
    inner = before_rise if len(before_rise) else inner
    fewest = inner[np.argsort(live[inner], kind="stable")[:MOST_CUTS]]
    cuts = np.concatenate([[-1], np.sort(fewest), [forward_end]]).astype(np.int64)
    if len(cuts) < 3:
        return
    bytes_before = np.zeros(forward_end + 2, np.int64)  # position → needed bytes that are computed before it
    needed = np.flatnonzero(in_forward & at.read_later)
    np.add.at(bytes_before, model.producer[needed] + 1, model.size[needed])
    bytes_before = np.cumsum(bytes_before)
    bytes_between = bytes_before[cuts[None, :] + 1] - bytes_before[cuts[:, None] + 1]
    kept = np.zeros_like(bytes_between)  # bytes that are computed between two cuts and cross the second
    for j, p in enumerate(cuts[1:-1].tolist(), 1):
        crossing_cut = crossing[(model.producer[crossing] <= p) & (last[crossing] > p)]
        computed = np.zeros(p + 2, np.int64)
        np.add.at(computed, model.producer[crossing_cut] + 1, model.size[crossing_cut])
        computed = np.cumsum(computed)
        kept[:j, j] = computed[p + 1] - computed[cuts[:j] + 1]
    limit, known = int(bytes_before[-1]), set()
    while limit := limit * LIMIT_RATIO[0] // LIMIT_RATIO[1]:
        least = np.full(len(cuts), NEVER, np.int64)  # cut → the fewest bytes kept by the segments up to this cut
        least[0] = 0
        inner_cuts: list[tuple[int, ...]] = [()]  # cut → the inner cuts of these segments, with this cut
        for j in range(1, len(cuts)):
            total = np.where(bytes_between[:j, j] <= limit, least[:j] + kept[:j, j], NEVER)
            previous = int(total.argmin())
            least[j] = min(total[previous], NEVER)
            inner_cuts.append((*inner_cuts[previous], j))
        if least[-1] >= NEVER:
            return
        chosen = inner_cuts[-1][:-1]
        if chosen not in known:
            known.add(chosen)
            mask = np.zeros(len(model.size), np.bool_)
            for p in cuts[list(chosen)].tolist():
                mask[crossing[(model.producer[crossing] <= p) & (last[crossing] > p)]] = True
            yield mask


@dataclass(frozen=True, eq=False)
class Point:
    """A choice and its simulation."""

    choice: Choice
    run: Run  # the simulation; it may lack the arrays (:meth:`Run.without_curves`)

    @property
    def key(self) -> tuple[int, int, int]:
        """Sort key: FLOPs, then bytes, then steps."""
        return self.run.flops, self.run.total, self.run.extra_steps


class Search:
    """Simulates choices for one plan input. Each choice adds drops to the choice ``initial``."""

    def __init__(
        self, model: RecomputeModel, over: Excess, initial: Choice, should_continue: Callable[[], bool]
    ) -> None:
        self.model, self.over, self.initial, self.should_continue = model, over, initial, should_continue
        self.simulations = 0  # so far
        self.tables = Tables(model)
        self.initial_point = self.simulate(initial)
        self.arena = arena_to_reduce(model, self.initial_point.run)
        self.boundary = peak_boundary(model, self.initial_point.run, self.arena)
        self.most_simulations = min(MOST_TRIALS, max(LEAST_TRIALS, SIMULATED_NODES // max(1, len(model.node_at))))
        self.producer, self.node_flops = model.producer.tolist(), model.node_flops.tolist()
        self.operands = csr_rows(model.in_ptr, model.in_idx)

    def simulate(self, choice: Choice) -> Point:
        """Return the point of a choice, with all arrays of its simulation."""
        self.simulations += 1
        return Point(choice, run(self.model, choice, self.tables))

    def peaks(self, found: Run) -> dict[str, int]:
        """Return arena → lower bound of its extent in a plan of this simulation."""
        return dict(zip(self.model.liveness.arenas, (found.peaks - self.model.padding).tolist(), strict=True))

    def excess(self, found: Run) -> int:
        """Return a lower bound of the bytes by which a plan of this simulation exceeds the goal."""
        return self.over(self.peaks(found))

    def fitting(self, points: Iterable[Point]) -> list[Point]:
        """Return the points that fit, cheapest first."""
        return sorted((point for point in points if not self.excess(point.run)), key=lambda point: point.key)

    def cuts(self) -> list[Point]:
        """Return the initial point, then cuts at rising prices and cuts of segments; points of cuts have no arrays."""
        found = {b"": self.initial_point}
        start, end, peak = self.boundary.gap_start, self.boundary.gap_end, self.boundary.position
        # A storage is idle if its gap contains the peak, or begins at the peak and contains another node.
        idle = (start < peak) & (peak <= end) | (start == peak) & (end > peak + 1)
        cost = self.model.size * (idle & ~self.initial.offloaded)  # already offloaded storages cost nothing
        costs_in_segments = (
            np.where(is_between, 0, cost * price)
            for is_between in segmentations(self.model, self.boundary)
            for price in SEGMENT_PRICES
        )
        for keeping_cost in chain((cost * price for price in PRICES), costs_in_segments):
            nodes = nodes_to_recompute(self.model, self.boundary, keeping_cost)
            if nodes.tobytes() not in found:
                point = self.simulate(self.initial | choice_of(self.model, self.boundary, nodes))
                found[nodes.tobytes()] = replace(point, run=point.run.without_curves())
            if not self.should_continue():
                break
        return list(found.values())


def choice_of(model: RecomputeModel, at: Boundary, nodes: Mask) -> Choice:
    """Return the choice that drops the outputs of ``nodes`` in their gaps at the boundary."""
    dropped = at.present[(model.droppable & (model.size > 0))[at.present]]
    dropped = dropped[nodes[model.producer[dropped]]]
    return Choice.nothing(model).dropping(at.gap_start[dropped] * len(model.size) + dropped)


def arena_to_reduce(model: RecomputeModel, found: Run) -> int:
    """Return the arena with the most idle recomputable bytes at its peak."""
    idle = []
    for arena in range(len(model.fixed)):
        at = peak_boundary(model, found, arena)
        idle.append(int(model.size[at.idle(model.droppable & (model.arena == arena))].sum()))
    return int(np.argmax(idle)) if idle else 0


def peak_boundary(model: RecomputeModel, found: Run, arena: int) -> Boundary:
    """Return the boundary after the position of the arena's peak, or after position 0 if there are no steps."""
    return boundary(model, int(found.for_position[found.live[arena].argmax()]) if found.live.size else 0)
