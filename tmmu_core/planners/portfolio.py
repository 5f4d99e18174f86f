"""``portfolio``: run ``greedy`` with every order and both fits until a packing reaches the lower bound; keep the best.

No single order is best on real traces. The list of runs is fixed and the first of equal packings is kept, so the result
is deterministic.

If a run ends less than one alignment above the bound, padding can be the cause. The run is repeated with one storage,
the *crown*, placed last, because the topmost storage needs no padding. Of the storages that prove the bound (its
witness), the crown is the one with the most padding.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tmmu_core.planners.bounds import Bound, bound_of
from tmmu_core.planners.columns import Columns, columns, extent_of, offset_column
from tmmu_core.planners.greedy import ORDERS, place, sorted_storages
from tmmu_core.planners.meter import Meter, metered
from tmmu_core.planners.problem import Packing, Problem, Progress

RUNS = tuple((order, fit) for fit in ("lowest", "tightest") for order in ORDERS)
"""Order and fit of each run. The fit ``free_list`` is left out, because it equals ``lowest`` in birth order."""


@dataclass(frozen=True)
class Best:
    """The best of several greedy runs."""

    offset: list[int]
    extent: int
    order: str
    fit: str
    runs: int  # number of greedy runs made; a run and its repetition with a crown count as one
    stopped: bool  # whether the meter ended the runs early
    sequence: list[int]  # storages in placement order
    crown: int = -1  # the storage placed last; −1: none

    def packing(self, cols: Columns, bound: Bound) -> Packing:
        """Return the run as a packing; its notes are the order, the fit, the number of runs and the crown."""
        last = {} if self.crown < 0 else {"last": cols.problem.ids[self.crown]}
        notes = {"order": self.order, "fit": self.fit, "runs": self.runs, **last}
        offset, lower, is_optimal = offset_column(cols, self.offset), bound.bytes, self.extent == bound.bytes
        return Packing(offset, lower_bound=lower, optimal=is_optimal, stopped=self.stopped, notes=notes)


def portfolio(problem: Problem, options: Mapping[str, Any], progress: Progress | None = None) -> Packing:
    """Return the best packing of all greedy runs. Option: ``max_nodes`` (:mod:`.meter`)."""
    cols = columns(problem)
    bound = bound_of(cols)
    return best_greedy(cols, bound, metered(progress, options)).packing(cols, bound)


def best_greedy(
    cols: Columns, bound: Bound, meter: Meter | None = None, runs: Sequence[tuple[str, str]] = RUNS, *, goal: int = 0
) -> Best:
    """Return the first run with the lowest extent. Stop at an extent ≤ the bound or ``goal``, or by ``meter``."""
    target = max(bound.bytes, goal)
    sequences: dict[str, list[int]] = {}
    alignment, crown = crown_of(cols, bound)
    best: Best | None = None
    for number, (order, fit) in enumerate(runs, 1):
        if order not in sequences:
            sequences[order] = sorted_storages(cols, order)
        sequence, last = sequences[order], -1
        while True:
            offset = place(cols, sequence, fit)
            extent = extent_of(cols, offset)
            if best is None or extent < best.extent:
                best = Best(offset, extent, order, fit, number, False, sequence, last)
            if last >= 0 or crown < 0 or not target < extent < bound.bytes + alignment:
                break
            sequence, last = [*(i for i in sequence if i != crown), crown], crown
        best = replace(best, runs=number)
        if best.extent <= target:
            break
        report = (cols.problem.arena, best.extent, bound.bytes)
        if meter is not None and meter.count_run("portfolio", number, len(runs), report):
            return replace(best, stopped=number < len(runs))
    assert best is not None
    return best


def turned_over(cols: Columns, run: Best) -> Best:
    """Place the storages again with the fit ``lowest``, in descending order of their ends, to fill holes."""
    sequence = np.argsort(-(np.array(run.offset) + cols.sizes), kind="stable").tolist()
    offset = place(cols, sequence, "lowest")
    return replace(run, offset=offset, extent=extent_of(cols, offset), sequence=sequence, fit="lowest", crown=-1)


def crown_of(cols: Columns, bound: Bound) -> tuple[int, int]:
    """Return the smallest alignment in the bound's witness, and the witness's most padded storage (−1: no padding)."""
    alignment = min((cols.align[i] for i in bound.witness), default=1)
    padded = (i for i in bound.witness if cols.fixed[i] < 0 and cols.size[i] % alignment)
    return alignment, max(padded, key=lambda i: -cols.size[i] % alignment, default=-1)
