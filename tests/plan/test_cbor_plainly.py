"""Canonical CBOR beside the plainest encoder that says the same, at every length where a head grows."""

from __future__ import annotations

import math
import struct
from random import Random
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from tmmu_core import cbor
from tmmu_core.cbor import Coded, NotCanonical, Table, Texts, cbor_canonical, cbor_chunks, encoded

BORDERS = (0, 1, 23, 24, 255, 256, 65535, 65536, 2**32 - 1, 2**32, 2**63, 2**64 - 1)


def head(major: int, n: int) -> bytes:
    """RFC 8949 §3: the argument in the five bits, or behind them in 1, 2, 4 or 8 bytes."""
    if n < 24:
        return bytes([major << 5 | n])
    info, form = next((info, form) for info, form in ((24, "B"), (25, "H"), (26, "I"), (27, "Q")) if n < _past(form))
    return bytes([major << 5 | info]) + struct.pack(f">{form}", n)


def _past(form: str) -> int:
    return int(256 ** struct.calcsize(f">{form}"))


def plainly(value: Any) -> bytes:
    if isinstance(value, Table):
        return plainly(value.rows())
    if isinstance(value, Texts):
        return plainly(list(value.texts))
    if value is None or isinstance(value, bool):
        return {None: b"\xf6", False: b"\xf4", True: b"\xf5"}[value]
    if isinstance(value, int):
        return head(0, value) if value >= 0 else head(1, -1 - value)
    if isinstance(value, bytes):
        return head(2, len(value)) + value
    if isinstance(value, str):
        return head(3, len(value.encode())) + value.encode()
    if isinstance(value, list | tuple):
        return head(4, len(value)) + b"".join(map(plainly, value))
    if isinstance(value, dict):
        pairs = sorted((plainly(key), plainly(item)) for key, item in value.items())
        return head(5, len(value)) + b"".join(key + item for key, item in pairs)
    return b"\xfb" + (b"\x7f\xf8" + bytes(6) if math.isnan(value) else struct.pack(">d", value))


