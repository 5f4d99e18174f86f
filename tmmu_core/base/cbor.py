"""Canonical CBOR: equal values have equal bytes on every machine (contract §6).

Lengths are definite, and integers have the shortest form. Map keys are texts, sorted by their encoded bytes (RFC 8949
§4.2.1). There are no tags and therefore no bignums. Every float is a binary64, and all NaNs have the same bytes.
The canonical form of ``cbor2`` shortens floats, so ``cbor2`` encodes only tables, which have no floats.
"""

import hashlib
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import cbor2
import numpy as np
from numpy.typing import NDArray

CHUNK_ROWS = 1 << 14  # number of rows of a table that are encoded at once; all rows at once need too much memory
SHORT_MAP = 32  # maximum number of keys of a map whose sorted keys are cached

_NAN = b"\xfb\x7f\xf8\x00\x00\x00\x00\x00\x00"
_UINT, _NEGATIVE, _BYTES, _TEXT, _ARRAY, _MAP = range(0, 0xC0, 0x20)
_BYTE = [bytes([value]) for value in range(256)]
Column = Sequence[str] | NDArray[np.integer[Any]]


class NotCanonical(ValueError):
    """Raised for an unsupported type, a surrogate, an integer over 64 bits, or a map key that is not text."""


@dataclass(frozen=True, eq=False)
class Table:
    """An array of rows ``[[cell, …], …]``, given by columns of equal length: texts or integers."""

    columns: tuple[Column, ...]

    def __len__(self) -> int:
        return len(self.columns[0])

    def rows(self, start: int = 0, stop: int | None = None) -> list[tuple[Any, ...]]:
        """Return the rows ``[start, stop)``; by default all."""
        parts = (column[start:stop] for column in self.columns)
        return list(zip(*(part.tolist() if isinstance(part, np.ndarray) else part for part in parts), strict=True))


@dataclass(frozen=True, eq=False)
class Encoded:
    """The canonical encoding of a value that is part of several hashed values."""

    data: bytes


def _head(major: int, n: int) -> bytes:
    """Return the shortest head of an item: its type ``major``, and its number or length ``n``."""
    if n < 24:
        return _BYTE[major | n]
    for code, width in ((24, 1), (25, 2), (26, 4), (27, 8)):
        if n < 1 << 8 * width:
            return _BYTE[major | code] + n.to_bytes(width, "big")
    raise NotCanonical(f"{n} does not fit 64 bits")


def _text(value: str) -> bytes:
    raw = value.encode()
    return _head(_TEXT, len(raw)) + raw


def _sorted_keys(keys: tuple[Any, ...]) -> list[tuple[bytes, Any]]:
    if not all(type(key) is str for key in keys):
        raise NotCanonical(f"a key of {keys!r:.80} is not text")
    return sorted([(_text(key), key) for key in keys])


_cached_keys = lru_cache(maxsize=4096)(_sorted_keys)


def _add(out: bytearray, x: Any) -> None:
    kind = type(x)
    if kind is str:
        out += _text(x)
    elif kind is int:
        out += _head(_UINT, x) if x >= 0 else _head(_NEGATIVE, -1 - x)
    elif kind is list or kind is tuple:
        out += _head(_ARRAY, len(x))
        for item in x:
            _add(out, item)
    elif kind is dict:
        out += _head(_MAP, len(x))
        for encoded_key, key in (_cached_keys if len(x) <= SHORT_MAP else _sorted_keys)(tuple(x)):
            out += encoded_key
            _add(out, x[key])
    elif x is None or kind is bool:
        out += b"\xf6" if x is None else b"\xf5" if x else b"\xf4"
    elif kind is bytes:
        out += _head(_BYTES, len(x)) + x
    elif kind is float:
        out += _NAN if math.isnan(x) else b"\xfb" + struct.pack(">d", x)
    elif kind is Table:
        out += _head(_ARRAY, len(x))
        for start in range(0, len(x), CHUNK_ROWS):
            rows = x.rows(start, start + CHUNK_ROWS)
            out += cbor2.dumps(rows)[len(_head(_ARRAY, len(rows))) :]  # canonical for texts and integers
    elif kind is Encoded:
        out += x.data
    else:
        _add(out, _plain(x))


def _plain(x: object) -> Any:
    """Convert a numpy scalar, a mapping, a byte buffer, or an instance of a subclass to a builtin type."""
    if isinstance(x, np.generic):
        return x.item()
    kinds: dict[Any, Any] = {Mapping: dict, bytearray: bytes, memoryview: bytes}
    kinds |= {kind: kind for kind in (int, float, str, bytes, list, tuple)}
    for kind, builtin in kinds.items():
        if isinstance(x, kind):
            return builtin(x)
    raise NotCanonical(f"a {type(x).__name__} has no canonical form")


def cbor_canonical(x: Any) -> bytes:
    """Return a value as CBOR; it may contain :class:`Table` and :class:`Encoded`. Raises :class:`NotCanonical`."""
    out = bytearray()
    try:
        _add(out, x)
    except UnicodeEncodeError as error:
        context = error.object[max(0, error.start - 40) : error.end + 40]
        raise NotCanonical(f"{context!r} is not text: it contains half of a surrogate pair") from None
    return bytes(out)


def H(x: Any) -> bytes:  # noqa: N802 - the contract's own name
    """Return ``SHA-256(CBOR_CANONICAL(x))``, 32 bytes (contract §6)."""
    return hashlib.sha256(cbor_canonical(x)).digest()
