"""Loops whose state grows are planned at their largest size, compared with an executed loop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from tmmu_core.base import limits
from tmmu_core.base.errors import InvalidIrShapes, UnreadableInput
from tmmu_core.formats.onnx import onnx_functions
from tmmu_core.formats.open_file import read_graph, read_within
from tmmu_core.graph.model import Dim, Graph
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.plans.making.engine import plan_graph

FLOAT = TensorProto.FLOAT
ROW = numpy_helper.from_array(np.ones((1, 3), np.float32), "row")
GOES_ON = helper.make_node("Identity", ["before"], ["goes_on"])


def open_value(name: str) -> Any:
    return helper.make_empty_tensor_value_info(name)


def body_of(*nodes: Any, states: int = 1) -> Any:
    given = [helper.make_tensor_value_info("i", TensorProto.INT64, [])]
    given += [helper.make_tensor_value_info("before", TensorProto.BOOL, [])]
    given += [open_value(f"s{k}") for k in range(states)]
    left = [helper.make_tensor_value_info("goes_on", TensorProto.BOOL, [])]
    left += [open_value(f"r{k}") for k in range(states)]
    return helper.make_graph([GOES_ON, *nodes], "body", given, left)


def looped(body: Any, trips: int | None, shape: list[int | str], *more: Any, states: int = 1) -> ModelProto:
    """A loop over copies of ``x``, as often as said (or as the input ``trips`` says), and a Relu of what it leaves."""
    given = [helper.make_tensor_value_info("x", FLOAT, shape)]
    weights = [ROW, numpy_helper.from_array(np.array(True), "yes")]
    if trips is None:
        given.append(helper.make_tensor_value_info("trips", TensorProto.INT64, []))
    else:
        weights.append(numpy_helper.from_array(np.array(trips), "trips"))
    outputs = [f"y{k}" for k in range(states)]
    nodes = [helper.make_node("Loop", ["trips", "yes", *["x"] * states], outputs, "loop", body=body)]
    nodes += [helper.make_node("Relu", [name], [f"{name}.out"]) for name in outputs]
    graph = helper.make_graph([*nodes, *more], "g", given, [open_value(f"{name}.out") for name in outputs], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def concat(*names: str, to: str = "r0") -> Any:
    return helper.make_node("Concat", list(names), [to], axis=0)


def read(model: ModelProto) -> Graph:
    graph = read_graph(model.SerializeToString(), "loop.onnx")
    assert verify_plan(plan_graph(graph).plan).ok
    return graph


def shapes(graph: Graph) -> dict[str, Any]:
    return {tensor.id: tensor.shape for tensor in graph.tensors}


CASES = {
    "a row each time": ([concat("s0", "row")], 5, (6, 3)),
    "once": ([concat("s0", "row")], 1, (2, 3)),
    "two steps within": ([concat("s0", "row", to="h"), helper.make_node("Relu", ["h"], ["r0"])], 7, (8, 3)),
    "twice as much each time": ([concat("s0", "s0")], 6, (64, 3)),
    "a hundred thousand rows": ([concat("s0", "row")], 100_000, (100_001, 3)),
}


@pytest.mark.parametrize("case", CASES)
def test_state_has_its_final_size(case: str) -> None:
    nodes, trips, last = CASES[case]
    model = looped(body_of(*nodes), trips, [1, 3])
    found = shapes(read(model))
    assert found["loop/s0"] == found["loop/r0"] == found["y0"] == found["y0.out"] == last
    if trips < 100:
        (left,) = ReferenceEvaluator(model).run(None, {"x": np.zeros((1, 3), np.float32)})
        assert left.shape == last


def test_shrinking_state_has_its_initial_size() -> None:
    rest = helper.make_node("Slice", ["s0", "one", "end"], ["r0"])
    model = looped(body_of(rest), 4, [9, 3])
    model.graph.initializer.extend(
        [numpy_helper.from_array(np.array([n]), name) for name, n in (("one", 1), ("end", 99))]
    )
    found = shapes(read(model))
    assert (found["loop/s0"], found["loop/r0"]) == ((9, 3), (9, 3))
    assert found["y0"] == (9, 3)  # as large as the place of the state: one that ends earlier leaves more


def test_value_that_shrinks_has_its_initial_size() -> None:
    """What is missing to ten rows, while the state grows to nine."""
    nodes = [
        concat("s0", "row"),
        helper.make_node("Shape", ["s0"], ["here"], end=1),
        helper.make_node("Slice", ["ten", "here", "end"], ["missing"]),
        helper.make_node("Neg", ["missing"], ["unused"]),
    ]
    model = looped(body_of(*nodes), 8, [1, 3])
    ten = numpy_helper.from_array(np.zeros((10, 2), np.float32), "ten")
    model.graph.initializer.extend([ten, numpy_helper.from_array(np.array([99]), "end")])
    found = shapes(read(model))
    assert found["loop/s0"] == (9, 3)
    assert found["loop/missing"] == found["loop/unused"] == (9, 2)


def test_two_states_may_grow_by_different_sizes() -> None:
    body = body_of(concat("s0", "row"), concat("s1", "row", "row", to="r1"), states=2)
    found = shapes(read(looped(body, 5, [1, 3], states=2)))
    assert (found["y0"], found["y1"]) == ((6, 3), (11, 3))


def test_open_size_is_fixed_where_the_state_grows() -> None:
    graph = read(looped(body_of(concat("s0", "row")), 5, ["N", 3]))
    assert shapes(graph)["y0"] == (6, 3)
    assert (graph.dims["N"].min, graph.dims["N"].max) == (1, 1)


def test_loop_that_feeds_a_loop_is_evaluated_first() -> None:
    second = helper.make_node("Loop", ["trips", "yes", "y0"], ["z"], "second", body=body_of(concat("s0", "row")))
    model = looped(body_of(concat("s0", "row")), 5, [1, 3], second)
    model.graph.output.append(open_value("z"))
    assert shapes(read(model))["z"] == (11, 3)


@pytest.mark.parametrize(
    ("model", "says", "way"),
    [
        (looped(body_of(concat("s0", "row")), None, [1, 3]), "nothing in the model bounds how often", '"trips"'),
        (looped(body_of(concat("s0", "s0")), 1000, [1, 3]), "its state changes", "padding"),
    ],
    ids=["nobody says how often", "too often to go through"],
)
def test_unbounded_growth_is_rejected_with_the_option(model: ModelProto, says: str, way: str) -> None:
    with pytest.raises(InvalidIrShapes, match=says) as caught:
        read(model)
    assert way in caught.value.hint
    assert caught.value.diagnostics["reason"] == "scope_shape"


def within(model: ModelProto, most: int, name: str = "trips") -> Graph:
    graph = read_within(model.SerializeToString(), {name: Dim(1, most)}, "loop.onnx")
    assert verify_plan(plan_graph(graph).plan).ok
    return graph


def test_trip_count_given_at_run_time_is_bounded_by_its_name() -> None:
    model = looped(body_of(concat("s0", "row")), None, [1, 3])
    with pytest.raises(InvalidIrShapes) as caught:
        read(model)
    assert "--dims trips=" in caught.value.hint
    graph = within(model, 5)
    assert shapes(graph)["loop/s0"] == shapes(graph)["y0"] == (6, 3)
    (left,) = ReferenceEvaluator(model).run(None, {"x": np.zeros((1, 3), np.float32), "trips": np.array(5)})
    assert left.shape == (6, 3)
    assert any("trips" in node.inputs for node in graph.nodes)  # the loop still reads how often it runs


def test_trip_count_of_the_model_wins_over_a_given_bound() -> None:
    model = looped(body_of(concat("s0", "row")), 3, [1, 3])
    assert shapes(within(model, 9))["y0"] == (4, 3)


def test_gathered_output_has_the_length_of_the_bound() -> None:
    gathering = body_of(helper.make_node("Identity", ["row"], ["r0"]), states=0)
    gathering.output.append(helper.make_tensor_value_info("r0", FLOAT, [1, 3]))
    model = looped(gathering, None, [1, 3], states=0)
    model.graph.node[0].output.append("rows")
    model.graph.output.append(open_value("rows"))
    with pytest.raises(InvalidIrShapes) as caught:
        read(model)
    assert "--dims trips=" in caught.value.hint
    assert shapes(within(model, 7))["rows"] == (7, 1, 3)


def nodes_of(count: int, inner: int = 0) -> list[Any]:
    """So many nodes, the first of which has a body of ``inner`` more."""
    body = helper.make_graph(nodes_of(inner), "b", [], []) if inner else None
    return [
        helper.make_node("Relu", ["x"], [f"y{k}"], **({"body": body} if body and not k else {})) for k in range(count)
    ]


def test_number_of_inlined_nodes_is_limited() -> None:
    opsets = [helper.make_opsetid("", 17)]
    two = helper.make_function("own", "F", ["q"], ["y1"], nodes_of(2), opsets)
    calls = [helper.make_node("F", ["x"], [f"z{k}"], domain="own") for k in range(3)]
    model = helper.make_model(helper.make_graph(calls, "g", [], []), functions=[two])
    with limits.raised({"inlined-nodes": 6}):
        onnx_functions.check_calls(model, "from")
    with limits.raised({"inlined-nodes": 5}), pytest.raises(UnreadableInput, match="inlined"):
        onnx_functions.check_calls(model, "from")
