"""Canonical CBOR: one way to write a value, so that equal values have equal bytes on every machine (contract §6).

RFC 8949 §4.2.1, narrowed: definite lengths, shortest integers, text keys only and in the order of their encoded bytes,
no tags and so no bignums, every float as binary64 with one NaN.

A table with a row per tensor is a :class:`Table` of columns, encoded a chunk at a time, so that a million rows cost
neither a million lists nor their bytes at once. Own code, because ``cbor2`` shortens floats in its canonical form and
takes two to three times as long.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

CHUNK_ROWS = 1 << 16

_NULL, _FALSE, _TRUE = b"\xf6", b"\xf4", b"\xf5"
_NAN = b"\xfb\x7f\xf8\x00\x00\x00\x00\x00\x00"
_TEXT, _BYTES, _ARRAY, _MAP, _UINT, _NEGATIVE = 0x60, 0x40, 0x80, 0xA0, 0x00, 0x20


class NotCanonical(ValueError):
    """A value that has no canonical form: a key that is no text, an integer past 64 bits, a type without a place."""


# --- columns -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Coded:
    """A text column with few distinct values: ``names[codes[i]]`` is row i."""

    names: tuple[str, ...]
    codes: NDArray[np.integer[Any]]

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: slice) -> Coded:
        return Coded(self.names, self.codes[rows])


Column = Sequence[str] | Coded | NDArray[np.integer[Any]]


@dataclass(frozen=True, eq=False)
class Table:
    """An array of rows, given by columns of one length; encodes as ``[[row], [row], …]``, rows in the order given.

    A column is texts, :class:`Coded` texts, or integers (int or uint, ≥ 0).
    """

    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        assert self.columns, "a table has columns"
        assert len({len(column) for column in self.columns}) == 1, "columns of one table have one length"

    def __len__(self) -> int:
        return len(self.columns[0])

    def rows(self) -> list[list[Any]]:
        """The same as lists, for small tables and for people."""
        lists: list[list[Any]] = []
        for column in self.columns:
            if isinstance(column, Coded):
                lists.append([column.names[code] for code in column.codes.tolist()])
            else:
                lists.append(column.tolist() if isinstance(column, np.ndarray) else list(column))
        return [list(row) for row in zip(*lists, strict=True)]


@dataclass(frozen=True, eq=False)
class Texts:
    """An array of texts alone, woven like a table's column: an execution order."""

    texts: Sequence[str]


@dataclass(frozen=True, eq=False)
class Encoded:
    """A value that is encoded once and enters several hashes."""

    chunks: tuple[bytes, ...]


# --- encoding ----------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1 << 14)
def _head(major: int, n: int) -> bytes:
    """The shortest head of ``major`` (its three bits in place) with argument ``n``."""
    if n < 24:
        return bytes((major | n,))
    for width, kind in enumerate("BHIQ"):
        if n < 1 << (8 << width):
            return struct.pack(f">B{kind}", major | 24 + width, n)
    raise NotCanonical(f"{n} does not fit 64 bits")


def _text(value: str) -> bytes:
    try:
        raw = value.encode()
    except UnicodeEncodeError:
        raise NotCanonical(f"{value!r} is not text: it holds half a surrogate pair") from None
    return _head(_TEXT, len(raw)) + raw


def _in_order(keys: tuple[Any, ...]) -> list[tuple[bytes, Any]]:
    """The keys of a map with their encodings, in canonical order."""
    if not all(type(key) is str for key in keys):
        raise NotCanonical(f"a key of {keys!r:.80} is not text")
    return sorted([(_text(key), key) for key in keys], key=itemgetter(0))


_cached_order = lru_cache(maxsize=4096)(_in_order)
"""For small maps: rows of one kind have the same keys a million times."""


def _emit(x: Any, out: list[bytes]) -> None:
    """Append the pieces of ``x``'s encoding to ``out``."""
    kind = type(x)
    if kind is str:
        out.append(_text(x))
    elif kind is int:
        out.append(_head(_UINT, x) if x >= 0 else _head(_NEGATIVE, -1 - x))
    elif kind is list or kind is tuple:
        out.append(_head(_ARRAY, len(x)))
        for item in x:
            _emit(item, out)
    elif kind is dict:
        out.append(_head(_MAP, len(x)))
        for encoded, key in (_cached_order if len(x) <= 32 else _in_order)(tuple(x)):
            out.append(encoded)
            _emit(x[key], out)
    elif x is None:
        out.append(_NULL)
    elif kind is bool:
        out.append(_TRUE if x else _FALSE)
    elif kind is bytes:
        out.append(_head(_BYTES, len(x)))
        out.append(x)
    elif kind is float:
        out.append(_NAN if math.isnan(x) else b"\xfb" + struct.pack(">d", x))
    else:
        _emit(_plain(x), out)


def _plain(x: object) -> Any:
    """Return the builtin value of ``x`` (a numpy scalar, a subclass, another mapping)."""
    if isinstance(x, np.generic):
        return x.item()
    if isinstance(x, Mapping):
        return dict(x)
    kinds: tuple[Any, ...] = (int, float, str, bytes, list, tuple)
    for kind in kinds:
        if isinstance(x, kind):
            return kind(x)
    if isinstance(x, bytearray | memoryview):
        return bytes(x)
    raise NotCanonical(f"a {type(x).__name__} has no canonical form")


