"""Canonical CBOR: one way to write a value, so that equal values have equal bytes on every machine (contract §6).

RFC 8949 §4.2.1, narrowed: definite lengths, shortest integers, text keys only and in the order of their encoded bytes,
no tags and so no bignums, every float as binary64 with one NaN.

A table with a row per tensor is handed over as a :class:`Table` of columns and encoded by numpy a chunk at a time, so
that a million rows cost neither a million lists nor their bytes at once.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tmmu_core.base.errors import U64_MAX

U8 = NDArray[np.uint8]
I64 = NDArray[np.int64]

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


def _head(major: int, n: int) -> bytes:
    """The shortest head of ``major`` (its three bits in place) with argument ``n``."""
    if n < 24:
        return bytes((major | n,))
    if n < 0x100:
        return bytes((major | 24, n))
    if n < 0x10000:
        return struct.pack(">BH", major | 25, n)
    if n < 0x100000000:
        return struct.pack(">BI", major | 26, n)
    if n <= U64_MAX:
        return struct.pack(">BQ", major | 27, n)
    raise NotCanonical(f"{n} does not fit 64 bits")


_SMALL = tuple(_head(_UINT, n) for n in range(1024))
_TEXT_HEADS, _ARRAY_HEADS, _MAP_HEADS = (tuple(_head(major, n) for n in range(256)) for major in (_TEXT, _ARRAY, _MAP))
"""Heads that a graph needs a million times over, made once."""
_KEYS: dict[str, bytes] = {}
"""Encoded map keys: a graph has a dozen of them, a million times over."""


def _text(value: str) -> bytes:
    try:
        raw = value.encode()
    except UnicodeEncodeError:
        raise NotCanonical(f"{value!r} is not text: it holds half a surrogate pair") from None
    size = len(raw)
    return (_TEXT_HEADS[size] if size < 256 else _head(_TEXT, size)) + raw


def _key(key: object) -> bytes:
    if type(key) is not str:
        raise NotCanonical(f"the map key {key!r} is not text")
    found = _KEYS.get(key)
    if found is None:
        found = _text(key)
        if len(_KEYS) < 4096:
            _KEYS[key] = found
    return found


def _emit(x: Any, out: list[bytes]) -> None:
    """Append the pieces of ``x``'s encoding to ``out``."""
    kind = type(x)
    if kind is str:
        out.append(_text(x))
    elif kind is int:
        if x < 0:
            out.append(_head(_NEGATIVE, -1 - x))
        else:
            out.append(_SMALL[x] if x < 1024 else _head(_UINT, x))
    elif kind is list or kind is tuple:
        size = len(x)
        out.append(_ARRAY_HEADS[size] if size < 256 else _head(_ARRAY, size))
        for item in x:
            if type(item) is str:
                out.append(_text(item))
            else:
                _emit(item, out)
    elif kind is dict:
        size = len(x)
        out.append(_MAP_HEADS[size] if size < 256 else _head(_MAP, size))
        for encoded, key in _ordered(tuple(x)) if size <= 32 else _in_order(x):
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


def _in_order(keys: Iterable[Any]) -> list[tuple[bytes, Any]]:
    """The keys of a map with their encodings, in canonical order."""
    return sorted([(_key(key), key) for key in keys], key=_first)


_ordered = lru_cache(maxsize=4096)(_in_order)
"""Cached: rows of one kind use the same keys a million times."""


def _first(pair: tuple[bytes, Any]) -> bytes:
    return pair[0]


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
            yield _encode_rows(x, start, min(start + CHUNK_ROWS, len(x)))
    elif isinstance(x, Texts):
        yield _head(_ARRAY, len(x.texts))
        for start in range(0, len(x.texts), CHUNK_ROWS):
            yield _text_pieces(x.texts[start : start + CHUNK_ROWS])[0].tobytes()
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
        for encoded, value in sorted([(_key(key), value) for key, value in x.items()], key=_first):
            yield encoded
            yield from cbor_chunks(value)
    else:
        out: list[bytes] = []
        _emit(x, out)
        yield b"".join(out)


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


# --- a table's rows, by numpy ------------------------------------------------------------------------------------
#
# A row is its head and one piece per column. Each column gives, for a chunk of rows, its pieces end to end in one
# buffer with their lengths; :func:`_weave` lays the pieces of a row one after the other.


