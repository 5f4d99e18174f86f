"""Peak first: pack the storages alive near the peak, then place all others greedily below the same target.

Where live bytes are mostly far below the bound, the few storages of the peak decide whether the bound can be met.
Their search is short, and the others have room. A failure proves nothing.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tmmu_core.planners.bounds import Bound
from tmmu_core.planners.columns import Columns, columns
from tmmu_core.planners.exact.branching import OPENING_WEIGHTS
from tmmu_core.planners.exact.driver import SearchRequest
from tmmu_core.planners.exact.search_model import search_model, weighted_ranks
from tmmu_core.planners.exact.search_run import Searcher
from tmmu_core.planners.portfolio import RUNS, best_greedy
from tmmu_core.planners.problem import I64, subproblem

MIN_STORAGES = 256
"""With fewer storages, one search of all of them is as fast."""
MAX_PEAK_SHARE = 2
"""The peak has at most one of this many storages."""
LEVELS = (12, 14, 13, 15, 11)
"""The peak: moments with live bytes of at least so many sixteenths of the target; tried in this order."""
OPENINGS = (3, 0)
"""Branching orders tried at each level, as indices into :data:`.branching.OPENING_WEIGHTS`."""
NODES = (64, 4)
"""Nodes of an attempt: a constant, and so many per storage of the peak."""


def pack_peak_first(cols: Columns, bound: Bound, request: SearchRequest) -> list[int] | None:
    """Return offsets with an extent of at most the bound or the goal, or ``None`` where no attempt finds them.

    Only plain problems (:attr:`.Columns.plain`) are tried. The nodes count in the notes and by the meter.
    """
    target, meter = max(bound.bytes, request.goal), request.meter
    if not cols.plain or len(cols) < MIN_STORAGES:
        return None
    live = np.asarray(cols.live_bytes(), np.int64)
    for level in LEVELS:
        peak = _alive_in(cols, np.flatnonzero(live >= target // 16 * level))
        if not 0 < len(peak) * MAX_PEAK_SHARE <= len(cols):
            continue
        model = search_model(columns(subproblem(cols.problem, peak)), tuple([(i,) for i in range(len(peak))]))
        searcher, ranks = Searcher(model), weighted_ranks(model)
        for opening in OPENINGS:
            limit = meter.left(NODES[0] + NODES[1] * len(peak))
            _, nodes, found = searcher.solve(target, ranks(OPENING_WEIGHTS[opening], None), limit)
            meter.spend(nodes)
            request.notes["nodes"] += nodes
            if meter.ended():
                return None
            best = None if found is None else _around(cols, bound, peak, found, target)
            if best is not None:
                return best
    return None


def _alive_in(cols: Columns, moments: I64) -> I64:
    """Return the storages alive at one of the moments (columns of compressed time), ascending."""
    return np.flatnonzero(np.searchsorted(moments, cols.part_hi) > np.searchsorted(moments, cols.part_lo))


def _around(cols: Columns, bound: Bound, peak: I64, found: list[int], target: int) -> list[int] | None:
    """Return all offsets where three greedy runs place the other storages around the peak below the target."""
    fixed = np.full(len(cols), -1, np.int64)
    fixed[peak] = found
    rest = replace(cols, problem=replace(cols.problem, fixed=fixed), fixed=tuple(fixed.tolist()), memo={})
    best = best_greedy(rest, replace(bound, bytes=target), runs=RUNS[:3])
    return best.offset if best.extent <= target else None
