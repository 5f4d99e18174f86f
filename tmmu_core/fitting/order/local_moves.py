"""Move single units of an order: earlier if they free memory, later if they allocate it."""

import numpy as np

from tmmu_core.fitting.order.order_loops import I64, Counters, run_native, successors
from tmmu_core.fitting.order.order_model import OrderModel


def eager(model: OrderModel, order: I64) -> I64:
    """Return ``order`` with every unit that frees at least as much as it allocates as early as possible."""
    found = run_native("eager", model, order, **successors(model))
    return found[0] if found is not None else _eager(model, order)


def late(model: OrderModel, order: I64) -> I64:
    """Return ``order`` with every unit that allocates at least as much as it frees as late as possible."""
    pred_ptr, pred_idx = predecessors(model)
    edges = {"edge_ptr": pred_ptr, "edge_idx": pred_idx, "waits_for": np.diff(model.succ_ptr)}
    found = run_native("late", model, order, **edges)
    return found[0] if found is not None else _late(model, order)


def predecessors(model: OrderModel) -> tuple[I64, I64]:
    """Return unit → predecessors, as CSR."""
    count = len(model)
    before = np.repeat(np.arange(count, dtype=np.int64), np.diff(model.succ_ptr))
    ptr = np.concatenate([[0], np.cumsum(np.bincount(model.succ_idx, minlength=count))]).astype(np.int64)
    return ptr, before[np.argsort(model.succ_idx, kind="stable")]


class _Ready:
    """Units of a given order that can run next; ``edges`` is CSR from a unit to the units that wait for it."""

    def __init__(self, edges: tuple[I64, I64], waits_for: I64) -> None:
        self.ptr, self.idx, self.waits = edges[0].tolist(), edges[1].tolist(), waits_for.tolist()
        self.units = [unit for unit, waits in enumerate(self.waits) if waits == 0]

    def advance(self, chosen: int) -> None:
        """Remove ``chosen``, and append the units that waited only for it."""
        self.units = [unit for unit in self.units if unit != chosen]
        for unit in self.idx[self.ptr[chosen] : self.ptr[chosen + 1]]:
            self.waits[unit] -= 1
            if self.waits[unit] == 0:
                self.units.append(unit)


def _eager(model: OrderModel, given: I64) -> I64:
    counters, ready = Counters(model), _Ready((model.succ_ptr, model.succ_idx), model.waits_for)
    wanted, done = given.tolist(), [False] * len(given)
    live = most = counters.live
    cursor = 0
    order: list[int] = []
    while len(order) < len(wanted):
        while done[wanted[cursor]]:
            cursor += 1
        chosen = wanted[cursor]
        for unit in ready.units:
            during, after = counters.run(unit, live)
            counters.undo(unit)
            if after < live and during <= most:
                chosen = unit
                break
        during, live = counters.run(chosen, live)
        most = max(most, during)
        done[chosen] = True
        order.append(chosen)
        ready.advance(chosen)
    return np.array(order, np.int64)


def _late(model: OrderModel, given: I64) -> I64:
    """Return an order built backwards: each time a ready unit that allocates more than it frees, else the last unit."""
    counters, ready = Counters(model), _Ready(predecessors(model), np.diff(model.succ_ptr))
    left = counters.left = [0] * len(model.size)
    wanted, done = given.tolist(), [False] * len(given)
    cursor = len(wanted) - 1
    order: list[int] = []
    while len(order) < len(wanted):
        while done[wanted[cursor]]:
            cursor -= 1
        chosen = wanted[cursor]
        for unit in ready.units:
            if unit == chosen:
                continue
            change = _undo_unit(counters, unit)
            for node in model.units[unit]:
                for s in model.touches[node]:
                    left[s] -= 1
            if change < 0:
                chosen = unit
                break
        _undo_unit(counters, chosen)
        done[chosen] = True
        order.append(chosen)
        ready.advance(chosen)
    return np.array(order[::-1], np.int64)


def _undo_unit(counters: Counters, unit: int) -> int:
    """Restore the counters to before the unit, which ran last; return the live bytes before it minus those after it."""
    change, left = 0, counters.left
    for node in counters.units[unit]:
        for s in counters.touches[node]:
            if left[s] == 0 and not counters.held[s]:
                change += counters.size[s]
            left[s] += 1
            if left[s] == counters.touched_by[s] and not counters.initial[s]:
                change -= counters.size[s]
    return change
