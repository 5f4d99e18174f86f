"""What each node of a flat ONNX model does to memory, and what it is refused for: a row for each border."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.graph.test_onnx import FLOAT, INT64, model, nodes, op, read, tensors, value
from tests.graph.test_onnx_scopes import body, branch_model, counted, loop_model
from tmmu_core import limits
from tmmu_core.errors import InvalidIrShapes
from tmmu_core.graph.importers.onnx_build import Builder
from tmmu_core.graph.importers.onnx_scopes import SCOPE, Flat, Origin
from tmmu_core.graph.importers.onnx_shapes import Facts, Sizes
from tmmu_core.graph.model import Dim, Graph
from tmmu_core.judge.verifier import verify_plan
from tmmu_core.plan.making.engine import plan_graph

BOOL = TensorProto.BOOL


def built(proto: onnx.ModelProto, shape: dict[str, Any] | None = None, **facts: Any) -> Graph:
    """The graph of a model of which the shapes are given; floats all."""
    shapes = shape or {}
    flat = Flat(proto, tuple(Origin("", k) for k in range(len(proto.graph.node))))
    known = Facts(shapes, dict.fromkeys(shapes, "float32"), **facts)
    return Builder(flat, known, Sizes({"N": Dim(1, 4)}), "nets/m.onnx").build()


# --- views -------------------------------------------------------------------------------------------------------


def test_the_mask_of_a_dropout_is_a_tensor_of_its_own() -> None:
    """The first output is the bytes of the input; the second, where somebody reads it, is written beside them."""
    chain = [op("Dropout", "x", "y mask"), op("Cast", "mask", "z", to=FLOAT), op("Add", "x y", "w")]
    graph = read(model(chain, [value("x", [2, 3])], [value("z", None), value("w", None)]))
    found = tensors(graph)
    assert (found["y"].view is not None, found["mask"].view, found["mask"].dtype) == (True, None, "bool")
    plan = plan_graph(graph).plan
    assert verify_plan(plan, graph).ok
    place = {
        name: range(row.offset_bytes, row.offset_bytes + row.size_bytes)
        for row in plan.rows()
        for name in [row.tensor_id]
    }
    assert not set(place["mask"]) & set(place["x"])


@pytest.mark.parametrize(
    ("reads", "viewed"), [("x", True), ("x ratio", True), ("x ratio _", True), ("x ratio on", False), ("x _ on", False)]
)
def test_a_dropout_is_a_view_unless_training_is_switched_on(reads: str, viewed: bool) -> None:
    ends = [value("x", [2]), value("on", [], BOOL)]
    graph = read(model([op("Dropout", reads, "y")], ends, [value("y", None)], {"ratio": np.array(0.5, np.float32)}))
    assert (tensors(graph)["y"].view is not None) is viewed


def test_a_view_of_what_is_constant_or_of_nothing_is_none() -> None:
    chain = [op("Reshape", "w s", "v"), op("Reshape", "_ s", "u"), op("Reshape", "x s", "y")]
    weights = {"w": np.ones(2, np.float32)}
    graph = built(model(chain, [value("s", [1], INT64), value("x", [2])], [], weights), dict.fromkeys("wvuysx", (2,)))
    assert [tensors(graph)[name].view is not None for name in "vuy"] == [False, False, True]
    closing = op("Loop.close", "s u", "z", domain=SCOPE)
    carried = built(model([chain[1], closing], [value("s", [1], INT64)], []), dict.fromkeys("suz", (2,)))
    assert tensors(carried)["u"].view is None


@pytest.mark.parametrize(
    ("then", "viewed"),
    [
        ([op("Identity", "s", "t")], False),
        ([op("Identity", "s", "k"), op("Identity", "k", "t")], False),
        ([op("Neg", "s", "k"), op("Identity", "k", "t")], True),
    ],
)
def test_a_result_of_a_body_is_no_view_of_what_is_carried(then: list[onnx.NodeProto], viewed: bool) -> None:
    found = tensors(read(loop_model(counted(then, ["t"]))))
    assert (found["loop/t"].view is not None) is viewed
    if len(then) == 2 and not viewed:
        assert found["loop/k"].view is not None, "which is no result"


# --- what is folded ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "derived", "kept"), [((2, 3), (), 0), (("N", 3), (), 1), ((2, 3), ("x",), 1), (None, (), 1)]
)
def test_the_shape_of_what_stands_fast_is_folded(shape: Any, derived: tuple[str, ...], kept: int) -> None:
    """What is known at one size alone, or by a name, is told at run time; another set's ``Shape`` always."""
    proto = model([op("Shape", "x", "s"), op("Size", "x", "n"), op("Shape", "x", "o", domain="own")], [], [])
    flat = Flat(proto, ())
    shapes = {} if shape is None else {"x": shape}
    folded = Builder(flat, Facts(shapes, derived=set(derived)), Sizes(), "")._fold()
    assert [(k, node.output[0]) for k, node in folded] == [*[(0, "s"), (1, "n")] * kept, (2, "o")]


