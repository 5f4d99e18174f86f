"""Reading ONNX models: small ones made here, and the nine real topologies of the onnx package."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.support.paths import read_graph_file
from tmmu_core.base import limits
from tmmu_core.base.errors import InvalidIrShapes, UnreadableInput
from tmmu_core.formats.open_file import read_graph, read_within
from tmmu_core.graph.index import index_graph
from tmmu_core.graph.model import Dim, Graph, Node, Tensor
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.plans.making.engine import plan_graph

LIGHT = sorted((Path(onnx.__file__).parent / "backend" / "test" / "data" / "light").glob("*.onnx"))
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64

Shape = Sequence[int | str | None] | None


def value(name: str, shape: Shape, dtype: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def op(operator: str, reads: str, writes: str, **attributes: object) -> onnx.NodeProto:
    """A node; ``_`` is an omitted operand."""
    names = [[name.replace("_", "") for name in side.split()] for side in (reads, writes)]
    return helper.make_node(operator, *names, **attributes)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    weights: dict[str, np.ndarray] | None = None,
    *,
    opset: int = 17,
    functions: Sequence[onnx.FunctionProto] = (),
) -> onnx.ModelProto:
    initialisers = [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    graph = helper.make_graph(nodes, "model", inputs, outputs, initialisers)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8, functions=functions)


def read(proto: onnx.ModelProto) -> Graph:
    graph = read_graph(proto.SerializeToString(), "model.onnx")
    index_graph(graph)
    return graph


def tensors(graph: Graph) -> dict[str, Tensor]:
    return {tensor.id: tensor for tensor in graph.tensors}


def nodes(graph: Graph) -> dict[str, Node]:
    return {node.node_id: node for node in graph.nodes}


def one(operator: str, shapes: Sequence[Shape], result: int = FLOAT, **attributes: object) -> Node:
    """Return the node of a model with one operator on inputs a, b, … of these shapes and a ``result`` of this type."""
    names = "abcdef"[: len(shapes)]
    ends = [value(name, shape) for name, shape in zip(names, shapes, strict=True)]
    return read(model([op(operator, " ".join(names), "y", **attributes)], ends, [value("y", None, result)])).nodes[0]


# --- real topologies ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", LIGHT, ids=lambda path: path.stem)
def test_real_topology_opens_with_weights_and_activations_separated(path: Path) -> None:
    graph = read_graph_file(path)
    index = index_graph(graph)
    assert not index.is_persistent[index.producer >= 0].any()
    assert [tensor.id for tensor in graph.tensors if tensor.role == "input"] == list(graph.inputs)
    assert {node.instr for node in graph.nodes} & {"Constant", "ConstantOfShape"} == set()


# --- constants ---------------------------------------------------------------------------------------------------


def test_folded_output_is_a_constant() -> None:
    graph = read(
        model(
            [op("Neg", "w", "n"), op("Relu", "x", "y")],
            [value("x", [2])],
            [value("y", None), value("n", None)],
            {"w": np.zeros(2, np.float32)},
        )
    )
    assert (graph.outputs, tensors(graph)["n"].role) == (("y", "n"), "constant")


def test_quantized_weight_is_not_folded() -> None:
    steps = [op("DequantizeLinear", "w scale", "d"), op("MatMul", "x d", "y")]
    weights = {"w": np.zeros((8, 8), np.int8), "scale": np.ones((), np.float32)}
    found = tensors(read(model(steps, [value("x", [1, 8])], [value("y", None)], weights)))
    assert [(found[name].role, found[name].dtype) for name in "wd"] == [("constant", "int8"), ("activation", "float32")]


EXPANSION = [
    op("Shape", "x", "s"),
    op("ConstantOfShape", "rank", "ones", value=numpy_helper.from_array(np.array([1], np.int64))),
    op("Equal", "wish keep", "kept"),
    op("Where", "kept ones wish", "target"),
    op("Expand", "x target", "y"),
]
"""How exporters write an expansion whose −1 keeps the input's size: plain shape inference does not get past it."""
EXPANSION_WEIGHTS = {
    "rank": np.array([2], np.int64),
    "wish": np.array([-1, 7], np.int64),
    "keep": np.array([-1, -1], np.int64),
}


