"""The scripts in docs/examples/scripts run as they are."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tmmu
from tests.support.paths import DATA, ROOT, SAMPLES

SCRIPTS = ROOT / "docs" / "examples" / "scripts"
MODEL = str(SAMPLES / "residual_block.tmmu.json")
ARGUMENTS = {
    "pack_arrays.py": [],
    "compare_planners.py": [MODEL],
    "fit_model.py": [MODEL, "100000000"],
    "sweep_planners.py": [MODEL],
    "plot_arena.py": [MODEL],
    "gate_in_ci.py": [MODEL, "baseline.json"],
    "notebook_cell.py": [MODEL],
    "torch_snapshot.py": [str(DATA / "given" / "executorch_small.pte")],
    "store_runs.sh": [MODEL],
    "torch_module.py": [],
}
"""Script → its arguments."""


def test_every_script_is_run() -> None:
    assert {path.name for path in SCRIPTS.iterdir() if path.is_file()} == set(ARGUMENTS)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.torch] * (name == "torch_module.py")) for name in ARGUMENTS]
)
def test_script_ends_without_error(tmp_path: Path, name: str) -> None:
    if name == "torch_module.py":
        pytest.importorskip("torch", reason="PyTorch is not installed")
    tmmu.plan(MODEL, planner="auto").save(tmp_path / "baseline.json")
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    command = ["sh"] if name.endswith(".sh") else [sys.executable]
    done = subprocess.run(
        [*command, str(SCRIPTS / name), *ARGUMENTS[name]],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout or (tmp_path / "plan.html").exists() or (tmp_path / "cell.html").exists()
