"""ONNX models run node by node in arenas, compared with onnxruntime."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.runtime import faults
from tests.support.onnx_run import arena_run, plain_run
from tmmu_core.plans.making.engine import plan_graph

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


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["overlap", "illegal_in_place"])
def test_broken_plan_gives_another_result(squeezenet, kind):
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
    """Return ``y = relu(x + w)``, ``z = reshape(y)``: an in-place reuse and a view."""
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


def test_handoff_and_view_run_in_place():
    oracle = plain_run(tiny(), "tiny.onnx")
    plan = plan_graph(oracle.graph).plan
    assert plan.handoffs
    assert plan.offset[plan.row_of["y"]] == plan.offset[plan.row_of["z"]]
    assert arena_run(oracle, plan).ok


def test_difference_names_step_tensor_and_reader():
    oracle = plain_run(tiny(), "tiny.onnx")
    plan = plan_graph(oracle.graph).plan
    spoilt = faults.changed(plan, "offset", plan.row_of["s"], plan.offset[plan.row_of["w"]])
    first = arena_run(oracle, spoilt).differences[0]
    assert (first.node_id, first.tensor, first.when, first.step, first.byte) == ("add", "w", "read", 1, 0)
