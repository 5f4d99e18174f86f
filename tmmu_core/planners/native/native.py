"""Call the native library with numpy arrays.

A structure holds the arguments of a call: integers, and arrays by address. Its fields are those of ``native.h``. The
library does not check its arguments. This module asserts that arrays are contiguous and have an element type of
:data:`ELEMENTS`. Callers guarantee the type and length that a field requires. ``loops`` is the loaded library.
"""

import ctypes
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tmmu_core.planners.native import FOLDER

I64 = NDArray[np.int64]

ELEMENTS = frozenset(map(np.dtype, (np.int64, np.int32, np.uint8, np.uint64, np.bool_)))
LARGEST = 2**62  # largest magnitude of an integer argument
NEIGHBOUR_ROWS = 64  # initial number of rows per unit in the table of neighbours
_HEADER = re.sub(r"/\*.*?\*/", "", (FOLDER / "native.h").read_text(encoding="utf-8"), flags=re.S)


class Call(ctypes.Structure):
    """Arguments of one function: an integer or an address in each field."""

    def __init__(self, **fields: Any) -> None:
        """Replace arrays by their addresses and keep the arrays alive."""
        super().__init__(**{name: _as_word(value) for name, value in fields.items()})
        self.fields = fields


def _as_word(value: Any) -> int:
    """Return an integer as it is, and an array as its address."""
    if not isinstance(value, np.ndarray):
        number = int(value)
        assert -LARGEST <= number <= LARGEST
        return number
    assert value.flags.c_contiguous
    assert value.dtype in ELEMENTS
    return value.__array_interface__["data"][0]


_STRUCTURES: dict[str, type[Call]] = {
    name: type(name, (Call,), {"_fields_": [(field, ctypes.c_int64) for field in re.findall(r"(\w+)\s*[,;]", body)]})
    for name, body in re.findall(r"struct (\w+) {(.*?)}", _HEADER, re.S)
}
"""Structure of ``native.h`` → a class with its fields in order."""


def call_of(structure: str, **fields: Any) -> Call:
    """Return the arguments of a function as a structure of ``native.h``; fields left out are 0."""
    return _STRUCTURES[structure](**fields)


def run(loops: ctypes.CDLL, function: str, call: Call) -> int:
    """Return the result of ``tmmu_<function>``. The call releases the interpreter lock."""
    native_function = getattr(loops, f"tmmu_{function}")
    native_function.restype = ctypes.c_int64
    return int(native_function(ctypes.byref(call)))


def neighbours(loops: ctypes.CDLL, entry_of: I64, entry: I64, first: I64, by_section: I64) -> tuple[I64, I64]:
    """Return the result of :func:`tmmu_core.planners.exact.search_tables.neighbour_table`."""
    n, rows = len(entry_of) - 1, NEIGHBOUR_ROWS * (len(entry_of) - 1)
    begin, seen = np.empty(n + 1, np.int64), np.empty(n, np.int64)
    inputs = {"n": n, "entry_of": entry_of, "entry": entry, "first": first, "by_section": by_section}
    while True:
        table = np.empty((rows, 3), np.int64)
        call = call_of("neighbour_query", max_rows=rows, begin=begin, seen=seen, table=table, **inputs)
        count = run(loops, "neighbours", call)
        if count <= rows:
            return begin, table[:count]
        rows = count


def search(loops: ctypes.CDLL, events: int, levels: int, **fields: Any) -> int:
    """Return the result of :meth:`tmmu_core.planners.exact.branch_and_bound.PlainSearch.run`, or TABLES_FULL.

    ``events``, ``levels``: rows of the event and level tables. Other threads can read ``nodes`` and set ``stop``.
    """
    n, sections = fields["unit"].shape[1], len(fields["section"])
    shapes: dict[str, Any] = {"dirty": sections, "event": (events, 2), "reason": (events, 4)}
    shapes |= {"level": (levels, 7), "filled": (levels, 3), **dict.fromkeys(("changed", "holes", "placed"), n)}
    tables = {name: np.empty(shape, np.int64) for name, shape in shapes.items()}
    nogoods = {"nogood": np.zeros(levels, np.uint8), "nogoods": np.empty(levels * (levels - 1) // 2, np.uint8)}
    counts = {"n": n, "entries": len(fields["entry"]), "sections": sections, "max_events": events, "max_levels": levels}
    return run(loops, "search", call_of("search", **counts, **tables, **nogoods, **fields))


def destroy_and_repair(loops: ctypes.CDLL, **fields: Any) -> bool:
    """Return whether all units are placed; see :func:`tmmu_core.planners.exact.lns_moves.destroy_and_repair`."""
    n, sections = len(fields["unit"]), int(fields["stretch"].max(initial=0))
    scratch = {"proximity": np.zeros((7, n), np.int32), "skyline": np.zeros(sections, np.int32)}
    scratch["target"] = np.zeros(6, np.int64)
    call = call_of("lns", n=n, sections=sections, noise_rows=fields["noise"].shape[1], **scratch, **fields)
    return bool(run(loops, "lns", call))


def run_for(loops: ctypes.CDLL, name: str, results: tuple[str, ...], **fields: Any) -> list[int]:
    """Run ``tmmu_<name>`` on the structure of this name; return its integer fields ``results``."""
    call = call_of(name, **fields)
    run(loops, name, call)
    return [int(getattr(call, field)) for field in results]


def recompute(loops: ctypes.CDLL, call: Call, **fields: I64 | NDArray[np.bool_]) -> bool:
    """Replace ``fields`` in ``call`` and run ``tmmu_recompute_run``. All simulations of a model share one ``call``.

    Return ``False`` if an operand is missing or the tables are full.
    """
    for name, value in fields.items():
        setattr(call, name, _as_word(value))
    call.fields |= fields
    return bool(run(loops, "recompute_run", call))


def minimum_cut(loops: ctypes.CDLL, start: I64, to: I64, residual: I64, twin: I64) -> I64:
    """Return the level of each vertex: ≥ 0 on the source's side, else negative. Arguments: ``min_cut._dinic``."""
    vertices = len(start) - 1
    assert len(to) == len(residual) == len(twin) == start[-1]
    level, queue, at = np.empty((3, vertices), np.int64)
    path = np.empty(vertices + 1, np.int64)
    edges = {"start": start, "to": to, "twin": twin, "room": residual}
    call = call_of("cut", vertices=vertices, level=level, queue=queue, at=at, path=path, **edges)
    run(loops, "minimum_cut", call)
    return level
