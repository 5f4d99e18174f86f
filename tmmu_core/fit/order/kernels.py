"""Orders tried and measured, compiled: every loop over nodes that is run thousands of times.

An order is an array of units. What is alive is kept as counters: ``left[s]`` nodes still have to touch storage s, and
``born[s]`` says that it is there. All sums are in 64 bits (``model.LARGEST``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tmmu_core.compiled import njit, njit_leaf
from tmmu_core.fit.order.model import LARGEST, OrderModel

I64 = NDArray[np.int64]
B = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Measured:
    """What an order holds."""

    peaks: I64
    """Shape (arenas,): the greatest bytes alive in each, persistent ones included."""
    where: I64
    """Shape (arenas,): the first place in the order at which each has that peak; −1 where it is at no unit's step."""

    @property
    def total(self) -> int:
        """Sum of the arenas' peaks, in bytes."""
        return int(self.peaks.sum())


def measure(model: OrderModel, order: I64) -> Measured:
    """Peaks and live bytes of an order of units."""
    peaks, where = _measure(order, *columns_of(model), model.arena, len(model.arenas), 0, 0)
    return Measured(peaks + model.constant, where)


def peaks_outside(model: OrderModel, order: I64, begin: int, end: int) -> I64:
    """Shape (arenas,): peaks at the steps of all units but those at the places ``[begin, end)``."""
    peaks, _ = _measure(order, *columns_of(model), model.arena, len(model.arenas), begin, end)
    return peaks + model.constant


def alone(model: OrderModel, order: I64) -> tuple[I64, I64]:
    """Shape (units,) each: what each unit adds to the bytes alive while it runs, and after it, run in ``order``."""
    return _alone(order, *columns_of(model))


def lpmf(model: OrderModel, threshold: int = 0) -> I64:
    """Least peak memory first; see ``baselines.py``."""
    return _lpmf(model.succ_ptr, model.succ_idx, model.waits_for, *columns_of(model), threshold)


def columns_of(
    model: OrderModel,
) -> tuple[I64, I64, I64, I64, I64, I64, I64, I64, B, B, I64]:
    """The model as the compiled loops take it."""
    return (
        model.unit_ptr,
        model.unit_nodes,
        model.touch_ptr,
        model.touch_idx,
        model.cand_ptr,
        model.cand_idx,
        model.out,
        model.size,
        model.held,
        model.initial,
        model.touched_by,
    )


@njit
def start(size: I64, held: B, initial: B, touched_by: I64) -> tuple[I64, B, int]:
    """Counters before the first node, and the bytes alive then."""
    left = touched_by.copy()
    born = np.zeros(len(size), np.bool_)
    live = 0
    for s in range(len(size)):
        if initial[s] and (held[s] or left[s] > 0):
            born[s] = True
            live += size[s]
    return left, born, live


@njit_leaf
def _handed(node: int, cand_ptr: I64, cand_idx: I64, out: I64, left: I64, born: B) -> int:
    """The storage whose place the node's output takes over, or −1."""
    if out[node] < 0 or born[out[node]]:
        return -1
    for c in range(cand_ptr[node], cand_ptr[node + 1]):
        if left[cand_idx[c]] == 1:
            return cand_idx[c]
    return -1


@njit_leaf
def run_unit(
    unit: int,
    unit_ptr: I64,
    unit_nodes: I64,
    touch_ptr: I64,
    touch_idx: I64,
    cand_ptr: I64,
    cand_idx: I64,
    out: I64,
    size: I64,
    held: B,
    left: I64,
    born: B,
    live: int,
) -> tuple[int, int]:
    """Run a unit: (greatest bytes alive at its steps, bytes alive after it). Counters are moved on."""
    most = 0
    for u in range(unit_ptr[unit], unit_ptr[unit + 1]):
        node = unit_nodes[u]
        given = _handed(node, cand_ptr, cand_idx, out, left, born)
        freed = 0
        for t in range(touch_ptr[node], touch_ptr[node + 1]):
            s = touch_idx[t]
            if not born[s]:
                born[s] = True
                live += size[s]
            left[s] -= 1
            if left[s] == 0 and not held[s]:
                freed += size[s]
        during = live - (size[given] if given >= 0 else 0)
        most = max(most, during)
        live -= freed
    return most, live


@njit_leaf
def undo_unit(
    unit: int,
    unit_ptr: I64,
    unit_nodes: I64,
    touch_ptr: I64,
    touch_idx: I64,
    initial: B,
    touched_by: I64,
    left: I64,
    born: B,
) -> None:
    """Move the counters back to where they were before the unit ran."""
    for u in range(unit_ptr[unit], unit_ptr[unit + 1]):
        node = unit_nodes[u]
        for t in range(touch_ptr[node], touch_ptr[node + 1]):
            s = touch_idx[t]
            left[s] += 1
            if left[s] == touched_by[s] and not initial[s]:
                born[s] = False


