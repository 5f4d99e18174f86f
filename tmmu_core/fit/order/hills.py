"""Hills and valleys: the best way to interleave orders that do not depend on each other.

A schedule is cut into segments, each with its hill (the most it adds while it runs) and its valley (what it leaves).
Segments that leave less than they found come first, the lowest hill first; the others by falling hill − valley
(Liu, "An application of generalized tree pebbling to sparse matrix factorization", 1987; Abdel-Wahab and Kameda,
"Scheduling to minimize maximum cumulative cost subject to series-parallel precedence constraints", 1978). Within a
schedule segments that would come the wrong way round are joined, so that the merged one keeps every schedule's order.

A unit is put under the first one that needs it, which makes a forest of the graph; exact where that is all there is
to the graph (every storage read by one unit), a good guess elsewhere. O(units log units) on what real graphs are.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import merge
from typing import Any

import numpy as np

from tmmu_core.fit.order.baselines import after_their_needs
from tmmu_core.fit.order.kernels import I64, alone
from tmmu_core.fit.order.model import OrderModel


@dataclass(frozen=True)
class Segment:
    """Units that stay together, as a rope: a unit, or two ropes."""

    hill: int
    valley: int
    rope: Any

    @property
    def key(self) -> tuple[int, int]:
        """Where it comes among segments that it does not depend on."""
        return (0, self.hill) if self.valley < 0 else (1, self.valley - self.hill)


def extended(segments: list[Segment], segment: Segment) -> None:
    """Put ``segment`` behind a schedule, joined with what it may not be parted from."""
    segments.append(segment)
    while len(segments) > 1 and segments[-1].key < segments[-2].key:
        second, first = segments.pop(), segments.pop()
        hill = max(first.hill, first.valley + second.hill)
        segments.append(Segment(hill, first.valley + second.valley, (first.rope, second.rope)))


def hills_and_valleys(model: OrderModel, base: I64) -> I64:
    """An order, from what each unit takes and leaves when the units run as ``base``."""
    hill, change = (column.tolist() for column in alone(model, base))
    place = np.empty(len(model), np.int64)
    place[base] = np.arange(len(base))
    under: list[list[list[Segment]]] = [[] for _ in range(len(model))]
    roots: list[list[Segment]] = []
    for unit in base.tolist():
        children = under[unit]
        schedule = children[0] if len(children) == 1 else list(merge(*children, key=lambda s: s.key))
        under[unit] = []
        extended(schedule, Segment(hill[unit], change[unit], unit))
        later = model.succ_idx[model.succ_ptr[unit] : model.succ_ptr[unit + 1]]
        if len(later):
            under[int(later[np.argmin(place[later])])].append(schedule)
        else:
            roots.append(schedule)
    wanted = [unit for segment in merge(*roots, key=lambda s: s.key) for unit in _units(segment.rope)]
    rank = np.empty(len(model), np.int64)
    rank[wanted] = np.arange(len(wanted))
    return after_their_needs(model, np.array(wanted, np.int64), rank)


def _units(rope: Any) -> list[int]:
    found: list[int] = []
    pending = [rope]
    while pending:
        top = pending.pop()
        if isinstance(top, tuple):
            pending += [top[1], top[0]]
        else:
            found.append(top)
    return found
