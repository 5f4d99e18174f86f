"""An order nudged: each unit sooner where it frees, or later where it takes. Compiled, as in ``kernels.py``."""

from __future__ import annotations

import numpy as np

from tmmu_core.compiled import njit, njit_leaf
from tmmu_core.fit.order.kernels import I64, B, columns_of, run_unit, start, undo_unit
from tmmu_core.fit.order.model import OrderModel


def eager(model: OrderModel, order: I64) -> I64:
    """``order`` with every unit that frees at least what it takes run as soon as it may."""
    return _eager(order, model.succ_ptr, model.succ_idx, model.waits_for, *columns_of(model))


def late(model: OrderModel, order: I64) -> I64:
    """``order`` with every unit that takes at least what it frees run as late as it may."""
    pred_ptr, pred_idx = predecessors(model)
    followers = np.diff(model.succ_ptr)
    return _late(order, pred_ptr, pred_idx, followers, *columns_of(model))


def predecessors(model: OrderModel) -> tuple[I64, I64]:
    """Unit → units that must come before, as CSR."""
    count = len(model)
    before = np.repeat(np.arange(count, dtype=np.int64), np.diff(model.succ_ptr))
    ptr = np.concatenate([[0], np.cumsum(np.bincount(model.succ_idx, minlength=count))]).astype(np.int64)
    return ptr, before[np.argsort(model.succ_idx, kind="stable")]


@njit_leaf
def _begin(ready: I64, waits: I64) -> int:
    """Fill ``ready`` with the units that wait for nobody, ascending; gives how many."""
    many = 0
    for unit in range(len(waits)):
        if waits[unit] == 0:
            ready[many] = unit
            many += 1
    return many


@njit_leaf
def _go_on(ready: I64, many: int, done: B, waits: I64, freed: I64) -> int:
    """Take those done out of ``ready``, and put at its end the units ``freed`` that now wait for nobody else."""
    kept = 0
    for r in range(many):
        if not done[ready[r]]:
            ready[kept] = ready[r]
            kept += 1
    for unit in freed:
        waits[unit] -= 1
        if waits[unit] == 0:
            ready[kept] = unit
            kept += 1
    return kept


@njit
def _eager(
    given: I64,
    succ_ptr: I64,
    succ_idx: I64,
    waits_for: I64,
    unit_ptr: I64,
    unit_nodes: I64,
    touch_ptr: I64,
    touch_idx: I64,
    cand_ptr: I64,
    cand_idx: I64,
    out: I64,
    size: I64,
    held: B,
    initial: B,
    touched_by: I64,
) -> I64:
    count = len(given)
    left, born, live = start(size, held, initial, touched_by)
    waits = waits_for.copy()
    done = np.zeros(count, np.bool_)
    ready = np.empty(count, np.int64)
    many = _begin(ready, waits)
    order = np.empty(count, np.int64)
    cursor = 0
    most = live
    for place in range(count):
        while done[given[cursor]]:
            cursor += 1
        chosen = given[cursor]
        for r in range(many):
            unit = ready[r]
            during, after = run_unit(
                unit, unit_ptr, unit_nodes, touch_ptr, touch_idx, cand_ptr, cand_idx, out, size, held, left, born, live
            )
            undo_unit(unit, unit_ptr, unit_nodes, touch_ptr, touch_idx, initial, touched_by, left, born)
            if after < live and during <= most:
                chosen = unit
                break
        during, live = run_unit(
            chosen, unit_ptr, unit_nodes, touch_ptr, touch_idx, cand_ptr, cand_idx, out, size, held, left, born, live
        )
        most = max(most, during)
        done[chosen] = True
        order[place] = chosen
        many = _go_on(ready, many, done, waits, succ_idx[succ_ptr[chosen] : succ_ptr[chosen + 1]])
    return order


@njit
def _late(
    given: I64,
    pred_ptr: I64,
    pred_idx: I64,
    followers: I64,
    unit_ptr: I64,
    unit_nodes: I64,
    touch_ptr: I64,
    touch_idx: I64,
    cand_ptr: I64,
    cand_idx: I64,
    out: I64,
    size: I64,
    held: B,
    initial: B,
    touched_by: I64,
) -> I64:
    """From the end backwards: the unit that is taken back is one whose absence leaves no more alive, else the last."""
    count = len(given)
    waits = followers.copy()
    touched = touched_by.copy()
    left = np.zeros(len(size), np.int64)
    done = np.zeros(count, np.bool_)
    ready = np.empty(count, np.int64)
    many = _begin(ready, waits)
    order = np.empty(count, np.int64)
    cursor = count - 1
    for place in range(count - 1, -1, -1):
        while done[given[cursor]]:
            cursor -= 1
        chosen = given[cursor]
        for r in range(many):
            unit = ready[r]
            if unit == chosen:
                continue
            # Bytes alive before it, less those alive after it.
            change = 0
            for u in range(unit_ptr[unit], unit_ptr[unit + 1]):
                node = unit_nodes[u]
                for t in range(touch_ptr[node], touch_ptr[node + 1]):
                    s = touch_idx[t]
                    if left[s] == 0 and not held[s]:
                        change += size[s]
                    left[s] += 1
                    if left[s] == touched[s] and not initial[s]:
                        change -= size[s]
            for u in range(unit_ptr[unit], unit_ptr[unit + 1]):
                node = unit_nodes[u]
                for t in range(touch_ptr[node], touch_ptr[node + 1]):
                    left[touch_idx[t]] -= 1
            if change < 0:
                chosen = unit
                break
        for u in range(unit_ptr[chosen], unit_ptr[chosen + 1]):
            node = unit_nodes[u]
            for t in range(touch_ptr[node], touch_ptr[node + 1]):
                left[touch_idx[t]] += 1
        done[chosen] = True
        order[place] = chosen
        many = _go_on(ready, many, done, waits, pred_idx[pred_ptr[chosen] : pred_ptr[chosen + 1]])
    return order