def test_a_loop_over_constants_alone_runs_and_a_branch_over_them_is_folded() -> None:
    """What is carried has another value at every iteration, whatever it begins with."""
    inner = counted([op("Neg", "s", "t")], ["t"])
    other = body([op("Neg", "w", "r")], [], ["r"])
    weights = {"w": np.ones(2, np.float32), "n": np.array(3), "yes": np.array(True)}
    chain = [
        op("Cast", "n", "c", to=BOOL),
        op("If", "c", "v", name="if", then_branch=other, else_branch=other),
        op("Loop", "n yes v", "y", name="loop", body=inner),
    ]
    graph = read(model(chain, [value("x", [2])], [value("y", None)], weights))
    assert [node.instr for node in graph.nodes] == ["Loop.open", "Neg", "Identity", "Loop.close"]
    folded = [op("If.close", "n w w", "v", domain=SCOPE), op("Loop.open", "n yes w", "i g s", domain=SCOPE)]
    found = Builder(Flat(model(folded, [], [], weights), ()), Facts(), Sizes(), "")._fold()
    assert [node.op_type for _, node in found] == ["Loop.open"]


def test_chance_is_of_the_default_operator_set() -> None:
    chain = [op("RandomNormal", "", "r"), op("RandomNormal", "", "q", domain="own"), op("Add", "_ w", "v")]
    builder = Builder(Flat(model(chain, [], [], {"w": np.ones(2)}), ()), Facts(), Sizes(), "")
    assert [node.output[0] for _, node in builder._fold()] == ["r"]
    assert builder.constant == {"w", "q", "v"}


# --- outputs that nobody reads -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("node", "written"),
    [
        (op("MaxPool", "x", "y i", kernel_shape=[1]), ["y"]),
        (op("MaxPool", "x", "y h", kernel_shape=[1]), ["y", "h"]),
        (op("MaxPool", "x", "_ i", kernel_shape=[1]), []),
        (op("Split", "x", "y i i2"), ["y", "i", "i2"]),
        (op("MaxPool", "x", "y i", domain="own"), ["y", "i"]),
        (op("MaxPool", "x", "y i", domain="elsewhere"), ["y", "i"]),
        (op("TopK", "x k", "y i"), ["y", "i"]),
    ],
)
def test_an_output_is_dropped_where_it_is_optional_and_nobodys(node: onnx.NodeProto, written: list[str]) -> None:
    """``h`` is read; of a variadic output none is optional, of an operator that nobody knows neither."""
    shapes = dict.fromkeys(("x", "y", "i", "i2", "h", "z", "k"), (1, 1, 4))
    proto = model([node, op("Neg", "h", "z")], [value("x", [1, 1, 4])], [value("y", None)], {"h": np.ones(4)})
    proto.graph.input.append(value("k", [1]))
    if "h" in node.output:
        del proto.graph.initializer[:]
    if "y" not in node.output:
        del proto.graph.output[:]
    graph = built(proto, shapes)
    assert list(graph.nodes[0].outputs) == written


