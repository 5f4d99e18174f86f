"""The native file: a graph is written, read and written again to the same bytes, in every encoding."""

import json
from pathlib import Path
from typing import Any

import cbor2
import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.paths import DATA, SAMPLES
from tmmu_core.base import schemas
from tmmu_core.base.errors import InvalidIrShapes, UnreadableInput
from tmmu_core.formats.open_file import read_graph
from tmmu_core.graph.model import GRAPH_SCHEMA, PHASES, ROLES, Dim, Graph, Node, Shard, Tensor, View
from tmmu_core.graph.native import document, native_file

SAMPLES = sorted(SAMPLES.glob("*.tmmu.json*"))
BROKEN = DATA / "broken"
VALIDATOR = jsonschema.Draft202012Validator(json.loads(schemas.GRAPH.read_text(encoding="utf-8")))

ids = st.text(max_size=6)
sizes = st.integers(0, 2**64 - 1)
pairs = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=2).map(tuple)
plain_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | ids,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(ids, inner, max_size=2),
    max_leaves=4,
)
views = st.builds(View, ids, sizes, st.none() | sizes, st.none() | st.lists(st.integers(-9, 9), max_size=3).map(tuple))
tensors = st.builds(
    Tensor,
    id=ids,
    shape=st.lists(sizes | ids, max_size=3).map(tuple),
    dtype=st.sampled_from(["float32", "bfloat16", "int4"]),
    role=st.sampled_from(ROLES),
    alias_group_id=st.none() | ids,
    view=st.none() | views,
    saved_for_backward=st.booleans(),
    remat=st.booleans(),
    must_not_alias=st.lists(ids, max_size=2).map(tuple),
    alignment=st.none() | st.integers(1, 2**63),
    arena=st.none() | ids,
    shard=st.none() | st.builds(Shard, st.integers(0, 3), ids),
)
nodes = st.builds(
    Node,
    node_id=ids,
    instr=ids,
    inputs=st.lists(ids, max_size=2).map(tuple),
    outputs=st.lists(ids, max_size=2).map(tuple),
    phase=st.sampled_from(PHASES),
    inplace=st.none() | st.sampled_from(["any", "none"]) | pairs,
    in_place_write=pairs,
    params=st.dictionaries(ids, plain_values, max_size=2),
    grad_edges=pairs,
)
graphs = st.builds(
    Graph,
    tensors=st.lists(tensors, max_size=3).map(tuple),
    nodes=st.lists(nodes, max_size=3).map(tuple),
    inputs=st.lists(ids, max_size=2, unique=True).map(tuple),
    outputs=st.lists(ids, max_size=2, unique=True).map(tuple),
    ir_schema=st.just(GRAPH_SCHEMA),
    name=ids,
    dims=st.dictionaries(ids, st.builds(Dim, sizes, sizes), max_size=2),
    replan_policy=st.sampled_from(["ABORT", "REPLAN_AT_SAFEPOINT"]),
    safepoints=st.lists(ids, max_size=2).map(tuple),
    execution_order=st.none() | st.lists(ids, max_size=2).map(tuple),
    planner=st.sampled_from(["", "auto"]),
)


@pytest.mark.slow
@pytest.mark.parametrize("ending", [".json", ".cbor", ".json.gz", ".cbor.gz"])
@given(written=graphs)
def test_file_round_trips(ending: str, written: Graph) -> None:
    assert native_file.decode(native_file.encode(written, "graph" + ending)) == written


@given(graphs)
def test_file_validates_against_the_schema(written: Graph) -> None:
    VALIDATOR.validate(json.loads(native_file.encode_json(written)))


@given(graphs)
def test_writing_a_read_file_gives_the_same_bytes(written: Graph) -> None:
    data = native_file.encode_json(written)
    assert native_file.encode_json(native_file.decode(data)) == data


@given(graphs)
def test_normal_form_does_not_depend_on_the_encoding(written: Graph) -> None:
    from_json, from_cbor = (
        native_file.decode(native_file.encode_json(written)),
        native_file.decode(native_file.encode_cbor(written)),
    )
    assert native_file.normal_form(from_json) == native_file.normal_form(from_cbor) == native_file.normal_form(written)


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_sample_in_json_validates_against_the_schema(path: Path) -> None:
    VALIDATOR.validate(json.loads(document.unpack(path.read_bytes())))


