"""A model run by onnxruntime beside its plan: figures of one graph, and refusals with the way out."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from app.cli.main import run
from tests.graph.test_onnx import model, op, value
from tmmu_core.errors import UnreadableInput
from tmmu_core.runtime.measure import measure

SIDE = 1024
BYTES = 4 * SIDE * SIDE


def products(batch: int | str = SIDE) -> bytes:
    """Three matrix products in a row: two results of 4 MiB are alive at once, and the input."""
    nodes = [op("MatMul", "x w", "a"), op("MatMul", "a w", "b"), op("MatMul", "b w", "y")]
    weights = {"w": np.full((SIDE, SIDE), 0.01, np.float32)}
    return model(nodes, [value("x", [batch, SIDE])], [value("y", None)], weights).SerializeToString()


def test_theirs_stands_beside_ours_and_the_bound() -> None:
    found = measure(products(), "model.onnx")
    assert found.run is not None
    assert found.given.ours == found.given.bound == 2 * BYTES
    assert found.given.inputs == BYTES
    # The kernel counts a process's pages in batches: figures are off by up to some hundred KiB.
    assert 2 * BYTES - BYTES // 4 <= found.no_arena < 4 * BYTES
    assert found.arena >= 2 * BYTES - BYTES // 4


def test_open_sizes_stand_where_they_are_assumed_or_given() -> None:
    assert measure(products("N"), "model.onnx").sizes == {"N": 1}
    assert measure(products("N"), "model.onnx", {"N": 16}).given.inputs == 16 * 4 * SIDE


def test_the_command_says_it_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(products("N"))
    assert run(["measure", str(path), "--dims", "N=16", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["given"]["bound"] == 2 * 16 * 4 * SIDE


def test_a_model_that_does_not_run_is_refused_with_the_way_out() -> None:
    nodes = [op("Reshape", "x s", "y")]
    data = model(nodes, [value("x", ["N", 3])], [value("y", [7])], {"s": np.array([7], np.int64)}).SerializeToString()
    with pytest.raises(UnreadableInput, match="does not run the model") as caught:
        measure(data, "model.onnx")
    assert "--dims" in caught.value.hint
