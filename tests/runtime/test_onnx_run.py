"""ONNX models run node by node in arenas, compared with onnxruntime."""

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from app.cli.console import error_text
from tests.formats.onnx.test_onnx_scopes import CASES
from tests.runtime import faults
from tests.support import onnx_run
from tests.support.onnx_run import ADD_THE_EXTRA, arena_run, plain_run, runtime
from tmmu_core.base.errors import MissingExtra, UnreadableInput
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


def test_values_are_distinct(squeezenet):
    """An overlap could otherwise give the right bytes by chance."""
    weights = [squeezenet.values[t.id] for t in squeezenet.graph.tensors if t.role != "constant"]
    assert all(len(np.unique(value)) > 1 for value in weights)


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


def test_model_with_a_named_dimension_needs_a_size():
    model = onnx.ModelProto.FromString(tiny())
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "N"
    with pytest.raises(UnreadableInput, match="N"):
        plain_run(model.SerializeToString(), "tiny.onnx")


def test_model_with_scopes_is_rejected():
    with pytest.raises(UnreadableInput, match="nested scopes"):
        plain_run(CASES[0].model.SerializeToString(), "branches.onnx")


def test_missing_extra_is_named_with_its_installation(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingExtra) as caught:
        runtime()
    assert error_text(caught.value).splitlines() == [
        "running a model needs onnxruntime, which is not installed.",
        f"Add it: {ADD_THE_EXTRA}",
    ]


# --- by eye ------------------------------------------------------------------------------------------------------


def test_result_has_a_summary_line() -> None:
    run = onnx_run.OnnxRun("m", 1000, 2, 3, 4000, 5, ())
    ran = "m: 1,000 nodes, 2 tensors compared 3 times (4,000 B) in 5 B of arenas"
    assert (run.ok, str(run)) == (True, f"{ran}: bit-identical")
    amiss = [onnx_run.Difference(7, "n", "t", "read", 0), onnx_run.Difference(8, "m", "u", "written", 1)]
    run = onnx_run.OnnxRun("m", 1000, 2, 3, 4000, 5, tuple(amiss))
    assert (run.ok, str(run)) == (False, f"{ran}: 2 differences, the first: 't' read at step 7 ('n')")


def test_tensor_is_compared_at_reads_writes_and_outputs(monkeypatch) -> None:
    entered = []
    whole = onnx_run.apply_plan

    def applying(*given, **how):
        applied = whole(*given, **how)
        enter = applied.enter
        monkeypatch.setattr(type(applied), "enter", lambda self, step: entered.append(step) or enter(step))
        return applied

    monkeypatch.setattr(onnx_run, "apply_plan", applying)
    oracle = plain_run(tiny(), "tiny.onnx")
    plan = plan_graph(oracle.graph).plan
    run = arena_run(oracle, plan)
    # x, then x and w and a, a and y, y and s and z, and z: 24 B each but for s, which is 8.
    assert (run.model, run.nodes, run.tensors, run.comparisons, run.bytes_compared) == ("tiny", 3, 6, 10, 9 * 24 + 8)
    assert entered == list(range(plan.steps)) == [0, 1, 2, 3]
    assert run.arena_bytes == sum(arena.extent_bytes for arena in plan.arenas)
