"""Delay moves: orders that compute a tensor after the peak if it is live but not used at the peak, as most gradients.

The operands of the tensor then have a longer gap between two uses, in which recomputation can drop an operand. It is
often cheaper to recompute the activations of a layer than to keep its gradient.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tmmu_core.fitting.move import Move
from tmmu_core.fitting.moves.reordering import WHY, views_late
from tmmu_core.fitting.order.order_model import OrderModel, order_model
from tmmu_core.fitting.problem.lower_bounds import alignments_of
from tmmu_core.fitting.problem.planner_calls import Candidate
from tmmu_core.fitting.recompute.recompute_model import RecomputeModel, recompute_model
from tmmu_core.plans.figures.live_bytes import alive_at

MOST_DELAYED = 64
"""Maximum number of units that are delayed together."""


@dataclass(frozen=True)
class _Delay:
    """Units that can run after the peak, with the bytes freed there and a lower bound of the cost."""

    units: tuple[int, ...]
    saved: int
    """Bytes freed at the peak, minus the bytes of operands that stay live for the delayed units."""
    flops: int
    """FLOPs to recompute the operands that do not stay live."""
    needed: int
    """Most bytes that one node needs while the operands are recomputed and the delayed units run."""


def delay_moves(base: Candidate, smallest: Candidate, step: int, excess: int, *, keep_phases: bool) -> Iterator[Move]:
    """Yield orders of ``base`` that delay results beyond ``step`` of ``smallest``, each with more units.

    ``smallest`` is a plan of the same nodes after recompute and order moves. The first order saves ``excess`` bytes, if
    the delays suffice.
    """
    liveness = base.liveness
    model = order_model(liveness, alignments_of(base.plan_input), keep_phases=keep_phases)
    if model is None:
        return
    unit_of = {model.node_ids[node]: unit for unit, nodes in enumerate(model.units) for node in nodes}
    executed = smallest.plan.execution_order
    order = list(dict.fromkeys(unit_of[name] for name in executed if name in unit_of))
    nodes = {node.node_id: node for node in smallest.fitted_graph.nodes}
    peak = smallest.plan.node_at(step)
    if peak not in nodes:
        return
    done = {unit_of[name] for name in executed[: executed.index(peak)] if name in unit_of}
    tensor_of, storage_of = liveness.timeline.index.tensor_of, liveness.storage_of

    def storages(names: Iterable[str]) -> set[int]:
        return {int(storage_of[tensor_of[name]]) for name in names if name in tensor_of} - {-1}

    live = storages(smallest.plan.row(k).tensor_id for k in alive_at(smallest.plan, step).tolist())
    waiting = live - storages((*nodes[peak].inputs, *nodes[peak].outputs))
    found = _delays(model, recompute_model(base.plan_input), done, (live, waiting))
    found.sort(key=lambda each: (each.flops / each.saved, each.units))
    chosen: list[_Delay] = []
    units: set[int] = set()
    for each in found:
        if units.issuperset(each.units):
            continue
        chosen.append(each)
        units.update(each.units)
        excess -= each.saved
        if excess <= 0:
            chosen.sort(key=lambda each: (each.needed, -each.flops, each.units))  # the last one runs first
            late = dict.fromkeys(unit for each in chosen for unit in reversed(each.units))
            what = f"run {len(units)} nodes that make results after the peak"
            delayed = views_late(liveness, model, _run_late(model, order, list(late)))
            details = {"order": list(model.ids_of(delayed))}
            yield Move("order", what, WHY, (), model.ids_of(sorted(units)), details=details)


def _delays(
    model: OrderModel, recompute: RecomputeModel, done: set[int], at_peak: tuple[set[int], set[int]]
) -> list[_Delay]:
    """Return the possible delays of the units ``done``, for each storage that is not used at the peak.

    ``at_peak``: the storages that are live at the peak, and those among them that are not used there.
    """
    live, waiting = at_peak
    touching: dict[int, set[int]] = {}
    for unit, nodes in enumerate(model.units):
        for node in nodes:
            for s in model.touches[node]:
                touching.setdefault(s, set()).add(unit)
    found = []
    for s in sorted(waiting):
        pending = [unit for unit in touching.get(s, ()) if unit in done]
        units = set(pending)
        while pending and len(units) <= MOST_DELAYED:
            more = {unit for unit in model.successors[pending.pop()] if unit in done} - units
            units |= more
            pending += more
        if not units or pending or model.starts_live[s] or not model.stays_live[s]:
            continue
        touched = {z for unit in units for node in model.units[unit] for z in model.touches[node]}
        results = {z for z in touched if not model.starts_live[z] and touching[z] & done <= units}
        saved = sum(int(model.size[z]) for z in results & waiting)
        for largest in (0, int(model.size[s]) // 2):
            kept_bytes, flops, needed = _operands(recompute, touched - results, live, largest)
            if saved > kept_bytes:
                needed = max(needed, sum(int(model.size[z]) for z in touched))
                found.append(_Delay(tuple(sorted(units)), saved - kept_bytes, flops, needed))
    return found


def _operands(model: RecomputeModel, wanted: set[int], live: set[int], largest: int) -> tuple[int, int, int]:
    """Return the cost of computing the storages ``wanted`` from the storages ``live``.

    The cost is (bytes of storages that stay live, FLOPs, most bytes of one node). Storages of up to ``largest`` bytes
    stay live, larger storages are recomputed.
    """
    kept_bytes = total = needed = 0
    seen, pending = set(live), sorted(wanted - live)
    while pending:
        s = pending.pop()
        if s in seen:
            continue
        seen.add(s)
        n, size = int(model.producer[s]), int(model.size[s])
        if size <= largest or not model.droppable[s]:
            kept_bytes += size
            continue
        total += int(model.node_flops[n])
        operands = model.in_idx[model.in_ptr[n] : model.in_ptr[n + 1]]
        results = model.out_idx[model.out_ptr[n] : model.out_ptr[n + 1]]
        needed = max(needed, int(model.size[operands].sum() + model.size[results].sum()))
        pending += operands.tolist()
    return kept_bytes, total, needed


def _run_late(model: OrderModel, order: list[int], chosen: list[int]) -> list[int]:
    """Return ``order`` with the chosen units as late as possible; the first chosen unit runs last."""
    moving = set(chosen)
    late = [unit for unit in reversed(order) if unit not in moving]
    later: set[int] = set()
    for unit in chosen:
        later |= set(model.successors[unit])
        late.insert(max((k + 1 for k, other in enumerate(late) if other in later), default=0), unit)
        later.add(unit)
    return late[::-1]
