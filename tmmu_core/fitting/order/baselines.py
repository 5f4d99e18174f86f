"""The orders that PyTorch's Inductor chooses from (``torch/_inductor/memory.py``), for units: nodes that run together.

* **Least peak memory first** (after "Buffer memory optimization for video codec application modeled in Simulink", DAC
  2006): run the ready unit that raises the peak least; of equal ones, the one that leaves the fewest live bytes. With a
  threshold (pytorch#161810): if every ready unit adds more bytes, run the one whose first reader comes first.
* **Breadth first**: run the ready unit whose inputs were computed first.
* **Depth first**: take the units by touched bytes, fewest first; run the missing predecessors directly before each.
* **Eager-free** (pytorch#196848): the initial order, but a ready unit that frees more than it allocates runs first,
  unless it raises the peak so far.

Also **hill–valley** orders: interleave independent schedules optimally. A schedule is split into segments, each with
its hill (most bytes added while it runs) and its valley (bytes added once it has run). Segments with a negative valley
come first, sorted by rising hill; the others follow, sorted by falling hill − valley (Liu, "An application of
generalized tree pebbling to sparse matrix factorization", 1987; Abdel-Wahab and Kameda, "Scheduling to minimize maximum
cumulative cost subject to series-parallel precedence constraints", 1978). Adjacent segments of one schedule that this
order would swap are merged. The graph is reduced to a forest: each unit is attached only to the first unit that needs
it. So the order is optimal if the graph is a forest, and otherwise a heuristic. About O(units log units).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import TopologicalSorter
from heapq import heappop, heappush, merge
from typing import Any

import numpy as np

from tmmu_core.fitting.order.order_memory import Walk, added_bytes, free_early
from tmmu_core.fitting.order.order_model import I64, OrderModel

THRESHOLD = 1 << 20  # threshold of pytorch#161810, in bytes


def baselines(model: OrderModel) -> Iterator[tuple[str, I64]]:
    """Yield Inductor's orders by name."""
    yield "lpmf", _least_peak_first(model)
    yield "lpmf_threshold", _least_peak_first(model, THRESHOLD)
    yield "bfs", _breadth_first(model)
    yield "dfs", _depth_first(model)
    yield "eager_free", free_early(model, np.arange(len(model), dtype=np.int64))


def _least_peak_first(model: OrderModel, threshold: int = 0) -> I64:
    walk = Walk(model)
    walk.peak = max(walk.live, int(model.size[model.stays_live].sum()))
    first_reader = [min(row, default=len(model)) for row in model.successors]

    def rank(unit: int) -> tuple[int, int, int]:
        most, change = walk.added_by[unit]
        return max(most, walk.peak - walk.live), change, unit

    while walk.added_by:
        if min(max(0, most) for most, _ in walk.added_by.values()) > threshold > 0:
            walk.run(min(walk.added_by, key=lambda unit: (first_reader[unit], unit)))
        else:
            walk.run(min(walk.added_by, key=rank))
    return np.array(walk.order, np.int64)


def _breadth_first(model: OrderModel) -> I64:
    sorter = TopologicalSorter(dict(enumerate(model.predecessors)))
    sorter.prepare()
    position: dict[int, int] = {}
    ready: list[tuple[list[int], int]] = []
    while sorter.is_active():
        for unit in sorter.get_ready():
            heappush(ready, (sorted(position[p] for p in model.predecessors[unit]), unit))
        _, unit = heappop(ready)
        position[unit] = len(position)
        sorter.done(unit)
    return np.array(list(position), np.int64)


def _depth_first(model: OrderModel) -> I64:
    size = model.size.tolist()
    touched_bytes = [sum(size[s] for node in nodes for s in model.touches[node]) for nodes in model.units]
    return _topological_order(model, sorted(range(len(model)), key=touched_bytes.__getitem__))


def _topological_order(model: OrderModel, wanted: list[int]) -> I64:
    """Return the order ``wanted``. A unit that comes too late is moved directly before the first unit that needs it."""
    position = {unit: k for k, unit in enumerate(wanted)}
    needs = [sorted(before, key=position.__getitem__, reverse=True) for before in model.predecessors]
    order: dict[int, None] = {}
    for unit in wanted:
        pending = [unit]
        while pending:
            if needs[pending[-1]]:
                pending.append(needs[pending[-1]].pop())
            else:
                order.setdefault(pending.pop())
    return np.array(list(order), np.int64)


@dataclass(frozen=True)
class _Segment:
    """Units that run one after the other."""

    hill: int  # most bytes that the units add while they run
    valley: int  # bytes that the units have added once they have run; can be negative
    tree: Any  # the units in order: a unit, or a pair of trees

    @property
    def key(self) -> tuple[int, int]:
        """Sort key among independent segments."""
        return (0, self.hill) if self.valley < 0 else (1, self.valley - self.hill)


def _append_segment(segments: list[_Segment], segment: _Segment) -> None:
    """Append ``segment`` to a schedule and merge segments whose keys fall."""
    segments.append(segment)
    while len(segments) > 1 and segments[-1].key < segments[-2].key:
        second, first = segments.pop(), segments.pop()
        hill = max(first.hill, first.valley + second.hill)
        segments.append(_Segment(hill, first.valley + second.valley, (first.tree, second.tree)))


def hill_valley_order(model: OrderModel, base: I64) -> I64:
    """Return a hill–valley order, computed from the bytes that each unit adds in the order ``base``."""
    hill, change = (column.tolist() for column in added_bytes(model, base))
    position = {unit: k for k, unit in enumerate(base.tolist())}
    attached: list[list[list[_Segment]]] = [[] for _ in range(len(model))]  # unit → schedules of units attached to it
    roots: list[list[_Segment]] = []
    for unit in base.tolist():
        children = attached[unit]
        schedule = children[0] if len(children) == 1 else list(merge(*children, key=lambda s: s.key))
        attached[unit] = []
        _append_segment(schedule, _Segment(hill[unit], change[unit], unit))
        if model.successors[unit]:
            attached[min(model.successors[unit], key=position.__getitem__)].append(schedule)
        else:
            roots.append(schedule)
    wanted = [unit for segment in merge(*roots, key=lambda s: s.key) for unit in _units_of(segment.tree)]
    return _topological_order(model, wanted)


def _units_of(tree: Any) -> list[int]:
    found: list[int] = []
    pending = [tree]
    while pending:
        top = pending.pop()
        if isinstance(top, tuple):
            pending += [top[1], top[0]]
        else:
            found.append(top)
    return found
