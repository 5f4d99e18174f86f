"""Local search: reorder windows around the peak; the units outside of a window keep their places.

A window is an order problem of its own: storages written before it are live at its start, storages read after it stay
live. It is solved by best-first search with a small budget.
"""

from collections.abc import Callable
from itertools import product

import numpy as np

from tmmu_core.fitting.order.order_exact import OrderStates, best_first_search
from tmmu_core.fitting.order.order_memory import I64, measure, peaks_outside
from tmmu_core.fitting.order.order_model import OrderModel, csr

WINDOW_SIZES = (12, 28, 60)  # units on each side of the peak, tried in order until one improves
BUDGET = 4_000  # maximum number of expansions per window
ROUNDS = 40  # maximum number of improved windows


def improve_windows(model: OrderModel, order: I64, should_continue: Callable[[], bool]) -> I64:
    """Return ``order`` or an order with a lower sum of peaks; ``should_continue`` returns whether to continue."""
    for _ in range(ROUNDS):
        measured = measure(model, order)
        peaks = np.unique(measured.where[measured.where >= 0]).tolist()
        for at, reach in product(peaks, WINDOW_SIZES):
            if not should_continue():
                return order
            begin, end = max(0, at - reach), min(len(order), at + reach + 1)
            better = _reorder_window(model, order, begin, end, measured.total)
            if better is not None:
                order = better
                break
        else:
            return order
    return order


def _reorder_window(model: OrderModel, order: I64, begin: int, end: int, upper: int) -> I64 | None:
    """Return ``order`` with other units at the places ``[begin, end)`` and a sum of peaks below ``upper``, if found."""
    outside = peaks_outside(model, order, begin, end)
    part = _window_problem(model, order, begin, end)
    arenas = part.variable_arenas
    if not arenas:
        return None
    states = OrderStates(part)
    floor = np.maximum(outside - part.constant, 0)
    # Arenas that the window does not touch keep their peak.
    fixed_peaks = np.delete(np.maximum(outside, part.constant), arenas).sum()
    proof = best_first_search(
        states,
        upper - int(fixed_peaks) + states.constant - int(part.constant[arenas].sum()),
        floor=tuple(floor[arenas].tolist()),
        budget=BUDGET,
    )
    if proof.order is None:
        return None
    return np.concatenate([order[:begin], order[begin:end][proof.order], order[end:]])


def _window_problem(model: OrderModel, order: I64, begin: int, end: int) -> OrderModel:
    """Return the window ``[begin, end)`` of an order as a problem of its own; units are numbered by position."""
    window = order[begin:end].tolist()
    units = [model.units[unit] for unit in window]
    nodes = [node for unit in units for node in unit]
    number = {unit: k for k, unit in enumerate(window)}
    chosen = np.unique(csr([model.touches[n] for n in nodes])[1])
    row = {s: k for k, s in enumerate(chosen.tolist())}
    touches = [[row[s] for s in model.touches[n]] for n in nodes]

    place = np.empty(len(model), np.int64)
    place[order] = np.arange(len(model))
    unit, storage = model.unit_touches.T
    # The numbers of nodes before and after the window that touch each storage.
    earlier, later = (
        np.bincount(storage[outside], minlength=len(model.size))
        for outside in (place[unit] < begin, place[unit] >= end)
    )
    started = model.starts_live | (earlier > 0)
    alive = started & (model.stays_live | (model.touched_by > earlier))
    alive[chosen] = False
    constant = model.constant.copy()
    np.add.at(constant, model.arena[alive], model.size[alive])
    ends = set(chosen[later[chosen] == 0].tolist())
    local = iter(range(len(nodes)))
    return OrderModel(
        node_ids=tuple(model.node_ids[n] for n in nodes),
        units=tuple(tuple(next(local) for _ in unit) for unit in units),
        successors=[[number[x] for x in model.successors[u] if x in number] for u in window],
        touches=touches,
        candidates=[[row[s] for s in model.candidates[n] if s in ends] for n in nodes],
        out=np.array([row.get(int(model.out[n]), -1) for n in nodes], np.int64),
        size=model.size[chosen],
        arena=model.arena[chosen],
        stays_live=model.stays_live[chosen] | (later[chosen] > 0),
        starts_live=started[chosen],
        constant=constant,
        arenas=model.arenas,
        padding=model.padding,
    )
