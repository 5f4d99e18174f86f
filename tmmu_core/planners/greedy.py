"""``greedy``: place the storages one after another, by an order and a fit.

The fit chooses among the offsets that are free during the whole lifetime of a storage. Orders and fits are those of the
literature: size and breadth (Pisarchyk & Lee 2020), area and length (dynamic storage allocation and strip packing),
and first fit in birth order with a free list.

The Python loop visits the gaps between the placed storages that conflict. The native library gives the same offsets. It
visits the gaps if that is fast (:func:`_treeless_call`). Otherwise it uses a segment tree over the k compressed steps
(``struct tree`` in ``native.h``): a run visits O(n log k) lists of address ranges.
"""

from collections.abc import Mapping, Sequence
from ctypes import CDLL
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tmmu_core.planners.columns import HANDOFF, Columns, choice_option, columns, free_gap, offset_column
from tmmu_core.planners.native import native
from tmmu_core.planners.native.load import library
from tmmu_core.planners.problem import I64, Packing, Problem, Progress

ORDERS = ("size", "area", "birth", "length", "size_length", "breadth")
FITS = ("lowest", "tightest", "free_list")
MAX_MEAN_NEIGHBOURS = 128  # mean number of neighbours per storage up to which the native loop sorts them
MAX_SCANNED = 2_500  # storages up to which a scan of all placed storages finds the lowest fit faster than the tree
MAX_PAIR_ROWS = 2_000_000  # maximum rows (about 40 bytes each) of the neighbour table; above, the tree is smaller


def greedy(problem: Problem, options: Mapping[str, Any], progress: Progress | None = None) -> Packing:
    """Place every storage once, in one order, with one fit.

    Options: ``order`` (one of :data:`ORDERS`, default ``size``) and ``fit`` (one of :data:`FITS`, default
    ``lowest``). ``free_list`` means the fit ``lowest`` in birth order, whatever ``order`` is. Raises
    ``AllocationOverflow`` for an end past 2^64 − 1.
    """
    fit = choice_option(options, "fit", "lowest", FITS)
    order = choice_option(options, "order", "size", ORDERS)
    if fit == "free_list":
        order = "birth"
    cols = columns(problem)
    offset = place(cols, sorted_storages(cols, order), fit)
    return Packing(offset_column(cols, offset), notes={"order": order, "fit": fit})


def sorted_storages(cols: Columns, order: str) -> list[int]:
    """Return the storages by the keys of an order, greatest first (``birth``: earliest), then in normative order.

    ===============  ================================================================================
    ``size``         bytes; births during the lifetime
    ``area``         bytes × live steps
    ``birth``        earliest birth
    ``length``       births during the lifetime; bytes
    ``size_length``  bytes × births during the lifetime
    ``breadth``      maximum of the live bytes during the lifetime; bytes (Pisarchyk & Lee 2020)
    ===============  ================================================================================
    """
    births = np.zeros(len(cols), dtype=np.int64)
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
            return _sorted_by(widest(cols), cols.sizes)


def _sorted_by(*keys: NDArray[Any]) -> list[int]:
    """Return the storages sorted by the first key, then the next, each greatest first; ties in normative order."""
    n = len(keys[0])
    if any(key.dtype == object for key in keys):  # lexsort has no Python integers
        return sorted(range(n), key=lambda i: (*(-int(key[i]) for key in keys), i))
    return np.lexsort((np.arange(n), *(-key for key in reversed(keys)))).tolist()


def _byte_steps(cols: Columns, steps: I64) -> NDArray[Any]:
    """Return bytes × steps of each storage, as Python integers where int64 could overflow."""
    largest = max(cols.size, default=0) * int(np.abs(steps).max(initial=0))
    return cols.sizes.astype(np.int64 if largest < 2**63 else object) * steps


def widest(cols: Columns) -> NDArray[Any]:
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


def place(cols: Columns, order: Sequence[int], fit: str, *, plain: bool = False) -> list[int]:
    """Return the offset of each storage. ``order``: all storages; those with a fixed offset go first.

    ``plain`` selects the Python loop even if the native library is available. The offsets are the same.
    """
    sequence, tightest = order, fit == "tightest"
    if cols.problem.fixed is not None:
        sequence = [i for i in order if cols.fixed[i] >= 0] + [i for i in order if cols.fixed[i] < 0]
    loops = None if plain or not cols.is_small else library()
    if loops is None:
        return _place(cols, sequence, tightest)
    function, call = _treeless_call(cols) if cols.has_intervals else ("", None)
    if call is None or (function == "place_all" and not tightest and len(cols) > MAX_SCANNED):
        return place_native(loops, cols, sequence, tightest)
    call.fields["sequence"][:] = sequence
    call.fields["fixed"][:] = -1 if cols.problem.fixed is None else cols.problem.fixed
    call.tightest = int(tightest)
    native.run(loops, function, call)
    return call.fields["offset"].tolist()


