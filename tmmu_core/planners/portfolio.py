"""``portfolio``: every order with every fit of ``greedy``, the best kept, stopping at the lower bound.

No single order wins on real traces (the best of six lies within 0–6 % of the bound), and all of them together cost
twelve near-linear runs. The runs go through a fixed list, so the first of equals wins and the answer is the same
everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tmmu_core.planners.bounds import Bound, bound_of
from tmmu_core.planners.columns import Columns, columns, extent_of, finished
from tmmu_core.planners.greedy import ORDERS, place
from tmmu_core.planners.problem import Packing, Problem, Progress

RUNS = tuple((order, fit) for fit in ("lowest", "tightest") for order in ORDERS)
"""(order, fit) in the order tried. ``free_list`` is left out: it equals ``lowest`` in birth order."""


@dataclass(frozen=True)
class Best:
    """The best greedy run: its offsets, extent, name, how many runs were made, and whether they were cut short."""

    offset: list[int]
    extent: int
    order: str
    fit: str
    runs: int
    stopped: bool
    sequence: list[int]


def portfolio(problem: Problem, options: Mapping[str, Any], progress: Progress | None = None) -> Packing:
    """The best packing of all greedy runs; never worse than any of them. No options."""
    cols = columns(problem)
    bound = bound_of(cols)
    best = best_greedy(cols, bound, progress)
    return Packing(
        finished(cols, best.offset),
        lower_bound=bound.bytes,
        optimal=best.extent == bound.bytes,
        stopped=best.stopped,
        notes={"order": best.order, "fit": best.fit, "runs": best.runs},
    )


def best_greedy(
    cols: Columns, bound: Bound, progress: Progress | None = None, runs: Iterable[tuple[str, str]] = RUNS
) -> Best:
    """Run through ``runs`` and keep the first of the lowest extents; stop at the bound or when told to."""
    todo = list(runs)
    sequences: dict[str, list[int]] = {}
    best: Best | None = None
    made = 0
    for order, fit in todo:
        if order not in sequences:
            sequences[order] = ORDERS[order](cols)
        offset = place(cols, sequences[order], fit, runs=len(todo))
        made += 1
        extent = extent_of(cols, offset)
        if best is None or extent < best.extent:
            best = Best(offset, extent, order, fit, made, False, sequences[order])
        if best.extent <= bound.bytes:
            break
        if progress is not None and not progress("portfolio", made, len(todo)):
            return Best(best.offset, best.extent, best.order, best.fit, made, made < len(todo), best.sequence)
    assert best is not None
    return Best(best.offset, best.extent, best.order, best.fit, made, False, best.sequence)
