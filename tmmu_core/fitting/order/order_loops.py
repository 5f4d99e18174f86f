"""Peak memory of execution orders, the order "least peak memory first", and moves of single units of an order.

An order is an array of units. A storage is live from its first touch (write or read) to its last: ``born[s]`` is true
after the first touch of storage s, and ``left[s]`` is the number of nodes that still have to touch it. Each loop runs
in the native library (``planners/native/order.c``) where one is loaded, otherwise as plain Python on lists; both return
the same orders. All sums stay within 64 bits (``order_model.LARGEST``).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tmmu_core.fitting.order.order_model import OrderModel, csr
from tmmu_core.planners.native import native
from tmmu_core.planners.native.load import library

I64 = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Measured:
    """Peak memory of an order."""

    peaks: I64  # shape (arenas,): the most live bytes in each arena, persistent ones included
    where: I64
    """Shape (arenas,): the first place in the order at which each arena has its peak; −1: before the first unit."""

    @property
    def total(self) -> int:
        """Sum of the arenas' peaks, in bytes."""
        return int(self.peaks.sum())


def measure(model: OrderModel, order: I64) -> Measured:
    """Return the peaks of an order of units, and where they are."""
    peaks, where = _measure(model, order, 0, 0)
    return Measured(peaks + model.constant, where)


def peaks_outside(model: OrderModel, order: I64, begin: int, end: int) -> I64:
    """Return an array of shape (arenas,): the peaks without the steps of the units at the places ``[begin, end)``."""
    return _measure(model, order, begin, end)[0] + model.constant


def alone(model: OrderModel, order: I64) -> tuple[I64, I64]:
    """Return two arrays of shape (units,): the live bytes that each unit adds while it runs, and after it has run.

    The units run in ``order``.
    """
    found = run_native("alone", model, order)
    if found is not None:
        return found
    counters = Counters(model)
    during, after = np.zeros((2, len(order)), np.int64)
    for unit in order.tolist():
        during[unit], after[unit] = counters.run(unit)
    return during, after


def edge_fields(edges: list[list[int]], waits_for: list[list[int]]) -> dict[str, I64]:
    """Return the edges of the units, and the number of units that each waits for, as fields of the native library."""
    ptr, idx = csr(edges)
    return {"edge_ptr": ptr, "edge_idx": idx, "waits_for": np.array(list(map(len, waits_for)), np.int64)}


def run_native(name: str, model: OrderModel, order: I64, **fields: Any) -> tuple[I64, I64] | None:
    """Run ``tmmu_order_<name>``; ``None`` if no library is loaded."""
    loops = library()
    if loops is None:
        return None
    return native.order(loops, name, np.ascontiguousarray(order, np.int64), **model.native_tables, **fields)


class OrderLists:
    """An order model as lists, and the storages that a unit allocates and frees while it runs."""

    def __init__(self, model: OrderModel) -> None:
        self.model = model
        self.touches, self.candidates, self.out = model.touches, model.candidates, model.out.tolist()
        self.size, self.touched_by = model.size.tolist(), model.touched_by.tolist()
        self.starts_live, self.stays_live = model.starts_live.tolist(), model.stays_live.tolist()

    def steps(self, unit: int, born: Any, left: Any) -> Iterator[tuple[list[int], int, list[int]]]:
        """Run the nodes of a unit. Yield, for each, the storages that become live, the storage that its output reuses
        in place (−1: none), and the storages that it frees. ``born`` and ``left`` (lists or mappings) are updated.
        """
        for node in self.model.units[unit]:
            touched, out = self.touches[node], self.out[node]
            reused = -1
            if out >= 0 and not born[out]:
                reused = next((s for s in self.candidates[node] if left[s] == 1), -1)
            allocated = [s for s in touched if not born[s]]
            for s in touched:
                born[s] = True
                left[s] -= 1
            yield allocated, reused, [s for s in touched if not left[s] and not self.stays_live[s]]


class Counters(OrderLists):
    """Live storages while units run: the plain Python version of ``planners/native/order.c``."""

    def __init__(self, model: OrderModel) -> None:
        super().__init__(model)
        self.left = list(self.touched_by)
        self.born = [bool(each) for each in model.starts_live & (model.stays_live | (model.touched_by > 0))]
        self.live = int(model.size[self.born].sum())
        """Live bytes before the first unit."""

    def run(self, unit: int) -> tuple[int, int]:
        """Run a unit; return the most live bytes that it adds while it runs, and those after it."""
        most, live, size = -(2**62), 0, self.size
        for allocated, reused, freed in self.steps(unit, self.born, self.left):
            live += sum([size[s] for s in allocated])
            most = max(most, live - (size[reused] if reused >= 0 else 0))
            live -= sum([size[s] for s in freed])
        return most, live

    def undo(self, unit: int) -> int:
        """Undo the last unit that ran; return the bytes by which the live bytes change."""
        change, left = 0, self.left
        for node in self.model.units[unit]:
            for s in self.touches[node]:
                if left[s] == 0 and not self.stays_live[s]:
                    change += self.size[s]
                left[s] += 1
                if left[s] == self.touched_by[s] and not self.starts_live[s]:
                    self.born[s] = False
                    change -= self.size[s]
        return change


