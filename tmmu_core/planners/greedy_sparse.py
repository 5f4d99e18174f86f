"""The native greedy loop for sparse conflict graphs: sort the placed neighbours of each storage.

Same offsets as :func:`tmmu_core.planners.greedy.place`. With some dozens of neighbours per storage, sorting their
addresses takes a seventh of the time of the tree; neighbours are computed once for all runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import CDLL

import numpy as np

from tmmu_core.planners.columns import Columns
from tmmu_core.planners.native import native
from tmmu_core.planners.problem import I64

NEAR_UP_TO = 128
"""Mean number of neighbours up to which this loop is used."""

PAIRS_UP_TO = 2_000_000
"""Rows of the neighbour table, about 40 bytes each; with more, the tree needs less memory."""


def neighbours(cols: Columns) -> tuple[I64, I64] | None:
    """Return which storages of a plain problem overlap in time; ``None`` where they are too many.

    Neighbours of storage i are rows ``first[i]:first[i + 1]`` of the second array; cached.
    """
    lo, hi = cols.part_lo, cols.part_hi
    if "met" not in cols.memo:
        order = np.argsort(lo, kind="stable")
        later = np.searchsorted(lo[order], hi[order])  # storages born before the k-th by birth ends
        count = later - np.arange(1, len(cols) + 1)
        cols.memo["met"] = order, count, 2 * int(count.sum())
    order, count, rows = cols.memo["met"]
    if rows > min(NEAR_UP_TO * len(cols), PAIRS_UP_TO):
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


def place_near_native(
    loops: CDLL, cols: Columns, sequence: Sequence[int], met: tuple[I64, I64], tightest: bool
) -> list[int]:
    """Return the offsets of one native run; ``met`` is the result of :func:`neighbours`."""
    if "near_call" not in cols.memo:
        cols.memo["near_call"] = native.near(*met, cols.sizes, cols.aligns)
    return native.place_near(loops, cols.memo["near_call"], sequence, tightest)
