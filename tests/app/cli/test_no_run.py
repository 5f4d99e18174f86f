"""Models that run for their shapes: the note before the run, and ``--no-run``."""

from pathlib import Path

import pytest

from app.cli.main import run
from tests.formats.onnx.test_onnx_open_sizes import fused


@pytest.fixture
def model(tmp_path: Path) -> str:
    """Return a model with an operator of onnxruntime whose shape is found only by a run."""
    path = tmp_path / "model.onnx"
    path.write_bytes(fused().SerializeToString())
    return str(path)


def test_run_is_announced_on_standard_error(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime")
    assert run(["plan", model]) == 0
    printed = capsys.readouterr()
    assert "model.onnx does not state all shapes: onnxruntime runs it" in printed.err
    assert "measured" in printed.out


def test_no_run_refuses_a_model_that_would_be_run(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", model, "--no-run"]) == 2
    assert "omit --no-run" in capsys.readouterr().err
