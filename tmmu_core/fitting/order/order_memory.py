"""Live bytes of execution orders, and orders that are built step by step.

An order is an array of units (nodes that run together). A storage is live from its first to its last touch (write or
read), an input from the start, an output to the end. All sums stay within 64 bits (``order_model.MAX_TOTAL_BYTES``).

Inductor, PyTorch's compiler, chooses from these orders (``torch/_inductor/memory.py``):

* **Least peak memory first** (after "Buffer memory optimization for video codec application modeled in Simulink", DAC
  2006): run the ready unit that raises the peak least; of equal units, the one that leaves the fewest live bytes. With
  a threshold (pytorch#161810): if every ready unit adds more bytes, run the unit whose first reader comes first.
* **Breadth first**: run the ready unit whose inputs were computed first.
* **Depth first**: take the units by rising touched bytes. Directly before each unit, run its missing predecessors.
* **Eager-free** (pytorch#196848): the initial order after :func:`free_early`.

Also **hill–valley** orders, which interleave independent schedules optimally (Liu, "An application of generalized tree
pebbling to sparse matrix factorization", 1987; Abdel-Wahab and Kameda, "Scheduling to minimize maximum cumulative cost
subject to series-parallel precedence constraints", 1978). A schedule is split into segments. Each segment has a hill
(most bytes added while it runs) and a valley (bytes added once it has run). Segments with a negative valley come first,
by rising hill; the other segments follow, by falling hill − valley. If this would swap two adjacent segments of one
schedule, they are merged. The graph is reduced to a forest: each unit is attached only to the first unit that needs it.
So the order is optimal if the graph is a forest, and otherwise a heuristic. About O(units log units).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from graphlib import TopologicalSorter
from heapq import heappop, heappush, merge
from typing import Any

import numpy as np

from tmmu_core.fitting.order.order_model import I64, OrderModel

THRESHOLD = 1 << 20  # threshold of pytorch#161810, in bytes
Bytes = tuple[int, ...]  # bytes by arena


def measure(model: OrderModel, order: I64) -> I64:
    """Return the peak of each arena in bytes, persistent storages included; shape (arenas,)."""
    _, during, _ = _live_bytes(model, order)
    return during.max(axis=1) + model.constant


def _live_bytes(model: OrderModel, order: I64) -> tuple[I64, I64, I64]:
    """Return (position, during, after): the live bytes of an order, without those that are live at every step.

    The arrays have a first column for the time before all units, and one column per node. ``position`` (columns,): the
    place of the node's unit in the order, −1 in the first column. ``during`` and ``after`` (arenas, columns): the live
    bytes while the node runs, and after it.
    """
    units = [model.units[unit] for unit in order.tolist()]
    position = np.repeat(np.arange(-1, len(units)), [1, *map(len, units)])
    steps, storages = len(position), len(model.size)
    step_of = np.zeros(len(model.touches), np.int64)
    step_of[[node for nodes in units for node in nodes]] = np.arange(1, steps)
    step, storage = step_of[model.node_touches[:, 0]], model.node_touches[:, 1]
    first, last = np.full(storages, steps), np.where(model.starts_live | (model.touched_by > 0), 0, steps)
    np.minimum.at(first, storage, step)
    np.maximum.at(last, storage, step)
    first[model.starts_live] = 0
    last[model.stays_live] = steps
    allocated, freed = np.zeros((2, len(model.arenas), steps + 1), np.int64)
    np.add.at(allocated, (model.arena, first), model.size)
    np.add.at(freed, (model.arena, last), model.size)
    during = np.cumsum(allocated, axis=1)[:, :-1]
    freed = np.cumsum(freed, axis=1)[:, :-1]
    after = during - freed
    during[:, 1:] -= freed[:, :-1]
    # If a node creates its output, the output reuses the first permitted input that no later node uses.
    node, source = model.reuses.T
    row = np.flatnonzero((last[source] == step_of[node]) & (first[model.out[node]] == step_of[node]))
    row = row[np.unique(node[row], return_index=True)[1]]
    during[model.arena[source[row]], step_of[node[row]]] -= model.size[source[row]]
    return position, during, after


class OrderLists:
    """An order model as lists; ``arena_of``: storage → arena in which its bytes are counted."""

    def __init__(self, model: OrderModel, arena_of: list[int]) -> None:
        self.model, self.arena_of = model, arena_of
        self.arena_count = max(arena_of, default=0) + 1
        self.touches, self.candidates, self.out = model.touches, model.candidates, model.out.tolist()
        self.size, self.touched_by = model.size.tolist(), model.touched_by.tolist()
        self.starts_live, self.stays_live = model.starts_live.tolist(), model.stays_live.tolist()
        self.storages_of = [{s for node in nodes for s in self.touches[node]} for nodes in model.units]
        """Unit → storages that it touches."""

    def run_nodes(self, unit: int, born: Any, left: Any) -> tuple[Bytes, Bytes]:
        """Run a unit; return, by arena, the most bytes that it adds to the live bytes, and the change once it has run.

        Update ``born`` (storage → whether it has become live) and ``left`` (storage → number of touches still to come).
        """
        most, change = [-(1 << 62)] * self.arena_count, [0] * self.arena_count
        for node in self.model.units[unit]:
            touched, out = self.touches[node], self.out[node]
            reused = -1
            if out >= 0 and not born[out]:
                reused = next((s for s in self.candidates[node] if left[s] == 1), -1)
            for s in touched:
                left[s] -= 1
                if not born[s]:
                    born[s] = True
                    change[self.arena_of[s]] += self.size[s]
            for a in range(self.arena_count):
                reused_bytes = self.size[reused] if reused >= 0 and self.arena_of[reused] == a else 0
                most[a] = max(most[a], change[a] - reused_bytes)
            for s in touched:
                if not left[s] and not self.stays_live[s]:
                    change[self.arena_of[s]] -= self.size[s]
        return tuple(most), tuple(change)


class Walk(OrderLists):
    """Units that run one after the other, and the bytes that each ready unit would add."""

    def __init__(self, model: OrderModel) -> None:
        super().__init__(model, [0] * len(model.size))
        self.left = list(self.touched_by)
        self.born = (model.starts_live & (model.stays_live | (model.touched_by > 0))).tolist()
        self.live = self.peak = int(model.size[self.born].sum())
        self.units_of: list[list[int]] = [[] for _ in self.size]  # storage → units that touch it
        for unit, storages in enumerate(self.storages_of):
            for s in storages:
                self.units_of[s].append(unit)
        self.waiting_for = list(map(len, model.predecessors))  # unit → number of predecessors that have not run
        self.order: list[int] = []
        self.added_by = {unit: self._added(unit) for unit, count in enumerate(self.waiting_for) if not count}
        """Ready unit → the most live bytes that it adds while it runs, and the change after it."""

    def _added(self, unit: int) -> tuple[int, int]:
        """Return the entry of ``added_by`` for a ready unit."""
        storages = self.storages_of[unit]
        born, left = {s: self.born[s] for s in storages}, {s: self.left[s] for s in storages}
        (most,), (change,) = self.run_nodes(unit, born, left)
        return most, change

    def run(self, unit: int) -> None:
        """Run a ready unit."""
        most, change = self.added_by.pop(unit)
        self.peak = max(self.peak, self.live + most)
        self.live += change
        self.order.append(unit)
        self.run_nodes(unit, self.born, self.left)
        for other in {other for s in self.storages_of[unit] for other in self.units_of[s]} & self.added_by.keys():
            self.added_by[other] = self._added(other)
        for later in self.model.successors[unit]:
            self.waiting_for[later] -= 1
            if not self.waiting_for[later]:
                self.added_by[later] = self._added(later)


def free_early(model: OrderModel, order: I64, limited: bool = True) -> I64:
    """Move each unit that frees more than it allocates as early as possible in ``order``; return the new order.

    ``limited``: such a unit moves only if it does not raise the peak so far.
    """
    walk, done = Walk(model), [False] * len(model)
    for unit in order.tolist():
        while not done[unit]:
            room = walk.peak - walk.live if limited else 2**62
            moved_early = (u for u, (most, change) in walk.added_by.items() if change < 0 and most <= room)
            chosen = next(moved_early, unit)
            walk.run(chosen)
            done[chosen] = True
    return np.array(walk.order, np.int64)


def allocate_late(model: OrderModel, order: I64) -> I64:
    """Move each unit that allocates more than it frees as late as possible in ``order``; return the new order.

    In the reversed order, such a unit frees more than it allocates, so ``free_early`` moves it.
    """
    reversed_model = replace(
        model,
        units=tuple(nodes[::-1] for nodes in model.units),
        successors=model.predecessors,
        candidates=[[] for _ in model.candidates],
        stays_live=model.starts_live,
        starts_live=model.stays_live,
    )
    return free_early(reversed_model, order[::-1], limited=False)[::-1]


def baselines(model: OrderModel) -> Iterator[tuple[str, I64]]:
    """Yield Inductor's orders by name."""
    yield "lpmf", _least_peak_first(model)
    yield "lpmf_threshold", _least_peak_first(model, THRESHOLD)
    yield "bfs", _breadth_first(model)
    size = model.size.tolist()
    touched_bytes = [sum(size[s] for node in nodes for s in model.touches[node]) for nodes in model.units]
    yield "dfs", _topological_order(model, sorted(range(len(model)), key=touched_bytes.__getitem__))
    yield "eager_free", free_early(model, np.arange(len(model), dtype=np.int64))


