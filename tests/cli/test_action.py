"""The GitHub Action and the pre-commit hooks: their own steps, run here as a runner runs them."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml

from app.report.change import bars
from tests.cli.test_store import file_of, record
from tmmu_core.plan.formats.files import to_json
from tmmu_core.plan.formats.reading import read_any
from tmmu_core.plan.model import Plan

ROOT = Path(__file__).resolve().parents[2]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
HOOKS = {hook["id"]: hook for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())}


@dataclass(frozen=True)
class Ran:
    """What a run of the action came to."""

    code: int
    verdict: str
    folder: Path
    summary: str


def filled(text: str, values: dict[str, str]) -> str:
    """``${{ … }}`` filled in, as a runner does; what is not known is empty."""
    return re.sub(r"\$\{\{\s*(.*?)\s*\}\}", lambda found: values.get(found[1], ""), text)


@pytest.fixture
def programs(tmp_path: Path) -> dict[str, str]:
    """An environment in which ``tmmu`` is this checkout's."""
    folder = tmp_path / "bin"
    folder.mkdir()
    shim = folder / "tmmu"
    shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m app.cli.main "$@"\n')
    shim.chmod(0o755)
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "TMMU_STORE": ""}


@pytest.fixture
def act(tmp_path: Path, programs: dict[str, str]) -> Callable[..., Ran]:
    """Run the shell steps in order, as long as none fails."""

    def run(**inputs: str) -> Ran:
        values = {f"inputs.{name}": str(said.get("default", "")) for name, said in ACTION["inputs"].items()}
        values |= {f"inputs.{name}": text for name, text in inputs.items()} | {"inputs.install": "false"}
        files = {name: tmp_path / name.lower() for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY", "GITHUB_PATH")}
        for path in files.values():
            path.write_text("")
        code = 0
        for step in ACTION["runs"]["steps"]:
            condition = step.get("if", "")
            if "run" not in step or "inputs.install" in condition or "inputs.comment" in condition:
                continue
            given = {name: filled(str(text), values) for name, text in step.get("env", {}).items()}
            runner = {**programs, **{name: str(path) for name, path in files.items()}, "RUNNER_TEMP": str(tmp_path)}
            shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
            code = subprocess.run(shell, env=runner | given, cwd=tmp_path, timeout=120).returncode
            outputs = dict(line.split("=", 1) for line in files["GITHUB_OUTPUT"].read_text().splitlines())
            values |= {f"steps.{step.get('id')}.outputs.{name}": text for name, text in outputs.items()}
            if code:
                break
        return Ran(code, outputs["verdict"], Path(outputs["folder"]), files["GITHUB_STEP_SUMMARY"].read_text())

    return run


def test_no_script_of_the_action_holds_an_input() -> None:
    assert [step["name"] for step in ACTION["runs"]["steps"] if "${{" in step.get("run", "")] == []


def test_a_grown_model_is_red_with_its_bars_its_tensors_and_its_report(act: Callable[..., Ran], tmp_path: Path) -> None:
    before, after = file_of(tmp_path, {"a": 1, "b": 1}), file_of(tmp_path, {"a": 1, "b": 3})
    ran = act(plan=after, baseline=before)
    assert (ran.code, ran.verdict) == (1, "red")
    rows = dict(re.findall(r"^(before|after|bound) +(█+)", ran.summary, re.M))
    assert {name: len(bar) for name, bar in rows.items()} == {"before": 24, "after": 40, "bound": 40}
    assert "| `b` | +256 B | 128 B | 384 B |" in ran.summary
    assert "**EXCEEDED**" in ran.summary
    assert "tmmu explore candidate.plan.json baseline.plan.json" in ran.summary
    assert json.loads((ran.folder / "gate.json").read_text())["ok"] is False
    assert "<html" in (ran.folder / "report.html").read_text()[:2000]
    assert isinstance(read_any((ran.folder / "candidate.plan.json").read_bytes()), Plan)
    assert "not comparable" in (ran.folder / "compare.txt").read_text()


def test_a_model_that_did_not_grow_is_green_and_kept_with_a_link(act: Callable[..., Ran], tmp_path: Path) -> None:
    store, file = f"sqlite:///{tmp_path / 'team.db'}", file_of(tmp_path, {"a": 2})
    record(store, file_of(tmp_path, {"a": 3}), "net@c1", 1)
    ran = act(
        plan=file,
        baseline="store:main",
        limits="--max-growth 0 --planner greedy",
        store=store,
        record="net@c2",
        branch="topic",
        explorer="https://plans.example/team",
    )
    assert (ran.code, ran.verdict) == (0, "green")
    link = re.search(r"\[Open this comparison\]\((.*?)\)", ran.summary)
    assert link
    kept = r"store%3A[0-9a-f]{64}"
    assert re.fullmatch(rf"https://plans\.example/team/compare\?graph={kept}&baseline={kept}", link[1])
    listed = subprocess.run(
        [sys.executable, "-m", "app.cli.main", "history", "net", "--store", store, "--json"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    runs = json.loads(listed.stdout)["runs"]
    assert {(run["commit"], run["branch"], run["planner"]) for run in runs} == {
        ("c1", "main", "slots"),
        ("c2", "topic", "greedy"),
    }


def test_what_cannot_be_read_is_an_error_that_says_why(act: Callable[..., Ran], tmp_path: Path) -> None:
    ran = act(plan=str(tmp_path / "$(touch gone).onnx"), baseline="none.json")
    assert (ran.code, ran.verdict) == (1, "error")
    assert "cannot be opened" in ran.summary
    assert not (tmp_path / "gone").exists()


def test_what_others_planned_is_theirs(tmp_path: Path) -> None:
    plan = _plan(file_of(tmp_path, {"a": 2}))
    theirs = replace(plan, planner="their compiler")
    assert [line.split()[0] for line in bars(plan, theirs)] == ["theirs", "ours", "bound"]
    assert [line.split()[0] for line in bars(plan, plan)] == ["before", "after", "bound"]
    assert [line.split()[0] for line in bars(plan, None)] == ["after", "bound"]


def _plan(file: str) -> Plan:
    from tmmu_core.plan.formats.reading import read_graph
    from tmmu_core.plan.making.engine import plan_graph

    return plan_graph(read_graph(Path(file).read_bytes(), file)).plan


@pytest.mark.parametrize(
    ("hook", "lines", "code"),
    [("tmmu-gate", {"a": 4}, 1), ("tmmu-compare", {"a": 1}, 0)],
)
def test_a_hook_passes_or_stops_a_commit(
    hook: str, lines: dict[str, int], code: int, tmp_path: Path, programs: dict[str, str]
) -> None:
    golden = tmp_path / "golden.plan.json"
    golden.write_bytes(to_json(_plan(file_of(tmp_path, {"a": 1}))))
    model = file_of(tmp_path, lines)
    arguments = [model, "--baseline", str(golden)] if hook == "tmmu-gate" else [str(golden), model]
    assert not HOOKS[hook]["pass_filenames"]
    assert re.search(HOOKS[hook]["files"], model)
    ran = subprocess.run(
        [*shlex.split(HOOKS[hook]["entry"]), *arguments], env=programs, cwd=tmp_path, capture_output=True, timeout=120
    )
    assert ran.returncode == code
