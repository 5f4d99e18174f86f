"""``auto``: the planner that suits the size, and the reason told.

Greedy runs first; where they meet the bound nothing else is needed, and that is most graphs. What is left goes to
``exact`` while the search is small enough to get somewhere, to ``search`` while a greedy run takes well under a
second, and stays with the greedy runs beyond (a million storages: the three quickest of them only).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tmmu_core.planners.bounds import Bound, bound_of
from tmmu_core.planners.columns import Columns, columns, finished
from tmmu_core.planners.exact import exact
from tmmu_core.planners.portfolio import RUNS, Best, best_greedy
from tmmu_core.planners.problem import Packing, Problem, Progress
from tmmu_core.planners.search import search

EXACT_UP_TO = 400
SEARCH_UP_TO = 20_000
ALL_RUNS_UP_TO = 200_000
QUICK_RUNS = (("size", "lowest"), ("size_length", "lowest"), ("length", "lowest"))


def auto(problem: Problem, options: Mapping[str, Any], progress: Progress | None = None) -> Packing:
    """Pick a planner by size; ``notes`` say which (``picked``) and why (``why``). No options."""
    cols = columns(problem)
    bound = bound_of(cols)
    count = len(cols)
    runs = RUNS if count <= ALL_RUNS_UP_TO else QUICK_RUNS
    best = best_greedy(cols, bound, progress, runs)
    above = f"the greedy runs are {best.extent - bound.bytes} bytes above the bound"
    if best.extent <= bound.bytes:
        return _greedy(cols, bound, best, "a greedy run meets the lower bound")
    if best.stopped:
        return _greedy(cols, bound, best, "told to stop")
    if not cols.small:
        return _greedy(cols, bound, best, "sizes beyond 2^62 are packed greedily")
    if count <= EXACT_UP_TO:
        return _told(exact(problem, {}, progress), "exact", f"{above}, and {count} storages can be searched exactly")
    if count <= SEARCH_UP_TO:
        return _told(search(problem, {}, progress), "search", f"{above}, and {count} storages are too many for exact")
    return _greedy(cols, bound, best, f"{count} storages: greedy runs only")


def _greedy(cols: Columns, bound: Bound, best: Best, why: str) -> Packing:
    packing = Packing(
        finished(cols, best.offset),
        lower_bound=bound.bytes,
        optimal=best.extent == bound.bytes,
        stopped=best.stopped,
        notes={"order": best.order, "fit": best.fit, "runs": best.runs},
    )
    return _told(packing, "portfolio", why)


def _told(packing: Packing, picked: str, why: str) -> Packing:
    return replace(packing, notes={"picked": picked, **packing.notes, "why": why})
