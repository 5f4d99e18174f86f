"""Local search: reorder windows around the peak optimally, with everything outside fixed.

A window is an order problem of its own: inputs from before are live at its start, outputs read later stay live. It is
solved by best-first search with a small budget.
"""

from collections.abc import Callable

import numpy as np

from tmmu_core.fitting.order.order_exact import OrderStates, best_first_search
from tmmu_core.fitting.order.order_loops import I64, measure, peaks_outside
from tmmu_core.fitting.order.order_model import OrderModel, csr

WINDOW_SIZES = (12, 28, 60)
"""Units on each side of the peak, tried in order until one improves."""
BUDGET = 4_000
"""Maximum number of expansions per window."""
ROUNDS = 40


def improve_windows(model: OrderModel, order: I64, go_on: Callable[[], bool], rounds: int = ROUNDS) -> I64:
    """Return ``order`` or an order with a lower sum of peaks. Deterministic unless stopped."""
    best = measure(model, order)
    for _ in range(rounds):
        found = None
        for at in sorted({int(place) for place in best.where if place >= 0}):
            for reach in WINDOW_SIZES:
                if not go_on():
                    return order
                found = _reorder_window(model, order, max(0, at - reach), min(len(order), at + reach + 1), best.total)
                if found is not None:
                    break
            if found is not None:
                break
        if found is None:
            return order
        order, best = found, measure(model, found)
    return order


def _reorder_window(model: OrderModel, order: I64, begin: int, end: int, upper: int) -> I64 | None:
    """Return the order with ``[begin, end)`` rearranged to a sum of peaks below ``upper``, if possible."""
    window = order[begin:end]
    outside = peaks_outside(model, order, begin, end)
    part = window_problem(model, order, begin, end)
    walk = OrderStates(part)
    arenas = sorted({int(a) for a, size in zip(part.arena, part.size, strict=True) if size})
    still = part.constant.copy()
    floor = np.maximum(outside - still, 0)
    if not arenas:
        return None
    # Arenas that the window does not touch keep their peak.
    rest = sum(int(max(outside[a], still[a])) for a in range(len(outside)) if a not in arenas)
    proof = best_first_search(
        walk,
        upper - rest + walk.constant - sum(int(still[a]) for a in arenas),
        floor=tuple(int(floor[a]) for a in arenas),
        budget=BUDGET,
    )
    if proof.order is None:
        return None
    after = order.copy()
    after[begin:end] = window[list(proof.order)]
    return after


def window_problem(model: OrderModel, order: I64, begin: int, end: int) -> OrderModel:
    """Return the window ``[begin, end)`` of an order as a problem of its own; units are numbered by position."""
    window = order[begin:end].tolist()
    units = [model.units[unit] for unit in window]
    nodes = [node for unit in units for node in unit]
    number = {unit: k for k, unit in enumerate(window)}
    touched = [model.touches[n] for n in nodes]
    chosen = np.array(sorted({s for each in touched for s in each}), np.int64)
    row = {s: k for k, s in enumerate(chosen.tolist())}
    touch_ptr, touch_idx = csr([[row[s] for s in each] for each in touched])
    counts = np.bincount(touch_idx, minlength=len(chosen)).astype(np.int64)

    earlier = np.zeros(len(model.size), np.int64)
    ran = np.zeros(len(model), np.bool_)
    ran[order[:begin]] = True
    unit_of = np.zeros(len(model.node_ids), np.int64)
    unit_of[model.unit_nodes] = np.repeat(np.arange(len(model), dtype=np.int64), np.diff(model.unit_ptr))
    unit_of_touch = np.repeat(unit_of, np.diff(model.touch_ptr))
    np.add.at(earlier, model.touch_idx[ran[unit_of_touch]], 1)
    later = model.touched_by - earlier
    later[chosen] -= counts
    started = model.starts_live | (earlier > 0)
    alive = started & (model.stays_live | (model.touched_by - earlier > 0))
    is_live_elsewhere = alive.copy()
    is_live_elsewhere[chosen] = False
    constant = model.constant.copy()
    np.add.at(constant, model.arena[is_live_elsewhere], model.size[is_live_elsewhere])

    succ = [[number[x] for x in model.successors[u] if x in number] for u in window]
    ends = set(chosen[later[chosen] == 0].tolist())
    cand = [[row[s] for s in model.candidates[n] if s in ends] for n in nodes]
    succ_ptr, succ_idx = csr(succ)
    cand_ptr, cand_idx = csr(cand)
    local = iter(range(len(nodes)))
    return OrderModel(
        node_ids=tuple(model.node_ids[n] for n in nodes),
        units=tuple(tuple(next(local) for _ in unit) for unit in units),
        succ_ptr=succ_ptr,
        succ_idx=succ_idx,
        waits_for=np.bincount(succ_idx, minlength=len(window)).astype(np.int64),
        touch_ptr=touch_ptr,
        touch_idx=touch_idx,
        cand_ptr=cand_ptr,
        cand_idx=cand_idx,
        out=np.array([row.get(int(model.out[n]), -1) for n in nodes], np.int64),
        size=model.size[chosen],
        arena=model.arena[chosen],
        stays_live=model.stays_live[chosen] | (later[chosen] > 0),
        starts_live=started[chosen],
        touched_by=counts,
        constant=constant,
        arenas=model.arenas,
        pad=model.pad,
    )
