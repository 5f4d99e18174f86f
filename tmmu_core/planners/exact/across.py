"""Where few cross a moment: the two sides packed one after the other, what crosses staying where the first side put it.

Two networks of which the second begins while a handful of the first's buffers still live are nearly two problems. A
search over both has to have luck with both at once; here each piece is asked for by itself, the way through time, with
what it shares with the piece before pinned. When a later piece does not fit upon these pins, the first is packed anew
under another order, and the next try goes the other way through time.

A packing found is one of the whole. That nothing fits is proven only where a piece without pins says so, for it is
then a subset of the problem that fits nowhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from tmmu_core.planners.columns import Columns, columns
from tmmu_core.planners.exact.apart import part
from tmmu_core.planners.exact.kernel import FOUND, INFEASIBLE, SPENT
from tmmu_core.planners.exact.model import build
from tmmu_core.planners.exact.run import Searcher
from tmmu_core.planners.exact.steering import Steering, luby
from tmmu_core.planners.problem import I64

FEW = 8
"""A moment is a cut where on either side at least so many times as many storages live wholly as cross it."""
LEAST = 16
"""Storages that a piece must have to itself."""
SHARE = 12_000
"""Nodes of each piece in the shortest try; Luby's sequence multiplies it."""

Answer = tuple[int, int, list[int] | None]
"""What :meth:`Searcher.ask` gives."""


def cuts(cols: Columns) -> list[int]:
    """Columns before which few storages cross, ascending: the narrowest first, then those of either side.

    None where time alone does not tell who conflicts (gaps, hand-offs, pairs apart), nor where offsets are given: one
    in a later piece may lie where the piece before has pinned what crosses.
    """
    if not cols.plain:
        return []
    found: list[int] = []
    todo = [(0, len(cols.births))]
    while todo:
        begin, end = todo.pop()
        alive = (cols.part_lo < end) & (cols.part_hi > begin)
        low, high = np.sort(cols.part_lo[alive]), np.sort(cols.part_hi[alive])
        at = np.arange(begin + 1, end)
        left = np.searchsorted(high, at, side="right")
        right = len(low) - np.searchsorted(low, at, side="left")
        cross = len(low) - left - right
        less = np.minimum(left, right)
        good = np.flatnonzero((less >= LEAST) & (FEW * cross <= less))
        if len(good):
            best = min(good.tolist(), key=lambda k: (int(cross[k]), -int(less[k]), k))
            found.append(int(at[best]))
            todo += [(begin, found[-1]), (found[-1], end)]
    return sorted(found)


@dataclass
class Across:
    """The pieces of a plain model, asked for in turn; units are its storages one by one."""

    cols: Columns
    at: list[int]
    """See :func:`cuts`; not empty."""
    tries: int = 0
    steering: dict[tuple[int, int], Steering] = field(default_factory=dict)
    """What was learnt about a piece (its number) in a direction (1, −1)."""
    stopped: bool = False

    def ask(self, target: int, budget: int, watch: Callable[[int], bool] | None) -> Answer:
        """One try: FOUND, INFEASIBLE or SPENT, nodes, and offsets by storage, as of :meth:`Searcher.ask`."""
        way = -1 if self.tries % 2 else 1
        share = SHARE * luby(self.tries // 2 + 1)
        self.tries += 1
        offset = np.full(len(self.cols), -1, dtype=np.int64)
        spent = 0
        edges = [0, *self.at, len(self.cols.births)]
        for k in range(len(edges) - 1)[::way]:
            window = (edges[k], edges[k + 1])
            allowed = min(share, budget - spent)
            verdict, nodes = self._piece((k, way), window, (target, allowed), (offset, watch))
            spent += nodes
            if verdict != FOUND:
                return verdict, spent, None
        return FOUND, spent, offset.tolist()

    def _piece(
        self,
        name: tuple[int, int],
        window: tuple[int, int],
        asked: tuple[int, int],
        known: tuple[I64, Callable[[int], bool] | None],
    ) -> tuple[int, int]:
        """Verdict and nodes of those alive in a window, by their lives in it; their places are written to the first
        of ``known``, where those who have one stay."""
        (begin, end), (target, allowed), (offset, watch) = window, asked, known
        here = np.flatnonzero((self.cols.part_lo < end) & (self.cols.part_hi > begin))
        own = part(self.cols.problem, here)
        pins = offset[here]
        low, high = np.maximum(self.cols.part_lo[here], begin), np.minimum(self.cols.part_hi[here], end)
        piece = columns(replace(own, birth=low, death=high, fixed=pins if (pins >= 0).any() else None))
        model = build(piece, tuple((i,) for i in range(len(piece))))
        searcher = Searcher(model)
        steering = self.steering.setdefault(name, Steering(model, openings=False))
        spent = 0
        while spent < allowed:
            tried = steering.attempt(target)
            share = min(tried.nodes, allowed - spent)
            verdict, nodes, found = searcher.ask(target, tried.rank, share, watch=watch)
            spent += max(nodes, 1)
            self.stopped = bool(searcher.stop[0])
            if self.stopped:
                break
            steering.learn(tried, searcher.fails, verdict == FOUND)
            if found is not None:
                offset[here] = found
                return FOUND, spent
            if verdict == INFEASIBLE:
                return (SPENT if (pins >= 0).any() else INFEASIBLE), spent
        return SPENT, spent