@pytest.mark.parametrize(("limit", "count"), [(7, 4), (1, 1), (0, 0), (-5, 0), (2**41, 2**40)])
def test_length_of_a_range_is_computed(limit: int, count: int) -> None:
    ends = {name: np.array(number, np.int64) for name, number in (("a", 0), ("b", limit), ("c", 2))}
    casts = [op("Range", "a b c", "r"), op("Cast", "r", "k", to=FLOAT), op("Add", "x k", "y")]
    graph = read(model(casts, [value("x", [1])], [value("y", None)], ends))
    assert tensors(graph)["k"].shape == (count,)
    assert [node.instr for node in graph.nodes] == ["Add"]


def test_long_vector_is_not_materialised() -> None:
    steps = [op("Cast", "n", "h", to=INT64), *EXPANSION, op("Add", "h n", "z")]
    ends = [value("x", [5, 1]), value("n", [2**40], INT64)]
    graph = read(model(steps, ends, [value("y", None), value("z", None, INT64)], EXPANSION_WEIGHTS))
    assert (tensors(graph)["y"].shape, tensors(graph)["z"].shape) == ((5, 7), (2**40,))


# --- memory behaviour --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("node", "shape"),
    [
        (op("Reshape", "x s", "y"), (3, 2)),
        (op("Squeeze", "x", "y"), (2, 3)),
        (op("Flatten", "x", "y"), (2, 3)),
        (op("Identity", "x", "y"), (2, 1, 3)),
        (op("Dropout", "x", "y mask"), (2, 1, 3)),
        (op("Unsqueeze", "x i", "y"), (1, 2, 1, 3)),
    ],
    ids=lambda node: getattr(node, "op_type", None),
)
def test_reshaping_operator_is_a_view(node: onnx.NodeProto, shape: tuple[int, ...]) -> None:
    weights = {"s": np.array([3, 2], np.int64), "i": np.array([0], np.int64)}
    graph = read(model([node], [value("x", [2, 1, 3])], [value("y", None)], weights))
    view = tensors(graph)["y"].view
    assert view is not None
    assert (view.base_tensor_uid, tensors(graph)["y"].shape) == ("x", shape)
    assert [node.outputs for node in graph.nodes] == [("y",)]
    assert graph.nodes[0].inplace == "none"


def test_dropout_in_training_is_no_view() -> None:
    node = op("Dropout", "x ratio training", "y")
    ends = [value("x", [2]), value("training", [], TensorProto.BOOL)]
    graph = read(model([node], ends, [value("y", None)], {"ratio": np.array(0.5, np.float32)}))
    assert tensors(graph)["y"].view is None


# --- names and order ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "ids"),
    [
        (["", "same", "same", "Relu_0"], ["Relu_0_", "Relu_1", "Neg_2", "Relu_0"]),
        (["", "Relu_0", "Relu_0", ""], ["Relu_0", "Relu_1", "Neg_2", "Exp_3"]),
    ],
)
def test_nodes_without_a_unique_name_are_named_by_operator_and_position(names: list[str], ids: list[str]) -> None:
    steps = [("Relu", "x", "a"), ("Relu", "a", "b"), ("Neg", "b", "c"), ("Exp", "c", "y")]
    chain = [op(*step, name=name) for step, name in zip(steps, names, strict=True)]
    graph = read(model(chain, [value("x", [2])], [value("y", None)]))
    assert [node.node_id for node in graph.nodes] == ids


# --- dimensions --------------------------------------------------------------------------------------------------


def test_named_batch_is_a_dimension_with_an_envelope() -> None:
    graph = read(model([op("Relu", "x", "y")], [value("x", ["N", 3])], [value("y", ["N", 3])]))
    assert graph.dims == {"N": Dim(1, 8)}
    assert {tensor.shape for tensor in graph.tensors} == {("N", 3)}


