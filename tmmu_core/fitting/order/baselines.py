"""The orders that PyTorch's Inductor chooses from (``torch/_inductor/memory.py``), with aliasing resolved.

* **Least peak memory first** (after "Buffer memory optimization for video codec application modeled in Simulink", DAC
  2006): of the ready units, prefer those below the peak so far with the fewest bytes left, else the smallest.
  pytorch#161810: if all ready units are larger than a threshold, take the one that is needed first.
* **Breadth first**: the unit whose inputs were ready earliest.
* **Depth first**: every unit directly after its inputs, small ones first.
* **Eager-free** (pytorch#196848): the initial order, but a ready unit that frees more than it takes runs first.

Also **hill–valley** orders: interleave independent schedules optimally. A schedule is split into segments, each with
its hill (most bytes added while it runs) and its valley (bytes left after it). Segments with a negative valley come
first, lowest hill first; other segments by falling hill − valley (Liu, "An application of generalized tree pebbling to
sparse matrix factorization", 1987; Abdel-Wahab and Kameda, "Scheduling to minimize maximum cumulative cost subject to
series-parallel precedence constraints", 1978). Adjacent segments of a schedule in the wrong order are merged. Each unit
is attached to the first unit that needs it, which turns the graph into a forest: the result is exact for forests, and a
heuristic elsewhere. About O(units log units).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, merge
from typing import Any

import numpy as np

from tmmu_core.fitting.order.order_loops import I64, alone, eager, lpmf
from tmmu_core.fitting.order.order_model import OrderModel

THRESHOLD = 1 << 20
"""Threshold of pytorch#161810, in bytes."""


def baselines(model: OrderModel) -> Iterator[tuple[str, I64]]:
    """Yield Inductor's orders by name."""
    yield "lpmf", lpmf(model)
    yield "lpmf_threshold", lpmf(model, THRESHOLD)
    yield "bfs", breadth_first(model)
    yield "dfs", depth_first(model)
    yield "eager_free", eager(model, np.arange(len(model), dtype=np.int64))


def breadth_first(model: OrderModel) -> I64:
    """Return the breadth-first order. O((units + edges) log units)."""
    waits = list(map(len, model.predecessors))
    ready: list[tuple[list[int], int]] = [([], unit) for unit, waiting in enumerate(waits) if not waiting]
    heapify(ready)
    place = [-1] * len(waits)
    order: list[int] = []
    while ready:
        _, unit = heappop(ready)
        place[unit] = len(order)
        order.append(unit)
        for later in model.successors[unit]:
            waits[later] -= 1
            if not waits[later]:
                heappush(ready, (sorted(place[p] for p in model.predecessors[later]), later))
    return np.array(order, np.int64)


def depth_first(model: OrderModel) -> I64:
    """Return the depth-first order. O(units log units + edges)."""
    size = model.size.tolist()
    touched = np.array([sum(size[s] for node in nodes for s in model.touches[node]) for nodes in model.units], np.int64)
    rank = np.empty(len(model), np.int64)
    rank[np.lexsort((np.arange(len(model)), touched))] = np.arange(len(model))
    return topological_order(model, np.argsort(rank), rank)


def topological_order(model: OrderModel, wanted: I64, rank: I64) -> I64:
    """Return the units in the ``wanted`` order, each after its inputs, which are sorted by ``rank``."""
    place = rank.tolist()
    needs = [sorted(before, key=place.__getitem__, reverse=True) for before in model.predecessors]
    seen = [False] * len(model)
    order: list[int] = []
    for unit in wanted.tolist():
        pending = [unit]
        while pending:
            top = pending[-1]
            while needs[top] and seen[needs[top][-1]]:
                needs[top].pop()
            if needs[top]:
                pending.append(needs[top].pop())
                continue
            pending.pop()
            if not seen[top]:
                seen[top] = True
                order.append(top)
    return np.array(order, np.int64)


# --- hill–valley ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Segment:
    """Consecutive units as a binary tree (a unit, or two trees)."""

    hill: int
    valley: int
    rope: Any

    @property
    def key(self) -> tuple[int, int]:
        """Sort key among independent segments."""
        return (0, self.hill) if self.valley < 0 else (1, self.valley - self.hill)


def append_segment(segments: list[Segment], segment: Segment) -> None:
    """Append ``segment`` to a schedule and merge segments that are in the wrong order."""
    segments.append(segment)
    while len(segments) > 1 and segments[-1].key < segments[-2].key:
        second, first = segments.pop(), segments.pop()
        hill = max(first.hill, first.valley + second.hill)
        segments.append(Segment(hill, first.valley + second.valley, (first.rope, second.rope)))


def hill_valley_order(model: OrderModel, base: I64) -> I64:
    """Return a hill–valley order, with the memory changes of the units when run as ``base``."""
    hill, change = (column.tolist() for column in alone(model, base))
    place = {unit: k for k, unit in enumerate(base.tolist())}
    under: list[list[list[Segment]]] = [[] for _ in range(len(model))]
    roots: list[list[Segment]] = []
    for unit in base.tolist():
        children = under[unit]
        schedule = children[0] if len(children) == 1 else list(merge(*children, key=lambda s: s.key))
        under[unit] = []
        append_segment(schedule, Segment(hill[unit], change[unit], unit))
        if model.successors[unit]:
            under[min(model.successors[unit], key=place.__getitem__)].append(schedule)
        else:
            roots.append(schedule)
    wanted = [unit for segment in merge(*roots, key=lambda s: s.key) for unit in _units_of(segment.rope)]
    rank = np.empty(len(model), np.int64)
    rank[wanted] = np.arange(len(wanted))
    return topological_order(model, np.array(wanted, np.int64), rank)


def _units_of(rope: Any) -> list[int]:
    found: list[int] = []
    pending = [rope]
    while pending:
        top = pending.pop()
        if isinstance(top, tuple):
            pending += [top[1], top[0]]
        else:
            found.append(top)
    return found
