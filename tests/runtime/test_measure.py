"""A model run by its runtime beside its plan."""

import json
from pathlib import Path

import numpy as np
import pytest

from app.cli.main import run
from tests.formats.edge.test_tflite_features import Op, T, X
from tests.formats.edge.test_tflite_features import model as tflite_model
from tests.formats.onnx.test_onnx import model, op, value
from tests.support.paths import DATA
from tmmu_core.base.errors import MissingExtra, UnreadableInput
from tmmu_core.runtime.measure.measure_model import Figures, Measured, measure

SIDE = 1024
BYTES = 4 * SIDE * SIDE


def products(batch: int | str = SIDE) -> bytes:
    """Return three matrix products in a row: two results of 4 MiB and the input are live at one step."""
    nodes = [op("MatMul", "x w", "a"), op("MatMul", "a w", "b"), op("MatMul", "b w", "y")]
    weights = {"w": np.full((SIDE, SIDE), 0.01, np.float32)}
    return model(nodes, [value("x", [batch, SIDE])], [value("y", None)], weights).SerializeToString()


@pytest.mark.slow
def test_measured_arena_is_between_the_bound_and_the_plan() -> None:
    found = measure(products(), "model.onnx")
    assert found.run is not None
    assert found.given.ours == found.given.bound == 2 * BYTES
    assert found.given.inputs == BYTES
    # The kernel counts a process's pages in batches: figures are off by up to some hundred KiB.
    assert 2 * BYTES - BYTES // 4 <= found.figures["no_arena"] < 4 * BYTES
    assert found.figures["arena"] >= 2 * BYTES - BYTES // 4


@pytest.mark.slow
def test_open_sizes_use_the_assumed_or_given_ones() -> None:
    assert measure(products("N"), "model.onnx").sizes == {"N": 1}
    assert measure(products("N"), "model.onnx", {"N": 16}).given.inputs == 16 * 4 * SIDE


@pytest.mark.slow
def test_command_prints_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(products("N"))
    assert run(["measure", str(path), "--dims", "N=16", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["given"]["bound"] == 2 * 16 * 4 * SIDE
    assert run(["measure", str(path), "--dims", "N=16"]) == 0
    assert f"plan, {found['planner']}" in capsys.readouterr().out


def test_model_that_does_not_run_is_rejected_with_a_hint() -> None:
    nodes = [op("Reshape", "x s", "y")]
    data = model(nodes, [value("x", ["N", 3])], [value("y", [7])], {"s": np.array([7], np.int64)}).SerializeToString()
    with pytest.raises(UnreadableInput, match="does not run the model") as caught:
        measure(data, "model.onnx")
    assert "--dims" in caught.value.hint


# --- other runtimes ----------------------------------------------------------------------------------------------


def test_graph_without_runtime_is_rejected_with_the_supported_files() -> None:
    with pytest.raises(UnreadableInput) as refused:
        measure(b'{"ir_schema": "UML_Model_IR"}', "graph.json")
    assert ".onnx, .tflite or .pt2" in str(refused.value.hint)


def test_parts_of_the_difference_sum_up() -> None:
    figures = {"arena": 100, "pattern": 30, "no_arena": 90}
    found = Measured("m", "onnxruntime", 130, figures, Figures(50, 40, 8), Figures(80, 60, 8), {})
    assert found.difference()[0][1] == 30
    assert sum(size for _, size in found.difference()) == 130 - 60


def test_litert_reports_its_arena_exactly() -> None:
    """The known arena of this model, including its im2col tensors."""
    pytest.importorskip("ai_edge_litert")
    found = measure((DATA / "tflite" / "vww_96_int8.tflite").read_bytes(), "vww.tflite")
    assert (found.runtime, found.theirs, found.figures["scratch_tensors"]) == ("LiteRT", 108_288, 62_208)
    assert found.given.bound == 55_296
    # The tensors of this model are smaller than the gaps between them: 1 + 16 + 1 + 16 bytes, each 64-aligned.
    assert measure((DATA / "tflite" / "hello_world_int8.tflite").read_bytes(), "hello.tflite").theirs == 144
    found_places = tflite_model([X, T("places", (1, 1), "INT64", signature=(-1, 1))], [Op("WHERE", (0,), (1,))])
    incomplete = measure(found_places, "places.tflite").given.incomplete
    assert "places: its size depends on data" in incomplete[0]


def test_executorch_reports_the_bytes_of_its_program() -> None:
    found = measure((DATA / "given" / "executorch_small.pte").read_bytes(), "small.pte")
    assert (found.runtime, found.figures) == ("ExecuTorch", {"planned": found.theirs})
    assert found.given.bound <= found.given.ours <= found.theirs
    assert sum(size for _, size in found.difference()) == found.theirs - found.given.bound


@pytest.mark.parametrize(("options", "named"), [({"dims": {"B": 3}}, "--dims"), ({"in_order": True}, "--in-order")])
def test_option_that_the_runtime_ignores_is_rejected(options, named) -> None:
    with pytest.raises(UnreadableInput, match=f"{named} has no effect in ExecuTorch"):
        measure((DATA / "given" / "executorch_small.pte").read_bytes(), "small.pte", **options)


@pytest.mark.torch
def test_eager_mode_reports_tensors_and_scratch_per_step() -> None:
    """Six operators of 64, 128, … bytes: two results and nothing else are alive at once."""
    pytest.importorskip("torch", reason="PyTorch is not installed: make test-torch")
    found = measure((DATA / "torch" / "two_layers.pt2").read_bytes(), "two_layers.pt2")
    assert found.figures["tensors"] == max(found.steps) == 320
    assert found.figures["allocated"] == found.figures["tensors"] + found.figures["scratch"]
    assert found.given.bound <= found.figures["tensors"]


@pytest.mark.parametrize(
    ("package", "file"), [("ai_edge_litert", "tflite/hello_world_int8.tflite"), ("PyTorch", "torch/two_layers.pt2")]
)
def test_missing_runtime_is_named_with_its_command(package: str, file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tmmu_core.base.errors.find_spec", lambda _: None)
    with pytest.raises(MissingExtra, match=f"(?s){package}.*pip install"):
        measure((DATA / file).read_bytes(), file)
