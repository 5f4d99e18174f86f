import hashlib
import math
from dataclasses import replace
from random import Random
from typing import Any

import cbor2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.plans.examples import chain_plan
from tests.support.build import graph, node, tensor
from tmmu_core.base.cbor import H, NotCanonical, Table, cbor_canonical
from tmmu_core.base.errors import InvalidIrShapes
from tmmu_core.judge.canonical_hashes import encode
from tmmu_core.plans import canonical

INTEGERS = st.integers(-(2**64), 2**64 - 1)
LEAVES = st.none() | st.booleans() | INTEGERS | st.text() | st.binary()
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=30)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (23, "17"),
        (24, "1818"),
        (255, "18ff"),
        (256, "190100"),
        (65536, "1a00010000"),
        (2**32, "1b0000000100000000"),
        (2**64 - 1, "1bffffffffffffffff"),
        (-1, "20"),
        (-(2**64), "3bffffffffffffffff"),
        ("", "60"),
        ("é", "62c3a9"),
        (b"\x01", "4101"),
        ([], "80"),
        ({}, "a0"),
        ({"b": 1, "aa": 2, "a": 3}, "a3616103616201626161" + "02"),
        (None, "f6"),
        (True, "f5"),
        (1.0, "fb3ff0000000000000"),
        (-0.0, "fb8000000000000000"),
        (math.inf, "fb7ff0000000000000"),
        (math.nan, "fb7ff8000000000000"),
        (-math.nan, "fb7ff8000000000000"),
    ],
)
def test_value_has_its_canonical_encoding(value: Any, encoded: str) -> None:
    assert cbor_canonical(value).hex() == encode(value).hex() == encoded


@given(VALUES)
def test_encoding_equals_that_of_cbor2(value: Any) -> None:
    assert cbor_canonical(value) == cbor2.dumps(value, canonical=True)


@given(st.floats(allow_nan=False))
def test_float_is_encoded_in_64_bits(value: float) -> None:
    encoded = cbor_canonical(value)
    assert len(encoded) == 9
    assert cbor2.loads(encoded) == value


@pytest.mark.parametrize(
    "value", [{1: 2}, 2**64, -(2**64) - 1, {"a": {None: 1}}, {"x"}, 1j, "\ud800", [{"k": "\udc00"}]]
)
def test_value_without_canonical_form_is_rejected(value: Any) -> None:
    with pytest.raises(NotCanonical):
        cbor_canonical(value)


ASCII = st.sampled_from((0, 1, 23, 24, 255, 256)).map("x".__mul__)
ROWS = st.lists(st.tuples(st.text(), st.sampled_from(["b", "a", "Ω"]), INTEGERS.filter(lambda n: n >= 0), ASCII))


@given(ROWS)
def test_table_of_columns_is_encoded_as_its_rows(rows: list[tuple[str, str, int, str]]) -> None:
    table = Table(
        (
            tuple(row[0] for row in rows),
            tuple(row[1] for row in rows),
            np.array([row[2] for row in rows], np.uint64),
            tuple(row[3] for row in rows),
        )
    )
    assert table.rows() == rows
    assert cbor_canonical(["t", table]) == cbor2.dumps(["t", [list(row) for row in rows]], canonical=True)


def test_h_is_sha_256_of_the_canonical_bytes() -> None:
    value = {"tensors": [{"id": f"t{i}"} for i in range(5000)], "a": 1.5}
    assert H(value) == hashlib.sha256(cbor_canonical(value)).digest()


def test_token_is_made_from_a_seed_as_the_contract_says() -> None:
    expected = hashlib.sha256(cbor2.dumps(["replay_token_v1", ["UML_OS.TMMU.PrepareMemory_v2", 7]])).digest()
    assert canonical.token_from_seed(7) == expected


def test_plan_hash_is_that_of_the_contract() -> None:
    plan = chain_plan(2, arenas={"activations": {"alignment_bytes": 64}})
    slots = [["t0", "activations", 0], ["t1", "activations", 0], ["t2", "activations", 0]]
    addresses = [["activations", 0, 0]]

    def sha(value: Any) -> bytes:
        return hashlib.sha256(cbor2.dumps(value, canonical=True)).digest()

    fields = [
        plan.ir_hash,
        "inference",
        sha({"activations": {"alignment_bytes": 64}}),
        sha(["n000", "n001"]),
        0,
        1,
        sha({}),
        [canonical.token_from_seed(0), slots],
        addresses,
    ]
    assert plan.tmmu_plan_hash == sha(["tmmu_plan_v1", fields])
    assert plan.layout_hash == sha(["tmmu_layout_v1", [slots, addresses]])
    assert canonical.plan_digests(plan) == (plan.tmmu_plan_hash, plan.layout_hash)


def test_params_without_canonical_form_are_rejected() -> None:
    odd = graph([tensor("x"), tensor("y")], [node("n", "x", "y", params={"k": 2**70})], "x", "y")
    with pytest.raises(InvalidIrShapes) as refused:
        canonical.ir_hash(odd)
    assert refused.value.diagnostics["reason"] == "not_canonical"


def test_layout_hash_ignores_the_token_and_the_plan_hash_does_not() -> None:
    one, other = chain_plan(seed=1), chain_plan(seed=2)
    assert one.layout_hash == other.layout_hash
    assert one.tmmu_plan_hash != other.tmmu_plan_hash


@pytest.mark.parametrize("size", [0, 23, 24, 31, 32, 33, 255, 256, 257, 1023, 1024, 1025, 4096, 4097, 65535, 65536])
def test_lengths_and_numbers_at_the_borders_of_their_heads_are_encoded_as_by_cbor2(size: int) -> None:
    keys = {f"{k:05}": k for k in range(size)}
    for value in (
        size,
        -size,
        "x" * size,
        bytes(size),
        [1] * size,
        ["t"] * size,
        [[2]] * size,
        keys,
        {"a": [0] * size},
    ):
        assert cbor_canonical(value) == cbor2.dumps(value, canonical=True)


def test_shard_spec_that_cannot_be_hashed_is_rejected_with_the_reason() -> None:
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"a": deep}
    for spec, why in ((deep, "it is nested too deeply"), ({"a": object()}, "object"), ({1: 2}, "1")):
        with pytest.raises(InvalidIrShapes, match="the shard spec cannot be hashed") as caught:
            canonical.shard_spec_hash(spec)
        assert why in str(caught.value)
        assert ("too deeply" in str(caught.value)) == (spec is deep)


def test_address_table_has_the_lowest_offset_of_each_slot() -> None:
    plan, random = chain_plan(), Random("slots")
    arenas = tuple(replace(plan.arenas[0], name=name) for name in ("Z", "a", "é"))
    for _ in range(60):
        cells = [(random.randrange(3), random.choice((0, 1, 2, 11)), random.randrange(40)) for _ in plan.tensor_ids]
        arena, slot, offset = (np.array(column) for column in zip(*cells, strict=True))
        lowest: dict[tuple[str, int], int] = {}
        for number, at_slot, at in cells:
            lowest[arenas[number].name, at_slot] = min(at, lowest.get((arenas[number].name, at_slot), at))
        changed = replace(plan, arenas=arenas, arena=arena, logical_slot=slot, offset=offset.astype(np.uint64))
        assert canonical.logical_address_table(changed).rows() == [(*key, at) for key, at in sorted(lowest.items())]
