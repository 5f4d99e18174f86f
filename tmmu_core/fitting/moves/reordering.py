"""Order moves: the best execution order found, and the proven lower bound over all orders."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tmmu_core.fitting.move import Move
from tmmu_core.fitting.order.order_memory import measure
from tmmu_core.fitting.order.order_model import OrderModel, order_model
from tmmu_core.fitting.order.order_search import Ordered, best_order
from tmmu_core.fitting.problem.lower_bounds import alignments_of
from tmmu_core.fitting.problem.planner_calls import Candidate
from tmmu_core.liveness.live_model import Liveness
from tmmu_core.planners.problem import Progress

WHY = "data dependencies, overwrites, side effects, unknown operators and scopes keep their order"


@dataclass(frozen=True, eq=False)
class OrderMove:
    """The result of the order search."""

    move: Move | None  # ``None`` if no order with a lower sum of peaks was found
    ordered: Ordered

    @property
    def arena_bounds(self) -> Mapping[str, int]:
        """Arena → lower bound of its extent over all orders; empty unless exactly one arena depends on the order."""
        model = self.ordered.model
        if len(model.variable_arenas) != 1:
            return {}
        arena = model.variable_arenas[0]
        other_arenas = int(model.constant.sum() - model.constant[arena])
        return {model.arenas[arena]: self.ordered.bound - other_arenas - int(model.padding[arena])}

    @property
    def total_bound(self) -> int:
        """Lower bound of the sum of all extents over all orders."""
        return self.ordered.bound - int(self.ordered.model.padding.sum())


def order_move(
    base: Candidate, report: Progress | None = None, *, keep_phases: bool = False, goal: int | None = None
) -> OrderMove | None:
    """Search for the order with the lowest sum of peaks; ``goal``: see ``best_order``.

    ``None`` if no node runs, or if the sizes sum to 2^60 bytes or more.
    """
    alignments = alignments_of(base.plan_input, base.liveness.arenas)
    model = order_model(base.liveness, alignments, keep_phases=keep_phases)
    if model is None or not len(model):
        return None
    ordered = best_order(model, report, goal=goal)
    if ordered.peak >= ordered.tried["given"]:
        return OrderMove(None, ordered)
    order = model.ids_of(_views_late(base.liveness, model, ordered.order.tolist()))
    moved = tuple(node for node, other in zip(order, base.plan.execution_order, strict=True) if node != other)
    what = f"run the nodes in another order ({ordered.method}: {len(moved)} of {len(order)} at another step)"
    return OrderMove(Move("order", what, WHY, (), moved, details={"order": list(order)}), ordered)


def _views_late(liveness: Liveness, model: OrderModel, units: list[int]) -> list[int]:
    """Return the order with each view directly before the first unit that needs it, unless this raises the peak.

    Otherwise, a move that drops the base between the view and its reader must recompute the view too.
    """
    index = liveness.timeline.index
    is_view = [
        bool(after) and all((index.base[index.outputs_of(node)] >= 0).all() for node in nodes)
        for after, nodes in zip(model.successors, model.units, strict=True)
    ]
    position = {unit: k for k, unit in enumerate(units)}
    pending: set[int] = set()
    order = []
    for unit in units:
        if is_view[unit]:
            pending.add(unit)
            continue
        needed = [unit]
        for each in needed:
            needed += pending.intersection(model.predecessors[each])
            pending.difference_update(needed)
        order += sorted(needed, key=lambda each: (each == unit, position[each]))
    peak, initial_peak = (measure(model, np.array(each, np.int64)).sum() for each in (order, units))
    return order if peak <= initial_peak else units
