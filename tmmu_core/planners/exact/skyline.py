"""Skyline runs: fill memory from the bottom up, always at the lowest free offset (Burke, Kendall and Whitwell 2004).

The *skyline* is the end of the placed bytes at each step. A run selects the lowest segment of the skyline. Of the
storages whose lifetime is in the segment, it places the one of lowest rank there. If there is none, the segment rises
to its lower neighbour. A run costs O(n · (n + steps)) array operations: less than a second for 10,000 storages.

The ranks are weighted sums of four properties of a storage (:data:`.branching.OPENING_WEIGHTS`, then random weights).
On traces with many long lifetimes, these runs reach the bound or nearly so; runs with a fixed order do not. The crown
(the storage of the bound's witness with the most padding) has the last rank. Large packings are turned over: all
storages are placed again, highest end first (:mod:`~tmmu_core.planners.portfolio`). For large problems of up to 20,000
storages, as many further runs use the weights of the lowest packing and place storages that ended above the bound
earlier (squeaky wheel optimization: Joslin and Clements 1999).
"""

from dataclasses import replace

import numpy as np

from tmmu_core.planners.bounds import Bound
from tmmu_core.planners.columns import Columns, align_up, extent_of
from tmmu_core.planners.exact.branching import OPENING_WEIGHTS, random_weights, weighted_ranks
from tmmu_core.planners.exact.search_model import log2_fixed
from tmmu_core.planners.meter import Meter
from tmmu_core.planners.native import native
from tmmu_core.planners.native.load import library
from tmmu_core.planners.portfolio import TURNED_FROM, Best, crown_of, turned_over
from tmmu_core.planners.problem import I64

RUNS, FEW_RUNS = 24, 4
ALL_RUNS_FROM = 1_000  # with fewer storages, ``FEW_RUNS`` are made, because ``exact`` is faster than further runs
MOST_TURNS = 4  # maximum times that a packing is turned over, while its extent falls
FULL_RUNS_STORAGES = 5_000  # storages up to which all runs are made; larger problems get proportionally fewer
PHILOX_KEY = 5  # key of the random stream
TOP = 2**62  # height of the skyline outside the steps


def best_skyline(cols: Columns, bound: Bound, best: Best, meter: Meter, goal: int) -> Best:
    """Return the run of least extent, or ``best`` if no run is lower; stop at the bound, at the goal or by the meter.

    ``cols`` must be plain and small.
    """
    ranges = np.column_stack([cols.part_lo, cols.part_hi]).ravel()
    fullest = np.maximum.reduceat(np.append(cols.live_bytes(), 0), ranges)[::2]
    traits = (fullest, cols.part_hi - cols.part_lo, cols.sizes, cols.problem.death - cols.problem.birth)
    logs = log2_fixed(np.array(traits))
    _, crown = crown_of(cols, bound)
    draws = np.random.Philox(key=PHILOX_KEY)
    runs = RUNS * FULL_RUNS_STORAGES // max(len(cols), FULL_RUNS_STORAGES)
    runs = FEW_RUNS if len(cols) < ALL_RUNS_FROM else max(runs, 1)
    is_large = len(cols) >= TURNED_FROM
    total = 2 * runs if is_large and runs >= len(OPENING_WEIGHTS) else runs
    target = max(bound.bytes, goal)
    raised, offset = np.zeros((2, len(cols)), np.int64)  # raised: added to the weighted sums in further runs
    least, favourite = TOP, OPENING_WEIGHTS[0]
    for number in range(total):
        if best.extent <= target:
            break
        drawn = random_weights(draws)
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
        native.run(loops, "skyline", native.call_of("skyline", steps=steps, grid=grid, **tables))
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
        born[best] = -1  # placed: it fits in no other segment
    return offset
