"""``auto``: choose the planner by problem size and report the reason.

Greedy runs come first; on most graphs their extent equals the lower bound. Otherwise the number of storages decides:

* up to :data:`EXACT_UP_TO`: ``exact``. If it ends without a proof and there are more than :data:`EXACT_ALONE_UP_TO`
  storages, ``search`` follows, and the packing with the lower extent is returned;
* up to :data:`SEARCH_UP_TO`: ``search``;
* more, or sizes that need more than 64-bit integers: nothing else. Above :data:`ALL_RUNS_UP_TO`, only the greedy runs
  :data:`QUICK_RUNS` are made.

With a capacity, greedy runs and ``exact`` end at the first packing that fits, unless ``minimise`` is set.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tmmu_core.planners.bounds import bound_of, possible_extent
from tmmu_core.planners.columns import columns, extent_of, flag_option
from tmmu_core.planners.exact import exact_from
from tmmu_core.planners.meter import metered
from tmmu_core.planners.portfolio import RUNS, best_greedy
from tmmu_core.planners.problem import UNLIMITED, Packing, Problem, Progress
from tmmu_core.planners.search import search

EXACT_UP_TO = 3_000
EXACT_ALONE_UP_TO = 400
SEARCH_UP_TO = 20_000
ALL_RUNS_UP_TO = 200_000
QUICK_RUNS = (("size", "lowest"), ("size_length", "lowest"), ("length", "lowest"))


def auto(problem: Problem, options: Mapping[str, Any], progress: Progress | None = None) -> Packing:
    """Return the packing of the chosen planner; ``notes`` contain its name (``picked``) and the reason (``why``).

    Options: ``minimise``: continue after a packing fits the capacity (default: only if there is no capacity);
    ``max_nodes`` (:mod:`.meter`).
    """
    meter = metered(progress, options)
    cols = columns(problem)
    bound = bound_of(cols)
    minimise = flag_option(options, "minimise", problem.capacity == UNLIMITED)
    goal = 0 if minimise else problem.capacity
    bound = replace(bound, bytes=possible_extent(cols, bound.bytes))
    count = len(cols)
    best = best_greedy(cols, bound, meter, RUNS if count <= ALL_RUNS_UP_TO else QUICK_RUNS, goal=goal)
    above = f"the greedy runs are {best.extent - bound.bytes} bytes above the bound"
    why = ""
    if best.extent <= bound.bytes:
        why = "a greedy run meets the lower bound"
    elif best.extent <= goal:
        why = f"a greedy run fits the capacity of {goal} bytes; a smaller extent was not requested"
    elif best.stopped:
        why = "the search was stopped"
    elif not cols.is_small:
        why = "sizes beyond 2^62 are packed greedily"
    elif count > SEARCH_UP_TO:
        why = f"{count} storages: greedy runs only"
    if why:
        return _noted(best.packing(cols, bound), "portfolio", why)
    if count > EXACT_UP_TO:
        return _noted(search(problem, {}, meter), "search", f"{above}, and {count} storages are too many for exact")
    packing = exact_from(cols, bound, best, {"minimise": minimise, "use_lns": False}, meter)
    why = f"{above}, and {count} storages can be searched exactly"
    extent = extent_of(cols, packing.offset.tolist())
    is_done = extent <= goal or packing.optimal or packing.notes.get("interrupted")
    if is_done or count <= EXACT_ALONE_UP_TO:
        return _noted(packing, "exact", why)
    other = search(problem, {}, meter)
    if extent_of(cols, other.offset.tolist()) < extent:
        other = replace(other, lower_bound=packing.lower_bound)
        return _noted(other, "search", f"{above}; search found a lower extent than exact, which reached its limit")
    return _noted(packing, "exact", f"{why}; search found no lower extent")


def _noted(packing: Packing, picked: str, why: str) -> Packing:
    """Return the packing with the notes ``picked`` and ``why``."""
    return replace(packing, notes={"picked": picked, **packing.notes, "why": why})
