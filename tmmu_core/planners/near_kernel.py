"""The greedy placement loop for few neighbours, compiled: :func:`tmmu_core.planners.near.place_near` on flat arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tmmu_core.compiled import njit
from tmmu_core.loops import calls
from tmmu_core.loops.library import library
from tmmu_core.planners.columns import Columns
from tmmu_core.planners.problem import I64


def place(cols: Columns, sequence: Sequence[int], met: tuple[I64, I64], tightest: bool) -> list[int]:
    """Offsets of one greedy run of a plain problem; ``met`` as :func:`~tmmu_core.planners.near.neighbours` gives it."""
    loops = library()
    if loops is not None:
        if "near_call" not in cols.memo:
            cols.memo["near_call"] = calls.near(*met, cols.sizes, cols.aligns)
        return calls.place_near(loops, cols.memo["near_call"], sequence, tightest)
    first, other = met
    offset: I64 = _place(np.asarray(sequence, np.int64), first, other, cols.sizes, cols.aligns, tightest)
    found: list[int] = offset.tolist()
    return found


@njit
def _place(sequence: I64, first: I64, other: I64, size: I64, align: I64, tightest: bool) -> I64:
    n = len(size)
    most = 0
    for i in range(n):
        most = max(most, first[i + 1] - first[i])
    starts = np.empty(most, np.int64)
    ends = np.empty(most, np.int64)
    offset = np.full(n, -1, np.int64)
    for step in range(n):
        i = sequence[step]
        many = 0
        for row in range(first[i], first[i + 1]):
            start = offset[other[row]]
            if start < 0:
                continue
            k = many
            while k > 0 and starts[k - 1] > start:
                starts[k] = starts[k - 1]
                ends[k] = ends[k - 1]
                k -= 1
            starts[k] = start
            ends[k] = start + size[other[row]]
            many += 1
        need, grid = size[i], align[i]
        at = 0
        if tightest:
            edge = 0
            best = -1
            smallest = -1
            for k in range(many):
                if starts[k] > edge:
                    at = (edge + grid - 1) & -grid
                    if at + need <= starts[k] and (smallest < 0 or starts[k] - edge < smallest):
                        best, smallest = at, starts[k] - edge
                edge = max(edge, ends[k])
            at = best if best >= 0 else (edge + grid - 1) & -grid
        else:
            for k in range(many):
                if ends[k] > at:
                    if starts[k] >= at + need:
                        break
                    at = (ends[k] + grid - 1) & -grid
        offset[i] = at
    return offset
