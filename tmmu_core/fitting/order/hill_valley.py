"""Hill–valley segments: interleave independent schedules optimally.

A schedule is split into segments, each with its hill (most bytes added while it runs) and its valley (bytes left
after it). Segments with a negative valley come first, lowest hill first; other segments by falling hill − valley (Liu,
"An application of generalized tree pebbling to sparse matrix factorization", 1987; Abdel-Wahab and Kameda,
"Scheduling to minimize maximum cumulative cost subject to series-parallel precedence constraints", 1978). Adjacent
segments of a schedule in the wrong order are merged.

Each unit is attached to the first unit that needs it, which turns the graph into a forest. The result is exact for
forests and a heuristic elsewhere. About O(units log units).
"""

from dataclasses import dataclass
from heapq import merge
from typing import Any

import numpy as np

from tmmu_core.fitting.order.baselines import topological_order
from tmmu_core.fitting.order.order_loops import I64, alone
from tmmu_core.fitting.order.order_model import OrderModel


@dataclass(frozen=True)
class Segment:
    """Consecutive units as a binary tree (a unit, or two trees)."""

    hill: int
    valley: int
    rope: Any

    @property
    def key(self) -> tuple[int, int]:
        """Sort key among independent segments."""
        return (0, self.hill) if self.valley < 0 else (1, self.valley - self.hill)


def append_segment(segments: list[Segment], segment: Segment) -> None:
    """Append ``segment`` to a schedule and merge segments that are in the wrong order."""
    segments.append(segment)
    while len(segments) > 1 and segments[-1].key < segments[-2].key:
        second, first = segments.pop(), segments.pop()
        hill = max(first.hill, first.valley + second.hill)
        segments.append(Segment(hill, first.valley + second.valley, (first.rope, second.rope)))


def hill_valley_order(model: OrderModel, base: I64) -> I64:
    """Return a hill–valley order, with the memory changes of the units when run as ``base``."""
    hill, change = (column.tolist() for column in alone(model, base))
    place = {unit: k for k, unit in enumerate(base.tolist())}
    under: list[list[list[Segment]]] = [[] for _ in range(len(model))]
    roots: list[list[Segment]] = []
    for unit in base.tolist():
        children = under[unit]
        schedule = children[0] if len(children) == 1 else list(merge(*children, key=lambda s: s.key))
        under[unit] = []
        append_segment(schedule, Segment(hill[unit], change[unit], unit))
        if model.successors[unit]:
            under[min(model.successors[unit], key=place.__getitem__)].append(schedule)
        else:
            roots.append(schedule)
    wanted = [unit for segment in merge(*roots, key=lambda s: s.key) for unit in _units_of(segment.rope)]
    rank = np.empty(len(model), np.int64)
    rank[wanted] = np.arange(len(wanted))
    return topological_order(model, np.array(wanted, np.int64), rank)


def _units_of(rope: Any) -> list[int]:
    found: list[int] = []
    pending = [rope]
    while pending:
        top = pending.pop()
        if isinstance(top, tuple):
            pending += [top[1], top[0]]
        else:
            found.append(top)
    return found
