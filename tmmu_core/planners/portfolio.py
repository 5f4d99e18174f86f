"""``portfolio``: every order with every fit of ``greedy``, the best kept, stopping at the lower bound.

No single order wins on real traces (the best of six lies within 0–6 % of the bound), and all of them together cost
twelve near-linear runs. The runs go through a fixed list, so the first of equals wins and the answer is the same
everywhere.

A run that ends less than one grid above the bound is made once more with the *crown* placed last: of the storages that
make the bound only the topmost may end off the grid, and it must be the one that gains most by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tmmu_core.planners.bounds import Bound, bound_of
from tmmu_core.planners.columns import Columns, align_up, columns, extent_of, finished
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
    crown: int = -1
    """The storage placed last, out of its turn; −1: none."""

    def notes(self, cols: Columns) -> dict[str, Any]:
        """What is told of the run."""
        found: dict[str, Any] = {"order": self.order, "fit": self.fit, "runs": self.runs}
        return found if self.crown < 0 else {**found, "last": cols.problem.ids[self.crown]}


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
        notes=best.notes(cols),
    )


def best_greedy(
    cols: Columns,
    bound: Bound,
    progress: Progress | None = None,
    runs: Iterable[tuple[str, str]] = RUNS,
    *,
    goal: int = 0,
) -> Best:
    """Run through ``runs`` and keep the first of the lowest extents; stop at the bound or when told to.

    An extent of ``goal`` bytes is low enough too.
    """
    enough = max(bound.bytes, goal)
    todo = list(runs)
    sequences: dict[str, list[int]] = {}
    crown, grid = _crown(cols, bound)
    best: Best | None = None
    made = 0
    for order, fit in todo:
        if order not in sequences:
            sequences[order] = ORDERS[order](cols)
        sequence = sequences[order]
        offset = place(cols, sequence, fit, runs=len(todo))
        made += 1
        extent = extent_of(cols, offset)
        if best is None or extent < best.extent:
            best = Best(offset, extent, order, fit, made, False, sequence)
        if crown >= 0 and enough < extent < bound.bytes + grid:
            sequence = [*(i for i in sequence if i != crown), crown]
            offset = place(cols, sequence, fit, runs=len(todo))
            extent = extent_of(cols, offset)
            if extent < best.extent:
                best = Best(offset, extent, order, fit, made, False, sequence, crown)
        if best.extent <= enough:
            break
        if progress is not None and not progress("portfolio", made, len(todo)):
            return replace(best, runs=made, stopped=made < len(todo))
    assert best is not None
    return replace(best, runs=made)


def _crown(cols: Columns, bound: Bound) -> tuple[int, int]:
    """The storage of the bound's witness that gains most by ending off the grid, and the grid; (−1, 0) for none."""
    free = [i for i in bound.witness if cols.fixed[i] < 0]
    grid = min((cols.align[i] for i in bound.witness), default=0)
    gain, crown = max(((align_up(cols.size[i], grid) - cols.size[i], -i) for i in free), default=(0, 0))
    return (-crown, grid) if gain else (-1, 0)
