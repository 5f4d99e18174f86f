"""Order as a move: the best order found for a question, and what is proven of all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tmmu_core.fit.asking import Question
from tmmu_core.fit.bounds import grids_of
from tmmu_core.fit.moves import Move
from tmmu_core.fit.order.exact import Walk, as_array, orders_within
from tmmu_core.fit.order.model import OrderModel, order_model
from tmmu_core.fit.order.searching import Ordered, Report, best_order
from tmmu_core.plan.making.engine import Solution

ENUMERATED_UP_TO = 64
"""Units up to which orders are listed when the first one's packing does not fit."""
MOST_ORDERS = 64
WHY = "data, bytes written over, effects and scopes keep their order"


@dataclass(frozen=True, eq=False)
class OrderMove:
    """What the order search found."""

    move: Move | None
    """``None`` where the order is already as low as any that was found."""
    ordered: Ordered
    model: OrderModel

    @property
    def needs(self) -> Mapping[str, int]:
        """Arena → bytes that every order needs, where that is proven: for one arena that changes, exactly."""
        slack = self.model.pad
        variable = sorted({int(a) for a, size in zip(self.model.arena, self.model.size, strict=True) if size})
        if len(variable) != 1:
            return {}
        only = variable[0]
        others = sum(int(c) for a, c in enumerate(self.model.constant) if a != only)
        return {self.model.arenas[only]: self.ordered.bound - others - slack}

    @property
    def total(self) -> int:
        """Bytes over all arenas that every order needs, as far as that is proven."""
        variable = {int(a) for a, size in zip(self.model.arena, self.model.size, strict=True) if size}
        return max(0, self.ordered.bound - self.model.pad * len(variable))


def order_move(
    question: Question,
    solution: Solution,
    report: Report | None = None,
    *,
    keep_phases: bool = False,
    enough: int | None = None,
) -> OrderMove | None:
    """The order with the least sum of peaks; ``None`` where there is nothing to order (or its sizes pass 2^60).

    ``enough`` bytes are looked for and no less, and nothing dear is tried where they cannot be.
    """
    model = order_model(solution.liveness, grids_of(question), keep_phases=keep_phases)
    if model is None or not len(model):
        return None
    ordered = best_order(model, report, enough=enough)
    if ordered.peak >= ordered.tried["given"]:
        return OrderMove(None, ordered, model)
    return OrderMove(_move(solution, model, ordered.order.tolist(), ordered.method), ordered, model)


def other_orders(found: OrderMove, solution: Solution, limit: int) -> Iterator[Move]:
    """Further orders whose sum of peaks is within ``limit`` bytes: packings of equal peaks differ."""
    model, seen = found.model, {found.ordered.order.tobytes()}
    for total, order in found.ordered.others:
        if total <= limit and order.tobytes() not in seen:
            seen.add(order.tobytes())
            yield _move(solution, model, order.tolist(), "as low")
    if len(model) <= ENUMERATED_UP_TO:
        for units in orders_within(Walk(model), limit, MOST_ORDERS):
            if as_array(units).tobytes() not in seen:
                yield _move(solution, model, list(units), "as low")


def _move(solution: Solution, model: OrderModel, units: list[int], method: str) -> Move:
    order = model.ids_of(units)
    moved = tuple(node for node, other in zip(order, solution.plan.execution_order, strict=True) if node != other)
    what = f"run the nodes in another order ({method}: {len(moved)} of {len(order)} at another step)"
    return Move("order", what, WHY, (), moved, details={"order": list(order)})
