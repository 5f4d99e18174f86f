"""Inputs above a resource limit are rejected by its name, and the limit can be raised."""

import gzip
import io
import json
import re
import sqlite3
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import cbor2
import onnx
import pytest
from onnx import TensorProto, helper

from tests.store.plans import label, plan_of
from tests.support.build import chain, graph, node, tensor
from tests.tools.fuzz.targets import sharded
from tmmu_core.base import limits
from tmmu_core.base.errors import InvalidIrShapes, TmmuError, UnreadableInput
from tmmu_core.formats.open_file import read_any
from tmmu_core.formats.planfile import plan_file
from tmmu_core.graph.model import Arena, Graph, Tensor, View
from tmmu_core.graph.native import document, native_file
from tmmu_core.plans.making.engine import plan_graph
from tmmu_core.plans.making.plan_sets import plan_ranks
from tmmu_core.plans.making.request import PlanRequest
from tmmu_core.plans.making.request_options import OPTION_SPECS
from tmmu_core.store.store import Store


def names_its_limit(error: TmmuError, limit: limits.Limit) -> bool:
    return f"--max-{limit.name}" in str(error) and limit.variable in str(error)


@pytest.mark.parametrize("members", [1, 3000])
def test_gzip_bomb_is_rejected_by_its_unpacked_bytes(members: int) -> None:
    bomb = gzip.compress(b" " * (3_000_000 // members)) * members
    with limits.overridden({"unpacked-bytes": 1_000_000}), pytest.raises(UnreadableInput) as caught:
        read_any(bomb, "bomb.gz")
    assert names_its_limit(caught.value, limits.UNPACKED_BYTES)


def test_limit_is_raised_by_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = document.pack(native_file.encode_json(chain(3)))
    monkeypatch.setenv("TMMU_MAX_UNPACKED_BYTES", "10")
    with pytest.raises(UnreadableInput, match="more than 10 bytes"):
        read_any(packed)
    monkeypatch.setenv("TMMU_MAX_UNPACKED_BYTES", "10000")
    assert isinstance(read_any(packed), Graph)
    monkeypatch.setenv("TMMU_MAX_UNPACKED_BYTES", "many")
    with pytest.raises(UnreadableInput, match="whole number"):
        read_any(packed)


def test_concatenated_gzip_members_are_one_file() -> None:
    data = native_file.encode_json(chain(3))
    assert document.unpack(gzip.compress(data[:100]) + gzip.compress(data[100:])) == data


def functions(depth: int, calls: int) -> bytes:
    """Return functions that call each other: ``calls ** depth`` nodes when inlined."""
    bodies = []
    for k in range(depth):
        op = ("Relu", "") if k == 0 else (f"f{k - 1}", "own")
        names = [f"v{i}" for i in range(calls + 1)]
        nodes = [helper.make_node(op[0], [a], [b], domain=op[1]) for a, b in pairwise(names)]
        imports = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
        bodies.append(helper.make_function("own", f"f{k}", ["v0"], [names[-1]], nodes, imports))
    one = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])
    other = helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])
    graph = helper.make_graph([helper.make_node(f"f{depth - 1}", ["x"], ["y"], domain="own")], "g", [one], [other])
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    model: onnx.ModelProto = helper.make_model(graph, functions=bodies, opset_imports=imports, ir_version=9)
    return model.SerializeToString()


def test_nested_functions_are_rejected_before_they_are_inlined() -> None:
    with pytest.raises(UnreadableInput) as caught:
        read_any(functions(40, 2), "deep.onnx")
    assert names_its_limit(caught.value, limits.INLINED_NODES)


def test_recursive_function_is_rejected() -> None:
    model = onnx.ModelProto.FromString(functions(2, 1))
    model.functions[0].node[0].op_type, model.functions[0].node[0].domain = "f1", "own"
    with pytest.raises(UnreadableInput, match="calls itself"):
        read_any(model.SerializeToString(), "endless.onnx")


def test_number_of_ranks_is_limited() -> None:
    mesh = [{"name": name, "size": 1 << 20} for name in ("a", "b")]
    with pytest.raises(InvalidIrShapes) as caught:
        plan_ranks(sharded(), PlanRequest(shard_spec={"mesh": mesh}))
    assert names_its_limit(caught.value, limits.RANKS)


def test_number_of_shares_of_a_view_is_limited() -> None:
    names = [f"m{k}" for k in range(12)]
    shape = tuple(range(3, 15))
    tensors = (Tensor("big", shape, "int8", "input"), Tensor("look", shape, "int8", view=View("big")))
    graph = Graph(tensors=tensors, inputs=("big",))
    spec = {
        "mesh": [{"name": name, "size": 2} for name in names],
        "contracts": {"activations": [{"axis": k, "mesh": name} for k, name in enumerate(names)]},
    }
    with limits.overridden({"shares": 16}), pytest.raises(InvalidIrShapes) as caught:
        plan_ranks(graph, PlanRequest(shard_spec=spec))
    assert names_its_limit(caught.value, limits.SHARES)


# --- numbers ---------------------------------------------------------------------------------------------------------


def plan(data: bytes) -> None:
    found = read_any(data)
    assert isinstance(found, Graph)
    plan_graph(found)