def place_native(loops: CDLL, cols: Columns, sequence: Sequence[int], tightest: bool) -> list[int]:
    """Return the offsets of a run of the native loop with the segment tree; ``cols`` must be ``is_small``."""
    n, leaves = len(cols), 1 << max(len(cols.births) - 1, 0).bit_length()
    extra_of, (extra_other, extra_kind) = cols.extra_conflicts.first, cols.extra_conflicts.table.T.copy()
    tables: dict[str, Any] = {name: getattr(cols, name) for name in ("part_of", "part_lo", "part_hi")}
    tables |= {"size": cols.sizes, "align": cols.aligns, "fixed": np.asarray(cols.fixed, np.int64)}
    tables |= {"sequence": np.asarray(sequence, np.int64), "state": np.array([0, -1, 0], np.int64)}
    tables |= {"extra_of": extra_of, "extra_other": extra_other, "extra_kind": extra_kind}
    tables |= {"begin": np.zeros(4 * leaves, np.int64), "placed": np.empty(np.diff(extra_of).max(initial=0), np.int64)}
    tables |= {name: np.zeros(4 * leaves, np.int32) for name in ("count", "room")}
    tables["blocked"] = np.empty(200 * int(np.diff(cols.part_of).max(initial=1)), np.int64)
    offset = np.full(n, -1, np.int64)
    pool = np.empty((2, max(1024, 16 * n)), np.int64)
    while True:
        room = {"pool": pool.shape[1], "starts": pool[0], "ends": pool[1]}
        call = native.call_of("tree", n=n, leaves=leaves, tightest=tightest, offset=offset, **room, **tables)
        missing_rows = native.run(loops, "place", call)
        if not missing_rows:
            return offset.tolist()
        pool = np.concatenate([pool, np.empty((2, pool.shape[1] + missing_rows), np.int64)], axis=1)


def _treeless_call(cols: Columns) -> tuple[str, Any]:
    """Return the fastest native function without a tree, and its arguments. Requires :attr:`.Columns.has_intervals`.

    ``place_all`` scans all placed storages. ``place_near`` sorts the neighbours of each storage: the storages that
    overlap it in time. The arguments are ``None`` if the tree is faster than both. Cached.
    """
    if "treeless" not in cols.memo:
        lo, hi, n = cols.part_lo, cols.part_hi, len(cols)
        order = np.argsort(lo, kind="stable")
        before_death = np.searchsorted(lo[order], hi[order])  # births before each death, in birth order
        count = before_death - np.arange(1, n + 1)
        rows = 2 * int(count.sum())
        function, tables = "place_near", None
        if 4 * n**3 <= rows**2:  # the mean number of neighbours is at least 2 √n
            function = "place_all"
            tables = {"first": lo, "other": hi, "spans": np.empty(4 * n, np.int64), "placed": np.empty(0, np.int64)}
        elif rows <= min(MAX_MEAN_NEIGHBOURS * n, MAX_PAIR_ROWS):
            one = np.repeat(np.arange(n), count)
            other = order[np.arange(len(one)) - np.repeat(np.cumsum(count) - count, count) + one + 1]
            one = order[one]
            table = np.concatenate([other, one])[np.argsort(np.concatenate([one, other]), kind="stable")]
            neighbours = np.bincount(one, minlength=n) + np.bincount(other, minlength=n)
            first, most = np.append(0, np.cumsum(neighbours)), int(neighbours.max(initial=0))
            tables = {"first": first, "other": table, "spans": np.empty(2 * most, np.int64)}
            tables["placed"] = np.empty(most, np.int64)
        if tables is not None:
            tables |= {"size": cols.sizes, "align": cols.aligns}
            tables |= {name: np.empty(n, np.int64) for name in ("sequence", "fixed", "offset")}
        cols.memo["treeless"] = function, tables and native.call_of("near", n=n, **tables)
    return cols.memo["treeless"]


def _place(cols: Columns, sequence: Sequence[int], tightest: bool) -> list[int]:
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
