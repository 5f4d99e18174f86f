"""Nested recomputation: drop recomputed storages again if they are idle at the peak.

A cut across the peak (``min_cut.py``) recomputes a range of nodes at once, so a chain of n equal tensors still needs
2·√n of them. Here, at a step with live bytes above the goal, each idle storage can be dropped after its previous use,
even if it was recomputed. A chain then needs only a few tensors, but more FLOPs (Griewank 1992).
The search is greedy: it adds the drops that save the most bytes above the goal per FLOP, then removes unneeded ones.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from tmmu_core.fitting.recompute.recompute_model import RecomputeModel
from tmmu_core.fitting.recompute.recompute_search import Point, Search
from tmmu_core.fitting.recompute.sweep import Idle, bytes_above, idle_at, without_unneeded_drops

MOST_POSITIONS = 40  # maximum number of positions above the goal whose idle storages are tried, from the peak down
TARGET_DIVISOR = 4  # the target of a round is below the peak by at most 1 / ``TARGET_DIVISOR`` of the peak
MOST_TRIMMED = 3  # number of cheapest results from which unneeded drops are removed
STRIDES = (1, 2, 3, 4, 6)  # sets of drops: all idle storages, then all but every second one, …
MOST_SINGLE = 24  # maximum number of idle storages that are tried alone, largest first


def search_nested(search: Search, starts: Sequence[Point]) -> list[Point]:
    """Return the points on paths from ``starts`` to the goal, and the cheapest fitting ones without unneeded drops.

    A path ends at the goal, when no drop helps, or when the budget of simulations is spent.
    """
    found: list[Point] = []
    for start in starts:
        last_simulation = search.simulations + search.most_simulations
        point: Point | None = search.simulate(start.choice)
        while point is not None and search.simulations <= last_simulation and search.should_continue():
            peak = int(point.run.live[search.arena].max())
            point = _step(search, point, peak - min(search.excess(point.run), peak // TARGET_DIVISOR))
            found += [] if point is None else [point]
    return [*found, *without_unneeded_drops(search, found, MOST_TRIMMED)]


def _step(search: Search, point: Point, level: int) -> Point | None:
    """Return the point with the drops that save the most bytes above ``level`` per FLOP; ``None`` if none save any.

    The positions above ``level`` are tried from the peak down, until drops at one of them help.
    """
    model, run = search.model, point.run
    live = run.live[search.arena]
    bytes_before = bytes_above(live, level)
    steps = np.flatnonzero(live > level)
    steps = steps[np.lexsort((steps, -live[steps]))]
    first_of_position = np.sort(np.unique(run.for_position[steps], return_index=True)[1])
    for step in steps[first_of_position[:MOST_POSITIONS]].tolist():
        best: tuple[float, Point] | None = None
        idle = idle_at(model, run, step, search.arena)
        for sets_of_drops in (_sets_of_drops(idle, model), _with_temporaries(idle, search)):
            for drops in sets_of_drops:
                tried = search.simulate(point.choice.dropping(drops))
                saved = bytes_before - bytes_above(tried.run.live[search.arena], level)
                if saved <= 0:
                    continue
                ratio = saved / (1 + max(0, tried.run.flops - run.flops))
                if best is None or ratio > best[0]:
                    best = ratio, tried
            if best is not None:
                return best[1]
    return None


def _sets_of_drops(idle: list[Idle], model: RecomputeModel) -> Iterator[list[int]]:
    """Yield sets of drops: subsets of all idle storages by ``STRIDES``, then the largest storages alone."""
    by_producer = sorted(idle, key=lambda i: (int(model.producer[i.storage]), i.storage, i.drop))
    drops = [i.drop for i in by_producer]
    subsets = [tuple(drop for k, drop in enumerate(drops) if stride == 1 or k % stride) for stride in STRIDES]
    yield from (list(subset) for subset in dict.fromkeys(subsets) if len(subset) > 1)
    flops = model.node_flops[model.producer]
    by_size = sorted(idle, key=lambda i: (-int(model.size[i.storage]), int(flops[i.storage]), i.drop))
    yield from ([largest.drop] for largest in by_size[:MOST_SINGLE])


def _with_temporaries(idle: list[Idle], search: Search) -> Iterator[list[int]]:
    """Yield, for each idle storage last read by a recomputed node, its drop and, recursively, its operands' drops.

    Only operands that are droppable and not read after the boundary are included. Without these drops, they would stay
    live for the recomputation of the storage.
    """
    model = search.model
    for candidate in idle:
        drops = [candidate.drop]
        storages = [candidate.storage] if candidate.drop < 0 else []
        for storage in storages:  # the loop appends to the list
            n = int(model.producer[storage])
            for edge in range(int(model.in_ptr[n]), int(model.in_ptr[n + 1])):
                operand = int(model.in_idx[edge])
                if model.droppable[operand] and not search.boundary.read_later[operand] and operand not in storages:
                    drops.append(-1 - edge)
                    storages.append(operand)
        if len(drops) > 1:
            yield drops