@pytest.mark.parametrize("n", [*BORDERS, 1023, 1024])
def test_a_number_has_the_shortest_head(n: int) -> None:
    for value in (n, -1 - n, [n], {"k": n}):
        assert cbor_canonical(value) == plainly(value)
    small, few = (n if n <= most else 0 for most in (65536, 256))
    for value in (
        "x" * small,
        b"x" * small,
        ["x" * small],
        [1] * few,
        {"k": [1] * few},
        {str(k): k for k in range(few)},
    ):
        assert cbor_canonical(value) == plainly(value)
    column = np.array([n, 0, n], np.uint64)
    texts = ["x" * small, "", "é" * (small // 2)]
    for columns in ((column,), (texts,), (texts[:2],), (column, texts), (Coded((texts[2], texts[0]), column * 0),)):
        table = Table(columns)
        assert cbor_canonical(table) == plainly(table)
    assert cbor_canonical(Texts(texts)) == plainly(Texts(texts))


@pytest.mark.parametrize("value", [2**64, -(2**64) - 1, {1: 2}, {b"k": 1}, "\ud800", {"\ud800": 1}, [{1}], object()])
def test_what_has_no_canonical_form_is_refused(value: Any) -> None:
    with pytest.raises(NotCanonical):
        cbor_canonical(value)


def test_half_a_surrogate_pair_is_no_text_wherever_it_stands() -> None:
    for value in (Table((["a", "\ud800"],)), Texts(["\ud800"]), Table((Coded(("\ud800",), np.zeros(1, np.int64)),))):
        with pytest.raises(NotCanonical, match="half a surrogate pair"):
            cbor_canonical(value)


class Word(str):
    __slots__ = ()


class Number(int):
    pass


def test_what_stands_for_a_builtin_is_written_as_one() -> None:
    cases: list[tuple[Any, Any]] = [
        (np.int64(-3), -3),
        (np.uint8(200), 200),
        (np.float64(2.5), 2.5),
        (np.float32(0.5), 0.5),
        (np.bool_(True), True),
        (np.str_("x"), "x"),
        (MappingProxyType({"b": 1, "a": 2}), {"a": 2, "b": 1}),
        (Word("w"), "w"),
        (Number(300), 300),
        (bytearray(b"ab"), b"ab"),
        (memoryview(b"ab"), b"ab"),
        (math.nan, math.nan),
        (-math.nan, math.nan),
        (math.inf, math.inf),
        (-0.0, -0.0),
        ((), []),
    ]
    for value, same in cases:
        for given, expected in ((value, same), ([value], [same]), ({"k": (value,)}, {"k": [same]})):
            assert cbor_canonical(given) == plainly(expected), value


def drawn(random: Random, depth: int) -> Any:
    pick = random.randint(0, 9 if depth else 6)
    texts = ("x" * random.choice((0, 23, 24)), b"a")
    atoms = (None, True, False, random.choice(BORDERS), -random.choice(BORDERS), *texts, 1.5)
    if pick < 7:
        return random.choice(atoms)
    if pick == 7:
        return tuple(drawn(random, depth - 1) for _ in range(random.choice((0, 1, 3, 24))))
    if pick == 8:
        return [drawn(random, depth - 1) for _ in range(random.choice((0, 1, 3, 24)))]
    keys = ["é", "a", "b", "aa", "ab", "z" * 24, *(f"k{k}" for k in range(40))]
    return {key: drawn(random, depth - 1) for key in random.sample(keys, random.choice((0, 1, 4, 32, 33)))}


def test_any_value_is_written_as_plainly_and_its_columns_as_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(2)
    for _ in range(120):
        value = drawn(random, 2)
        assert cbor_canonical(value) == plainly(value)
        assert cbor_canonical([value, Texts(["a"]), value]) == plainly([value, ["a"], value])
        monkeypatch.setattr(cbor, "CHUNK_ROWS", random.choice((1, 2, 3, 1 << 16)))
        n = random.choice((0, 1, 2, 3, 5))
        wide = ["", "a", "x" * 23, "y" * 24, "é" * 12, "z" * 256]
        texts = [random.choice(wide[: random.choice((3, 6))]) for _ in range(n)]
        numbers = np.array([random.choice(BORDERS) for _ in range(n)], np.uint64)
        codes = np.array([random.randrange(3) for _ in range(n)], np.uint8)
        columns = [texts, numbers, numbers.astype(np.uint8), Coded(("a", "b" * 30, "é"), codes), tuple(texts)]
        table = Table(tuple(random.sample(columns, random.randint(1, 5))))
        assert len(table) == n
        assert table.rows() == [list(row) for row in zip(*map(listed, table.columns), strict=True)]
        for whole in (table, [table], [1, [table, "x"], table]):
            assert cbor_canonical(whole) == plainly(whole)
        assert cbor_canonical([encoded(table), table]) == plainly([table, table])
        assert cbor_canonical([Texts(texts), 7]) == plainly([texts, 7])


def listed(column: Any) -> list[Any]:
    if isinstance(column, Coded):
        return [column.names[code] for code in column.codes]
    return [int(n) for n in column] if isinstance(column, np.ndarray) else list(column)


def sizes(value: Any) -> list[int]:
    return [len(chunk) for chunk in cbor_chunks(value)]


def test_what_is_long_comes_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sizes([1] * 4096) == [3, 4096]
    assert sizes([1] * 4097) == [3, 4097]
    assert sizes([1] * 4098) == [3, 4097, 1]
    assert sizes([1, 2, [3], 4]) == [1, 1, 1, 1, 1, 1]
    assert sizes({"k": [1] * 4096}) == [1 + 2 + 3 + 4096]
    assert sizes({"k": [1] * 4097, "a": 1}) == [1, 2, 1, 2, 3, 4097]
    assert cbor_canonical({"k": [1] * 4097, "a": 1, "aa": 2}) == plainly({"k": [1] * 4097, "a": 1, "aa": 2})
    assert sizes({"k": (1,) * 4097, "a": "x" * 5000}) == [1 + 2 + 3 + 4097 + 2 + 3 + 5000]
    monkeypatch.setattr(cbor, "CHUNK_ROWS", 2)
    for rows, pieces in ((0, []), (1, [2]), (2, [4]), (3, [4, 2]), (5, [4, 4, 2])):
        assert sizes(Table((np.ones(rows, np.int64),))) == [1, *pieces]
        assert sizes(Texts(["a"] * rows)) == [1, *pieces]
        kept = encoded(Table((np.ones(rows, np.int64),)))
        assert [len(chunk) for chunk in kept.chunks] == sizes(kept) == [1, *pieces]


def test_keys_are_kept_to_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = {f"kept {k}": b"" for k in range(4095)}
    monkeypatch.setattr(cbor, "_KEYS", kept)
    assert [cbor._key(key) for key in ("new", "newer", "new")] == [b"cnew", b"enewer", b"cnew"]
    assert len(kept) == 4096
    assert "newer" not in kept
    cbor._ordered.cache_clear()
    for count in (31, 32, 33, 32):
        cbor_canonical({f"{k}": k for k in range(count)})
    found = cbor._ordered.cache_info()
    assert (found.misses, found.hits) == (2, 1)
