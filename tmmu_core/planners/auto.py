"""``auto``: the planner that suits the size, and the reason told.

Greedy runs first; where they meet the bound nothing else is needed, and that is most graphs. What is left goes to
``exact`` up to a few thousand storages, then, if that leaves it open, to ``search`` as well, the better of the two
kept; to ``search`` alone while a greedy run takes well under a second; and stays with the greedy runs beyond (from
some hundred thousand storages on with the three quickest of them only).

With a capacity the question is whether everything fits: the first packing that does is the answer, unless the least is
asked for (contract §11).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tmmu_core.planners.bounds import Bound, bound_of, reachable
from tmmu_core.planners.columns import Columns, columns, extent_of, finished, flag_option
from tmmu_core.planners.exact import searched
from tmmu_core.planners.portfolio import RUNS, Best, best_greedy
from tmmu_core.planners.problem import UNLIMITED, Packing, Problem, Progress
from tmmu_core.planners.search import search

EXACT_UP_TO = 3_000
EXACT_ALONE_UP_TO = 400
SEARCH_UP_TO = 20_000
ALL_RUNS_UP_TO = 200_000
QUICK_RUNS = (("size", "lowest"), ("size_length", "lowest"), ("length", "lowest"))


def auto(problem: Problem, options: Mapping[str, Any], progress: Progress | None = None) -> Packing:
    """Pick a planner by size; ``notes`` say which (``picked``) and why (``why``).

    Options: ``minimise``: with a capacity it ends as soon as everything fits, unless this is true; without one it is.
    """
    cols = columns(problem)
    bound = bound_of(cols)
    minimise = flag_option(options, "minimise", problem.capacity == UNLIMITED)
    goal = 0 if minimise else problem.capacity
    bound = replace(bound, bytes=reachable(cols, bound.bytes))
    count = len(cols)
    runs = RUNS if count <= ALL_RUNS_UP_TO else QUICK_RUNS
    best = best_greedy(cols, bound, progress, runs, goal=goal)
    above = f"the greedy runs are {best.extent - bound.bytes} bytes above the bound"
    if best.extent <= bound.bytes:
        return _greedy(cols, bound, best, "a greedy run meets the lower bound")
    if best.extent <= goal:
        return _greedy(
            cols, bound, best, f"a greedy run fits the capacity of {goal} bytes; the least was not asked for"
        )
    if best.stopped:
        return _greedy(cols, bound, best, "told to stop")
    if not cols.small:
        return _greedy(cols, bound, best, "sizes beyond 2^62 are packed greedily")
    if count <= EXACT_UP_TO:
        packing = searched(cols, bound, best, {"minimise": minimise, "rebuilds": False}, progress)
        why = f"{above}, and {count} storages can be searched exactly"
        fits = _extent(cols, packing) <= goal
        if fits or packing.optimal or packing.notes.get("told_to_stop") or count <= EXACT_ALONE_UP_TO:
            return _noted(packing, "exact", why)
        walked = search(problem, {}, progress)
        if _extent(cols, walked) < _extent(cols, packing):
            walked = replace(walked, lower_bound=packing.lower_bound)
            return _noted(walked, "search", f"{above}; it came lower than exact, which could not end")
        return _noted(packing, "exact", f"{why}; search came no lower")
    if count <= SEARCH_UP_TO:
        return _noted(search(problem, {}, progress), "search", f"{above}, and {count} storages are too many for exact")
    return _greedy(cols, bound, best, f"{count} storages: greedy runs only")


def _greedy(cols: Columns, bound: Bound, best: Best, why: str) -> Packing:
    packing = Packing(
        finished(cols, best.offset),
        lower_bound=bound.bytes,
        optimal=best.extent == bound.bytes,
        stopped=best.stopped,
        notes=best.notes(cols),
    )
    return _noted(packing, "portfolio", why)


def _extent(cols: Columns, packing: Packing) -> int:
    return extent_of(cols, [int(at) for at in packing.offset])


def _noted(packing: Packing, picked: str, why: str) -> Packing:
    return replace(packing, notes={"picked": picked, **packing.notes, "why": why})
