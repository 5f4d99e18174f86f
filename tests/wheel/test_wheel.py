"""The content of the wheel, and what works with only its required packages."""

import json
import os
import subprocess
import zipfile
from pathlib import Path

import pytest

from app.cli import main
from tests.support.paths import SAMPLES
from tests.wheel.environment import build_wheel, environment, weight

CHAIN = str(SAMPLES / "mixed_sizes.tmmu.json")
TRAINING = str(SAMPLES / "training_step.tmmu.json")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def base(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment(tmp_path_factory.mktemp("base") / "env", wheel)


def run(*command: str | Path, cwd: Path, exit_code: int = 0) -> str:
    """Return the output of a command that runs outside of this checkout."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    ended = subprocess.run([str(c) for c in command], cwd=cwd, env=plain, capture_output=True, text=True)
    assert ended.returncode == exit_code, ended.stdout + ended.stderr
    return ended.stderr if exit_code else ended.stdout


def test_wheel_installs_packages_of_this_project_only(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {
        *("tmmu", "tmmu_core", "tmmu_explorer", "tmmu_plan_explorer")
    }
    assert not any("__pycache__" in name for name in names)


def test_wheel_contains_samples_and_texts(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    index = json.loads((SAMPLES / "index.json").read_text())
    files = {entry["file"] for entry in (index if isinstance(index, list) else index["samples"])}
    assert {f"tmmu_explorer/sample_graphs/{file}" for file in files} <= names
    assert "tmmu_explorer/docs/glossary.md" in names
    assert "tmmu_explorer/canvas/js/chart/page.js" in names


def test_base_installation_is_smaller_than_150_mb(base: Path) -> None:
    assert weight(base) < 150_000_000


def test_base_installation_contains_no_extra(base: Path, tmp_path: Path) -> None:
    program = (
        "from importlib.util import find_spec; from tmmu_core.base.errors import EXTRA_OF;"
        "print([name for name in (*EXTRA_OF, 'app', 'tests', 'docs') if find_spec(name)])"
    )
    assert run(base / "python", "-c", program, cwd=tmp_path).strip() == "[]"


@pytest.mark.parametrize(
    "command",
    [
        f"plan {CHAIN} --planner auto -o plan.json",
        f"gate {CHAIN} --max-gap 500",
        f"verify {CHAIN}",
        f"report {CHAIN} -o report.html",
        f"compare {CHAIN} {CHAIN}",
        f"fit {TRAINING} --capacity 10GiB",
        f"sweep {CHAIN}",
        f"export {CHAIN} --to c-header",
    ],
)
def test_base_installation_gives_the_results_of_the_checkout(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], command: str
) -> None:
    existing, here = tmp_path / "there", tmp_path / "here"
    existing.mkdir()
    here.mkdir()
    shown_text = run(base / "tmmu", *command.split(), cwd=existing)
    monkeypatch.chdir(here)
    capfd.readouterr()
    assert main.run(command.split()) == 0
    assert shown_text == capfd.readouterr().out
    for path in here.iterdir():
        assert _timeless(path.read_text()) == _timeless((existing / path.name).read_text())


def _timeless(text: str) -> str:
    """Return the text of a file without the line of the measured time."""
    return "\n".join(line for line in text.splitlines() if "allocation_time_ns" not in line)


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        ("explore", "app"),
        (f"plan {CHAIN} -o plan.parquet", "tables"),
        (f"plan {CHAIN} --addressing blake3_sparse", "draft"),
        ("measure squeezenet", "run"),
        (f"record {CHAIN} --store sqlite:///plans.db --as net@c1", "store"),
        ("history --store sqlite:///plans.db", "store"),
        ("bisect net --store sqlite:///plans.db", "store"),
        (f"gate {CHAIN} --baseline store:main --store sqlite:///plans.db", "store"),
        (f"sweep {CHAIN} --store sqlite:///plans.db", "store"),
        (f"sweep {CHAIN} --scheduler tcp://127.0.0.1:1", "sweep"),
    ],
)
def test_command_without_its_extra_names_the_installation(base: Path, tmp_path: Path, command: str, extra: str) -> None:
    if command.startswith("measure"):
        import onnx

        light = Path(onnx.__file__).parent / "backend/test/data/light/light_squeezenet.onnx"
        command = f"measure {light}"
    shown_text = run(base / "tmmu", *command.split(), cwd=tmp_path, exit_code=2)
    assert f"pip install 'tmmu-plan-explorer[{extra}]'" in shown_text
    assert "Traceback" not in shown_text


def test_explorer_of_the_wheel_opens_its_sample(wheel: Path, tmp_path: Path) -> None:
    binaries = environment(tmp_path / "env", wheel, "app")
    program = (
        "import tmmu_explorer, pathlib, time\n"
        "from streamlit.testing.v1 import AppTest\n"
        "main = pathlib.Path(tmmu_explorer.__file__).parent / 'main.py'\n"
        "page = AppTest.from_file(str(main), default_timeout=60)\n"
        "is_drawn = lambda: any('resnet50 does not fit' in element.proto.body for element in page.run().get('html'))\n"
        "tries = (is_drawn() or time.sleep(1) for _ in range(60))\n"
        "print(any(tries), [e.message for e in page.exception])"
    )
    assert run(binaries / "python", "-c", program, cwd=tmp_path).splitlines()[-1] == "True []"


def test_program_with_its_own_app_package_gets_a_report(base: Path, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("mine = 1\n")
    program = (
        f"import app, tmmu; plan = tmmu.plan({CHAIN!r}); plan.report('x.html');"
        "print(app.mine, plan._repr_html_().count('<iframe'))"
    )
    assert run(base / "python", "-c", program, cwd=tmp_path).strip() == "1 1"
    assert (tmp_path / "x.html").stat().st_size > 100_000
