"""Arrays handed to the library, and its answers as the loops in Python give them.

A structure is a call's arguments: numbers, and arrays by their address. The library trusts what it is handed, so
whatever goes in is looked at here: whole numbers of 64 bits, in one piece, in rows as long as the tables say.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

I64 = NDArray[np.int64]
I32 = NDArray[np.int32]

WHOLE = (np.dtype(np.int64), np.dtype(np.int32), np.dtype(np.uint8))
LARGEST = 2**62
"""No number handed over is as large: sums of two stay within 64 bits."""


class _Call(ctypes.Structure):
    """Fields as in ``loops.h``: a number or an address each, 8 bytes."""

    def __init__(self, **fields: Any) -> None:
        """Arrays become addresses, and stay alive with the structure."""
        super().__init__(**{name: _said(value) for name, value in fields.items()})
        self.fields = fields


def _said(value: Any) -> int:
    if not isinstance(value, np.ndarray):
        number = int(value)
        assert -LARGEST <= number <= LARGEST
        return number
    assert value.flags.c_contiguous
    assert value.dtype in WHOLE
    address: int = value.ctypes.data
    return address


def _fields(names: str) -> list[tuple[str, type[ctypes.c_int64]]]:
    return [(name, ctypes.c_int64) for name in names.split()]


class Near(_Call):
    """``struct near``."""

    _fields_ = _fields("n tightest sequence first other size align offset spans placed")


class Tree(_Call):
    """``struct tree``."""

    _fields_ = _fields(
        "n leaves tightest pool sequence part_of part_lo part_hi size align fixed odd_of odd_other odd_kind "
        "begin count room starts ends blocked near offset now"
    )


class Search(_Call):
    """``struct search``."""

    _fields_ = _fields(
        "n m events most shape entry first neighbour mate wall "
        "unit section order event changed dirty holes placed met blame tally "
        "capacity rank switches budget nodes stop asked at second marks kept"
    )


class Meeting(_Call):
    """``struct meeting``."""

    _fields_ = _fields("n room entry_of entry first by_section begin seen table")


class Site(_Call):
    """``struct site``."""

    _fields_ = _fields(
        "n sections blurs capacity turns ruin unit heat loss meets begin run blur work near sky spot now stop"
    )


DONE = 0
MEETINGS = 64
"""Neighbours of a unit, on average, for whom there is room at first."""
POOL = (1024, 16)
"""Pairs of addresses that a run begins with: so many, and so many for each storage."""


def near(first: I64, other: I64, size: I64, align: I64) -> Near:
    """What every run of :func:`place_near` over the same neighbours is handed."""
    n = len(first) - 1
    assert len(size) == len(align) == n
    most = int(np.diff(first).max(initial=0))
    working = {"sequence": n, "offset": n, "spans": 2 * most, "placed": most + 1}
    room = {name: np.empty(count, np.int64) for name, count in working.items()}
    return Near(n=n, tightest=0, first=first, other=other, size=size, align=align, **room)


def place_near(loops: ctypes.CDLL, call: Near, sequence: Sequence[int] | I64, tightest: bool) -> list[int]:
    """Offsets (n,) of one run of :func:`tmmu_core.planners.near_kernel.place`."""
    call.fields["sequence"][:] = sequence
    call.tightest = int(tightest)
    answer = loops.tmmu_place_near(ctypes.byref(call))
    assert answer == DONE
    offset: list[int] = call.fields["offset"].tolist()
    return offset


def place(loops: ctypes.CDLL, columns: int, **fields: Any) -> I64:
    """Offsets (n,) of one run of :func:`tmmu_core.planners.kernels.place` over so many columns of squeezed time.

    ``fields`` are the structure's, but for what it works in. Where the pool proves too small the run goes on with more.
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
    """As :func:`tmmu_core.planners.exact.tables.neighbours_of`."""
    n = len(entry_of) - 1
    begin, seen = np.empty(n + 1, np.int64), np.empty(n, np.int64)
    asked = {"n": n, "entry_of": entry_of, "entry": entry, "first": first, "by_section": by_section}
    room = MEETINGS * n
    while True:
        table = np.empty((room, 3), np.int64)
        count = loops.tmmu_neighbours(ctypes.byref(Meeting(room=room, begin=begin, seen=seen, table=table, **asked)))
        if count <= room:
            return begin, table[:count]
        room = count


def settle(loops: ctypes.CDLL, unit: I64, wall: I64, u: int) -> int:
    """As :func:`tmmu_core.planners.exact.tables.settle`, from offset 0 on."""
    return int(loops.tmmu_settle(_said(unit), _said(wall), u, 0))


def search(loops: ctypes.CDLL, levels: int, **fields: Any) -> int:
    """The verdict of :func:`tmmu_core.planners.exact.kernel.search`, with room for so many levels.

    The interpreter's lock is not held meanwhile: ``nodes`` can be read, and ``stop`` set, from other threads.
    """
    most = levels - 1
    asked, at, second = np.empty((3, levels), np.int64)
    marks = np.empty((levels, 3), np.int64)
    kept = np.empty(most * levels // 2 + 1, np.uint8)
    call = Search(most=most, asked=asked, at=at, second=second, marks=marks, kept=kept, **fields)
    return int(loops.tmmu_search(ctypes.byref(call)))


def rebuild(loops: ctypes.CDLL, n: int, **fields: Any) -> bool:
    """As :func:`tmmu_core.planners.exact.rebuilding.rebuild`, the interpreter's lock not held meanwhile."""
    names = ("unit", "meets", "begin", "run", "blur", "work", "near", "sky")
    unit, meets, begin, run, blur, work, near, sky = (fields[name] for name in names)
    assert unit.shape == (n, 10)
    assert meets.shape == (n, n)
    assert (len(begin), begin[0]) == (n + 1, 0)
    assert run.shape == (begin[-1], 2)
    assert (np.diff(begin) >= 0).all()
    assert ((run >= 0) & (run <= len(sky))).all()
    assert blur.shape[0] == 2
    assert blur.shape[1] >= 4096 + n
    assert work.shape == (15, n + 1)
    assert near.shape == (7, n)
    assert blur.dtype == near.dtype == sky.dtype == np.int32
    assert 0 < fields["capacity"] < 2**30
    assert (len(fields["spot"]), len(fields["now"])) == (7, 6)
    assert len(fields["heat"]) == len(fields["loss"]) + 1 == 1025
    return bool(loops.tmmu_rebuild(ctypes.byref(Site(n=n, sections=len(sky), blurs=blur.shape[1], **fields))))