def cbor_chunks(x: Any) -> Iterator[bytes]:
    """The canonical bytes of ``x`` in pieces. Lists may hold :class:`Table` values at any depth of lists."""
    if isinstance(x, Encoded):
        yield from x.chunks
    elif isinstance(x, Table):
        yield _head(_ARRAY, len(x))
        for start in range(0, len(x), CHUNK_ROWS):
            yield _woven([column[start : start + CHUNK_ROWS] for column in x.columns], _head(_ARRAY, len(x.columns)))
    elif isinstance(x, Texts):
        yield _head(_ARRAY, len(x.texts))
        for start in range(0, len(x.texts), CHUNK_ROWS):
            yield _woven([x.texts[start : start + CHUNK_ROWS]])
    elif isinstance(x, list | tuple):
        yield _head(_ARRAY, len(x))
        pending: list[bytes] = []
        for item in x:
            if isinstance(item, Table | Encoded | Texts | list | tuple):
                yield from pending
                pending.clear()
                yield from cbor_chunks(item)
            else:
                _emit(item, pending)
                if len(pending) > 4096:
                    yield b"".join(pending)
                    pending.clear()
        if pending:
            yield b"".join(pending)
    elif isinstance(x, dict) and any(isinstance(value, list) and len(value) > 4096 for value in x.values()):
        # A graph: a map with long lists. Streaming them keeps a million tensors from being held as bytes twice over.
        yield _head(_MAP, len(x))
        for encoded, key in _in_order(tuple(x)):
            yield encoded
            yield from cbor_chunks(x[key])
    else:
        out: list[bytes] = []
        _emit(x, out)
        yield b"".join(out)


def _woven(columns: Sequence[Column], row_head: bytes = b"") -> bytes:
    """Return the encoded rows of columns of one length, each after ``row_head``."""
    count, width = len(columns[0]), len(row_head)
    cells = [_cells(column) for column in columns]
    if width:
        cells.insert(0, (np.full(count, width), np.frombuffer(row_head * count, np.uint8)))
    row_sizes = np.sum([sizes for sizes, _ in cells], axis=0)
    out = np.empty(int(row_sizes.sum()), np.uint8)
    starts = np.cumsum(row_sizes) - row_sizes
    for sizes, data in cells:
        out[_spread(starts, sizes)] = data
        starts = starts + sizes
    return out.tobytes()


def _spread(starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the positions of runs of bytes, one run after the other."""
    ends = np.cumsum(sizes)
    return np.repeat(starts - ends + sizes, sizes) + np.arange(int(ends[-1]) if len(ends) else 0)


def _cells(column: Column) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return the encoded size of each cell of a column, and the encoded cells one after the other."""
    if isinstance(column, Coded):
        names = [_text(name) for name in column.names]
        of_name = np.array([len(name) for name in names], np.int64)
        sizes = of_name[column.codes]
        starts = (np.cumsum(of_name) - of_name)[column.codes]
        return sizes, np.frombuffer(b"".join(names), np.uint8)[_spread(starts, sizes)]
    if isinstance(column, np.ndarray):
        return _heads(_UINT, column)
    joined = "".join(column)
    if not joined.isascii():
        texts = [_text(text) for text in column]
        return np.fromiter(map(len, texts), np.int64, len(texts)), np.frombuffer(b"".join(texts), np.uint8)
    lengths = np.fromiter(map(len, column), np.int64, len(column))
    heads, data = _heads(_TEXT, lengths)
    sizes = heads + lengths
    starts = np.cumsum(sizes) - sizes
    found = np.empty(int(sizes.sum()), np.uint8)
    found[_spread(starts, heads)] = data
    found[_spread(starts + heads, lengths)] = np.frombuffer(joined.encode(), np.uint8)
    return sizes, found


def _heads(major: int, numbers: NDArray[np.integer[Any]]) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return the size of the head of each number, and the heads one after the other."""
    values = numbers.astype(np.uint64)
    code = np.searchsorted(np.array([23, 2**8 - 1, 2**16 - 1, 2**32 - 1], np.uint64), values)
    sizes = np.array([1, 2, 3, 5, 9])[code]
    starts = np.cumsum(sizes) - sizes
    found = np.empty(int(sizes.sum()), np.uint8)
    found[starts] = major + np.where(code == 0, values, np.uint64(23) + code.astype(np.uint64)).astype(np.uint8)
    for k, width in enumerate((1, 2, 4, 8), 1):
        here = np.flatnonzero(code == k)
        digits = values[here].astype(f">u{width}").view(np.uint8).reshape(-1, width)
        found[starts[here][:, None] + np.arange(1, width + 1)] = digits
    return sizes, found


def encoded(table: Table) -> Encoded:
    """A table's bytes, for several hashes."""
    return Encoded(tuple(cbor_chunks(table)))


def cbor_canonical(x: Any) -> bytes:
    """``x`` as canonical CBOR. Takes ``None``, bool, int, float, str, bytes, lists, tuples, mappings, :class:`Table`.

    Raises :class:`NotCanonical` for anything else, for keys that are no text and for integers past 64 bits.
    """
    return b"".join(cbor_chunks(x))


def H(x: Any) -> bytes:  # noqa: N802 - the contract's own name
    """``SHA-256(CBOR_CANONICAL(x))``, 32 bytes (contract §6); streamed."""
    digest = hashlib.sha256()
    for chunk in cbor_chunks(x):
        digest.update(chunk)
    return digest.digest()
