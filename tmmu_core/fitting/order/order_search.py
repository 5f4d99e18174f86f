"""Search for the execution order with the least memory, and prove a lower bound over all orders.

::

    1. the initial order, Inductor's five orders, and two made from the initial order: hill–valley; late, then early
    2. three made from the best order of step 1: hill–valley; late; early
    3. beam search, then best-first search, which finds the optimal order or a lower bound

Late: units that allocate more than they free move as late as possible. Early: units that free more than they allocate
move as early as possible. A unit is a node, or nodes that run together (``order_model.py``). The objective is the sum
of the arenas' peaks. Limits of the search count expansions (units tried as the next one of an order), not time.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from tmmu_core.fitting.move import Move
from tmmu_core.fitting.order.order_exact import OrderStates, beam_search, best_first_search
from tmmu_core.fitting.order.order_memory import allocate_late, baselines, free_early, hill_valley_order, measure
from tmmu_core.fitting.order.order_model import I64, OrderModel, order_model
from tmmu_core.fitting.problem.lower_bounds import alignments_of
from tmmu_core.fitting.problem.planner_calls import Candidate
from tmmu_core.liveness.timeline import Liveness
from tmmu_core.planners.problem import Progress

MAX_SEARCHED_UNITS = 2_500  # maximum number of units for which beam and best-first search run
MAX_SMALL_UNITS = 400  # maximum number of units of a small model
PROOF_BUDGET_OF_SMALL = 600_000  # maximum number of expansions of the best-first search for a small model
PROOF_BUDGET = 150_000  # the same for other models
SHORT_BUDGET = 4_000  # the same if the lower bound exceeds the goal
WHY = "data dependencies hold; overwrites, side effects, unknown operators and the nodes of a scope keep their order"


@dataclass(eq=False)
class Ordered:
    """The best order so far and the lower bound; the result of :func:`best_order`."""

    model: OrderModel
    order: I64  # the best order: unit numbers
    peak: int  # sum of the arenas' peaks in this order: aligned bytes, with persistent storages
    bound: int  # lower bound of the sum of peaks over all orders
    method: str  # the method that found the order
    tried: dict[str, int]  # method → sum of the peaks in its order; ``given``: the initial order

    def record(self, method: str, order: I64) -> None:
        """Measure an order, and keep it if its peak is the lowest."""
        peak = int(measure(self.model, order).sum())
        self.tried[method] = peak
        if peak < self.peak:
            self.order, self.peak, self.method = order, peak, method


def best_order(
    model: OrderModel, report: Progress | None = None, *, budget: int | None = None, goal: int | None = None
) -> Ordered:
    """Return the order with the lowest sum of peaks found; ``report`` can stop the search.

    ``goal``: once the sum of peaks is at most this number of bytes, no further step begins, and step 1 ends. Step 3 is
    skipped if ``goal`` is 0, and for large models. ``budget``: maximum number of expansions of the best-first search.
    """
    watch = Watch(report)
    if budget is None:
        budget = PROOF_BUDGET_OF_SMALL if len(model) <= MAX_SMALL_UNITS else PROOF_BUDGET
    initial = np.arange(len(model), dtype=np.int64)
    peak = int(measure(model, initial).sum())
    best = Ordered(model, initial, peak, peak, "given", {"given": peak})
    if not len(model):
        return best
    states = OrderStates(model) if len(model) <= MAX_SEARCHED_UNITS and goal != 0 else None
    floor = states.lower_bound() if states is not None else ()
    best.bound = int(model.constant.sum()) + sum(floor)
    for name, order in _initial_orders(model, initial):
        best.record(name, order)
        if best.peak == best.bound or (goal is not None and best.peak <= goal) or not watch("orders"):
            return best
    start, method = best.order, best.method
    best.record(f"{method}, hills", hill_valley_order(model, start))
    best.record(f"{method}, late", allocate_late(model, start))
    best.record(f"{method}, early", free_early(model, start))
    if states is None or (goal is not None and best.peak <= goal):
        return best
    if best.peak > best.bound and watch("beam"):
        found = beam_search(states, best.peak, lambda: watch("beam"))
        if found is not None:
            best.record("beam", found)
    if goal is not None and best.bound > goal:
        budget = min(budget, SHORT_BUDGET)
    if best.peak > best.bound and watch("proof"):
        proven = best_first_search(
            states, best.peak, floor=floor, budget=budget, should_continue=lambda steps: watch("proof", steps, budget)
        )
        if proven.order is not None:
            best.record("proof", proven.order)
        best.bound = max(best.bound, proven.bound)
    return best


def _initial_orders(model: OrderModel, initial: I64) -> Iterator[tuple[str, I64]]:
    yield from baselines(model)
    yield "hills", hill_valley_order(model, initial)
    yield "early and late", free_early(model, allocate_late(model, initial))


@dataclass
class Watch:
    """Reports progress, and records whether the report stopped the search."""

    progress: Progress | None
    stopped: bool = False

    def __call__(self, what: str, done: int = 0, of: int = 0) -> bool:
        """Report progress; return whether to continue."""
        if self.progress is not None and not self.stopped:
            self.stopped = not self.progress(what, done, of)
        return not self.stopped


@dataclass(frozen=True, eq=False)
class OrderMove:
    """The result of the order search as a move, with lower bounds of extents."""

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

    Return ``None`` if no node runs, or if the sizes sum to 2^60 bytes or more.
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
    what = f"run the nodes in another order ({len(moved)} of {len(order)} at another step)"
    return OrderMove(Move("order", what, WHY, (), moved, details={"order": list(order)}), ordered)


def _views_late(liveness: Liveness, model: OrderModel, units: list[int]) -> list[int]:
    """Return the order with each view directly before the first unit that needs it, unless this raises the peak.

    The reason: if a recompute move drops the base between the view and its reader, the view must run again as well.
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
        for reader in needed:  # the loop appends to the list
            needed += pending.intersection(model.predecessors[reader])
            pending.difference_update(needed)
        order += sorted(needed, key=lambda other: (other == unit, position[other]))
    peak, initial_peak = (measure(model, np.array(sequence, np.int64)).sum() for sequence in (order, units))
    return order if peak <= initial_peak else units
