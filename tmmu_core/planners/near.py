"""The greedy placement loop for few neighbours, where nothing is compiled: for each storage, sort who is alive with it.

Same answers as :func:`tmmu_core.planners.greedy._place`, byte for byte. While a storage meets some dozens of others,
sorting their addresses is a fifth of the tree's work; who meets whom is found once for all runs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tmmu_core.planners.columns import Columns

NEAR_UP_TO = 64
"""How many others may be alive with a storage, on average, for a run to look at each of them."""

PAIRS_UP_TO = 2_000_000
"""Rows of the lists of neighbours, each some 40 bytes: beyond, the tree takes fewer."""


def near_of(cols: Columns) -> list[list[int]] | None:
    """Per storage those alive with it at some moment, or ``None`` where they are too many; made once for all runs."""
    if "near" not in cols.memo:
        lo, hi = cols.part_lo, cols.part_hi
        order = np.argsort(lo, kind="stable")
        later = np.searchsorted(lo[order], hi[order])  # who is born before the k-th by birth ends
        count = later - np.arange(1, len(cols) + 1)
        cols.memo["near"] = None
        if 2 * int(count.sum()) <= min(NEAR_UP_TO * len(cols), PAIRS_UP_TO):
            one = np.repeat(np.arange(len(cols)), count)
            other = np.arange(len(one)) - np.repeat(np.cumsum(count) - count, count) + one + 1
            both = np.concatenate([order[one], order[other]]), np.concatenate([order[other], order[one]])
            rows = both[1][np.argsort(both[0], kind="stable")].tolist()
            ends = np.cumsum(np.bincount(both[0], minlength=len(cols))).tolist()
            cols.memo["near"] = [rows[a:b] for a, b in zip([0, *ends], ends, strict=False)]
    found: list[list[int]] | None = cols.memo["near"]
    return found


def place_near(cols: Columns, sequence: Sequence[int], near: list[list[int]], tightest: bool) -> list[int]:
    """Offsets of one greedy run of a plain problem, storages taken as ``sequence`` says."""
    nowhere = (-1, -1)
    spans = [nowhere] * len(cols)
    sizes, aligns = cols.size, cols.align
    for i in sequence:
        size, align = sizes[i], aligns[i]
        taken = [spans[j] for j in near[i]]
        taken.sort()
        at = edge = 0
        if tightest:
            best = smallest = -1
            for start, end in taken:
                if start > edge:
                    at = (edge + align - 1) & -align
                    if at + size <= start and (smallest < 0 or start - edge < smallest):
                        best, smallest = at, start - edge
                if end > edge:
                    edge = end
            at = best if best >= 0 else (edge + align - 1) & -align
        else:
            for start, end in taken:
                if end > at:
                    if start >= at + size:
                        break
                    at = (end + align - 1) & -align
        spans[i] = (at, at + size)
    return [at for at, _ in spans]