def data_dependent() -> onnx.ModelProto:
    proto = model([op("NonZero", "x", "n"), op("Cast", "n", "y", to=FLOAT)], [value("x", ["N"])], [value("y", None)])
    proto.graph.value_info.append(value("n", [1, "K"], INT64))
    return proto


def test_bounded_data_dependent_size_is_a_dimension() -> None:
    graph = read_within(data_dependent().SerializeToString(), {"K": Dim(1, 64)}, "model.onnx")
    assert graph.dims == {"N": Dim(1, 8), "K": Dim(1, 64)}
    assert tensors(graph)["y"].shape == (1, "K")


@pytest.mark.slow
def test_unbounded_data_dependent_size_is_rejected_with_the_option() -> None:
    with pytest.raises(InvalidIrShapes, match="'K'") as caught:
        read(data_dependent())
    assert "--dims K=1:512" in caught.value.hint


def test_bounds_of_an_unknown_dimension_are_rejected() -> None:
    data = model([op("Relu", "x", "y")], [value("x", ["N"])], [value("y", None)]).SerializeToString()
    with pytest.raises(InvalidIrShapes, match="'Q'"):
        read_within(data, {"Q": Dim(1, 2)})


def test_view_has_the_bytes_of_its_input_at_every_size() -> None:
    graph = read(
        model(
            [op("Reshape", "x s", "v"), op("Exp", "v", "y")],
            [value("x", ["N", 3, 4])],
            [value("y", None)],
            {"s": np.array([-1, 4], np.int64)},
        )
    )
    for size in (1, 8):
        index = index_graph(graph, {"N": size})
        assert index.nbytes[[index.tensor_of[name] for name in "xvy"]].tolist() == [size * 48] * 3


def test_elementwise_operands_must_agree_at_both_ends_of_the_envelope() -> None:
    graph = read(model([op("Add", "x z", "y")], [value("x", ["N", 3]), value("z", [8, 3])], [value("y", [8, 3])]))
    assert graph.nodes[0].inplace == ((1, 0),)


# --- functions, foreign operators and refusals -------------------------------------------------------------------


def test_foreign_operator_with_declared_shape_is_planned() -> None:
    proto = model([op("Mystery", "x", "h", domain="own"), op("Relu", "h", "y")], [value("x", [2])], [value("y", [2])])
    proto.graph.value_info.append(value("h", [2]))
    assert [node.instr for node in read(proto).nodes] == ["own::Mystery", "Relu"]


@pytest.mark.slow
def test_data_dependent_size_is_rejected_naming_the_operator() -> None:
    proto = model([op("NonZero", "x", "n"), op("Cast", "n", "y", to=FLOAT)], [value("x", [2])], [value("y", None)])
    with pytest.raises(InvalidIrShapes, match="the operator NonZero") as caught:
        read(proto)
    assert caught.value.diagnostics["reason"] == "unknown_shape"


def test_number_of_inlined_nodes_is_limited() -> None:
    nodes = [op("Relu", "q", "h"), op("Exp", "h", "r")]
    two = helper.make_function("own", "F", ["q"], ["r"], nodes, [helper.make_opsetid("", 17)])
    calls = [op("F", "x", f"z{k}", domain="own") for k in range(3)]
    proto = model(calls, [value("x", [2])], [value(f"z{k}", None) for k in range(3)], functions=[two])
    with limits.overridden({"inlined-nodes": 6}):
        assert len(read(proto).nodes) == 6
    with limits.overridden({"inlined-nodes": 5}), pytest.raises(UnreadableInput, match="inlined"):
        read(proto)


def function_model(opset: int, domain: str = "") -> onnx.ModelProto:
    """Return a model of operator set 17 that calls a function of other sets, in which two operators run."""
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("other", 2)]
    nodes = [op("Relu", "q", "h", domain=domain), op("Exp", "h", "r")]
    own = helper.make_function("own", "F", ["q"], ["r"], nodes, opsets)
    return model([op("F", "x", "y", domain="own")], [value("x", [2])], [value("y", [2])], functions=[own])


def test_function_of_an_earlier_operator_set_is_inlined() -> None:
    assert [node.instr for node in read(function_model(13)).nodes] == ["Relu", "Exp"]


