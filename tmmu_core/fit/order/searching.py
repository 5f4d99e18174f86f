"""``best_order``: every method on one order problem, the lowest kept, and what is proven about it.

::

    the given order ─┐                      ┌─ stretches around the peak ─┐
    Inductor's three ├─ each also with its ─┤                             ├─ walked best first: optimal, or a bound
    hills, valleys  ─┘  units early or late └─ a beam over all sets      ─┘

What is compared is the sum over the arenas of their peaks, which is what they need together. Nothing here looks at a
clock: effort is counted in units tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from tmmu_core.fit.order.baselines import baselines
from tmmu_core.fit.order.beam import beam
from tmmu_core.fit.order.exact import Walk, as_array, walk_best_first
from tmmu_core.fit.order.hills import hills_and_valleys
from tmmu_core.fit.order.kernels import I64, measure
from tmmu_core.fit.order.model import OrderModel
from tmmu_core.fit.order.nudging import eager, late
from tmmu_core.fit.order.windows import improved

WALKED_UP_TO = 2_500
"""Units up to which all orders are walked, and a beam is."""
PROOF = 150_000
"""Units tried at sets before a walk is broken off."""
SMALL, PROOF_OF_SMALL = 400, 600_000
"""Units up to which more are tried: there the walk often ends."""

Report = Callable[[str, int, int], bool]
"""``report(what, done, of) -> go_on``, as planners are given."""


@dataclass(frozen=True, eq=False)
class Ordered:
    """The best order found."""

    order: I64
    """Units."""
    peak: int
    """Sum of the arenas' peaks in bytes, each rounded up to its grid, persistent ones included."""
    bound: int
    """No order has less; the sum of what is alive in every one where nothing better is known."""
    method: str
    tried: dict[str, int]
    """Method → the sum of peaks it came to."""
    others: tuple[tuple[int, I64], ...] = ()
    """Every order found, as (sum of peaks, units), the lowest first, each once."""

    @property
    def optimal(self) -> bool:
        """Proven: no order has a smaller sum."""
        return self.peak <= self.bound


def best_order(
    model: OrderModel, report: Report | None = None, *, proof: int | None = None, enough: int | None = None
) -> Ordered:
    """The lowest order found. ``report`` may stop it; it then gives what it has.

    ``enough`` bytes: an order as low ends the search, and where none can be, the two dear methods are left out.
    """
    telling = _Telling(report)
    if proof is None:
        proof = PROOF_OF_SMALL if len(model) <= SMALL else PROOF
    given = np.arange(len(model), dtype=np.int64)
    best, peak, method = given, measure(model, given).total, "given"
    tried = {"given": peak}
    orders = [(peak, given)]
    if not len(model):
        return Ordered(best, peak, peak, method, tried)

    def take(name: str, order: I64) -> None:
        nonlocal best, peak, method
        total = measure(model, order).total
        tried[name] = total
        orders.append((total, order))
        if total < peak:
            best, peak, method = order, total, name

    walk = Walk(model) if len(model) <= WALKED_UP_TO and enough != 0 else None
    floor = walk.unavoidable() if walk is not None else ()
    bound = int(model.constant.sum()) + sum(floor)
    for name, order in _simple(model, given):
        take(name, order)
        if peak == bound or (enough is not None and peak <= enough) or not telling.goes_on("orders"):
            return Ordered(best, peak, bound, method, tried, _distinct(orders))
    for name, order in _settled(model, best):
        take(f"{method}, {name}", order)
    take("stretches", improved(model, best, lambda: telling.goes_on("stretches")))
    if enough is not None and (peak <= enough or bound > enough):
        return Ordered(best, peak, bound, method, tried, _distinct(orders))
    if walk is not None and peak > bound and telling.goes_on("beam"):
        found = beam(walk, peak, lambda: telling.goes_on("beam"))
        if found is not None:
            take("beam", as_array(found))
    if walk is not None and peak > bound and telling.goes_on("proof"):
        proven = walk_best_first(
            walk, peak, floor=floor, budget=proof, go_on=lambda steps: telling.goes_on("proof", steps, proof)
        )
        if proven.order is not None:
            take("proof", as_array(proven.order))
        bound = max(bound, proven.bound)
    return Ordered(best, peak, bound, method, tried, _distinct(orders))


def _distinct(orders: list[tuple[int, I64]]) -> tuple[tuple[int, I64], ...]:
    known = {order.tobytes(): (total, order) for total, order in orders}
    return tuple(sorted(known.values(), key=lambda each: each[0]))


def _simple(model: OrderModel, given: I64) -> Iterator[tuple[str, I64]]:
    for name, order in baselines(model):
        yield name, order
        yield f"{name}, early and late", eager(model, late(model, order))
    yield "hills", hills_and_valleys(model, given)
    yield "early and late", eager(model, late(model, given))
    yield "early", eager(model, given)


def _settled(model: OrderModel, best: I64) -> Iterator[tuple[str, I64]]:
    yield "hills", hills_and_valleys(model, best)
    yield "late", late(model, best)
    yield "early", eager(model, best)


class _Telling:
    """Whether to go on, asked of whoever watches."""

    def __init__(self, report: Report | None) -> None:
        self.report = report
        self.stopped = False

    def goes_on(self, what: str, done: int = 0, of: int = 0) -> bool:
        if self.report is not None and not self.stopped:
            self.stopped = not self.report(what, done, of)
        return not self.stopped
