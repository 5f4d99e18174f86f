"""``greedy``: place the storages one after another, by an order and a fit.

The fit chooses among the offsets that are free during the whole lifetime of a storage. Orders and fits are those of the
literature: size and breadth (Pisarchyk & Lee 2020), area and length (dynamic storage allocation and strip packing),
and first fit in birth order with a free list.

The Python loop visits the gaps between the placed storages that conflict with the next one. The native library gives
the same offsets. It scans all placed storages if there are few (:data:`MAX_SCANNED`). Otherwise it uses a segment tree
over k compressed steps (:mod:`.columns`; ``struct tree`` in ``native.h``) and visits O(n log k) lists of ranges.
"""

from collections.abc import Mapping, Sequence
from ctypes import CDLL
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tmmu_core.planners.columns import HANDOFF, Columns, columns, free_gap, offset_column
from tmmu_core.planners.native import library, native
from tmmu_core.planners.problem import I64, Packing, Problem, Progress, choice_option

ORDERS = ("size", "area", "birth", "length", "size_length", "breadth")
FITS = ("lowest", "tightest", "free_list")
MAX_SCANNED = {False: 2_500, True: 10_000}
"""Whether the fit is ``tightest`` → number of storages up to which a scan is faster than the tree."""


def greedy(problem: Problem, options: Mapping[str, Any], progress: Progress | None = None) -> Packing:
    """Place every storage once, in one order, with one fit.

    Options: ``order`` (one of :data:`ORDERS`, default ``size``) and ``fit`` (one of :data:`FITS`, default
    ``lowest``). ``free_list`` means the fit ``lowest`` in birth order, whatever ``order`` is. Raises
    ``AllocationOverflow`` for an end past 2^64 − 1.
    """
    fit, order = choice_option(options, "fit", "lowest", FITS), choice_option(options, "order", "size", ORDERS)
    order = "birth" if fit == "free_list" else order
    cols = columns(problem)
    offset = place(cols, sorted_storages(cols, order), fit)
    return Packing(offset_column(cols, offset), notes={"order": order, "fit": fit})


def sorted_storages(cols: Columns, order: str) -> list[int]:
    """Return the storages sorted by an order's keys, greatest first (``birth``: earliest); ties in normative order."""
    births = np.zeros(len(cols), dtype=np.int64)  # per storage, number of births during its lifetime
    np.add.at(births, cols.storage_of_part, cols.part_hi - cols.part_lo)
    match order:
        case "size":
            return _sorted_by(cols.sizes, births)
        case "area":
            steps: I64 = cols.problem.death - cols.problem.birth
            if cols.problem.gaps is not None:
                steps = steps - np.array([sum(b - a for a, b in gaps) for gaps in cols.problem.gaps], np.int64)
            return _sorted_by(_byte_steps(cols, steps))
        case "birth":
            return _sorted_by(-cols.problem.birth)
        case "length":
            return _sorted_by(births, cols.sizes)
        case "size_length":
            return _sorted_by(_byte_steps(cols, births))
        case _:
            return _sorted_by(breadths(cols), cols.sizes)


def _sorted_by(*keys: NDArray[Any]) -> list[int]:
    """Return the storages sorted by the first key, then the next, each greatest first; ties in normative order."""
    n = len(keys[0])
    if any(key.dtype == object for key in keys):  # lexsort cannot sort Python integers
        return sorted(range(n), key=lambda i: (*(-int(key[i]) for key in keys), i))
    return np.lexsort((np.arange(n), *(-key for key in reversed(keys)))).tolist()


def _byte_steps(cols: Columns, steps: I64) -> NDArray[Any]:
    """Return bytes × steps of each storage, as Python integers where int64 could overflow."""
    largest = max(cols.size, default=0) * int(np.abs(steps).max(initial=0))
    return cols.sizes.astype(np.int64 if largest < 2**63 else object) * steps


def breadths(cols: Columns) -> NDArray[Any]:
    """Return, per storage, the maximum of the live bytes during its lifetime."""
    live = cols.live_bytes()
    levels = [live]  # levels[l][c]: maximum over compressed steps [c, c + 2^l)
    while 2 ** len(levels) <= len(live):
        half = 2 ** (len(levels) - 1)
        levels.append(np.maximum(levels[-1][:-half], levels[-1][half:]))
    level = np.searchsorted(2 ** np.arange(len(levels)), cols.part_hi - cols.part_lo, side="right") - 1
    begin = np.cumsum([0, *map(len, levels)])[level]
    table = np.concatenate(levels)
    most = np.zeros(len(cols), dtype=live.dtype)
    of_part = np.maximum(table[begin + cols.part_lo], table[begin + cols.part_hi - (1 << level)])
    np.maximum.at(most, cols.storage_of_part, of_part)
    return most