def normal(**fields: Any) -> dict[str, Any]:
    return native_file.normal_form(Graph(**fields))


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"nodes": (Node("n", inplace="any"),)}, {"nodes": (Node("n"),)}, True),
        ({"nodes": (Node("n", inplace="none"),)}, {"nodes": (Node("n"),)}, False),
        ({"tensors": (Tensor("x", dtype="bf16"),)}, {"tensors": (Tensor("x", dtype="bfloat16"),)}, True),
        ({"ir_schema": GRAPH_SCHEMA}, {}, True),
    ],
)
def test_spellings_of_one_graph_have_one_normal_form(one: dict[str, Any], other: dict[str, Any], same: bool) -> None:
    assert (normal(**one) == normal(**other)) is same


def test_field_of_readers_of_other_formats_is_rejected() -> None:
    with pytest.raises(InvalidIrShapes, match="'ranges'"):
        native_file.decode(b'{"dims": {"B": {"max": 8}}, "ranges": {"B": {"max": 64}}, "tensors": []}')


def test_non_finite_number_is_rejected_in_json() -> None:
    with pytest.raises(InvalidIrShapes, match="'n'"):
        native_file.encode_json(Graph(nodes=(Node("n", params={"scale": [1.0, float("inf")]}),)))


def test_unknown_ending_is_rejected() -> None:
    with pytest.raises(UnreadableInput, match=r"graph\.yaml"):
        native_file.encode(Graph(), "graph.yaml")


@pytest.mark.parametrize("write", [lambda d: json.dumps(d).encode(), cbor2.dumps])
def test_tensor_without_shape_is_refused_by_name(write: Any) -> None:
    """The first version omitted every float32 and the shape of a scalar: its files still open."""
    scalar = {"id": "h", "shape": [], "dtype": "float32"}
    whole = {"tensors": [{"id": "x", "shape": [4], "dtype": "float32"}, scalar]}
    assert read_graph(write(whole)).tensors[1] == Tensor("h", (), "float32")
    del scalar["shape"]
    with pytest.raises(InvalidIrShapes) as caught:
        read_graph(write(whole))
    diagnostics = caught.value.diagnostics
    assert (diagnostics["reason"], diagnostics["path"], diagnostics["tensor"]) == ("missing_field", "$.tensors[1]", "h")


def test_shape_and_dtype_are_always_written_and_not_in_the_normal_form() -> None:
    g = Graph(tensors=(Tensor("x", role="input"),), inputs=("x",), ir_schema=GRAPH_SCHEMA)
    assert json.loads(native_file.encode_json(g))["tensors"] == [
        {"id": "x", "shape": [], "dtype": "float32", "role": "input"}
    ]
    assert list(native_file.normal_form(g)["tensors"]) == [{"id": "x", "role": "input"}]


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('{"tensors": [], "nodes": [], "tensors": []}', "tensors"),
        ('{"tensors": [{"id": "x", "shape": [1], "dtype": "int8", "shape": [2]}]}', "shape"),
        ('{"nodes": [{"node_id": "a", "params": {"k": {"axis": 1, "axis": 2}}}]}', "axis"),
        ('{"name": "one", "n\\u0061me": "two"}', "name"),
        ('{"dims": {' + ", ".join(f'"d{k}": {{}}' for k in [*range(20_000), 19_999]) + "}}", "d19999"),
    ],
)
def test_object_with_a_repeated_key_is_refused(text: str, key: str) -> None:
    with pytest.raises(UnreadableInput, match=f"contains the key '{key}' twice"):
        native_file.decode(text.encode(), "g.tmmu.json")


@pytest.mark.parametrize(
    ("params", "subject"),
    [
        ('{"k": -9223372036854775809}', "-9223372036854775809"),
        ('{"k": 1e400, "seed": 1234567890123456789}', "a number"),
    ],
)
def test_number_past_64_bits_is_rejected(params: str, subject: str) -> None:
    text = f'{{"nodes": [{{"node_id": "a", "params": {params}}}]}}'
    with pytest.raises(UnreadableInput, match=f": {subject} takes more than 64 bits"):
        native_file.decode(text.encode(), "g.tmmu.json")


TAGS = (*range(6), 25, 28, 29, 30, 35, 36, 37, 52, 54, 100, 256, 258, 260, 261, 1004, 43000, 55799, 12345)


@pytest.mark.parametrize("tag", TAGS)
def test_cbor_document_with_a_tag_is_rejected(tag: int) -> None:
    with pytest.raises(UnreadableInput, match="contains a tag, which plans and graphs do not have"):
        read_graph(cbor2.dumps({"tensors": cbor2.CBORTag(tag, 1)}))