@njit
def _measure(
    order: I64,
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
    arena: I64,
    arenas: int,
    skip_from: int,
    skip_to: int,
) -> tuple[I64, I64]:
    left, born, _ = start(size, held, initial, touched_by)
    live = np.zeros(arenas, np.int64)
    peaks = np.zeros(arenas, np.int64)
    for s in range(len(size)):
        if initial[s]:
            peaks[arena[s]] += size[s]
        if born[s]:
            live[arena[s]] += size[s]
    where = np.full(arenas, -1, np.int64)
    for place in range(len(order)):
        unit = order[place]
        for u in range(unit_ptr[unit], unit_ptr[unit + 1]):
            node = unit_nodes[u]
            given = _handed(node, cand_ptr, cand_idx, out, left, born)
            for t in range(touch_ptr[node], touch_ptr[node + 1]):
                s = touch_idx[t]
                if not born[s]:
                    born[s] = True
                    live[arena[s]] += size[s]
            if given >= 0:
                live[arena[given]] -= size[given]
            for a in range(arenas):
                if live[a] > peaks[a] and not skip_from <= place < skip_to:
                    peaks[a] = live[a]
                    where[a] = place
            if given >= 0:
                live[arena[given]] += size[given]
            for t in range(touch_ptr[node], touch_ptr[node + 1]):
                s = touch_idx[t]
                left[s] -= 1
                if left[s] == 0 and not held[s]:
                    live[arena[s]] -= size[s]
    return peaks, where


@njit
def _alone(
    order: I64,
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
) -> tuple[I64, I64]:
    left, born, live = start(size, held, initial, touched_by)
    hill = np.zeros(len(order), np.int64)
    change = np.zeros(len(order), np.int64)
    for place in range(len(order)):
        unit = order[place]
        during, after = run_unit(
            unit, unit_ptr, unit_nodes, touch_ptr, touch_idx, cand_ptr, cand_idx, out, size, held, left, born, live
        )
        hill[unit] = during - live
        change[unit] = after - live
        live = after
    return hill, change


@njit
def _lpmf(
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
    threshold: int,
) -> I64:
    count = len(waits_for)
    left, born, live = start(size, held, initial, touched_by)
    waits = waits_for.copy()
    ready = np.empty(count, np.int64)
    many = 0
    outputs = 0
    for s in range(len(size)):
        if held[s]:
            outputs += size[s]
    most = max(live, outputs)
    first_follower = np.full(count, count, np.int64)
    takes = np.zeros(count, np.int64)
    leaves = np.zeros(count, np.int64)
    for unit in range(count):
        if waits[unit] == 0:
            ready[many] = unit
            many += 1
        for e in range(succ_ptr[unit], succ_ptr[unit + 1]):
            first_follower[unit] = min(first_follower[unit], succ_idx[e])
    order = np.empty(count, np.int64)
    for place in range(count):
        gap = most - live
        smallest = LARGEST
        for r in range(many):
            unit = ready[r]
            during, after = run_unit(
                unit, unit_ptr, unit_nodes, touch_ptr, touch_idx, cand_ptr, cand_idx, out, size, held, left, born, live
            )
            undo_unit(unit, unit_ptr, unit_nodes, touch_ptr, touch_idx, initial, touched_by, left, born)
            takes[unit], leaves[unit] = during - live, after - live
            smallest = min(smallest, max(0, takes[unit]))
        by_follower = threshold > 0 and smallest > threshold
        best = 0
        for r in range(1, many):
            one, other = ready[r], ready[best]
            if by_follower:
                sooner = (first_follower[one], one) < (first_follower[other], other)
            else:
                over, other_over = max(takes[one], gap), max(takes[other], gap)
                sooner = (over, leaves[one], one) < (other_over, leaves[other], other)
            if sooner:
                best = r
        unit = ready[best]
        many -= 1
        ready[best] = ready[many]
        during, live = run_unit(
            unit, unit_ptr, unit_nodes, touch_ptr, touch_idx, cand_ptr, cand_idx, out, size, held, left, born, live
        )
        most = max(most, during)
        order[place] = unit
        for e in range(succ_ptr[unit], succ_ptr[unit + 1]):
            waits[succ_idx[e]] -= 1
            if waits[succ_idx[e]] == 0:
                ready[many] = succ_idx[e]
                many += 1
    return order
