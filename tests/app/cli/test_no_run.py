"""Models that are run for their shapes: the note before the run, and ``--no-run``."""

from __future__ import annotations

from pathlib import Path

import pytest
from onnx import TensorProto, helper

from app.cli.main import run


@pytest.fixture
def model(tmp_path: Path) -> str:
    """A model with a shape that only a run gives: the positions that are not zero."""
    nodes = [helper.make_node("NonZero", ["x"], ["t"]), helper.make_node("Cast", ["t"], ["y"], to=1)]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [x], [y])
    path = tmp_path / "model.onnx"
    imports = [helper.make_opsetid("", 17)]
    path.write_bytes(helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString())
    return str(path)


def test_run_is_announced_on_standard_error(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime")
    assert run(["plan", model]) == 0
    printed = capsys.readouterr()
    assert "model.onnx does not state all shapes: it is run with onnxruntime" in printed.err
    assert "measured" in printed.out


def test_no_run_refuses_a_model_that_would_be_run(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", model, "--no-run"]) == 2
    assert "omit --no-run" in capsys.readouterr().err