def test_an_optional_output_that_is_given_out_is_kept() -> None:
    proto = model([op("MaxPool", "x", "y i", kernel_shape=[1])], [value("x", [1, 1, 4])], [value("i", None)])
    assert built(proto, dict.fromkeys("xyi", (1, 1, 4))).nodes[0].outputs == ("y", "i")


def test_an_operator_of_a_set_that_the_package_knows_is_told_its_optional_outputs() -> None:
    proto = model([op("MaxPool", "x", "y i", kernel_shape=[1])], [value("x", [1, 1, 4])], [value("y", None)])
    shapes = dict.fromkeys("xyi", (1, 1, 4))
    assert built(proto, shapes).nodes[0].outputs == ("y",)
    proto.opset_import[0].version = 1  # MaxPool-1 has one output, and none behind it
    assert built(proto, shapes).nodes[0].outputs == ("y", "i")


# --- whose place a result may take -------------------------------------------------------------------------------


def pairs(node: onnx.NodeProto, reads: str = "a b c", **more: Any) -> Any:
    """The permission of one node over floats of shapes that begin with their number of elements."""
    shapes = {
        "a": (4,),
        "b": (2,),
        "c": (4,),
        "w": (4,),
        "N4": ("N", 4),
        "N1": ("N",),
        "n4": (4, 4),
        "y": (4,),
        "z": (4,),
    }
    ends = [value(name, shapes[name]) for name in reads.split()]
    proto = model([node], ends, [value(name, None) for name in node.output], {"w": np.ones(4, np.float32)})
    return built(proto, shapes | more).nodes[0].inplace


def test_an_element_wise_result_takes_the_place_of_any_operand_of_its_size() -> None:
    assert pairs(op("Sum", "a b c a w", "y")) == ((0, 0), (2, 0))
    assert pairs(op("Sum", "_ a _ c", "y")) == ((0, 0), (1, 0)), "counted without what is left out"
    assert pairs(op("Sum", "a c", "y", domain="own")) == pairs(op("MatMul", "a c", "y")) == "none"
    assert pairs(op("Sum", "a c", "y z")) == "none", "of two results none is said"
    assert pairs(op("Sum", "a N4 n4", "y"), "a N4 n4", y=("N", 4)) == ((1, 0),), "at both ends of what N may be"
    assert pairs(op("Sum", "n4 N4 a", "y"), "a N4 n4", y=(4, 4)) == ((0, 0),)
    assert pairs(op("Sum", "a N4 n4", "y"), "a N4 n4", y=(4,)) == ((0, 0),)


@pytest.mark.parametrize(("training", "said"), [(None, ((0, 0),)), (0, ((0, 0),)), (1, "none")])
def test_batch_normalisation_takes_the_place_of_its_data_outside_of_training(training: Any, said: Any) -> None:
    how = {} if training is None else {"training_mode": training}
    assert pairs(op("BatchNormalization", "a c c c c", "y", **how)) == said


THEN = body([op("Exp", "x", "r"), op("Neg", "x", "q")], [], ["r", "q"])


def test_one_result_of_branches_takes_the_place_of_either_and_of_several_none() -> None:
    flow = op("If", "c", "y u", name="choice", then_branch=THEN, else_branch=THEN)
    ends = [value("x", [2, 3]), value("c", [], BOOL)]
    several = read(model([flow, op("Add", "y u", "z")], ends, [value("z", None)]))
    assert nodes(several)["choice/close"].inplace == "none"
    same = read(branch_model(body([], [], ["a"]), body([], [], ["a"])))
    assert nodes(same)["choice/close"].inplace == ((1, 0),)
    weights = {"w": np.ones((2, 3), np.float32)}
    constant = read(branch_model(body([], [], ["w"], weights), body([op("Exp", "a", "r")], [], ["r"])))
    assert nodes(constant)["choice/close"].inplace == ((2, 0),)
    condition = op(
        "If",
        "c",
        "y",
        name="choice",
        then_branch=body([], [], ["c"]),
        else_branch=body([op("Not", "c", "r")], [], ["r"]),
    )
    graph = read(model([condition], [value("c", [], BOOL)], [value("y", None, BOOL)]))
    assert nodes(graph)["choice/close"].inputs == ("c", "c", "choice/else/r")


