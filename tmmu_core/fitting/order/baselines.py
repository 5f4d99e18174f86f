"""The orders that PyTorch's Inductor chooses from (``torch/_inductor/memory.py``), with aliasing resolved.

* **Least peak memory first** (after "Buffer memory optimization for video codec application modeled in Simulink", DAC
  2006): of the ready units, prefer those below the peak so far with the fewest bytes left, else the smallest.
  pytorch#161810: if all ready units are larger than a threshold, take the one that is needed first.
* **Breadth first**: the unit whose inputs were ready earliest.
* **Depth first**: every unit directly after its inputs, small ones first.
* **Eager-free** (pytorch#196848): the given order, but a ready unit that frees more than it takes runs first.
"""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

import numpy as np

from tmmu_core.fitting.order.local_moves import eager
from tmmu_core.fitting.order.order_loops import I64, lpmf
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
