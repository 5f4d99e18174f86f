"""Order moves: the best execution order found, and the proven bound of all orders."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from tmmu_core.fitting.move import Move
from tmmu_core.fitting.order.order_exact import OrderStates, order_array, orders_within
from tmmu_core.fitting.order.order_model import OrderModel, order_model
from tmmu_core.fitting.order.order_search import Ordered, Report, best_order
from tmmu_core.fitting.problem.lower_bounds import grids_of
from tmmu_core.fitting.problem.planner_calls import PlanInput
from tmmu_core.plans.making.engine import Solution

ENUMERATED_UP_TO = 64
"""Units up to which orders are enumerated when the packing of the first order does not fit."""
MOST_ORDERS = 64
WHY = "data dependencies, overwrites, side effects, unknown operators and scopes keep their order"


@dataclass(frozen=True, eq=False)
class OrderMove:
    """The result of the order search."""

    move: Move | None
    """``None`` if no order with a lower peak was found."""
    ordered: Ordered
    model: OrderModel

    @property
    def needs(self) -> Mapping[str, int]:
        """Arena → proven bytes of every order; exact if only one arena changes."""
        slack = self.model.pad
        variable = sorted({int(a) for a, size in zip(self.model.arena, self.model.size, strict=True) if size})
        if len(variable) != 1:
            return {}
        only = variable[0]
        others = sum(int(c) for a, c in enumerate(self.model.constant) if a != only)
        return {self.model.arenas[only]: self.ordered.bound - others - slack}

    @property
    def total(self) -> int:
        """Proven bytes of every order, over all arenas."""
        variable = {int(a) for a, size in zip(self.model.arena, self.model.size, strict=True) if size}
        return max(0, self.ordered.bound - self.model.pad * len(variable))


def order_move(
    plan_input: PlanInput,
    solution: Solution,
    report: Report | None = None,
    *,
    keep_phases: bool = False,
    enough: int | None = None,
) -> OrderMove | None:
    """Return the order with the smallest sum of peaks; ``None`` without units, or for sizes above 2^60.

    The search stops at ``enough`` bytes; expensive methods are skipped if no order can reach it (proven).
    """
    model = order_model(solution.liveness, grids_of(plan_input), keep_phases=keep_phases)
    if model is None or not len(model):
        return None
    ordered = best_order(model, report, enough=enough)
    if ordered.peak >= ordered.tried["given"]:
        return OrderMove(None, ordered, model)
    return OrderMove(_move(solution, model, ordered.order.tolist(), ordered.method), ordered, model)


def other_orders(found: OrderMove, solution: Solution, limit: int) -> Iterator[Move]:
    """Yield other orders whose sum of peaks is at most ``limit`` bytes, because they may pack better."""
    model, seen = found.model, {found.ordered.order.tobytes()}
    for total, order in found.ordered.others:
        if total <= limit and order.tobytes() not in seen:
            seen.add(order.tobytes())
            yield _move(solution, model, order.tolist(), "as low")
    if len(model) <= ENUMERATED_UP_TO:
        for units in orders_within(OrderStates(model), limit, MOST_ORDERS):
            if order_array(units).tobytes() not in seen:
                yield _move(solution, model, list(units), "as low")


def _move(solution: Solution, model: OrderModel, units: list[int], method: str) -> Move:
    order = model.ids_of(views_late(solution, model, units))
    moved = tuple(node for node, other in zip(order, solution.plan.execution_order, strict=True) if node != other)
    what = f"run the nodes in another order ({method}: {len(moved)} of {len(order)} at another step)"
    return Move("order", what, WHY, (), moved, details={"order": list(order)})


def views_late(solution: Solution, model: OrderModel, units: list[int]) -> list[int]:
    """Return the order with each view directly before the first unit that waits for it.

    A view costs nothing. If it ran earlier, its base would have to stay live, or be recomputed, for it.
    """
    index = solution.liveness.timeline.index
    successors = [model.succ_idx[a:b].tolist() for a, b in pairwise(model.succ_ptr.tolist())]
    predecessors: list[list[int]] = [[] for _ in units]
    for unit, after in enumerate(successors):
        for other in after:
            predecessors[other].append(unit)
    is_view = [
        bool(successors[unit]) and all((index.base[index.outputs_of(node)] >= 0).all() for node in model.units[unit])
        for unit in range(len(units))
    ]
    place = {unit: k for k, unit in enumerate(units)}
    waiting, order = set(), []
    for unit in units:
        if is_view[unit]:
            waiting.add(unit)
            continue
        needed = [unit]
        for each in needed:
            needed += [other for other in predecessors[each] if other in waiting]
            waiting.difference_update(needed)
        order += sorted(needed, key=lambda each: (each == unit, place[each]))
    return order
