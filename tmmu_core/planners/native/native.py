"""Call the native library with numpy arrays.

A structure holds the arguments of a call: integers, and arrays by address. The library does not check its arguments,
so this module asserts element types, contiguity and lengths.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]

ELEMENTS = frozenset(map(np.dtype, (np.int64, np.int32, np.uint8, np.uint64, np.bool_)))
LARGEST = 2**62
"""Bound of every integer argument: the sum of two stays within 64 bits."""


class _Call(ctypes.Structure):
    """Fields as in ``native.h``: an integer or an address each, 8 bytes."""

    def __init__(self, **fields: Any) -> None:
        """Replace arrays by their addresses and keep the arrays alive."""
        super().__init__(**{name: _word(value) for name, value in fields.items()})
        self.fields = fields


def _word(value: Any) -> int:
    if not isinstance(value, np.ndarray):
        number = int(value)
        assert -LARGEST <= number <= LARGEST
        return number
    assert value.flags.c_contiguous
    assert value.dtype in ELEMENTS
    address: int = value.__array_interface__["data"][0]
    return address


_FIELDS = {
    # Greedy placement: by sorting the neighbours, and with a segment tree over time.
    "near": "n tightest sequence first other size align offset spans placed",
    "tree": "n leaves tightest pool sequence part_of part_lo part_hi size align fixed odd_of odd_other odd_kind "
    "begin count room starts ends blocked near offset now",
    # Branch and bound, and the units that share a section.
    "search": "n sections events max_levels shape entry first neighbour mate wall "
    "unit section order event changed dirty holes placed filled conflict_levels counters "
    "capacity rank budget nodes stop unit_of_level offset_of_level second_branch trail_marks nogoods",
    "neighbour_query": "n max_rows entry_of entry first by_section begin seen table",
    # Large neighbourhood search.
    "lns": "n sections noise_rows capacity iterations mean_destroyed unit temperature log_table conflicts first_run "
    "run noise work proximity skyline target progress stop",
    # Local search for placements of least reuse cost.
    "reuse": "n capacity reserved_count rounds threshold most_out bound random swept cost missing placed "
    "size align pin first other mine theirs weight reserved matrix offset best work old out by_start by_end",
    # Exhaustive search for the least reuse cost.
    "least_cost": "n total first limit nodes best start twin least table cost order trail",
    # Peak memory of an execution order, and orders that lower it.
    "order": "n storages arenas skip_from skip_to threshold "
    "unit_ptr unit_nodes touch_ptr touch_idx cand_ptr cand_idx out size held initial touched_by arena "
    "given edge_ptr edge_idx waits_for left born live work done one two",
    # One execution with recomputation and offloading.
    "recompute": "positions storages loading most_steps most_lives most_reads "
    "in_ptr in_idx out_ptr out_idx producer made_of size expires at_start used born again away "
    "life stack pending dropped gone ever first_life further of birth last node at read_ptr reads first totals",
    # Minimum cut of a flow network.
    "cut": "vertices start to twin room level queue at path",
    # Alignment gaps of an arena at every step.
    "waste": "blocks leaves steps events start end alignment place born births gone deaths "
    "first last inside tenants gaps top",
}
"""Structure of ``native.h`` → its fields in order."""
_STRUCTURES: dict[str, type[_Call]] = {
    name: type(name, (_Call,), {"_fields_": [(field, ctypes.c_int64) for field in fields.split()]})
    for name, fields in _FIELDS.items()
}
Near, Tree, Search, NeighbourQuery, Lns, Reuse, LeastCost, Order, Recompute, Cut, Waste = _STRUCTURES.values()


DONE = 0
NEIGHBOUR_ROWS = 64
"""Rows per unit allocated at first for its neighbours."""
POOL = (1024, 16)
"""Address pairs allocated at first: a constant, and so many per storage."""


def flat(first: I64, other: I64, size: I64, align: I64, spans: int) -> _Call:
    """Return the arguments that all runs of :func:`place_flat` over the same storages share.

    ``first`` and ``other`` are the neighbours of each storage, or the two ends of its live range (n,).
    """
    n = len(size)
    assert len(align) == n <= len(first)
    working = {"sequence": n, "offset": n, "spans": spans, "placed": spans // 2 + 1}
    room = {name: np.empty(count, np.int64) for name, count in working.items()}
    return Near(n=n, tightest=0, first=first, other=other, size=size, align=align, **room)


def place_flat(loops: ctypes.CDLL, call: _Call, sequence: Sequence[int] | I64, tightest: bool) -> list[int]:
    """Return the offsets (n,) of one greedy run without a tree."""
    call.fields["sequence"][:] = sequence
    call.tightest = int(tightest)
    run = loops.tmmu_place_near if len(call.fields["first"]) > call.n else loops.tmmu_place_all
    answer = run(ctypes.byref(call))
    assert answer == DONE
    offset: list[int] = call.fields["offset"].tolist()
    return offset


def place(loops: ctypes.CDLL, columns: int, **fields: Any) -> I64:
    """Return the offsets (n,) of one greedy run over ``columns`` columns of squeezed time.

    ``fields`` are the structure's inputs. Where the pool is too small the run continues with a larger one.
    """
    part_of, odd_of = fields["part_of"], fields["odd_of"]
    n = len(part_of) - 1
    assert all(len(fields[name]) == n for name in ("sequence", "size", "align", "fixed"))
    assert len(odd_of) == n + 1
    leaves = 1 << max(columns - 1, 0).bit_length()
    pool = max(POOL[0], POOL[1] * n)
    starts, ends = np.empty(pool, np.int64), np.empty(pool, np.int64)
    offset, now = np.full(n, -1, np.int64), np.array([0, -1, 0], np.int64)
    room = {
        "begin": np.zeros(4 * leaves, np.int64),
        "count": np.zeros(4 * leaves, np.int32),
        "room": np.zeros(4 * leaves, np.int32),
        "blocked": np.empty(200 * int(np.diff(part_of).max(initial=1)), np.int64),
        "near": np.empty(int(np.diff(odd_of).max(initial=0)) + 1, np.int64),
    }
    while True:
        call = Tree(n=n, leaves=leaves, pool=pool, starts=starts, ends=ends, offset=offset, now=now, **room, **fields)
        lacks = loops.tmmu_place(ctypes.byref(call))
        assert lacks >= DONE
        if lacks == DONE:
            return offset
        pool = 2 * pool + lacks
        starts, ends = (np.concatenate([old, np.empty(pool - len(old), np.int64)]) for old in (starts, ends))


def neighbours(loops: ctypes.CDLL, entry_of: I64, entry: I64, first: I64, by_section: I64) -> tuple[I64, I64]:
    """Return the result of :func:`tmmu_core.planners.exact.search_tables.neighbour_table`."""
    n = len(entry_of) - 1
    begin, seen = np.empty(n + 1, np.int64), np.empty(n, np.int64)
    inputs = {"n": n, "entry_of": entry_of, "entry": entry, "first": first, "by_section": by_section}
    rows = NEIGHBOUR_ROWS * n
    while True:
        table = np.empty((rows, 3), np.int64)
        call = NeighbourQuery(max_rows=rows, begin=begin, seen=seen, table=table, **inputs)
        count = loops.tmmu_neighbours(ctypes.byref(call))
        if count <= rows:
            return begin, table[:count]
        rows = count


def search(loops: ctypes.CDLL, levels: int, **fields: Any) -> int:
    """Return the verdict of :func:`tmmu_core.planners.exact.branch_and_bound.search` with tables of ``levels`` rows.

    The call releases the interpreter lock: other threads can read ``nodes`` and set ``stop``.
    """
    unit_of_level, offset_of_level, second_branch = np.empty((3, levels), np.int64)
    call = Search(
        max_levels=levels - 1,
        unit_of_level=unit_of_level,
        offset_of_level=offset_of_level,
        second_branch=second_branch,
        trail_marks=np.empty((levels, 3), np.int64),
        nogoods=np.empty((levels - 1) * levels // 2 + 1, np.uint8),
        **fields,
    )
    return int(loops.tmmu_search(ctypes.byref(call)))


def destroy_and_repair(loops: ctypes.CDLL, n: int, **fields: Any) -> bool:
    """Return the result of :func:`tmmu_core.planners.exact.lns_moves.destroy_and_repair`.

    The call releases the interpreter lock: other threads can read ``progress`` and set ``stop``.
    """
    call = Lns(n=n, sections=len(fields["skyline"]), noise_rows=fields["noise"].shape[1], **fields)
    return bool(loops.tmmu_lns(ctypes.byref(call)))


def repair(loops: ctypes.CDLL, **fields: Any) -> tuple[int, int]:
    """Return the result of :func:`tmmu_core.planners.reuse.local_search.repair`."""
    call = Reuse(missing=0, placed=0, **fields)
    assert loops.tmmu_reuse(ctypes.byref(call)) == DONE
    return int(call.missing), int(call.cost)


def least_cost(loops: ctypes.CDLL, **fields: Any) -> tuple[int, int]:
    """Return the least cost, and the nodes left or −1, of :meth:`tmmu_core.planners.reuse.exact_cost.Search.solve`."""
    call = LeastCost(**fields)
    assert loops.tmmu_least_cost(ctypes.byref(call)) == DONE
    return int(call.best), int(call.nodes)


def order(loops: ctypes.CDLL, name: str, given: I64, **fields: Any) -> tuple[I64, I64]:
    """Run ``tmmu_order_<name>`` on the tables of an order model; return its two result columns.

    ``given`` (n,) is the order to measure or to change. The results have one row per unit, of ``measure`` one per
    arena. Fields left out are 0.
    """
    n, storages, arenas = len(fields["unit_ptr"]) - 1, len(fields["size"]), fields["arenas"]
    assert len(given) == n
    one, two = np.zeros((2, arenas if name == "measure" else n), np.int64)
    left, live = np.empty(storages, np.int64), np.empty(arenas, np.int64)
    born, done = np.empty(storages, np.uint8), np.empty(n, np.uint8)
    work = np.empty((5, n), np.int64)
    room = {"left": left, "born": born, "live": live, "work": work, "done": done, "one": one, "two": two}
    answer = getattr(loops, f"tmmu_order_{name}")(
        ctypes.byref(Order(n=n, storages=storages, given=given, **fields, **room))
    )
    assert answer == DONE
    return one, two


def recompute(loops: ctypes.CDLL, **fields: Any) -> bool:
    """Run ``tmmu_recompute_run``; return whether the execution fits its tables. Results are in the output arrays."""
    return bool(loops.tmmu_recompute_run(ctypes.byref(Recompute(**fields))))


def minimum_cut(loops: ctypes.CDLL, start: I64, to: I64, room: I64, twin: I64) -> I64:
    """Return ``level`` (vertices,): at least 0 on the side of the source."""
    vertices = len(start) - 1
    assert len(to) == len(room) == len(twin) == start[-1]
    level, queue, at = np.empty((3, vertices), np.int64)
    path = np.empty(vertices + 1, np.int64)
    call = Cut(vertices=vertices, start=start, to=to, twin=twin, room=room, level=level, queue=queue, at=at, path=path)
    assert loops.tmmu_minimum_cut(ctypes.byref(call)) == DONE
    return level


def waste(loops: ctypes.CDLL, steps: int, **fields: Any) -> tuple[U64, U64]:
    """Return the alignment gaps and the end of the highest block at each step."""
    blocks, events = len(fields["start"]), len(fields["born"])
    leaves = 1 << max(blocks - 1, 0).bit_length()
    first, last = np.full((2, 2 * leaves), -1, np.int64)
    inside, tenants = np.zeros(2 * leaves, np.uint64), np.zeros(blocks, np.int64)
    gaps, top = np.zeros((2, steps), np.uint64)
    room = {"first": first, "last": last, "inside": inside, "tenants": tenants, "gaps": gaps, "top": top}
    call = Waste(blocks=blocks, leaves=leaves, steps=steps, events=events, **fields, **room)
    assert loops.tmmu_waste(ctypes.byref(call)) == DONE
    return gaps, top