@pytest.mark.parametrize("place", ["rank", "world_size", "steps"])
@pytest.mark.parametrize("number", [2**64, -1])
def test_number_past_64_bits_in_a_plan_names_its_place(place: str, number: int) -> None:
    from tests.plans.examples import chain_plan

    data = re.sub(
        rb'"%s": \d+' % place.encode(), b'"%s": %d' % (place.encode(), number), plan_file.to_json(chain_plan(2))
    )
    with pytest.raises(UnreadableInput) as caught:
        read_any(data)
    assert caught.value.place == f"$.{place}"


@pytest.mark.parametrize("value", [{b"peak": 1}, {"a": [{b"x": 1}]}, {"a": b"x"}])
@pytest.mark.parametrize("field", ["metrics", "notes", "planner_options"])
def test_bytes_in_a_free_map_are_rejected(field: str, value: object) -> None:
    from tests.plans.examples import chain_plan

    plan = cbor2.loads(plan_file.to_cbor(chain_plan(2)))
    plan[field]["own"] = value
    with pytest.raises(UnreadableInput) as caught:
        read_any(cbor2.dumps(plan))
    assert str(caught.value.place).startswith(f"$.{field}.own")


def test_number_of_values_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = native_file.encode_json(chain(30))
    monkeypatch.setattr(document, "decode", None)  # decoding would fail with another error
    with limits.overridden({"values": 50}):
        for data in (graph, native_file.encode_cbor(chain(30)), b"id,lower,upper,size\n" * 30):
            with pytest.raises(UnreadableInput) as caught:
                read_any(data)
            assert names_its_limit(caught.value, limits.VALUES)


def test_large_file_may_hold_more_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "VALUES", replace(limits.VALUES, default=50))
    data = native_file.encode_json(chain(30))
    assert isinstance(read_any(data), Graph)
    with pytest.raises(UnreadableInput) as caught:
        read_any(gzip.compress(b'{"nodes": [' + b"[]," * 10_000 + b"0]}"))
    assert names_its_limit(caught.value, limits.VALUES)
    large = b'{"nodes": [' + b"[]," * 10_000 + b"0]}"
    with pytest.raises(UnreadableInput, match=f"more than {len(large) // 2:,} values"):
        read_any(large)
    with limits.overridden({"values": 51}), pytest.raises(UnreadableInput):
        read_any(data)


def test_number_of_arenas_is_limited() -> None:
    tensors = [tensor("x", role="input"), *(tensor(f"t{k}", arena=f"a{k}") for k in range(3))]
    nodes = [node(f"n{k}", "x", f"t{k}") for k in range(3)]
    own = graph(tensors, nodes, "x", "t2")
    arenas = {name: Arena() for name in ("activations", "a0", "a1", "a2")}
    made = plan_file.to_json(plan_graph(own, arenas=arenas).plan)
    with limits.overridden({"arenas": 3}):
        text = json.dumps({name: {} for name in arenas})
        readers = (
            lambda: plan_graph(own, arenas=arenas),
            lambda: OPTION_SPECS["arenas"].read(text),
            lambda: read_any(made),
        )
        for read in readers:
            with pytest.raises(UnreadableInput) as caught:
                read()
            assert names_its_limit(caught.value, limits.ARENAS)
    with limits.overridden({"arenas": 4}):
        assert len(plan_graph(own, arenas=arenas).plan.arenas) == 4
        assert len(read_any(made).arenas) == 4  # type: ignore[union-attr]


def test_limit_of_a_packed_file_depends_on_its_packed_size(monkeypatch: pytest.MonkeyPatch) -> None:
    packed_sizes: list[int] = []
    monkeypatch.setattr(document, "refuse_many_values", lambda data, packed: packed_sizes.append(packed))
    plain = native_file.encode_json(chain(2))
    packed = gzip.compress(plain)
    for data in (plain, packed):
        read_any(data)
    assert packed_sizes == [0, len(packed)]


# --- other files -----------------------------------------------------------------------------------------------------


def with_weights_at(location: str) -> bytes:
    model = onnx.ModelProto.FromString(functions(1, 1))
    del model.functions[:]
    model.graph.node[0].CopyFrom(helper.make_node("Add", ["x", "w"], ["y"]))
    weight = model.graph.initializer.add(name="w", data_type=TensorProto.FLOAT, dims=[4])
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value=location)
    data: bytes = model.SerializeToString()
    return data


@pytest.mark.parametrize(
    "location", ["/etc/passwd", "../secret", "a/../../b", "..", "C:\\x", "\\\\host\\share", "a\\..\\b"]
)
def test_weights_outside_the_model_folder_are_rejected(location: str) -> None:
    with pytest.raises(UnreadableInput, match="outside the model's folder"):
        read_any(with_weights_at(location), "model.onnx")


def test_pipe_and_store_are_read_without_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMMU_MAX_UNPACKED_BYTES", "9" * 19)
    assert document.read_stream(io.BytesIO(b"x" * 3_000_000), "a pipe") == b"x" * 3_000_000
    store = Store.at(f"sqlite:///{tmp_path / 's.db'}", create=True)
    plan = plan_of({"a": 1})
    run_of_it = store.record(plan, label("c1")).run
    assert store.plan(run_of_it).tmmu_plan_hash == plan.tmmu_plan_hash
    with sqlite3.connect(tmp_path / "s.db") as connection:
        connection.execute("UPDATE plans SET bytes = 9223372036854775807")
    with pytest.raises(TmmuError):
        store.plan(run_of_it)
    store.close()
