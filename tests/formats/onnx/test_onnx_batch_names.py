"""Open dimensions that are a batch are distinguished from those that count elements."""

from __future__ import annotations

import pytest
from onnx import TensorProto, helper

import tmmu
from tmmu_core.formats.onnx.onnx_reader import read


@pytest.mark.parametrize(
    ("shape", "assumed"),
    [
        (("batch_size", "N"), {"batch_size": 1, "N": 512}),
        (("N", 16, 8), {"N": 1}),
        ((16, "N"), {"N": 1}),
    ],
)
def test_n_is_no_batch_beside_another_batch_dimension(shape: tuple[int | str, ...], assumed: dict[str, int]) -> None:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", ends[:1], ends[1:])
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()
    assert read(data, "m.onnx").assumed == assumed


def test_assumed_sizes_are_in_the_notes_and_the_repr_of_a_plan() -> None:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ("batch_size", 4)) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", ends[:1], ends[1:])
    plan = tmmu.plan(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())
    assert "batch_size = 1" in plan.notes["assumed"]
    assert plan.notes["assumed"] in repr(plan)
    assert "batch_size = 1" in plan._repr_html_()