def _encode_rows(table: Table, start: int, stop: int) -> bytes:
    n = stop - start
    row_head = _head(_ARRAY, len(table.columns))
    parts: list[tuple[U8, I64]] = [
        (np.frombuffer(row_head * n, np.uint8), np.full(n, len(row_head), np.int64)),
    ]
    for column in table.columns:
        if isinstance(column, Coded):
            parts.append(_coded_pieces(column, start, stop))
        elif isinstance(column, np.ndarray):
            parts.append(_int_pieces(column[start:stop]))
        else:
            parts.append(_text_pieces(column[start:stop]))
    return _weave(parts, n).tobytes()


def _weave(parts: list[tuple[U8, I64]], n: int) -> U8:
    """Interleave: row 0 of every part, row 1 of every part, …"""
    lengths = np.stack([length for _, length in parts], axis=1).ravel()
    whose = np.repeat(np.tile(np.arange(len(parts), dtype=np.uint8), n), lengths)
    out = np.empty(len(whose), np.uint8)
    for k, (buffer, _) in enumerate(parts):
        out[whose == k] = buffer
    return out


def _text_pieces(texts: Sequence[str]) -> tuple[U8, I64]:
    joined = "".join(texts)
    if joined.isascii():
        raw = joined.encode()
        sizes = np.fromiter(map(len, texts), np.int64, len(texts))
    else:
        try:
            encoded = [text.encode() for text in texts]
        except UnicodeEncodeError as error:
            raise NotCanonical(f"{error.object!r} is not text: it holds half a surrogate pair") from None
        raw = b"".join(encoded)
        sizes = np.fromiter(map(len, encoded), np.int64, len(encoded))
    body = np.frombuffer(raw, np.uint8)
    if int(sizes.max(initial=0)) < 24:  # heads of one byte
        ends = np.cumsum(sizes + 1)
        out = np.empty(len(body) + len(sizes), np.uint8)
        is_body = np.ones(len(out), np.bool_)
        at = ends - sizes - 1
        is_body[at] = False
        out[at] = _TEXT | sizes.astype(np.uint8)
        out[is_body] = body
        return out, sizes + 1
    heads, head_sizes = _heads(_TEXT, sizes.astype(np.uint64))
    return _weave([(heads, head_sizes), (body, sizes)], len(sizes)), head_sizes + sizes


def _int_pieces(values: NDArray[np.integer[Any]]) -> tuple[U8, I64]:
    assert not len(values) or values.min() >= 0, "table integers are counts and places"
    return _heads(_UINT, values.astype(np.uint64))


def _coded_pieces(column: Coded, start: int, stop: int) -> tuple[U8, I64]:
    pieces = [_text(name) for name in column.names]
    sizes = np.array([len(piece) for piece in pieces], np.int64)
    firsts = np.cumsum(sizes) - sizes
    pool = np.frombuffer(b"".join(pieces), np.uint8)
    codes = column.codes[start:stop]
    length = sizes[codes]
    begin = np.cumsum(length) - length
    index = np.repeat(firsts[codes] - begin, length) + np.arange(int(length.sum()), dtype=np.int64)
    return pool[index], length


def _heads(major: int, values: NDArray[np.uint64]) -> tuple[U8, I64]:
    """Shortest heads of all ``values``, end to end, and their lengths."""
    extra = np.zeros(len(values), np.int64)
    for limit, size in ((24, 1), (0x100, 2), (0x10000, 4), (0x100000000, 8)):
        extra[values >= np.uint64(limit)] = size
    wide = np.zeros((len(values), 9), np.uint8)
    big_endian = values.astype(">u8").view(np.uint8).reshape(-1, 8)
    keep = np.zeros((len(values), 9), np.bool_)
    keep[:, 0] = True
    wide[:, 0] = major | big_endian[:, 7]
    for size, info in ((1, 24), (2, 25), (4, 26), (8, 27)):
        at = np.flatnonzero(extra == size)
        wide[at, 0] = major | info
        wide[at, 1 : 1 + size] = big_endian[at, 8 - size :]
        keep[at, 1 : 1 + size] = True
    return wide[keep], extra + 1
