"""Files that are read in a child process, without the modules and signals that Windows lacks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from onnx import TensorProto, helper

from tests.support.paths import ROOT

WITHOUT_POSIX = """
import signal, sys
sys.modules["resource"] = sys.modules["fcntl"] = None
for name in ("SIGXCPU", "SIGKILL"):
    vars(signal).pop(name, None)
"""


@pytest.fixture
def windows(tmp_path: Path) -> dict[str, str]:
    """An environment in which every Python process lacks what Windows lacks."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(WITHOUT_POSIX)
    return {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}


def planned(path: Path, out: Path, environment: dict[str, str], command: str = "plan") -> str:
    arguments = [sys.executable, "-m", "tmmu_core", command, str(path), "-o", str(out)]
    ran = subprocess.run(arguments, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stderr


@pytest.mark.slow
def test_onnx_model_whose_shapes_need_a_run_is_planned(tmp_path: Path, windows: dict[str, str]) -> None:
    data = helper.make_tensor("shape", TensorProto.INT64, [2], [2, 8])
    nodes = [
        helper.make_node("Constant", [], ["s"], value=data),
        helper.make_node("Mul", ["s", "s"], ["t"]),
        helper.make_node("Expand", ["x", "t"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    planned(path, tmp_path / "plan.json", windows)
    planned(path, tmp_path / "plan.json", windows)  # replaces an existing file
    assert (tmp_path / "plan.json").stat().st_size
