"""Peak memory of execution orders, and the order "least peak memory first".

An order is an array of units. A storage is live from its first touch (write or read) to its last: ``left[s]`` counts
the nodes that still have to touch storage s, ``born[s]`` records the first touch. Each loop runs in the native library
(``planners/native/order.c``) where one is loaded, otherwise as plain Python on lists; both return the same orders.
All sums stay within 64 bits (``order_model.LARGEST``).
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tmmu_core.fitting.order.order_model import LARGEST, OrderModel
from tmmu_core.planners.native import native
from tmmu_core.planners.native.load import library

I64 = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Measured:
    """Peak memory of an order."""

    peaks: I64
    """Shape (arenas,): the most live bytes in each arena, persistent ones included."""
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
    live = counters.live
    for unit in order.tolist():
        most, then = counters.run(unit, live)
        during[unit], after[unit] = most - live, then - live
        live = then
    return during, after


def lpmf(model: OrderModel, threshold: int = 0) -> I64:
    """Return the order "least peak memory first"; see ``baselines.py``."""
    order = np.arange(len(model), dtype=np.int64)
    found = run_native("lpmf", model, order, threshold=threshold, **successors(model))
    return found[0] if found is not None else _lpmf(model, threshold)


def successors(model: OrderModel) -> dict[str, I64]:
    """Return the successors of the units as arguments of the native library."""
    return {"edge_ptr": model.succ_ptr, "edge_idx": model.succ_idx, "waits_for": model.waits_for}


def run_native(name: str, model: OrderModel, order: I64, **fields: Any) -> tuple[I64, I64] | None:
    """Run ``tmmu_order_<name>``; ``None`` if no library is loaded."""
    loops = library()
    if loops is None:
        return None
    return native.order(
        loops,
        name,
        np.ascontiguousarray(order, np.int64),
        arenas=len(model.arenas),
        unit_ptr=model.unit_ptr,
        unit_nodes=model.unit_nodes,
        touch_ptr=model.touch_ptr,
        touch_idx=model.touch_idx,
        cand_ptr=model.cand_ptr,
        cand_idx=model.cand_idx,
        out=model.out,
        size=model.size,
        held=model.held,
        initial=model.initial,
        touched_by=model.touched_by,
        arena=model.arena,
        **fields,
    )


class Counters:
    """Live storages while units run: the plain Python version of ``planners/native/order.c``."""

    def __init__(self, model: OrderModel) -> None:
        self.units, self.touches, self.candidates = model.units, model.touches, model.candidates
        self.out, self.size, self.held = model.out.tolist(), model.size.tolist(), model.held.tolist()
        self.initial, self.touched_by = model.initial.tolist(), model.touched_by.tolist()
        self.left = list(self.touched_by)
        self.born = [
            there and (held or left > 0) for there, held, left in zip(self.initial, self.held, self.left, strict=True)
        ]
        self.live = sum(size for size, born in zip(self.size, self.born, strict=True) if born)
        """Live bytes before the first unit."""

    def reused(self, node: int) -> int:
        """Return the storage that the node's output reuses in place, or −1."""
        if self.out[node] < 0 or self.born[self.out[node]]:
            return -1
        return next((s for s in self.candidates[node] if self.left[s] == 1), -1)

    def run(self, unit: int, live: int) -> tuple[int, int]:
        """Run a unit: return the most live bytes at its steps, and the live bytes after it."""
        most, size, left, born, held = 0, self.size, self.left, self.born, self.held
        for node in self.units[unit]:
            reused = self.reused(node)
            freed = 0
            for s in self.touches[node]:
                if not born[s]:
                    born[s] = True
                    live += size[s]
                left[s] -= 1
                if left[s] == 0 and not held[s]:
                    freed += size[s]
            most = max(most, live - (size[reused] if reused >= 0 else 0))
            live -= freed
        return most, live

    def undo(self, unit: int) -> None:
        """Restore the counters to their values before the unit ran."""
        for node in self.units[unit]:
            for s in self.touches[node]:
                self.left[s] += 1
                if self.left[s] == self.touched_by[s] and not self.initial[s]:
                    self.born[s] = False


def _measure(model: OrderModel, order: I64, skip_from: int, skip_to: int) -> tuple[I64, I64]:
    """Return the peak of each arena, persistent bytes left out, and its first place."""
    arenas = len(model.arenas)
    found = run_native("measure", model, order, skip_from=skip_from, skip_to=skip_to)
    if found is not None:
        return found
    counters = Counters(model)
    size, born, left, held = counters.size, counters.born, counters.left, counters.held
    arena = model.arena.tolist()
    live, peaks, where = [0] * arenas, [0] * arenas, [-1] * arenas
    for s, there in enumerate(counters.initial):
        peaks[arena[s]] += size[s] if there else 0
        live[arena[s]] += size[s] if born[s] else 0
    for place, unit in enumerate(order.tolist()):
        for node in model.units[unit]:
            reused = counters.reused(node)
            for s in counters.touches[node]:
                if not born[s]:
                    born[s] = True
                    live[arena[s]] += size[s]
            if not skip_from <= place < skip_to:
                for a in range(arenas):
                    during = live[a] - (size[reused] if reused >= 0 and arena[reused] == a else 0)
                    if during > peaks[a]:
                        peaks[a], where[a] = during, place
            for s in counters.touches[node]:
                left[s] -= 1
                if left[s] == 0 and not held[s]:
                    live[arena[s]] -= size[s]
    return np.array(peaks, np.int64), np.array(where, np.int64)


def _lpmf(model: OrderModel, threshold: int) -> I64:
    counters = Counters(model)
    count, live = len(model), counters.live
    ptr, successor = model.succ_ptr.tolist(), model.succ_idx.tolist()
    waits = model.waits_for.tolist()
    ready = [unit for unit in range(count) if waits[unit] == 0]
    outputs = sum(size for size, held in zip(counters.size, counters.held, strict=True) if held)
    most = max(live, outputs)
    first_follower = [min(successor[a:b], default=count) for a, b in pairwise(ptr)]
    takes, leaves = [0] * count, [0] * count
    order: list[int] = []
    while len(order) < count:
        gap = most - live
        smallest = LARGEST
        for unit in ready:
            during, after = counters.run(unit, live)
            counters.undo(unit)
            takes[unit], leaves[unit] = during - live, after - live
            smallest = min(smallest, max(0, takes[unit]))
        if threshold > 0 and smallest > threshold:
            chosen = min(ready, key=lambda unit: (first_follower[unit], unit))
        else:
            chosen = min(ready, key=lambda unit: (max(takes[unit], gap), leaves[unit], unit))
        ready.remove(chosen)
        during, live = counters.run(chosen, live)
        most = max(most, during)
        order.append(chosen)
        for later in successor[ptr[chosen] : ptr[chosen + 1]]:
            waits[later] -= 1
            if waits[later] == 0:
                ready.append(later)
    return np.array(order, np.int64)
