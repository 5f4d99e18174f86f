"""onnxruntime is asked for shapes within limits: of time, of what it reads, and not at all where that is said."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.graph.test_onnx import model, op, value
from tests.graph.test_onnx_open_sizes import fused
from tmmu_core import limits
from tmmu_core.errors import InvalidIrShapes
from tmmu_core.graph.importers import onnx as onnx_importer
from tmmu_core.graph.importers import onnx_complete
from tmmu_core.plan.formats.reading import read_any

BOOL, FLOAT = TensorProto.BOOL, TensorProto.FLOAT


def endless() -> onnx.ModelProto:
    """A fused operator whose shape a run would tell, behind a loop of 2^62 rounds."""
    proto = fused()
    body = helper.make_graph(
        [op("Identity", "more", "on"), op("Sin", "s", "t")],
        "body",
        [value("k", [], TensorProto.INT64), value("more", [], BOOL), value("s", [1, 8, 6, 6])],
        [value("on", [], BOOL), value("t", [1, 8, 6, 6])],
    )
    proto.graph.node.append(op("Loop", "rounds go y", "z", body=body))
    for name, array in (("rounds", np.array(2**62, np.int64)), ("go", np.array(True))):
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    proto.graph.output[0].CopyFrom(value("z", None))
    return proto


def test_a_model_that_computes_for_ever_is_ended_by_a_limit_with_a_name() -> None:
    with limits.raised({"run-seconds": 2}), pytest.raises(InvalidIrShapes) as caught:
        read_any(endless().SerializeToString(), "endless.onnx")
    assert "--max-run-seconds" in caught.value.hint


def test_nothing_is_run_where_that_is_turned_off() -> None:
    with limits.raised({"run-seconds": 0}), pytest.raises(InvalidIrShapes) as caught:
        read_any(fused().SerializeToString(), "model.onnx")
    assert "--max-run-seconds N" in caught.value.hint


def test_a_body_that_names_weights_beside_the_file_is_not_run() -> None:
    """The file that it names exists, and is not opened: the run that would is not made."""
    weight = onnx.numpy_helper.from_array(np.ones(4, np.float32), "beside")
    onnx.external_data_helper.set_external_data(weight, "beside.bin")
    weight.ClearField("raw_data")
    then = helper.make_graph([op("Identity", "beside", "r")], "then", [], [value("r", [4])], [weight])
    other = helper.make_graph([op("Mystery", "x", "q", domain="own")], "else", [], [value("q", [4])])
    node = op("If", "c", "y", then_branch=then, else_branch=other)
    nodes = [node, op("Mystery", "y", "z", domain="own")]
    proto = model(nodes, [value("x", [4]), value("c", [], BOOL)], [value("z", None)])
    with pytest.raises(InvalidIrShapes, match="shape cannot be inferred") as caught:
        read_any(proto.SerializeToString(), "model.onnx")
    assert "its weights lie beside the file" in caught.value.hint


def test_what_runs_is_the_model_with_its_own_functions_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run's nodes are then those of the graph, by whose names it tells what they wrote."""
    asked: list[bytes] = []

    def ask(request: bytes) -> dict[str, Any]:
        asked.append(request)
        return {"failed": "not today"}

    monkeypatch.setattr(onnx_complete, "_ask", ask)
    opsets = [helper.make_opsetid("", 17)]
    twice = helper.make_function("own", "Twice", ["q"], ["b"], [op("Add", "q q", "b")], opsets)
    proto = model([op("Twice", "x", "y", domain="own")], [value("x", [4])], [value("y", None)], functions=[twice])
    data = proto.SerializeToString()
    run = onnx_complete.measure(data, onnx_importer.flattened(onnx.ModelProto.FromString(data)), [{}])
    assert run.failed == "not today"
    ran = onnx.ModelProto.FromString(asked[0].partition(b"\n")[2])
    assert ([node.op_type for node in ran.graph.node], len(ran.functions)) == (["Add"], 0)