# --- what is told ------------------------------------------------------------------------------------------------


def test_one_subgraph_and_several_are_counted_in_words() -> None:
    looped = read(loop_model(counted([op("Tanh", "s", "t")], ["t"])))
    assert looped.name == "model (1 subgraph planned as nested scopes)"
    assert built(model([op("Relu", "x", "y")], [value("x", [2])], []), {"x": (2,), "y": (2,)}).name == "model"


def test_who_said_a_shape() -> None:
    proto = model(
        [op("Own", "x", "a b c d e f m"), op("Own", "x w v", "y")],
        [value("x", ["N", 2])],
        [value("y", [1, None]), value("m", [3])],
        {"w": np.ones(2, np.float32)},
    )
    proto.graph.value_info.extend([value("a", []), value("b", ["K", 0]), value("c", [None]), value("d", None)])
    proto.graph.initializer.append(helper.make_tensor("v", FLOAT, [1], [1.0]))
    shapes = dict.fromkeys(("x", "a", "b", "c", "d", "e", "f", "m", "w", "v", "y"), (2,))
    graph = built(proto, shapes, origin={"e": "symbolic", "m": "measured"})
    said = {"x": "declared", "a": "declared", "b": "declared", "c": "onnx", "d": "onnx", "e": "symbolic", "f": "onnx"}
    assert graph.shapes_from == {**said, "m": "measured", "w": "declared", "v": "declared", "y": "onnx"}
    assert [node.params for node in graph.nodes] == [{"shapes": "measured"}, {}]


def test_a_captured_operand_of_a_loop_is_read_again_and_a_weight_is_not() -> None:
    inner = counted([op("Add", "s x", "k"), op("Add", "k w", "t")], ["t"], w=np.ones(3, np.float32))
    closing = nodes(read(loop_model(inner)))["loop/close"]
    assert closing.inputs == ("n", "loop/i", "loop/go", "loop/s", "loop/goon", "loop/t", "x")
    assert closing.in_place_write == ((3, 0),)


# --- what is refused ---------------------------------------------------------------------------------------------


