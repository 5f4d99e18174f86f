"""Split a problem at steps that few storages cross, and pack the pieces one after the other.

Two networks with few buffers in common are nearly independent. The pieces are searched in the order of time, or in
reverse. Storages shared with an earlier piece keep their offsets from there. If a later piece does not fit, the next
try uses another branching order and the other direction.

A packing of all pieces is a packing of the whole. Infeasibility is proven only by a piece without fixed storages: it
is a subset of the problem.
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
"""Search nodes per piece in the shortest try. Later tries multiply this by the Luby sequence."""


def cut_columns(cols: Columns) -> list[int]:
    """Return the cuts, ascending: time columns (indices of ``cols.births``) at whose start few storages are live.

    Empty if conflicts do not follow from time alone (gaps, in-place reuse, forbidden pairs) or offsets are fixed.
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
    """Search the pieces of a problem. Each storage is a unit of its own (:mod:`.search_model`)."""

    cols: Columns
    at: list[int]
    """See :func:`cut_columns`; not empty."""
    tries: int = 0
    branching: dict[tuple[int, int], BranchingOrder] = field(default_factory=dict)
    """By piece number and direction (1, −1)."""
    stopped: bool = False

    def solve(self, target: int, budget: int, watch: Watch | None) -> tuple[int, int, list[int] | None]:
        """Run one attempt; return, like ``Searcher.solve``, FOUND, INFEASIBLE or BUDGET_SPENT, nodes, and offsets."""
        direction = -1 if self.tries % 2 else 1
        share = TRY_NODES * luby(self.tries // 2 + 1)
        self.tries += 1
        offset = np.full(len(self.cols), -1, dtype=np.int64)
        verdict, spent = FOUND, 0
        edges = [0, *self.at, len(self.cols.births)]
        for k in range(len(edges) - 1)[::direction]:
            begin, end = edges[k], edges[k + 1]
            here = np.flatnonzero((self.cols.part_lo < end) & (self.cols.part_hi > begin))
            low, high = np.maximum(self.cols.part_lo[here], begin), np.minimum(self.cols.part_hi[here], end)
            pins = offset[here] if (offset[here] >= 0).any() else None
            piece = columns(replace(subproblem(self.cols.problem, here), birth=low, death=high, fixed=pins))
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
        model = search_model(piece, tuple((i,) for i in range(len(piece))))
        searcher = Searcher(model)
        branching = self.branching.setdefault(name, BranchingOrder(model, openings=False))
        spent = 0
        while spent < allowed:
            tried = branching.next_attempt(target)
            verdict, nodes, found = searcher.solve(target, tried.rank, min(tried.nodes, allowed - spent), watch)
            spent += max(nodes, 1)
            self.stopped = bool(searcher.stop[0])
            if self.stopped:
                break
            branching.learn(tried, searcher.failures, verdict == FOUND)
            if found is not None:
                return FOUND, spent, found
            if verdict == INFEASIBLE:
                return (INFEASIBLE if piece.problem.fixed is None else BUDGET_SPENT), spent, None
        return BUDGET_SPENT, spent, None
