"""Move single units of an order: earlier if they free memory, later if they allocate it."""

import numpy as np

from tmmu_core.fitting.order.order_loops import I64, Counters, edge_fields, list_schedule, run_native
from tmmu_core.fitting.order.order_model import OrderModel


def eager(model: OrderModel, order: I64) -> I64:
    """Return ``order`` with every unit that frees at least as much as it allocates as early as possible."""
    found = run_native("eager", model, order, **edge_fields(model.successors, model.predecessors))
    return found[0] if found is not None else _eager(model, order)


def late(model: OrderModel, order: I64) -> I64:
    """Return ``order`` with every unit that allocates at least as much as it frees as late as possible."""
    found = run_native("late", model, order, **edge_fields(model.predecessors, model.successors))
    return found[0] if found is not None else _late(model, order)


def _eager(model: OrderModel, order: I64) -> I64:
    counters, pending = Counters(model), order[::-1].tolist()
    live = most = counters.live

    def choose(ready: list[int]) -> int:
        """Return the first ready unit that lowers the live bytes within the peak so far, else the next of ``order``."""
        nonlocal live, most
        while pending[-1] not in ready:  # it has run: the next unit of a valid order is always ready
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


def _late(model: OrderModel, order: I64) -> I64:
    """Return an order that is built from the last unit to the first."""
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
