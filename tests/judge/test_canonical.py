"""The judge's own canonical CBOR, compared with known bytes and with the hashes of the contract."""

import hashlib
import struct
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.support.build import graph, node, tensor
from tmmu_core.base.cbor import cbor_canonical
from tmmu_core.judge.canonical_hashes import encode, ir_hash, ir_object, plan_hash


def test_every_nan_has_one_encoding() -> None:
    (signalling,) = struct.unpack(">d", bytes.fromhex("fff0000000000001"))
    assert encode(signalling).hex() == cbor_canonical(signalling).hex() == "fb7ff8000000000000"


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**64), 2**64 - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(values)
def test_judge_and_planner_encode_alike(value: Any) -> None:
    assert encode(value) == cbor_canonical(value)


def test_plan_hash_is_that_of_the_written_out_tables() -> None:
    token, rows, places = bytes(32), [("a", "x", 0), ("b", "x", 1)], [("x", 0, 0), ("x", 1, 128)]
    header = [b"i" * 32, "inference", b"a" * 32, b"o" * 32, 0, 1, b"s" * 32]
    written_out = ["tmmu_plan_v1", [*header, [token, [list(row) for row in rows]], [list(place) for place in places]]]
    assert plan_hash(header, token, rows, places) == hashlib.sha256(encode(written_out)).digest()


def test_defaults_are_omitted_from_the_graph_object() -> None:
    g = graph([tensor("x", role="input"), tensor("y")], [node("n", "x", "y", inplace="any")], "x", "y")
    assert ir_object(g) == {
        "ir_schema": "uml_model_ir/1",
        "tensors": ({"id": "x", "shape": (4,), "role": "input"}, {"id": "y", "shape": (4,)}),
        "nodes": ({"node_id": "n", "inputs": ("x",), "outputs": ("y",)},),
        "inputs": ("x",),
        "outputs": ("y",),
    }


def test_two_spellings_of_a_graph_have_one_hash() -> None:
    shown_text = graph([tensor("x", role="input", dtype="f32")], [], "x", ir_schema="uml_model_ir/1")
    defaults = graph([tensor("x", role="input")], [], "x")
    assert ir_hash(shown_text) == ir_hash(defaults)


def test_schema_is_hashed() -> None:
    other = graph([tensor("x", role="input")], [], "x", ir_schema="another/2")
    assert ir_object(other)["ir_schema"] == "another/2"