def place(cols: Columns, order: Sequence[int], fit: str) -> list[int]:
    """Return the offset of each storage. Storages with a fixed offset are placed first, then the rest of ``order``."""
    sequence, tightest = order, fit == "tightest"
    if cols.problem.fixed is not None:
        sequence = sorted(order, key=lambda i: cols.fixed[i] < 0)
    loops = library() if cols.is_small else None
    if loops is None:
        return place_in_python(cols, sequence, tightest)
    if not cols.has_intervals or len(cols) > MAX_SCANNED[tightest]:
        return place_native(loops, cols, sequence, tightest)
    offset, placed = np.empty(len(cols), np.int64), np.empty((len(cols), 4), np.int64)
    fields = {**_columns(cols, sequence), "lo": cols.part_lo, "hi": cols.part_hi, "offset": offset, "placed": placed}
    native.run(loops, native.call_of("scan", n=len(cols), tightest=tightest, **fields))
    return offset.tolist()


def _columns(cols: Columns, sequence: Sequence[int]) -> dict[str, Any]:
    """Return the fields that both native loops have."""
    fixed, order = np.asarray(cols.fixed, np.int64), np.asarray(sequence, np.int64)
    return {"size": cols.sizes, "align": cols.aligns, "fixed": fixed, "sequence": order}


def place_native(loops: CDLL, cols: Columns, sequence: Sequence[int], tightest: bool) -> list[int]:
    """Return the offsets of a run of the native loop with the segment tree; ``cols`` must be ``is_small``."""
    leaves, rows = 1 << max(len(cols.births) - 1, 0).bit_length(), max(1024, 16 * len(cols))
    extra_of, (extra_other, extra_kind) = cols.extra_conflicts.first, cols.extra_conflicts.table.T.copy()
    tables = _columns(cols, sequence) | {name: getattr(cols, name) for name in ("part_of", "part_lo", "part_hi")}
    tables |= {"extra_of": extra_of, "extra_other": extra_other, "extra_kind": extra_kind}
    tables["placed"] = np.empty(np.diff(extra_of).max(initial=0), np.int64)
    tables["blocked"] = np.empty(200 * int(np.diff(cols.part_of).max(initial=1)), np.int64)
    while True:
        offset, begin = np.full(len(cols), -1, np.int64), np.zeros(4 * leaves, np.int64)
        tables |= {name: np.zeros(4 * leaves, np.int32) for name in ("count", "room")}
        tables |= {name: np.empty(rows, np.int64) for name in ("starts", "ends")}
        tables |= {"offset": offset, "begin": begin}
        call = native.call_of("tree", n=len(cols), leaves=leaves, tightest=tightest, pool=rows, **tables)
        if native.run(loops, call):
            return offset.tolist()
        rows *= 4  # there were too few rows for the lists of address ranges


def place_in_python(cols: Columns, sequence: Sequence[int], tightest: bool) -> list[int]:
    """Return the offsets of a run of the Python loop."""
    offset = [-1] * len(cols)
    is_placed = np.zeros(len(cols.part_lo), np.bool_)
    for i in sequence:
        parts = range(cols.part_of[i], cols.part_of[i + 1])
        size, align, at = cols.size[i], cols.align[i], cols.fixed[i]
        if at < 0:
            overlaps = np.zeros_like(is_placed)
            for row in parts:
                overlaps |= (cols.part_lo < cols.part_hi[row]) & (cols.part_lo[row] < cols.part_hi)
            extra = [(j, kind) for j, kind in cols.extra_conflicts[i] if offset[j] >= 0]
            near = {*cols.storage_of_part[overlaps & is_placed].tolist(), *(j for j, _ in extra)}
            at = free_gap([(offset[j], offset[j] + cols.size[j]) for j in near], size, align, tightest=tightest)
            for j, kind in extra:
                here, end = offset[j], offset[j] + size
                # In-place reuse is always the tightest fit. It is the lowest fit only if its offset is below the gap's.
                if kind != HANDOFF or here % align or not (tightest or here < at):
                    continue
                if all(o == j or offset[o] + cols.size[o] <= here or end <= offset[o] for o in near):
                    at = here
                    if tightest:
                        break
        offset[i] = at
        is_placed[parts.start : parts.stop] = True
    return offset
