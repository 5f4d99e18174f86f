"""``auto``: choose the planner by problem size and report the reason.

Greedy runs come first (only :data:`QUICK_RUNS` above :data:`ALL_RUNS_UP_TO` storages). From
:data:`EXACT_ALONE_UP_TO` to :data:`ALL_RUNS_UP_TO` storages, a problem with :attr:`.Columns.is_plain` gets fewer greedy
runs, then :mod:`.exact.skyline`. If the extent is still above the lower bound, the number of storages decides:

* up to :data:`EXACT_ALONE_UP_TO`: ``exact`` follows;
* up to :data:`SEARCH_UP_TO`: ``exact`` (up to :data:`EXACT_UP_TO`) and ``search`` follow; the lowest packing counts;
* more, or sizes over 2^62: nothing follows.

An extent is *near* the bound if the gap is less than one alignment. If the extent of ``exact`` is near, ``search`` is
skipped. If ``minimise`` is not given, ``exact`` ends soon after its extent is near. With a capacity, all but ``search``
end at the first packing that fits, unless ``minimise`` is true.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tmmu_core.planners.bounds import bound_of, possible_extent
from tmmu_core.planners.columns import columns, extent_of, flag_option
from tmmu_core.planners.exact import exact_from
from tmmu_core.planners.exact.skyline import best_skyline
from tmmu_core.planners.meter import metered
from tmmu_core.planners.portfolio import RUNS, best_greedy, search
from tmmu_core.planners.problem import UNLIMITED, Packing, Problem, Progress

# Maximum numbers of storages:
EXACT_UP_TO = 3_000
EXACT_ALONE_UP_TO = 400  # no skyline runs and no ``search``
SEARCH_UP_TO = 20_000
ALL_RUNS_UP_TO = 200_000
QUICK_RUNS = (("size", "lowest"), ("size_length", "lowest"), ("length", "lowest"))


def auto(problem: Problem, options: Mapping[str, Any], progress: Progress | None = None) -> Packing:
    """Return the packing of the chosen planner; ``notes`` contain its name (``picked``) and the reason (``why``).

    Options: ``max_nodes`` (:mod:`.meter`); ``minimise``: whether to continue after a packing fits the capacity [true
    only without a capacity]. If it is false and there is no capacity, only greedy and skyline runs are made.
    """
    meter = metered(progress, options)
    cols = columns(problem)
    bound = bound_of(cols)
    minimise = flag_option(options, "minimise", problem.capacity == UNLIMITED)
    is_quick = not minimise and problem.capacity == UNLIMITED
    goal = 0 if minimise or is_quick else problem.capacity
    bound = replace(bound, bytes=possible_extent(cols, bound.bytes))
    count = len(cols)
    uses_skyline = EXACT_ALONE_UP_TO < count <= ALL_RUNS_UP_TO and cols.is_plain and cols.is_small
    runs = QUICK_RUNS if count > ALL_RUNS_UP_TO or (uses_skyline and count <= SEARCH_UP_TO) else RUNS
    best = best_greedy(cols, bound, meter, runs[: len(RUNS) // 2] if uses_skyline else runs, goal=goal)
    if uses_skyline and not best.stopped and best.extent > max(bound.bytes, goal):
        best = best_skyline(cols, bound, best, meter, goal)
    kind, picked = ("skyline", "skyline") if best.order == "skyline" else ("greedy", "portfolio")
    gap = f"the {kind} runs are {best.extent - bound.bytes} bytes above the bound"
    why = ""
    if best.extent <= bound.bytes:
        why = f"a {kind} run meets the lower bound"
    elif best.extent <= goal:
        why = f"a {kind} run fits the capacity of {goal} bytes; a smaller extent was not requested"
    elif is_quick:
        why = f"{gap}; a smaller extent was not requested"
    elif best.stopped:
        why = "the search was stopped"
    elif not cols.is_small:
        why = "sizes beyond 2^62 are packed greedily"
    elif count > SEARCH_UP_TO:
        why = f"{count} storages: {kind} runs only"
    if why:
        return _noted(best.packing(cols, bound), picked, why)
    found = [(picked, best.packing(cols, bound))] if picked == "skyline" else []
    lower, is_done = bound.bytes, False
    if count <= EXACT_UP_TO:
        request = {"minimise": minimise, "use_lns": False, "accept_near": options.get("minimise") is None}
        packing = exact_from(cols, bound, best, request, meter)
        found.append(("exact", packing))
        lower, extent = packing.lower_bound or 0, extent_of(cols, packing.offset)
        is_done = extent <= goal or extent < lower + min(cols.align) or bool(packing.notes.get("interrupted"))
    if count > EXACT_ALONE_UP_TO and not is_done:
        found.append(("search", search(problem, {}, meter, best)))
    picked, packing = min(found, key=lambda each: extent_of(cols, each[1].offset))  # the first of equal packings
    why = f"{gap}; the lowest packing of {', '.join(name for name, _ in found)}"
    if found[0][0] == "exact" and not found[1:]:
        why = f"{gap}, and {count} storages can be searched exactly"
    return _noted(replace(packing, lower_bound=lower, optimal=extent_of(cols, packing.offset) == lower), picked, why)


def _noted(packing: Packing, picked: str, why: str) -> Packing:
    return replace(packing, notes={"picked": picked, **packing.notes, "why": why})
