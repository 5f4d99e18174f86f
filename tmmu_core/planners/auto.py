"""``auto``: choose the planner by problem size and report the reason.

Greedy runs come first. Above :data:`ALL_RUNS_UP_TO` storages, they are only :data:`QUICK_RUNS`. A plain problem
(:attr:`.Columns.is_plain`) of :data:`EXACT_ALONE_UP_TO` to :data:`ALL_RUNS_UP_TO` storages gets fewer greedy runs, and
skyline runs after them. If the extent is still above the lower bound, the number of storages decides:

* up to :data:`EXACT_ALONE_UP_TO`: ``exact`` follows;
* up to :data:`SEARCH_UP_TO`: ``exact`` (up to :data:`EXACT_UP_TO`) and ``search`` follow; the lower packing is kept;
* more, or sizes over 2^62: nothing follows.

An extent is *near* the bound if the gap is less than one alignment. If the extent of ``exact`` is near, ``search`` is
skipped. If ``minimise`` is not given, ``exact`` ends soon after its extent is near. With a capacity and ``minimise``
not true, all but ``search`` end at the first packing that fits. If ``exact`` finds none, the capacity is ignored.

Skyline runs fill memory from the bottom up, always at the lowest free offset (Burke, Kendall and Whitwell 2004). The
*skyline* is the end of the placed bytes at each step. A run selects the lowest segment of the skyline. Of the storages
whose lifetime lies in the segment, it places the one of lowest rank there. If there is none, it raises the segment to
its lower neighbour. A run costs O(n · (n + steps)) array operations: less than a second for 10,000 storages.

Storages are ranked by weighted sums of four properties (:data:`OPENING_WEIGHTS`, then random weights). On traces with
many long lifetimes, these runs reach or nearly reach the bound; runs with a fixed order do not. The crown (the storage
of the bound's witness with the most padding) is ranked last. Large packings are turned over: all storages are placed
again, highest end first (:mod:`.portfolio`). For large problems of up to 20,000 storages, the number of runs doubles.
The added runs use the weights of the lowest packing, with a lower rank for storages that ended too high in the run
before (squeaky wheel optimization: Joslin and Clements 1999).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tmmu_core.planners.bounds import Bound, bound_of, possible_extent
from tmmu_core.planners.columns import Columns, align_up, columns, extent_of
from tmmu_core.planners.exact import exact_from
from tmmu_core.planners.exact.branch_and_bound import OPENING_WEIGHTS, weighted_ranks
from tmmu_core.planners.exact.search_model import log2_fixed
from tmmu_core.planners.native import library, native
from tmmu_core.planners.portfolio import RUNS, TURNED_FROM, Best, best_greedy, crown_of, search, turned_over
from tmmu_core.planners.problem import I64, UNLIMITED, Meter, Packing, Problem, Progress, flag_option

# Maximum numbers of storages:
EXACT_UP_TO = 3_000
EXACT_ALONE_UP_TO = 400  # no skyline runs and no ``search``
SEARCH_UP_TO = 20_000
ALL_RUNS_UP_TO = 200_000
QUICK_RUNS = (("size", "lowest"), ("size_length", "lowest"), ("length", "lowest"))
SKYLINE_RUNS, FEW_SKYLINE_RUNS = 24, 4
ALL_RUNS_FROM = 1_000  # with fewer storages, few skyline runs are made, because ``exact`` is faster than further runs
MOST_TURNS = 4  # maximum times that a packing is turned over, while its extent falls
FULL_RUNS_STORAGES = 5_000  # storages up to which all runs are made; larger problems get proportionally fewer
PHILOX_KEY = 5  # key of the random stream
WEIGHT_LIMITS = np.array([512, 128, 128, 128], np.uint64)  # random weights are below these
TOP = 2**62  # height of the skyline outside the steps


def auto(problem: Problem, options: Mapping[str, Any], progress: Progress | None = None) -> Packing:
    """Return the packing of the chosen planner; ``notes`` contain its name (``picked``) and the reason (``why``).

    Options: ``max_nodes`` (:class:`.Meter`); ``minimise``: whether to continue after a packing fits the capacity [true
    only without a capacity]. If it is false and there is no capacity, only greedy and skyline runs are made.
    """
    meter, cols = Meter.of(progress, options), columns(problem)
    bound, count = bound_of(cols), len(cols)
    minimise = flag_option(options, "minimise", problem.capacity == UNLIMITED)
    is_quick = not minimise and problem.capacity == UNLIMITED
    goal = 0 if minimise or is_quick else problem.capacity
    bound = replace(bound, bytes=possible_extent(cols, bound.bytes))
    uses_skyline = EXACT_ALONE_UP_TO < count <= ALL_RUNS_UP_TO and cols.is_plain and cols.is_small
    runs = QUICK_RUNS if count > ALL_RUNS_UP_TO or (uses_skyline and count <= SEARCH_UP_TO) else RUNS
    runs = tuple(run for run in runs if run[1] == "lowest" or not uses_skyline)
    best = best_greedy(cols, bound, meter, runs, goal=goal)
    if uses_skyline and not best.stopped and best.extent > max(bound.bytes, goal):
        best = best_skyline(cols, bound, best, meter, goal)
    kind, picked = ("skyline", "skyline") if best.order == "skyline" else ("greedy", "portfolio")
    gap, why = f"the {kind} runs are {best.extent - bound.bytes} bytes above the bound", ""
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
        is_done = extent <= goal or bool(packing.notes.get("interrupted"))
        if not (is_done or minimise):  # the search for the least extent may find a packing that fits
            return auto(replace(problem, capacity=UNLIMITED), {}, meter)
        is_done |= extent < lower + min(cols.align)
    if count > EXACT_ALONE_UP_TO and not is_done:
        found.append(("search", search(problem, {}, meter, best)))
    picked, packing = min(found, key=lambda each: extent_of(cols, each[1].offset))  # the first of equal packings
    why = f"{gap}; the lowest packing of {', '.join(name for name, _ in found)}"
    if found[0][0] == "exact" and not found[1:]:
        why = f"{gap}, and {count} storages can be searched exactly"
    return _noted(replace(packing, lower_bound=lower, optimal=extent_of(cols, packing.offset) == lower), picked, why)


def _noted(packing: Packing, picked: str, why: str) -> Packing:
    return replace(packing, notes={"picked": picked, **packing.notes, "why": why})


def best_skyline(cols: Columns, bound: Bound, best: Best, meter: Meter, goal: int) -> Best:
    """Return the run of least extent, or ``best`` if no run is lower; stop at the bound or goal, or by the meter.

    ``cols`` must be plain and small.
    """
    ranges = np.column_stack([cols.part_lo, cols.part_hi]).ravel()
    fullest = np.maximum.reduceat(np.append(cols.live_bytes(), 0), ranges)[::2]
    traits = (fullest, cols.part_hi - cols.part_lo, cols.sizes, cols.problem.death - cols.problem.birth)
    logs = log2_fixed(np.array(traits))
    _, crown = crown_of(cols, bound)
    draws = np.random.Philox(key=PHILOX_KEY)
    runs = SKYLINE_RUNS * FULL_RUNS_STORAGES // max(len(cols), FULL_RUNS_STORAGES)
    runs = FEW_SKYLINE_RUNS if len(cols) < ALL_RUNS_FROM else max(runs, 1)
    is_large = len(cols) >= TURNED_FROM
    total = 2 * runs if is_large and runs >= len(OPENING_WEIGHTS) else runs
    target = max(bound.bytes, goal)
    raised, offset = np.zeros((2, len(cols)), np.int64)  # raised: added to the weighted sums in further runs
    least, favourite = TOP, OPENING_WEIGHTS[0]
    for number in range(total):
        if best.extent <= target:
            break
        drawn = (draws.random_raw(4) % WEIGHT_LIMITS).astype(np.int64)
        weights = OPENING_WEIGHTS[number] if number < len(OPENING_WEIGHTS) else drawn
        if number >= runs:
            weights, late = favourite, np.flatnonzero(offset + cols.sizes > target)
            raised[late] += np.ptp(favourite @ logs) // 1000 * (draws.random_raw(len(late)) % 100).astype(np.int64)
        rank = weighted_ranks(logs, weights, raised)
        if crown >= 0:
            rank[crown] = len(cols)
        offset = skyline(cols, rank)
        sequence, extent = np.argsort(offset, kind="stable").tolist(), extent_of(cols, offset)
        run = Best(offset.tolist(), extent, "skyline", "lowest", best.runs, False, sequence, crown)
        for _ in range(MOST_TURNS if is_large and run.extent > target else 0):
            turned = turned_over(cols, run)
            if turned.extent >= run.extent:
                break
            run = turned
        if number < runs and run.extent < least:
            least, favourite = run.extent, weights
        best = min(best, run, key=lambda each: each.extent)
        if meter.count_run("skyline", number, total, (cols.problem.arena, best.extent, bound.bytes)):
            return replace(best, stopped=True)
    return best


def skyline(cols: Columns, rank: I64) -> I64:
    """Return the offsets of one run. Of several storages that fit a segment, the one of lowest ``rank`` is placed."""
    n, steps, grid = len(cols), len(cols.births), max(cols.align)
    offset = np.full(n, -1, np.int64)
    loops = library()
    if loops is not None:
        first = np.searchsorted(cols.part_lo, np.arange(steps + 1))  # storages are sorted by birth
        segments = np.empty((2, steps), np.int64)
        tables = {"first": first, "rank": rank, "lo": cols.part_lo, "hi": cols.part_hi, "size": cols.sizes}
        tables |= {"height": segments[0], "end": segments[1], "offset": offset}
        native.run(loops, native.call_of("skyline", steps=steps, grid=grid, **tables))
        return offset
    order = np.argsort(rank)
    born, dies, size = cols.part_lo[order] + 1, cols.part_hi[order] + 1, cols.sizes[order]
    height = np.zeros(steps + 2, np.int64)
    height[[0, -1]] = TOP
    for _ in range(n):
        while True:
            begin = int(height.argmin())
            low = height[begin]
            end = begin + int((height[begin:] != low).argmax())
            fits = (born >= begin) & (dies <= end)
            best = int(fits.argmax())
            if fits[best]:
                break
            height[begin:end] = min(height[begin - 1], height[end])
        offset[order[best]] = low
        height[born[best] : dies[best]] = align_up(int(low + size[best]), grid)
        born[best] = -1  # placed: it now fits no segment
    return offset
