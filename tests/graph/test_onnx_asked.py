"""onnxruntime is asked for shapes within limits: of time, of what it reads, and not at all where that is said."""

from __future__ import annotations

import io
import json
import resource
import sys
import types
from pathlib import Path
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
from tmmu_core.graph.importers import onnx_complete, onnx_measure
from tmmu_core.graph.importers.onnx_complete import RUNTIMES_IR
from tmmu_core.graph.importers.onnx_names import first_line
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


@pytest.mark.parametrize(("hard", "least"), [(-1, 70), (50, 50), (90, 70)])
def test_a_process_is_bounded_by_what_is_asked_and_by_what_bounds_it_already(
    hard: int, least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds: dict[int, tuple[int, int]] = {}
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (0, hard))
    monkeypatch.setattr(resource, "setrlimit", bounds.__setitem__)
    monkeypatch.setattr(onnx_measure, "MOST_WRITTEN", 70)
    onnx_measure.limit(70, 70)
    kinds = (resource.RLIMIT_CPU, resource.RLIMIT_AS, resource.RLIMIT_FSIZE)
    assert bounds == {**dict.fromkeys(kinds, (least, least)), resource.RLIMIT_CORE: (0, 0)}


def test_of_symbolic_inference_what_is_a_tensor_of_known_sizes_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    proto = model([op("Relu", "x", "y")], [value("x", [4])], [value("y", [0, 4]), value("scalar", [])])
    proto.graph.value_info.extend([value("open", ["N", 4]), value("shapeless", None), value("whole", [3])])
    untyped = proto.graph.value_info.add(name="untyped")
    untyped.type.tensor_type.shape.dim.add(dim_value=4)
    kind = types.ModuleType("onnxruntime.tools.symbolic_shape_infer")
    kind.SymbolicShapeInference = types.SimpleNamespace(infer_shapes=lambda model, auto_merge: model)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, kind.__name__, kind)
    found = onnx_measure.symbols(proto.SerializeToString())
    assert found == {"symbols": {"whole": [1, [3]], "y": [1, [0, 4]], "scalar": [1, []]}}


def test_what_is_run_is_run_in_a_folder_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    where: list[Path] = []
    bounds: list[tuple[int, int]] = []
    monkeypatch.setattr(onnx_measure, "limit", lambda *asked: bounds.append(asked))
    monkeypatch.setattr(sys, "argv", ["child", "5", "6"])

    def answers(data: bytes, **asked: Any) -> dict[str, Any]:
        where.append(Path.cwd())
        Path("left behind").touch()
        print("a word on the way")
        if asked:
            raise ValueError("" if asked["points"] else "\nfirst\nsecond" + "x" * 300)
        return {"symbols": {"of": data.decode()}}

    monkeypatch.setattr(onnx_measure, "run", answers)
    monkeypatch.setattr(onnx_measure, "symbols", answers)
    answered = []
    for head in ({}, {"points": []}, {"points": [1]}):
        out = io.StringIO()
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=io.BytesIO(json.dumps(head).encode() + b"\nm")))
        onnx_measure.main()
        answered.append(json.loads(out.getvalue()))
    assert answered == [{"symbols": {"of": "m"}}, {"failed": "first"}, {"failed": "ValueError"}]
    assert bounds == [(5, 6)] * 3
    assert Path.cwd() == tmp_path
    assert not any(tmp_path.iterdir())
    assert not any(folder.exists() for folder in where)


def test_of_a_node_that_ran_often_the_largest_results_are_taken() -> None:
    events: list[list[Any]] = [
        ["unknown", [["float", [9]]]],
        ["two", [["float", [8]]]],  # one of two results: which, nobody says
        ["one", [["float", [2, 3]]]],
        ["one", [["float", [6, 1]]]],
        ["one", [["sequence", [70]]]],
        ["two", [["int64", [4]], ["bool", []]]],
        ["two", [["int64", [5]], ["bool", []]]],
    ]
    found = onnx_complete._largest(events, {"one": ["a"], "two": ["b", "c"]})
    assert found == {"a": (1, [2, 3]), "b": (7, [5]), "c": (9, [])}


@pytest.mark.parametrize(("version", "longer"), [(RUNTIMES_IR, 0), (RUNTIMES_IR + 1, 2), (0x7F, 2), (0x80, 0), (1, 0)])
def test_a_later_models_version_is_told_lower_and_nothing_else(version: int, longer: int) -> None:
    data = bytes((8, version, 1, 2))
    assert onnx_complete.for_the_runtime(data) == data + bytes((8, RUNTIMES_IR))[:longer]
    assert onnx_complete.for_the_runtime(b"\x09" + data) == b"\x09" + data
    assert onnx_complete.for_the_runtime(b"") == b""


def test_an_error_without_words_is_called_by_its_kind() -> None:
    said = [first_line(error) for error in (ValueError(), ValueError(" "), ValueError("\n a\nb"), KeyError(3))]
    assert said == ["ValueError", "ValueError", "a", "3"]
