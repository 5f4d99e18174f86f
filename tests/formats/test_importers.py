"""Files are recognised by their content; the node-centric dialect."""

import json
from typing import Any

import onnx
import onnx.helper
import pytest

from tmmu_core.base.errors import InvalidIrShapes
from tmmu_core.formats.open_file import read_graph
from tmmu_core.formats.signatures import refusal_onnx
from tmmu_core.graph.model import GRAPH_SCHEMA, Graph, Node, Tensor, View


def ports(**fields: Any) -> dict[str, Any]:
    """Return a graph with a node that reads ``x`` and writes two tensors, both outputs of the graph."""
    both = {"node_id": "s", "instr": "SPLIT", "inputs": [{"node_id": "x", "output_idx": 0}], "shape_out": [[2], [3]]}
    both["dtype"] = "float32"
    return {
        "ir_schema_hash": "00" * 32,
        "nodes": [{"node_id": "x", "shape_out": [5], "dtype": "float32", "role": "input"}, both | fields],
        "outputs": [{"node_id": "s", "output_idx": 1}, {"node_id": "s"}],
    }


def read(document: dict[str, Any]) -> Graph:
    return read_graph(json.dumps(document).encode(), "ports.json")


# --- the node-centric dialect ------------------------------------------------------------------------------------


def test_outputs_are_named_by_node_and_index() -> None:
    assert read(ports()) == Graph(
        tensors=(Tensor("x:0", (5,), role="input"), Tensor("s:0", (2,)), Tensor("s:1", (3,))),
        nodes=(Node("x", outputs=("x:0",)), Node("s", "SPLIT", ("x:0",), ("s:0", "s:1"))),
        outputs=("s:1", "s:0"),
        ir_schema=GRAPH_SCHEMA,
    )


def test_field_is_one_for_all_outputs_or_one_for_each() -> None:
    graph = read(ports(dtype=["int8", "f16"], saved_for_backward=True, role=["activation", "output"]))
    assert [(t.dtype, t.saved_for_backward, t.role) for t in graph.tensors[1:]] == [
        ("int8", True, "activation"),
        ("float16", True, "output"),
    ]


def test_missing_dtype_is_rejected() -> None:
    with pytest.raises(InvalidIrShapes) as caught:
        read(ports(dtype=None))
    assert (caught.value.diagnostics["reason"], caught.value.diagnostics["path"]) == (
        "missing_field",
        "$.nodes[1].dtype",
    )


def test_node_without_a_shape_writes_nothing() -> None:
    assert read(ports(shape_out=None) | {"outputs": []}).nodes[1].outputs == ()


@pytest.mark.parametrize("field", ["view", "view_descriptor"])
def test_view_is_read_under_both_its_names(field: str) -> None:
    graph = read(ports(shape_out=[2], **{field: {"base_tensor_uid": "x:0", "byte_offset": 4}}) | {"outputs": []})
    assert graph.tensors[1].view == View("x:0", 4)


def test_duplicate_node_is_rejected() -> None:
    with pytest.raises(InvalidIrShapes) as caught:
        read(ports(node_id="x"))
    assert caught.value.diagnostics["reason"] == "duplicate_node"


def test_sizes_and_shapes_may_not_be_mixed() -> None:
    with pytest.raises(InvalidIrShapes) as caught:
        read(ports(shape_out=[[2], 3]))
    assert caught.value.diagnostics["path"] == "$.nodes[1].shape_out"


@pytest.mark.parametrize("length", [3, 127, 128, 300, 20_000])
def test_onnx_model_is_recognised_by_its_fields_in_any_order(length: int) -> None:
    model = onnx.helper.make_model(onnx.helper.make_graph([], "g", [], []), producer_name="p" * length)
    model.functions.add(name="f")
    assert refusal_onnx(model.SerializeToString()) == ""
    late = onnx.ModelProto(producer_name="p" * length).SerializeToString()
    assert refusal_onnx(late) == "it ends before a graph begins"
    assert refusal_onnx(late + onnx.ModelProto(functions=model.functions, graph=model.graph).SerializeToString()) == ""
    functions_first = onnx.ModelProto(functions=model.functions).SerializeToString() + late
    assert refusal_onnx(functions_first + model.SerializeToString()) == ""
    assert refusal_onnx(late + b"\xf8\x01\x00") == "field 31 is not in an ONNX model (fields before it: 1)"
