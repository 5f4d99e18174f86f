"""The README: its commands run from an environment with only the documented installs; its figures are measured ones."""

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import onnx
import pytest

from tests.support.paths import DATA, ROOT
from tests.wheel.environment import build_wheel, environment

README = (ROOT / "README.md").read_text(encoding="utf-8")
MODEL = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / "light_resnet50.onnx"
PLANS_DIFFER = "tmmu compare golden.json best.json"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the models of the README, and an environment with the wheel and the extra ``run``."""
    folder = tmp_path_factory.mktemp("readme")
    environment(folder / "env", build_wheel(folder / "dist"), "run")
    shutil.copy(MODEL, folder / "model.onnx")
    shutil.copy(DATA / "tflite" / "vww_96_int8.tflite", folder / "model.tflite")
    return folder


def run(folder: Path, command: list[str]) -> subprocess.CompletedProcess[str]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    paths = f"{folder / 'env' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        command, cwd=folder, env={**plain, "PATH": paths}, capture_output=True, text=True, check=False
    )


def test_commands_run(folder: Path) -> None:
    lines = [line.partition("  #")[0].strip() for line in README.splitlines() if line.startswith("tmmu ")]
    assert len(lines) == 10
    for line in lines:
        ended = run(folder, shlex.split(line))
        assert ended.returncode == (1 if line == PLANS_DIFFER else 0), f"{line}\n{ended.stdout}{ended.stderr}"


def test_python_example_runs(folder: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", README, re.S)
    ended = run(folder, [str(folder / "env" / "bin" / "python"), "-c", program])
    assert ended.returncode == 0, ended.stderr
    extent, bound = ended.stdout.split()
    assert extent == bound


def test_figures_of_the_comparison_are_on_the_pages_that_it_names() -> None:
    rows = re.findall(r"^\| (.*?) \| (.*?) \| (.*?) \| \[\w+\]\((docs/measured/\w+\.md)\) \|$", README, re.M)
    assert len(rows) == 5
    for _, ours, theirs, page in rows:
        text = (ROOT / page).read_text(encoding="utf-8")
        figures = re.findall(r"[\d,]{4,}|[+\d]+\.\d+", f"{ours} {theirs}")
        assert figures
        assert [figure for figure in figures if figure not in text] == []


def test_moving_picture_is_smaller_than_2_mb() -> None:
    (picture,) = re.findall(r"!\[.*?\]\((.*?)\)", README)
    assert (ROOT / picture).stat().st_size < 2_000_000