def refused(proto: onnx.ModelProto, shapes: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    with pytest.raises(InvalidIrShapes) as caught:
        built(proto, shapes)
    where = caught.value.diagnostics
    assert where["source"] == "nets/m.onnx"
    return str(caught.value), {key: where.get(key) for key in ("reason", "tensor", "node_id")}


def test_what_nobody_writes_is_told_with_who_reads_it() -> None:
    relu = op("Relu", "q", "y", name="r")
    says, where = refused(model([relu], [], [value("y", None)]), {"q": (2,), "y": (2,)})
    assert 'the node "r" reads "q", which no earlier node writes' in says
    assert where == {"reason": "unknown_tensor", "tensor": "q", "node_id": "r"}
    says, where = refused(
        model([op("Relu", "x", "y")], [value("x", [2])], [value("q", None)]), dict.fromkeys("xyq", (2,))
    )
    assert 'the graph gives out "q", which no' in says
    assert where == {"reason": "unknown_tensor", "tensor": "q", "node_id": "none"}


def test_what_is_written_twice_is_told_with_who_writes_it_again() -> None:
    twice = [op("Relu", "x", "y", name="r"), op("Neg", "x", "y", name="n")]
    says, where = refused(model(twice, [value("x", [2])], []), dict.fromkeys("xy", (2,)))
    assert 'the node "n" writes "y", which is there already' in says
    assert where == {"reason": "two_producers", "tensor": "y", "node_id": "n"}
    _, where = refused(model(twice[:1], [value("x", [2]), value("x", [2])], []), dict.fromkeys("xy", (2,)))
    assert where == {"reason": "two_producers", "tensor": "x", "node_id": "none"}


def test_what_has_no_shape_is_told_with_who_makes_it() -> None:
    relu = op("Relu", "x", "y", name="r")
    says, where = refused(model([relu], [value("x", None)], []), {})
    assert 'the graph reads "x", whose shape cannot be inferred' in says
    assert where == {"reason": "unknown_shape", "tensor": "x", "node_id": "none"}
    says, where = refused(model([relu], [value("x", [2])], []), {"x": (2,)})
    assert 'the operator Relu (node "r") writes "y", whose shape' in says
    assert where == {"reason": "unknown_shape", "tensor": "y", "node_id": "r"}
    own = op("Own", "x", "y", name="o", in_place_0="y")
    says, _ = refused(model([own], [value("x", [2])], []), {"x": (2,)})
    assert 'the operator Own (node "o") writes "y", whose shape' in says, "whatever its attributes are called"
    folded = model([op("Own", "w", "h", name="f"), relu], [value("x", [2])], [value("h", None)], {"w": np.ones(2)})
    says, where = refused(folded, dict.fromkeys("xyw", (2,)))
    assert 'the operator Own (node "f") writes "h", whose shape' in says
    assert where == {"reason": "unknown_shape", "tensor": "h", "node_id": "none"}
    proto = model([relu], [value("x", [2])], [value("y", ["K", 2])])
    says, where = refused(proto, {"x": (2,)})
    assert '"y" has the size "K", which depends on data' in says
    assert where == {"reason": "unknown_shape", "tensor": "y", "node_id": "r"}
    proto.graph.node[0].input[0] = "w"
    proto.graph.initializer.append(helper.make_tensor("w", FLOAT, [1], [1.0]))
    assert refused(proto, dict.fromkeys("xw", (2,)))[1] == {"reason": "unknown_shape", "tensor": "y", "node_id": "none"}


def test_a_view_has_the_shape_of_its_input_where_it_has_none_of_its_own() -> None:
    proto = model([op("Reshape", "x s", "y")], [value("x", [6]), value("s", [2], INT64)], [])

    def found(shape: dict[str, Any], **facts: Any) -> Any:
        made = tensors(built(proto, {"x": (6,), "s": (2,)} | shape, **facts))["y"]
        return made.shape, made.dtype

    assert found({"y": (3, 2)}) == ((3, 2), "float32")
    assert found({}) == ((6,), "float32")
    assert found({"y": (7, 7)}, derived={"y"}) == ((6,), "float32")
    flat = Flat(proto, (Origin("", 0),))
    facts = Facts({"x": (6,), "s": (2,)}, {"x": "float32", "s": "int64", "y": "int32"})
    assert tensors(Builder(flat, facts, Sizes(), "").build())["y"].dtype == "int32"
    facts = Facts({"x": (6,), "s": (2,), "y": (6,)}, {"x": "float32", "s": "int64"})
    with pytest.raises(InvalidIrShapes, match="whose shape cannot be inferred"):
        Builder(flat, facts, Sizes(), "").build()
    plain = Flat(model([op("Relu", "x", "y")], [value("x", [6])], []), (Origin("", 0),))
    facts = Facts({"x": (6,), "y": (6,)}, {"x": "float32", "y": "float32"}, derived={"y"})
    assert tensors(Builder(plain, facts, Sizes(), "").build())["y"].shape == (6,)


@pytest.mark.parametrize(("reads", "count"), [("n c a", "n"), ("_ c a", "loop")])
def test_what_is_gathered_without_a_bound_is_told_with_the_count_to_say(reads: str, count: str) -> None:
    proto = loop_model(counted([op("Tanh", "s", "t")], ["t", "t"]), outputs="y ps")
    proto.graph.node[1].input[:] = [name.replace("_", "") for name in reads.split()]
    with limits.raised({"run-seconds": 0}), pytest.raises(InvalidIrShapes) as caught:
        read(proto)
    assert 'the operator Loop (node "loop") gathers "ps" over its iterations' in str(caught.value)
    assert f"tmmu convert MODEL --dims {count}=64 -o GRAPH.json" in caught.value.hint
    where = caught.value.diagnostics
    assert (where["reason"], where["tensor"], where["node_id"]) == ("unknown_shape", "ps", "loop/open")
