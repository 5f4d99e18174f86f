"""The largest size of a dimension that fits."""

from pathlib import Path

import pytest

from app.cli.main import run
from tmmu_core.graph.model import GRAPH_SCHEMA, Dim, Graph, Node, Tensor
from tmmu_core.graph.native import native_file

GRAPH = Graph(
    ir_schema=GRAPH_SCHEMA,
    tensors=(Tensor("x", ("batch", 4), role="input"), Tensor("y", ("batch", 4))),
    nodes=(Node("n", "Relu", ("x",), ("y",)),),
    inputs=("x",),
    outputs=("y",),
    dims={"batch": Dim(1, 8), "batches": Dim(2, 64)},
)


def test_dimension_without_tensors_is_rejected_with_the_closest_name(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "graph.tmmu.json"
    path.write_bytes(native_file.encode_json(GRAPH))
    assert run(["fit", str(path), "--capacity", "1KiB", "--largest", "batches"]) != 0
    refused = capfd.readouterr().err
    assert "no tensor of the graph has the dimension 'batches'" in refused
    assert "Did you mean 'batch'?" in refused
