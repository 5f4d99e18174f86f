"""Nested recomputation: drop recomputed storages again, wherever they are idle at the peak.

A cut across the peak (``min_cut.py``) recomputes a range of nodes at once: a chain of n equal tensors needs 2·√n of
them. Here every storage that is idle at a step above the goal, also a recomputed one, can be dropped after its
last use and recomputed from what is kept: a chain shrinks to a few tensors, at more FLOPs (Griewank 1992). Greedy:
take the drop with the best ratio of excess bytes to FLOPs, repeat, and keep unnecessary drops again at the end.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from tmmu_core.fitting.recompute.recompute_model import RecomputeModel
from tmmu_core.fitting.recompute.recompute_search import Point, Search
from tmmu_core.fitting.recompute.sweep import Idle, bytes_above, idle_at, remove_drops

MOST_STEPS = 40
"""Maximum number of steps above the goal whose idle storages are tried, from the peak down."""
GOALS = ((100, 1), (100, 4), (104, 1), (110, 1), (120, 1), (150, 1))
"""(percent, part): a path saves this percentage of the excess, and lowers at most 1/part of the peak in one step."""
TRIMMED = 3
STRIDES = (1, 2, 3, 4, 6)
"""Subsets that are tried together: all idle storages, all but every second, all but every third, …."""
MOST_SINGLE = 24
"""Idle storages tried alone, largest first."""


def search_nested(search: Search, starts: Sequence[Point]) -> list[Point]:
    """Return points on paths from ``starts`` towards the goal; points that fit lose their unneeded drops.

    Each path is walked towards the goal and towards tighter goals, whose drops are often better placed. A path ends
    when no drop helps, or the search budget is spent.
    """
    found: list[Point] = []
    for start in starts:
        last = search.simulations + search.most_simulations
        for way in GOALS:
            found += _way(search, Point(start.make, search.simulate(start.choice).run), way, last)
            if not search.go_on():
                return found
            if search.simulations > last:
                break
    fitting = [point for point in found if not search.excess(point.run)]
    trimmed = [remove_drops(search, point) for point in sorted(fitting, key=lambda point: point.key)[:TRIMMED]]
    return [*found, *trimmed]


def _way(search: Search, point: Point, way: tuple[int, int], last: int) -> Iterator[Point]:
    beyond, part = way
    goal = search.excess(point.run) * beyond // 100
    initial_peak, fixed = int(point.run.peaks[search.arena]), int(search.model.fixed[search.arena])
    while search.simulations <= last and search.go_on():
        peak = int(point.run.peaks[search.arena])
        top, over = peak - fixed, goal - (initial_peak - peak)
        better = _step(search, point, top - min(over, top // part))
        if better is None:
            return
        point = better
        yield point


def _step(search: Search, point: Point, level: int) -> Point | None:
    """Return the point after the best further drop, or several together, that reduces the bytes above ``level``."""
    model, run = search.model, point.run
    live = run.live[search.arena]
    above = bytes_above(live, level)
    full = np.flatnonzero(live > level)
    looked: set[int] = set()
    for step in full[np.lexsort((full, -live[full]))].tolist():
        position = int(run.for_position[step])
        if position in looked:
            continue
        if len(looked) == MOST_STEPS:
            return None
        looked.add(position)
        best: tuple[float, Point] | None = None
        idle = idle_at(model, run, step, search.arena)
        for offers in (_offers(idle, model), _with_temporaries(idle, search)):
            for flags in offers:
                tried = search.simulate(point.choice.dropping(flags))
                if not tried.run.valid:
                    continue
                saved = above - bytes_above(tried.run.live[search.arena], level)
                if saved <= 0:
                    continue
                worth = saved / (1 + max(0, tried.run.flops - run.flops))
                if best is None or worth > best[0]:
                    best = worth, tried
            if best is not None:
                return best[1]
    return None


def _offers(idle: list[Idle], model: RecomputeModel) -> Iterator[list[int]]:
    """Yield sets of drops: all together, all but every k-th, and the largest alone."""
    by_maker = sorted(idle, key=lambda each: (int(model.producer[each.storage]), each.storage, each.drop))
    seen = set()
    for stride in STRIDES:
        flags = tuple(each.drop for k, each in enumerate(by_maker) if stride == 1 or k % stride)
        if len(flags) > 1 and flags not in seen:
            seen.add(flags)
            yield list(flags)
    flops = model.node_flops[model.producer]
    alone = sorted(idle, key=lambda each: (-int(model.size[each.storage]), int(flops[each.storage]), each.drop))
    for each in alone[:MOST_SINGLE]:
        yield [each.drop]


def _with_temporaries(idle: list[Idle], search: Search) -> Iterator[list[int]]:
    """Yield, per idle storage, its drop together with the drops of the temporaries from which it was computed.

    If only the storage were dropped, a temporary of the same size would stay live for its recomputation.
    """
    model = search.model
    for each in idle:
        drops = [each.drop]
        pending = [each.storage] if each.drop < 0 else []
        for storage in pending:
            n = int(model.producer[storage])
            for edge in range(int(model.in_ptr[n]), int(model.in_ptr[n + 1])):
                operand = int(model.in_idx[edge])
                if model.droppable[operand] and not search.boundary.read_later[operand] and operand not in pending:
                    drops.append(-1 - edge)
                    pending.append(operand)
        if len(drops) > 1:
            yield drops
