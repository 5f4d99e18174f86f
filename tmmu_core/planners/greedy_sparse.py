"""The greedy loop for sparse conflict graphs: sort the placed neighbours of each storage.

Same offsets as :func:`tmmu_core.planners.greedy._place`. With some dozens of neighbours per storage, sorting their
addresses takes a seventh of the time of the tree; neighbours are computed once for all runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import CDLL
from itertools import pairwise

import numpy as np

from tmmu_core.planners.columns import Columns
from tmmu_core.planners.native import native
from tmmu_core.planners.problem import I64

NEAR_UP_TO = 64
"""Mean number of neighbours up to which the Python loop is used."""

NATIVE_NEAR_UP_TO = 128
"""The same limit for a run in the native library."""

PAIRS_UP_TO = 2_000_000
"""Rows of the neighbour table, about 40 bytes each; with more, the tree needs less memory."""


def neighbours(cols: Columns, most: int) -> tuple[I64, I64] | None:
    """Return which storages of a plain problem overlap in time; ``None`` with more than ``most`` neighbours on average.

    Neighbours of storage i are rows ``first[i]:first[i + 1]`` of the second array; cached.
    """
    lo, hi = cols.part_lo, cols.part_hi
    if "met" not in cols.memo:
        order = np.argsort(lo, kind="stable")
        later = np.searchsorted(lo[order], hi[order])  # storages born before the k-th by birth ends
        count = later - np.arange(1, len(cols) + 1)
        cols.memo["met"] = order, count, 2 * int(count.sum())
    order, count, rows = cols.memo["met"]
    if rows > min(most * len(cols), PAIRS_UP_TO):
        return None
    if "neighbours" not in cols.memo:
        one = np.repeat(np.arange(len(cols)), count)
        other = order[np.arange(len(one)) - np.repeat(np.cumsum(count) - count, count) + one + 1]
        one = order[one]
        table = np.concatenate([other, one])[np.argsort(np.concatenate([one, other]), kind="stable")]
        first = np.zeros(len(cols) + 1, np.int64)
        np.cumsum(np.bincount(one, minlength=len(cols)) + np.bincount(other, minlength=len(cols)), out=first[1:])
        cols.memo["neighbours"] = first, table
    found: tuple[I64, I64] = cols.memo["neighbours"]
    return found


def near_of(cols: Columns) -> list[list[int]] | None:
    """Return the neighbours as lists; ``None`` where they are too many for Python."""
    if "near" not in cols.memo:
        met = neighbours(cols, NEAR_UP_TO)
        cols.memo["near"] = None
        if met is not None:
            rows, first = met[1].tolist(), met[0].tolist()
            cols.memo["near"] = [rows[a:b] for a, b in pairwise(first)]
    near: list[list[int]] | None = cols.memo["near"]
    return near


def place_near(cols: Columns, sequence: Sequence[int], near: list[list[int]], tightest: bool) -> list[int]:
    """Return the offsets of one greedy run of a plain problem in the order ``sequence``."""
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


def place_near_native(
    loops: CDLL, cols: Columns, sequence: Sequence[int], met: tuple[I64, I64], tightest: bool
) -> list[int]:
    """Return the offsets of one native run; ``met`` is the result of :func:`neighbours`."""
    if "near_call" not in cols.memo:
        cols.memo["near_call"] = native.near(*met, cols.sizes, cols.aligns)
    return native.place_near(loops, cols.memo["near_call"], sequence, tightest)
