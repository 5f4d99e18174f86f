"""Skyline runs: fill memory from the bottom up, always at the lowest free offset (Burke, Kendall and Whitwell 2004).

The *skyline* is the end of the placed bytes at each step. A run takes the lowest stretch of the skyline: the storage
with the lowest rank whose whole lifetime lies in the stretch is placed there; without one, the stretch rises to its
lower neighbour. A run costs O(n · (n + steps)) array operations, a fraction of a second for ten thousand storages.

The ranks are weighted sums of four properties of a storage (:data:`.branching.OPENING_WEIGHTS`, then random weights).
On large traces with many long lives, these runs end at or near the bound where no fixed order does.
"""

from dataclasses import replace

import numpy as np

from tmmu_core.planners.bounds import Bound
from tmmu_core.planners.columns import Columns, align_up, extent_of
from tmmu_core.planners.exact.branching import OPENING_WEIGHTS
from tmmu_core.planners.exact.search_model import log2_fixed
from tmmu_core.planners.meter import Meter
from tmmu_core.planners.portfolio import Best
from tmmu_core.planners.problem import I64

RUNS = 24
FULL_RUNS_STORAGES = 5_000  # storages up to which all runs are made; larger problems get proportionally fewer
WEIGHT_LIMITS = (512, 128, 128, 128)  # random weights are below these
PHILOX_KEY = 5  # key of the random stream
TOP = 2**62  # height of the skyline before the first and after the last step


def best_skyline(cols: Columns, bound: Bound, best: Best, meter: Meter, goal: int = 0) -> Best:
    """Return the run of least extent, or ``best`` if no run is lower; stop at the bound, the goal, or by the meter.

    ``cols`` must be plain and small.
    """
    ranges = np.column_stack([cols.part_lo, cols.part_hi]).ravel()
    fullest = np.maximum.reduceat(np.append(cols.live_bytes(), 0), ranges)[::2]
    traits = (fullest, cols.part_hi - cols.part_lo, cols.sizes, cols.problem.death - cols.problem.birth)
    logs = np.array([[log2_fixed(value) for value in trait.tolist()] for trait in traits], np.int64)
    draws = np.random.Philox(key=PHILOX_KEY)
    runs = max(RUNS * FULL_RUNS_STORAGES // max(len(cols), FULL_RUNS_STORAGES), 1)
    for number in range(runs):
        if best.extent <= max(bound.bytes, goal):
            break
        drawn = draws.random_raw(len(WEIGHT_LIMITS)) % np.array(WEIGHT_LIMITS, np.uint64)
        weights = OPENING_WEIGHTS[number] if number < len(OPENING_WEIGHTS) else drawn.astype(np.int64)
        offset = skyline(cols, np.argsort(-(np.array(weights) @ logs), kind="stable"))
        extent = extent_of(cols, offset)
        if extent < best.extent:
            best = replace(best, offset=offset, extent=extent, order="skyline", fit="lowest", runs=number + 1, crown=-1)
        meter.improved(cols.problem.arena, best.extent, bound.bytes)
        meter.spend(1)
        if not meter("skyline", number, runs):
            meter.halt()
        if meter.ended():
            return replace(best, stopped=True)
    return best


def skyline(cols: Columns, order: I64) -> list[int]:
    """Return the offsets of the run in which ``order`` (storages, the lowest rank first) decides among equals."""
    born, dies, size = cols.part_lo[order] + 1, cols.part_hi[order] + 1, cols.sizes[order]
    grid = max(cols.align)
    height = np.zeros(len(cols.births) + 2, np.int64)
    height[[0, -1]] = TOP
    offset = np.full(len(cols), -1, np.int64)
    left = len(cols)
    while left:
        begin = int(height.argmin())
        low = height[begin]
        end = begin + int((height[begin:] != low).argmax())
        fits = (born >= begin) & (dies <= end)
        first = int(fits.argmax())
        if fits[first]:
            offset[order[first]] = low
            height[born[first] : dies[first]] = align_up(int(low + size[first]), grid)
            born[first] = -1  # placed: it fits in no other stretch
            left -= 1
        else:
            height[begin:end] = min(height[begin - 1], height[end])
    return offset.tolist()