def list_schedule(edges: list[list[int]], choose: Callable[[list[int]], int]) -> list[int]:
    """Return an order of units that respects ``edges`` (unit → units that wait for it).

    ``choose`` receives the units that can run next and returns one of them.
    """
    waits = [0] * len(edges)
    for later in chain.from_iterable(edges):
        waits[later] += 1
    ready = [unit for unit, count in enumerate(waits) if not count]
    order: list[int] = []
    while ready:
        unit = choose(ready)
        ready.remove(unit)
        order.append(unit)
        for later in edges[unit]:
            waits[later] -= 1
            if not waits[later]:
                ready.append(later)
    return order


def _measure(model: OrderModel, order: I64, skip_from: int, skip_to: int) -> tuple[I64, I64]:
    """Return the peak of each arena, persistent bytes left out, and its first place."""
    arenas = len(model.arenas)
    found = run_native("measure", model, order, skip_from=skip_from, skip_to=skip_to)
    if found is not None:
        return found
    counters = Counters(model)
    size, arena = counters.size, model.arena.tolist()
    live, peaks, where = [0] * arenas, [0] * arenas, [-1] * arenas
    for s, starts_live in enumerate(counters.starts_live):
        peaks[arena[s]] += size[s] if starts_live else 0
        live[arena[s]] += size[s] if counters.born[s] else 0
    for place, unit in enumerate(order.tolist()):
        for allocated, reused, freed in counters.steps(unit, counters.born, counters.left):
            for s in allocated:
                live[arena[s]] += size[s]
            for a in range(arenas) if not skip_from <= place < skip_to else ():
                during = live[a] - (size[reused] if reused >= 0 and arena[reused] == a else 0)
                if during > peaks[a]:
                    peaks[a], where[a] = during, place
            for s in freed:
                live[arena[s]] -= size[s]
    return np.array(peaks, np.int64), np.array(where, np.int64)


def lpmf(model: OrderModel, threshold: int = 0) -> I64:
    """Return the order "least peak memory first"; see ``baselines.py``."""
    order = np.arange(len(model), dtype=np.int64)
    found = run_native("lpmf", model, order, threshold=threshold, **edge_fields(model.successors, model.predecessors))
    if found is not None:
        return found[0]
    counters = Counters(model)
    live = counters.live
    most = max(live, int(model.size[model.stays_live].sum()))
    first_successor = [min(row, default=len(model)) for row in model.successors]

    def choose(ready: list[int]) -> int:
        nonlocal live, most
        adds: dict[int, tuple[int, int]] = {}
        for unit in ready:
            adds[unit] = counters.run(unit)
            counters.undo(unit)
        if min(max(0, during) for during, _ in adds.values()) > threshold > 0:
            chosen = min(ready, key=lambda unit: (first_successor[unit], unit))
        else:
            room = most - live
            chosen = min(ready, key=lambda unit: (max(adds[unit][0], room), adds[unit][1], unit))
        counters.run(chosen)
        most = max(most, live + adds[chosen][0])
        live += adds[chosen][1]
        return chosen

    return np.array(list_schedule(model.successors, choose), np.int64)


def eager(model: OrderModel, order: I64) -> I64:
    """Return ``order`` with units that free more than they allocate as early as the peak so far permits."""
    found = run_native("eager", model, order, **edge_fields(model.successors, model.predecessors))
    if found is not None:
        return found[0]
    counters, pending = Counters(model), order[::-1].tolist()
    live = most = counters.live

    def choose(ready: list[int]) -> int:
        """Return the first ready unit that lowers the live bytes within the peak so far, else the next of ``order``."""
        nonlocal live, most
        while pending[-1] not in ready:  # a valid order: its next unit has run or is ready
            pending.pop()
        chosen = pending[-1]
        for unit in ready:
            during, after = counters.run(unit)
            counters.undo(unit)
            if after < 0 and live + during <= most:
                chosen = unit
                break
        during, after = counters.run(chosen)
        most, live = max(most, live + during), live + after
        return chosen

    return np.array(list_schedule(model.successors, choose), np.int64)


def late(model: OrderModel, order: I64) -> I64:
    """Return ``order`` with units that allocate more than they free as late as possible, built from the last unit."""
    found = run_native("late", model, order, **edge_fields(model.predecessors, model.successors))
    if found is not None:
        return found[0]
    counters, pending = Counters(model), order.tolist()
    counters.left = [0] * len(model.size)

    def choose(ready: list[int]) -> int:
        """Return the first ready unit that allocates more than it frees, else the next unit of ``order``."""
        while pending[-1] not in ready:
            pending.pop()
        chosen = pending[-1]
        for unit in ready:
            if unit == chosen:
                continue
            change = counters.undo(unit)
            counters.run(unit)
            if change < 0:
                chosen = unit
                break
        counters.undo(chosen)
        return chosen

    return np.array(list_schedule(model.predecessors, choose)[::-1], np.int64)
