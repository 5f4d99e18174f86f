"""The product without the modules, functions and signals that Windows lacks, and without the native library."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from onnx import TensorProto, helper

from tests.support.paths import ROOT

SAMPLE = ROOT / "sample_graphs" / "mixed_sizes.tmmu.json"
WITHOUT_POSIX = """
import os, select, signal, socket, sys
for name in ("resource", "fcntl", "termios", "pwd", "grp", "tty", "pty"):
    sys.modules[name] = None
missing = {
    os: "fork forkpty register_at_fork getuid geteuid killpg nice setpriority setsid sched_getaffinity wait4 mkfifo",
    signal: "SIGXCPU SIGKILL SIGHUP SIGALRM SIGUSR1 setitimer alarm pthread_sigmask",
    socket: "send_fds recv_fds",
    select: "poll epoll",
}
for module, names in missing.items():
    for name in names.split():
        vars(module).pop(name, None)
"""
TASK = """
from app.session.work import workers
from tests.app.session.worker_tasks import count
if __name__ == "__main__":
    seen = []
    print(workers.run(count, (), lambda what, done, of: seen.append(what) or done < 3, print) >= 3, seen[-1])
"""


@pytest.fixture
def windows(tmp_path: Path) -> dict[str, str]:
    """Return an environment in which Python lacks the functions that Windows lacks."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(WITHOUT_POSIX)
    return {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "TMMU_NATIVE": "0"}


def python(environment: dict[str, str], *arguments: object) -> str:
    command = [sys.executable, *map(str, arguments)]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_plan_has_the_same_bytes(tmp_path: Path, windows: dict[str, str]) -> None:
    def hash_in(environment: dict[str, str]) -> str:
        printed = python(environment, "-m", "tmmu_core", "plan", SAMPLE, "--planner", "auto", "--json")
        return str(json.loads(printed)["tmmu_plan_hash"])

    assert hash_in(windows) == hash_in(dict(os.environ))


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        f"fit {SAMPLE} --capacity 300KiB",
        f"gate {SAMPLE} --max-gap 500",
        f"verify {SAMPLE}",
        f"report {SAMPLE} -o report.html",
        f"export {SAMPLE} --to c-project -o project",
        f"sweep {SAMPLE}",
        f"record {SAMPLE} --store sqlite:///plans.db --as net@c1",
    ],
)
def test_command_runs(tmp_path: Path, windows: dict[str, str], command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    python(windows, "-m", "tmmu_core", *command.split())


def test_task_of_the_explorer_runs_without_fork(windows: dict[str, str]) -> None:
    assert python(windows, "-c", TASK).strip() == "True counting"


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
    path, out = tmp_path / "model.onnx", tmp_path / "plan.json"
    path.write_bytes(model.SerializeToString())
    for _ in range(2):  # the second run replaces an existing file
        python(windows, "-m", "tmmu_core", "plan", path, "-o", out)
    assert out.stat().st_size
