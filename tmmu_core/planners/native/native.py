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


def call_of(function: str, **fields: Any) -> Any:
    """Return the arguments of ``tmmu_<function>``, as the structure of this name; fields left out are 0."""
    return _STRUCTURES[function](**fields)


def run(loops: ctypes.CDLL, call: Any, **fields: I64 | NDArray[np.bool_]) -> int:
    """Replace ``fields`` in ``call``, run its function without the interpreter lock, and return its result."""
    for name, value in fields.items():
        setattr(call, name, _as_word(value))
    call.fields |= fields
    native_function = getattr(loops, f"tmmu_{type(call).__name__}")
    native_function.restype = ctypes.c_int64
    return int(native_function(ctypes.byref(call)))
