"""Split a problem at steps that few storages cross, and pack the pieces one after the other.

Two networks with few buffers in common are nearly independent. The pieces are searched in the order of time or in
reverse, by turns. A storage of two pieces keeps the offset that the first of them gives it. If a piece does not fit,
the next try uses another branching order and the other direction.

The packings of all pieces together are a packing of the problem. A piece without fixed storages is a part of the
problem: if it does not fit, the problem does not fit. A piece with fixed storages proves nothing.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from tmmu_core.planners.columns import Columns, columns
from tmmu_core.planners.exact.branch_and_bound import BUDGET_SPENT, FOUND, INFEASIBLE, Searcher, Watch
from tmmu_core.planners.exact.branching import BranchingOrder, luby
from tmmu_core.planners.exact.search_model import search_model
from tmmu_core.planners.problem import subproblem

MIN_SIDE_RATIO = 8
"""A step is a cut if each side has at least this many times the number of storages that cross it."""
MIN_SIDE_STORAGES = 16
"""Minimum number of storages on each side of a cut that do not cross it."""
TRY_NODES = 12_000
"""Search nodes per piece in the shortest try; the others are multiples by the Luby sequence."""


def cut_columns(cols: Columns) -> list[int]:
    """Return the cuts, ascending: compressed steps at whose start few storages are live.

    Empty for a problem with gaps, in-place reuse, ``must_not_alias`` or fixed offsets.
    """
    if not cols.is_plain:
        return []
    found: list[int] = []
    windows = [(0, len(cols.births))]
    while windows:
        begin, end = windows.pop()
        alive = (cols.part_lo < end) & (cols.part_hi > begin)
        low, high = np.sort(cols.part_lo[alive]), np.sort(cols.part_hi[alive])
        at = np.arange(begin + 1, end)
        left = np.searchsorted(high, at, side="right")
        right = len(low) - np.searchsorted(low, at, side="left")
        cross = len(low) - left - right
        less = np.minimum(left, right)
        good = np.flatnonzero((less >= MIN_SIDE_STORAGES) & (MIN_SIDE_RATIO * cross <= less))
        if len(good):
            best = min(good.tolist(), key=lambda k: (int(cross[k]), -int(less[k]), k))
            found.append(int(at[best]))
            windows += [(begin, found[-1]), (found[-1], end)]
    return sorted(found)


@dataclass
class TimeCutSearch:
    """Search the pieces of a problem. Each storage is a unit (:mod:`.search_model`)."""

    cols: Columns
    at: list[int]
    """Cuts (:func:`cut_columns`); not empty."""
    tries: int = 0
    branching: dict[tuple[int, int], BranchingOrder] = field(default_factory=dict)
    """By piece number and direction (1, −1)."""
    stopped: bool = False
    """Whether ``watch`` stopped the last try."""

    def solve(self, target: int, budget: int, watch: Watch | None) -> tuple[int, int, list[int] | None]:
        """Run one try; return, like ``Searcher.solve``, FOUND, INFEASIBLE or BUDGET_SPENT, nodes, and offsets."""
        direction = -1 if self.tries % 2 else 1
        share = TRY_NODES * luby(self.tries // 2 + 1)
        self.tries += 1
        offset = np.full(len(self.cols), -1, dtype=np.int64)
        spent = 0
        edges = [0, *self.at, len(self.cols.births)]
        for k in range(len(edges) - 1)[::direction]:
            begin, end = edges[k], edges[k + 1]
            here = np.flatnonzero((self.cols.part_lo < end) & (self.cols.part_hi > begin))
            low, high = np.maximum(self.cols.part_lo[here], begin), np.minimum(self.cols.part_hi[here], end)
            fixed = offset[here] if (offset[here] >= 0).any() else None
            # ``low`` and ``high`` exclude the gaps, whose steps are not compressed.
            part = subproblem(self.cols.problem, here)
            piece = columns(replace(part, birth=low, death=high, gaps=None, fixed=fixed))
            verdict, nodes, found = self._search((k, direction), piece, target, min(share, budget - spent), watch)
            spent += nodes
            if found is None:
                return verdict, spent, None
            offset[here] = found
        return FOUND, spent, offset.tolist()

    def _search(
        self, name: tuple[int, int], piece: Columns, target: int, allowed: int, watch: Watch | None
    ) -> tuple[int, int, list[int] | None]:
        """Return the values of :meth:`solve` for a piece. A piece with fixed storages is never INFEASIBLE."""
        searcher = Searcher(search_model(piece))
        branching = self.branching.setdefault(name, BranchingOrder(searcher.model, openings=False))
        spent = 0
        while spent < allowed:
            verdict, nodes, found = branching.attempt(searcher, target, allowed - spent, watch)
            spent += nodes
            self.stopped = bool(searcher.stop[0])
            if self.stopped:
                break
            if found is not None:
                return FOUND, spent, found
            if verdict == INFEASIBLE:
                return (INFEASIBLE if piece.problem.fixed is None else BUDGET_SPENT), spent, None
        return BUDGET_SPENT, spent, None