@pytest.mark.parametrize(("opset", "domain", "problem"), [(17, "other", "other versions"), (23, "", "other versions")])
def test_function_that_cannot_be_inlined_is_rejected(opset: int, domain: str, problem: str) -> None:
    proto = function_model(opset, domain)
    proto.opset_import.append(helper.make_opsetid("other", 1))
    with pytest.raises(UnreadableInput, match=problem):
        read(proto)


def test_input_that_is_listed_twice_is_named() -> None:
    twice = [value("x", [2]), value("x", [2])]
    with pytest.raises(InvalidIrShapes) as caught:
        read(model([op("Relu", "x", "y")], twice, [value("y", [2])]))
    assert (caught.value.diagnostics["reason"], caught.value.diagnostics["tensor"]) == ("two_producers", "x")


@pytest.mark.parametrize("operands", ["", "w "])
def test_operator_without_a_required_input_is_rejected(operands: str) -> None:
    node = helper.make_node("Add", operands.split(" ") if operands else [], ["z"])
    weights = {"w": np.ones(2, np.float32)}
    with pytest.raises(UnreadableInput, match="operator Add lacks a required input"):
        read(model([node, op("Relu", "x", "y")], [value("x", [2])], [value("y", [2]), value("z", [2])], weights))


def test_name_not_in_utf_8_is_rejected() -> None:
    weights = {"weight": np.ones(2, np.float32)}
    proto = model([op("Add", "x weight", "y")], [value("x", (2,))], [value("y", (2,))], weights)
    proto.graph.initializer[0].external_data.add(key="location", value="file")
    named = proto.SerializeToString()
    weight = named.replace(b"weight", b"we\xffght").replace(b"we\xffght", b"weight", 1)
    body = function_model(17).SerializeToString().replace(b"Exp", b"E\xffp")
    for damaged in (weight, body, named.replace(b"file", b"fi\xffe")):
        with pytest.raises(UnreadableInput, match="not UTF-8"):
            read_graph(damaged, "model.onnx")


def test_spectrum_has_the_bins_of_the_operator() -> None:
    """onnxruntime gives 400 / 2 + 1 of them, and (720 − 400) / 160 + 1 frames; onnx infers 400."""
    weights = {"step": np.array(160, np.int64), "window": np.ones(400, np.float32)}
    proto = model([op("STFT", "x step window", "y")], [value("x", [1, 720, 1])], [value("y", None)], weights)
    assert tensors(read(proto))["y"].shape == (1, 3, 201, 2)


def test_sum_of_a_fused_convolution_may_be_overwritten() -> None:
    """onnxruntime registers its kernel with ``MayInplace(3, 0)``."""
    node = op("FusedConv", "x w", "y", domain="com.microsoft", kernel_shape=[1, 1])
    node.input.extend(["", "z"])
    shape = [1, 4, 8, 8]
    weights = {"w": np.ones((4, 4, 1, 1), "f4")}
    proto = model([node], [value("x", shape), value("z", shape)], [value("y", shape)], weights)
    proto.opset_import.add(domain="com.microsoft", version=1)
    (read_node,) = read(proto).nodes
    assert [read_node.inputs[i] for i, _ in read_node.inplace] == ["z"]


@pytest.mark.slow
def test_blocked_layout_of_onnxruntime_is_read() -> None:
    """A graph as onnxruntime writes it after its own rewriting: channels in blocks, operators of its own."""
    own = "com.microsoft.nchwc"
    nodes = [
        op("ReorderInput", "x", "r", domain=own, channels_last=0),
        op("Conv", "r w", "c", domain=own, kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[1, 1]),
        op("ReorderOutput", "c", "y", domain=own, channels=16),
    ]
    weights = {"w": np.ones((16, 16, 3, 3), np.float32)}
    proto = model(nodes, [value("x", [1, 16, 8, 8])], [value("y", [1, 16, 8, 8])], weights)
    proto.opset_import.add(domain=own, version=1)
    graph = read(proto)
    assert tensors(graph)["c"].shape == (1, 16, 8, 8)
    assert verify_plan(plan_graph(graph).plan, graph).ok
