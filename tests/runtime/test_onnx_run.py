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
from tmmu_core.runtime.philox import pattern

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


# --- by eye ------------------------------------------------------------------------------------------------------


def test_what_was_run_is_told_in_a_line() -> None:
    run = onnx_run.OnnxRun("m", 1000, 2, 3, 4000, 5, ())
    ran = "m: 1,000 nodes, 2 tensors compared 3 times (4,000 B) in 5 B of arenas"
    assert (run.ok, str(run)) == (True, f"{ran}: bit-identical")
    amiss = [onnx_run.Difference(7, "n", "t", "read", 0), onnx_run.Difference(8, "m", "u", "written", 1)]
    run = onnx_run.OnnxRun("m", 1000, 2, 3, 4000, 5, tuple(amiss))
    assert (run.ok, str(run)) == (False, f"{ran}: 2 differences, the first: 't' read at step 7 ('n')")


def test_each_tensor_is_compared_where_it_is_read_and_written_and_given_out(monkeypatch) -> None:
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


def test_what_is_asked_of_a_session_is_what_no_file_says(monkeypatch) -> None:
    """Not the weights, which stand in the file; of a function what its nodes write."""
    twice = helper.make_function("own", "Twice", ["q"], ["b"], [helper.make_node("Add", ["q", "q"], ["b"])],
                                 [helper.make_opsetid("", 13)])  # fmt: skip
    model = onnx.ModelProto.FromString(tiny())
    model.functions.append(twice)
    model.opset_import.append(helper.make_opsetid("own", 1))
    model.graph.node.append(helper.make_node("Twice", ["z"], ["zz"], "twice", domain="own"))
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("zz", TensorProto.FLOAT, [6]))
    unread = helper.make_tensor("unread", TensorProto.FLOAT, [1], [1.0])
    model.graph.initializer.append(unread)
    asked = []
    session = onnx_run._session

    def asking(model):
        class Asked:
            def run(self, wanted, feeds):
                asked.append((sorted(wanted), sorted(feeds), [node.op_type for node in model.graph.node]))
                return session(model).run(wanted, feeds)

        return Asked()

    monkeypatch.setattr(onnx_run, "_session", asking)
    oracle = plain_run(model.SerializeToString(), "tiny.onnx")
    assert asked == [(["a", "y", "z", "zz"], ["x"], ["Add", "Relu", "Reshape", "Add"])]
    assert sorted(oracle.values) == ["a", "s", "w", "x", "y", "z", "zz"]
    assert oracle.values["zz"].tolist() == (2 * oracle.values["z"]).tolist()


def test_a_result_is_spoilt_before_its_node_runs_unless_it_may_lie_there() -> None:
    arrays = {name: np.zeros(4, np.uint8) for name in "abcd"}
    node = Node(node_id="n", inputs=("x", "z"), outputs=("a", "b", "c", "d"), inplace=((0, 0),))
    run = SimpleNamespace(
        handoffs={3: [(3, "x", "a"), (3, "z", "b")]},
        tensors={name: SimpleNamespace(view=object() if name == "d" else None) for name in "abcd"},
        applied=SimpleNamespace(array=arrays.__getitem__),
    )
    onnx_run._Run._poison(run, 3, node)
    assert {name: set(array) for name, array in arrays.items()} == {"a": {0}, "b": {0xA5}, "c": {0xA5}, "d": {0}}
    arrays["a"][:] = 0
    onnx_run._Run._poison(run, 2, node)
    assert set(arrays["a"]) == {0xA5}


def test_a_session_is_alone_and_as_the_model_stands(monkeypatch) -> None:
    made = []

    class Options:
        pass

    runtime = SimpleNamespace(
        SessionOptions=Options,
        GraphOptimizationLevel=SimpleNamespace(ORT_DISABLE_ALL="none"),
        InferenceSession=lambda data, options, providers: made.append((data, vars(options), providers)),
    )
    monkeypatch.setattr(onnx_run, "runtime", lambda: runtime)
    onnx_run._session(onnx.ModelProto.FromString(tiny()))
    options = {"graph_optimization_level": "none", "intra_op_num_threads": 1, "inter_op_num_threads": 1}
    assert made == [(tiny(), {**options, "log_severity_level": 3}, ["CPUExecutionProvider"])]


def test_every_weight_that_is_filled_is_looked_at_and_variances_stay_above_nothing() -> None:
    filled = [helper.make_node("ConstantOfShape", ["s"], [name]) for name in ("int", "one", "w", "v", "m")]
    norm = helper.make_node("BatchNormalization", ["x", "w", "w", "m", "v"], ["y"])
    model = helper.make_model(helper.make_graph([helper.make_node("Own", [], []), *filled, norm], "g", [], []))
    shapes: Any = {"int": ((9,), "int64"), "one": ((1,), "float32"), **dict.fromkeys("wvm", ((50,), "float32"))}
    fed = onnx_run._vary_weights(model, shapes)
    assert list(fed) == ["w", "v", "m"]
    assert [each.name for each in model.graph.input] == ["w", "v", "m"]
    assert 0.5 <= fed["v"].min() < fed["v"].max() < 1.5
    assert fed["w"].min() < 0 > fed["m"].min()


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int64", "bool", "uint8"])
def test_values_are_philox_numbers_under_the_tensors_name(dtype: str) -> None:
    made = onnx_run._varied("w", (3, 4), dtype)
    if dtype.startswith("float"):
        words = np.frombuffer(pattern(48, "w", 0, 0).tobytes(), "<u4")
        unit = [np.float32((int(word) // 256) / 2**24) for word in words]
        wide = [(each * 2 - 1) * np.float32((6 / 4) ** 0.5) for each in unit]
        assert made.tolist() == np.array(wide, np.float32).astype(dtype).reshape(3, 4).tolist()
        above = onnx_run._varied("w", (3, 4), "float32", positive=True)
        assert above.tolist() == np.array([each + np.float32(0.5) for each in unit]).reshape(3, 4).tolist()
    else:
        assert made.tolist() == [[byte % 2 for byte in pattern(12, "w", 0, 0)[k : k + 4]] for k in (0, 4, 8)]
    assert (made.dtype, made.shape) == (np.dtype(dtype), (3, 4))
