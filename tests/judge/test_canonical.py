"""The judge's own canonical CBOR, against bytes that can be checked by eye and against the contract's hashes."""

from __future__ import annotations

import hashlib
import math
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.build import graph, node, tensor
from tmmu_core.base.cbor import cbor_canonical
from tmmu_core.judge.canonical_hashes import (
    encode,
    hash_of,
    ir_hash,
    ir_object,
    layout_hash,
    plan_hash,
    token_from_seed,
)

VECTORS: list[tuple[Any, str]] = [
    (0, "00"),
    (23, "17"),
    (24, "1818"),
    (255, "18ff"),
    (256, "190100"),
    (65536, "1a00010000"),
    (2**64 - 1, "1bffffffffffffffff"),
    (-1, "20"),
    (-500, "3901f3"),
    (False, "f4"),
    (True, "f5"),
    (None, "f6"),
    ("", "60"),
    ("ü", "62c3bc"),
    (b"\x01\x02", "420102"),
    ([1, [2]], "820181 02".replace(" ", "")),
    ({"b": 1, "aa": 2, "a": 3}, "a3616103616201626161 02".replace(" ", "")),
    (1.5, "fb3ff8000000000000"),
    (math.nan, "fb7ff8000000000000"),
]


@pytest.mark.parametrize(("value", "bytes_"), VECTORS)
def test_a_value_has_one_encoding(value: Any, bytes_: str) -> None:
    assert encode(value).hex() == cbor_canonical(value).hex() == bytes_


def test_every_nan_is_the_one_nan() -> None:
    (signalling,) = struct.unpack(">d", bytes.fromhex("fff0000000000001"))
    assert encode(signalling).hex() == cbor_canonical(signalling).hex() == "fb7ff8000000000000"


@pytest.mark.parametrize("value", [2**64, {1: 2}, {3}, object()])
def test_what_has_no_encoding_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        encode(value)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**64), 2**64 - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(values)
def test_judge_and_planner_encode_alike(value: Any) -> None:
    assert encode(value) == cbor_canonical(value)


def test_the_plan_hash_is_that_of_the_tables_written_out() -> None:
    token, rows, places = bytes(32), [("a", "x", 0), ("b", "x", 1)], [("x", 0, 0), ("x", 1, 128)]
    header = [b"i" * 32, "inference", b"a" * 32, b"o" * 32, 0, 1, b"s" * 32]
    written_out = ["tmmu_plan_v1", [*header, [token, [list(row) for row in rows]], [list(place) for place in places]]]
    assert plan_hash(header, token, rows, places) == hashlib.sha256(encode(written_out)).digest()


def test_the_layout_hash_leaves_the_token_out() -> None:
    rows, places = [("a", "x", 0)], [("x", 0, 0)]
    assert layout_hash(rows, places) == hash_of(["tmmu_layout_v1", [rows, places]])


def test_a_token_comes_from_a_seed_and_the_version_of_the_specification() -> None:
    assert token_from_seed(7) == hash_of(["replay_token_v1", ["UML_OS.TMMU.PrepareMemory_v2", 7]])


def test_defaults_are_not_said() -> None:
    g = graph([tensor("x", role="input"), tensor("y")], [node("n", "x", "y", inplace="any")], "x", "y")
    assert ir_object(g) == {
        "ir_schema": "uml_model_ir/1",
        "tensors": [{"id": "x", "shape": [4], "role": "input"}, {"id": "y", "shape": [4]}],
        "nodes": [{"node_id": "n", "inputs": ["x"], "outputs": ["y"]}],
        "inputs": ["x"],
        "outputs": ["y"],
    }


def test_two_spellings_of_one_graph_have_one_hash() -> None:
    said = graph([tensor("x", role="input", dtype="f32")], [], "x", ir_schema="uml_model_ir/1")
    unsaid = graph([tensor("x", role="input")], [], "x")
    assert ir_hash(said) == ir_hash(unsaid)


def test_a_schema_that_is_said_is_hashed() -> None:
    other = graph([tensor("x", role="input")], [], "x", ir_schema="another/2")
    assert ir_object(other)["ir_schema"] == "another/2"