def _least_peak_first(model: OrderModel, threshold: int = 0) -> I64:
    walk = Walk(model)
    walk.peak = max(walk.live, int(model.size[model.stays_live].sum()))  # at least the bytes of the outputs
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


def hill_valley_order(model: OrderModel, base: I64) -> I64:
    """Return a hill–valley order, computed from the bytes that each unit adds in the order ``base``."""
    position_of_column, during, after = _live_bytes(model, base)
    column = np.searchsorted(position_of_column, np.arange(len(base)))  # of the first node of each unit
    live = np.append(after.sum(axis=0)[column - 1], after[:, -1].sum())  # before each unit, and at the end
    hill = np.maximum.reduceat(during.sum(axis=0), column) - live[:-1]
    change = np.diff(live)
    position = {unit: k for k, unit in enumerate(base.tolist())}
    attached: list[list[list[_Segment]]] = [[] for _ in range(len(model))]  # unit → schedules of units attached to it
    roots: list[list[_Segment]] = []
    for unit in base.tolist():
        children = attached[unit]
        schedule = children[0] if len(children) == 1 else list(merge(*children, key=lambda s: s.key))
        attached[unit] = []
        schedule.append(_Segment(int(hill[position[unit]]), int(change[position[unit]]), unit))
        while len(schedule) > 1 and schedule[-1].key < schedule[-2].key:  # merge segments whose keys fall
            second, first = schedule.pop(), schedule.pop()
            most = max(first.hill, first.valley + second.hill)
            schedule.append(_Segment(most, first.valley + second.valley, (first.tree, second.tree)))
        if model.successors[unit]:
            attached[min(model.successors[unit], key=position.__getitem__)].append(schedule)
        else:
            roots.append(schedule)
    wanted: list[int] = []
    pending = [segment.tree for segment in merge(*roots, key=lambda s: s.key)][::-1]
    while pending:
        tree = pending.pop()
        if isinstance(tree, tuple):
            pending += tree[::-1]
        else:
            wanted.append(tree)
    return _topological_order(model, wanted)
