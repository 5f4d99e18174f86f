"""Delay moves: orders that compute a graph output, usually a gradient, after the peak instead of before it.

The operands of the output then have a longer gap between two uses, in which recomputation can drop them. It is often
cheaper to recompute the activations of a layer than to keep its gradient.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tmmu_core.fitting.move import Move
from tmmu_core.fitting.moves.reordering import WHY, views_late
from tmmu_core.fitting.order.order_model import OrderModel, order_model
from tmmu_core.fitting.problem.lower_bounds import alignments_of
from tmmu_core.fitting.problem.planner_calls import Candidate
from tmmu_core.fitting.recompute.recompute_model import RecomputeModel, recompute_model
from tmmu_core.plans.figures.live_bytes import alive_at

MOST_DELAYED = 64  # maximum number of units in one delay


class _Delay(NamedTuple):
    """Units that can run after the peak, with an estimate of the bytes that this saves and of its cost."""

    units: tuple[int, ...]
    saved: int  # bytes freed at the peak, minus the bytes of operands that stay live for the delayed units
    flops: int  # FLOPs to recompute the operands that do not stay live
    needed: int  # bytes of all storages that the units touch or, if more, of those that one recomputed node touches


def delay_moves(base: Candidate, smallest: Candidate, step: int, excess: int, *, keep_phases: bool) -> Iterator[Move]:
    """Yield orders of ``base`` that delay outputs beyond ``step`` of ``smallest``; each order delays more units.

    ``smallest`` is ``base`` after further moves. By the estimates, each order saves at least ``excess`` bytes at the
    step; no order is yielded if all delays together save less.
    """
    liveness = base.liveness
    model = order_model(liveness, alignments_of(base.plan_input), keep_phases=keep_phases)
    peak_id = smallest.plan.node_at(step)
    peak = next((node for node in smallest.fitted_graph.nodes if node.node_id == peak_id), None)
    if model is None or peak is None:
        return
    unit_of = {model.node_ids[node]: unit for unit, nodes in enumerate(model.units) for node in nodes}
    # A recomputed node can run before the node that it copies.
    of_node = {node.node_id: unit_of.get(node.recomputes or node.node_id) for node in smallest.fitted_graph.nodes}
    executed = smallest.plan.execution_order
    order = [unit for unit in dict.fromkeys(map(of_node.get, executed)) if unit is not None]
    before_peak = {unit for unit in map(of_node.get, executed[: executed.index(peak_id)]) if unit is not None}
    tensor_of, storage_of = liveness.timeline.index.tensor_of, liveness.storage_of

    def storages(names: Iterable[str]) -> set[int]:
        return {int(storage_of[tensor_of[name]]) for name in names if name in tensor_of} - {-1}

    live = storages(smallest.plan.row(k).tensor_id for k in alive_at(smallest.plan, step).tolist())
    unused = live - storages((*peak.inputs, *peak.outputs))
    chosen: list[_Delay] = []
    units: set[int] = set()
    delays = _delays(model, recompute_model(base.plan_input), before_peak, live, unused)
    for delay in sorted(delays, key=lambda each: (each.flops / each.saved, each.units)):
        if units.issuperset(delay.units):
            continue
        chosen.append(delay)
        units.update(delay.units)
        excess -= delay.saved
        if excess <= 0:
            chosen.sort(key=lambda each: (each.needed, -each.flops, each.units))
            last_first = dict.fromkeys(unit for each in chosen for unit in reversed(each.units))
            delayed = model.ids_of(views_late(liveness, model, _run_late(model, order, list(last_first))))
            node_ids = model.ids_of(sorted(units))
            what = f"run {len(node_ids)} nodes after the peak instead of before it"
            yield Move("order", what, WHY, (), node_ids, details={"order": list(delayed)})


def _delays(
    model: OrderModel, recompute: RecomputeModel, before_peak: set[int], live: set[int], unused: set[int]
) -> Iterator[_Delay]:
    """Yield the possible delays of units that run before the peak (``before_peak``).

    ``live``: the storages that are live at the peak; ``unused``: those that the node at the peak does not touch. A
    delay contains the units that touch an output in ``unused``, and all later units that depend on them.
    """
    touching: dict[int, set[int]] = {}
    for unit, s in model.unit_touches.tolist():
        touching.setdefault(s, set()).add(unit)
    for s in sorted(unused):
        if model.starts_live[s] or not model.stays_live[s]:
            continue
        units = touching.get(s, set()) & before_peak
        pending = list(units)
        while pending and len(units) <= MOST_DELAYED:
            dependent = before_peak.intersection(model.successors[pending.pop()]) - units
            units |= dependent
            pending += dependent
        if not 0 < len(units) <= MOST_DELAYED:
            continue
        touched = {z for unit in units for node in model.units[unit] for z in model.touches[node]}
        computed = {z for z in touched if not model.starts_live[z] and touching[z] & before_peak <= units}
        freed = sum(int(model.size[z]) for z in computed & unused)
        for most_kept in (0, int(model.size[s]) // 2):
            kept, flops, needed = _cost_of_operands(recompute, touched - computed, live, most_kept)
            if freed > kept:
                needed = max(needed, sum(int(model.size[z]) for z in touched))
                yield _Delay(tuple(sorted(units)), freed - kept, flops, needed)


def _cost_of_operands(model: RecomputeModel, wanted: set[int], live: set[int], most_kept: int) -> tuple[int, int, int]:
    """Return the cost of computing the storages ``wanted`` from the storages ``live``.

    The cost is (bytes of storages that stay live, FLOPs, most bytes that one recomputed node reads and writes).
    Storages of up to ``most_kept`` bytes stay live, larger storages are recomputed where that is possible.
    """
    kept_bytes = flops = needed = 0
    seen, pending = set(live), sorted(wanted - live)
    while pending:
        s = pending.pop()
        if s in seen:
            continue
        seen.add(s)
        n, size = int(model.producer[s]), int(model.size[s])
        if size <= most_kept or not model.droppable[s]:
            kept_bytes += size
            continue
        flops += int(model.node_flops[n])
        operands = model.in_idx[model.in_ptr[n] : model.in_ptr[n + 1]]
        results = model.out_idx[model.out_ptr[n] : model.out_ptr[n + 1]]
        needed = max(needed, int(model.size[operands].sum() + model.size[results].sum()))
        pending += operands.tolist()
    return kept_bytes, flops, needed


def _run_late(model: OrderModel, order: list[int], last_first: list[int]) -> list[int]:
    """Return ``order`` with the units of ``last_first`` as late as possible; the first of these runs last."""
    moved = set(last_first)
    reverse = [unit for unit in reversed(order) if unit not in moved]
    successors: set[int] = set()
    for unit in last_first:
        successors |= set(model.successors[unit])
        reverse.insert(max((k + 1 for k, other in enumerate(reverse) if other in successors), default=0), unit)
        successors.add(unit)
    return reverse[::-1]
