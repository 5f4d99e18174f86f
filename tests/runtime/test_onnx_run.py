"""ONNX models run node by node in arenas; onnxruntime running them whole is the oracle."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from app.cli.console import in_words
from tests.graph.test_onnx_scopes import CASES
from tests.runtime import faults
from tmmu_core.errors import MissingExtra, UnreadableInput
from tmmu_core.graph.model import Node
from tmmu_core.plan.making.engine import plan_graph
from tmmu_core.runtime import onnx_run
from tmmu_core.runtime.onnx_run import ADD_THE_EXTRA, arena_run, plain_run, runtime

LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"


@pytest.fixture(scope="module")
def squeezenet():
    return plain_run((LIGHT / "light_squeezenet.onnx").read_bytes(), "light_squeezenet.onnx")


@pytest.mark.parametrize("planner", ["slots", "greedy", "ffd"])
def test_squeezenet_in_its_arenas_is_bit_identical(squeezenet, planner):
    run = arena_run(squeezenet, plan_graph(squeezenet.graph, planner=planner).plan)
    assert run.differences == ()
    assert run.tensors == len(squeezenet.graph.tensors)


def test_shufflenet_with_its_reshapes_is_bit_identical():
    oracle = plain_run((LIGHT / "light_shufflenet.onnx").read_bytes(), "light_shufflenet.onnx")
    assert any(tensor.view for tensor in oracle.graph.tensors)
    assert arena_run(oracle, plan_graph(oracle.graph).plan).differences == ()


def test_values_differ_from_place_to_place(squeezenet):
    """Else an overlap could bring the right bytes by chance."""
    weights = [squeezenet.values[t.id] for t in squeezenet.graph.tensors if t.role != "constant"]
    assert all(len(np.unique(value)) > 1 for value in weights)


@pytest.mark.parametrize("kind", ["overlap", "illegal_in_place"])
def test_a_broken_plan_of_a_real_model_computes_something_else(squeezenet, kind):
    solution = plan_graph(squeezenet.graph)
    activations = [arena.name for arena in solution.plan.arenas].index("activations")
    broken = [
        plan
        for plan in faults.spread(faults.KINDS[kind](solution), 400)
        if (plan.offset != solution.plan.offset)[plan.arena == activations].any()
    ]
    assert len(broken) > 10
    for plan in broken[:: len(broken) // 6]:
        assert not arena_run(squeezenet, plan).ok


def tiny():
    """``y = relu(x + w)``, ``z = reshape(y)``: a hand-off and a view."""
    w = helper.make_tensor("w", TensorProto.FLOAT, [2, 3], np.arange(6, dtype=np.float32))
    shape = helper.make_tensor("s", TensorProto.INT64, [1], [6])
    nodes = [
        helper.make_node("Add", ["x", "w"], ["a"], "add"),
        helper.make_node("Relu", ["a"], ["y"], "relu"),
        helper.make_node("Reshape", ["y", "s"], ["z"], "reshape"),
    ]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, d) for n, d in (("x", [2, 3]), ("z", [6]))]
    graph = helper.make_graph(nodes, "tiny", ends[:1], ends[1:], [w, shape])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8).SerializeToString()


def test_a_hand_off_and_a_view_are_run_in_place():
    oracle = plain_run(tiny(), "tiny.onnx")
    plan = plan_graph(oracle.graph).plan
    assert plan.handoffs
    assert plan.offset[plan.row_of["y"]] == plan.offset[plan.row_of["z"]]
    assert arena_run(oracle, plan).ok


def test_a_difference_names_the_step_the_tensor_and_the_reader():
    oracle = plain_run(tiny(), "tiny.onnx")
    plan = plan_graph(oracle.graph).plan
    spoilt = faults.changed(plan, "offset", plan.row_of["s"], plan.offset[plan.row_of["w"]])
    first = arena_run(oracle, spoilt).differences[0]
    assert (first.node_id, first.tensor, first.when, first.step, first.byte) == ("add", "w", "read", 1, 0)


def test_a_model_with_a_named_dimension_needs_a_number():
    model = onnx.ModelProto.FromString(tiny())
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "N"
    with pytest.raises(UnreadableInput, match="N"):
        plain_run(model.SerializeToString(), "tiny.onnx")


def test_a_model_with_scopes_is_not_run():
    with pytest.raises(UnreadableInput, match="nested scopes"):
        plain_run(CASES[0].model.SerializeToString(), "branches.onnx")


def test_a_missing_extra_is_told_with_the_command_that_adds_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingExtra) as caught:
        runtime()
    assert in_words(caught.value).splitlines() == [
        "running a model needs onnxruntime, which is not installed.",
        f"Add it: {ADD_THE_EXTRA}",
    ]


LARGE = onnx_run.VARIED_FROM


@pytest.mark.parametrize(
    ("shapes", "varied"),
    [
        ({}, False),
        ({"w": ((LARGE,), "int64")}, False),
        ({"w": ((LARGE - 1,), "float32")}, False),
        ({"w": ((LARGE,), "float32")}, True),
    ],
)
def test_a_large_weight_that_one_node_fills_is_fed_other_values(shapes: Any, varied: bool) -> None:
    filled = helper.make_node("ConstantOfShape", ["s"], ["w"])
    read = helper.make_node("Relu", ["w"], ["y"])
    model = helper.make_model(helper.make_graph([filled, read], "g", [], []))
    fed = onnx_run._vary_weights(model, shapes)
    assert list(fed) == ["w"] * varied
    assert [node.op_type for node in model.graph.node] == ["ConstantOfShape"] * (not varied) + ["Relu"]
    assert [value.name for value in model.graph.input] == list(fed)
    assert all(len(np.unique(value)) > value.size // 2 for value in fed.values())


@pytest.mark.parametrize(
    ("permission", "offered"),
    [
        *((None, True), ("any", True), ("none", False)),
        *((((0, 0), (2, 0)), True), (((0, 0),), False), (((0, 1), (2, 1)), False)),
    ],
)
def test_an_input_is_offered_where_every_place_at_which_it_is_read_is(permission: Any, offered: bool) -> None:
    """``x`` is read as the first and as the third operand."""
    node = Node(node_id="n", inputs=("x", "z", "x"), outputs=("y",), inplace=permission)
    assert onnx_run._offers(node, "x") is offered


def test_a_difference_is_told_at_its_first_byte_and_one_of_length_at_the_start():
    here = np.array([1, 2, 3, 4], np.uint8)
    run = SimpleNamespace(
        applied=SimpleNamespace(array=lambda name: here), compared=set(), comparisons=0, bytes_compared=0, oracle=None
    )
    for there, byte in (([1, 2, 3, 4], None), ([1, 2, 9, 9], 2), ([1, 2, 3, 4, 5], 0), ([1, 2, 3], 0)):
        run.oracle = SimpleNamespace(values={"t": np.array(there, np.uint8)})
        found = list(onnx_run._Run._compare(run, 3, "n", "t", "after"))
        assert [difference.byte for difference in found] == ([] if byte is None else [byte])
    assert (run.comparisons, run.bytes_compared, run.compared) == (4, 16, {"t"})


@pytest.mark.parametrize(("shape", "fan_in"), [((8,), 6), ((8, 1), 1), ((2, 4), 4), ((2, 2, 2), 4), ((8, 0), 1)])
def test_values_are_as_wide_as_sums_of_them_stay_small(shape: tuple[int, ...], fan_in: int) -> None:
    """The same numbers for each shape, ±1 wide in a row, else by how many of them are summed."""
    row = onnx_run._varied("w", (8,), "float32")
    assert np.abs(row).max() <= 1
    count = int(np.prod(shape))
    made = onnx_run._varied("w", shape, "float32")
    assert made.ravel().tolist() == (row[:count] * np.float32((6 / fan_in) ** 0.5)).tolist()
