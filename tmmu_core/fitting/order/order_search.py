"""Search for the execution order with the least memory, with a proven lower bound.

::

    given order ─────┐                       ┌─ windows around the peak ─┐
    Inductor's four  ├─ each also with units ─┤                           ├─ best-first search: optimal, or a bound
    hill–valley ─────┘  moved early or late   └─ beam search ─────────────┘

The objective is the sum of the arenas' peaks. Effort is counted in expansions, not in time.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from tmmu_core.fitting.order.baselines import baselines
from tmmu_core.fitting.order.hill_valley import hill_valley_order
from tmmu_core.fitting.order.local_moves import eager, late
from tmmu_core.fitting.order.order_exact import OrderStates, beam, best_first_search
from tmmu_core.fitting.order.order_loops import I64, measure
from tmmu_core.fitting.order.order_model import OrderModel
from tmmu_core.fitting.order.windows import improve_windows

SEARCHED_UP_TO = 2_500
"""Units up to which beam and best-first search run."""
PROOF = 150_000
"""Expansions before the best-first search stops."""
SMALL, PROOF_BUDGET_OF_SMALL = 400, 600_000
"""Units up to which the budget is larger, and that budget."""
Report = Callable[[str, int, int], bool]
"""``report(what, done, of) -> go_on``, as for planners."""


@dataclass(frozen=True, eq=False)
class Ordered:
    """The result of the order search."""

    order: I64
    """Unit numbers."""
    peak: int
    """Sum of the arenas' peaks in bytes, aligned, persistent storages included."""
    bound: int
    """Lower bound of the sum of peaks of all orders."""
    method: str
    tried: dict[str, int]
    """Method → its sum of peaks."""
    others: tuple[tuple[int, I64], ...] = ()
    """All distinct orders found, as (sum of peaks, units), lowest first."""

    @property
    def optimal(self) -> bool:
        """Whether the order is proven optimal."""
        return self.peak <= self.bound


def best_order(
    model: OrderModel, report: Report | None = None, *, proof: int | None = None, enough: int | None = None
) -> Ordered:
    """Return the lowest order found; ``report`` can stop the search.

    The search ends at ``enough`` bytes; the two expensive methods are skipped if no order can reach it (proven).
    """
    watch = Watch(report)
    if proof is None:
        proof = PROOF_BUDGET_OF_SMALL if len(model) <= SMALL else PROOF
    given_order = np.arange(len(model), dtype=np.int64)
    best, peak, method = given_order, measure(model, given_order).total, "given"
    tried = {"given": peak}
    orders = [(peak, given_order)]
    if not len(model):
        return Ordered(best, peak, peak, method, tried)

    def take(name: str, order: I64) -> None:
        nonlocal best, peak, method
        total = measure(model, order).total
        tried[name] = total
        orders.append((total, order))
        if total < peak:
            best, peak, method = order, total, name

    walk = OrderStates(model) if len(model) <= SEARCHED_UP_TO and enough != 0 else None
    floor = walk.lower_bound() if walk is not None else ()
    bound = int(model.constant.sum()) + sum(floor)
    for name, order in _initial_orders(model, given_order):
        take(name, order)
        if peak == bound or (enough is not None and peak <= enough) or not watch("orders"):
            return Ordered(best, peak, bound, method, tried, _distinct(orders))
    for name, order in _refined_orders(model, best):
        take(f"{method}, {name}", order)
    take("stretches", improve_windows(model, best, lambda: watch("stretches")))
    if enough is not None and (peak <= enough or bound > enough):
        return Ordered(best, peak, bound, method, tried, _distinct(orders))
    if walk is not None and peak > bound and watch("beam"):
        found = beam(walk, peak, lambda: watch("beam"))
        if found is not None:
            take("beam", found)
    if walk is not None and peak > bound and watch("proof"):
        proven = best_first_search(
            walk, peak, floor=floor, budget=proof, go_on=lambda steps: watch("proof", steps, proof)
        )
        if proven.order is not None:
            take("proof", proven.order)
        bound = max(bound, proven.bound)
    return Ordered(best, peak, bound, method, tried, _distinct(orders))


def _distinct(orders: list[tuple[int, I64]]) -> tuple[tuple[int, I64], ...]:
    known = {order.tobytes(): (total, order) for total, order in orders}
    return tuple(sorted(known.values(), key=lambda each: each[0]))


def _initial_orders(model: OrderModel, given_order: I64) -> Iterator[tuple[str, I64]]:
    for name, order in baselines(model):
        yield name, order
        yield f"{name}, early and late", eager(model, late(model, order))
    yield "hills", hill_valley_order(model, given_order)
    yield "early and late", eager(model, late(model, given_order))


def _refined_orders(model: OrderModel, best: I64) -> Iterator[tuple[str, I64]]:
    yield "hills", hill_valley_order(model, best)
    yield "late", late(model, best)
    yield "early", eager(model, best)


class Watch:
    """Forwards progress and records whether the search was stopped."""

    def __init__(self, progress: Report | None) -> None:
        self.progress = progress
        self.stopped = False

    def __call__(self, what: str, done: int = 0, of: int = 0) -> bool:
        """Report progress; return whether to continue."""
        if self.progress is not None and not self.stopped:
            self.stopped = not self.progress(what, done, of)
        return not self.stopped
