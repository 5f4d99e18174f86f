"""``portfolio``: every order with every fit of ``greedy``; keep the best, stop at the lower bound.

No single order is best on real traces (the best of six is 0–6 % above the bound); all orders with both fits cost twelve
near-linear runs. The list of runs is fixed and the first of equals wins, so the result is deterministic.

A run that ends less than one alignment above the bound is repeated with one storage, the *crown*, placed last. The
topmost storage needs no padding, so the crown is the storage of the bound's witness with the most padding.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tmmu_core.planners.bounds import Bound, bound_of
from tmmu_core.planners.columns import Columns, align_up, columns, extent_of, finished
from tmmu_core.planners.greedy import ORDERS, place
from tmmu_core.planners.meter import Meter, metered
from tmmu_core.planners.problem import Packing, Problem, Progress

RUNS = tuple((order, fit) for fit in ("lowest", "tightest") for order in ORDERS)
"""(order, fit) in this order. ``free_list`` equals ``lowest`` in birth order."""


@dataclass(frozen=True)
class Best:
    """The best greedy run: offsets, extent, order and fit, number of runs, and whether they were stopped early."""

    offset: list[int]
    extent: int
    order: str
    fit: str
    runs: int
    stopped: bool
    sequence: list[int]
    crown: int = -1
    """The storage placed last; −1: none."""

    def packing(self, cols: Columns, bound: Bound, **notes: Any) -> Packing:
        """Return the run as a packing, with further notes."""
        last = {} if self.crown < 0 else {"last": cols.problem.ids[self.crown]}
        return Packing(
            finished(cols, self.offset),
            lower_bound=bound.bytes,
            optimal=self.extent == bound.bytes,
            stopped=self.stopped,
            notes={"order": self.order, "fit": self.fit, "runs": self.runs, **last, **notes},
        )


def portfolio(problem: Problem, options: Mapping[str, Any], progress: Progress | None = None) -> Packing:
    """Return the best packing of all greedy runs. Option: ``max_nodes`` (:mod:`.meter`)."""
    cols = columns(problem)
    bound = bound_of(cols)
    return best_greedy(cols, bound, metered(progress, options)).packing(cols, bound)


def best_greedy(
    cols: Columns, bound: Bound, meter: Meter | None = None, runs: Iterable[tuple[str, str]] = RUNS, *, goal: int = 0
) -> Best:
    """Return the first run of least extent; stop at the lower bound, at ``goal`` bytes, or by the meter."""
    enough = max(bound.bytes, goal)
    all_runs = list(runs)
    sequences: dict[str, list[int]] = {}
    alignment = min((cols.align[i] for i in bound.witness), default=0)
    movable = (i for i in bound.witness if cols.fixed[i] < 0)
    padding, crown = max(((align_up(cols.size[i], alignment) - cols.size[i], -i) for i in movable), default=(0, 0))
    crown = -crown if padding else -1
    best: Best | None = None
    for number, (order, fit) in enumerate(all_runs, 1):
        if order not in sequences:
            sequences[order] = ORDERS[order](cols)
        sequence, last = sequences[order], -1
        while True:
            offset = place(cols, sequence, fit)
            extent = extent_of(cols, offset)
            if best is None or extent < best.extent:
                best = Best(offset, extent, order, fit, number, False, sequence, last)
            if last >= 0 or crown < 0 or not enough < extent < bound.bytes + alignment:
                break
            sequence, last = [*(i for i in sequence if i != crown), crown], crown
        best = replace(best, runs=number)
        if best.extent <= enough:
            break
        if meter is not None:
            meter.improved(cols.problem.arena, best.extent, bound.bytes)
            meter.spend(1)
            if not meter("portfolio", number, len(all_runs)):
                meter.halt()
            if meter.ended():
                return replace(best, stopped=number < len(all_runs))
    assert best is not None
    return best
