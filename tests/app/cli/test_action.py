"""The GitHub Action and the pre-commit hooks: their own steps, run as a runner runs them."""

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml

from app.cli.main import run as run_here
from app.report.summary import CheckRow
from app.report.summary import gate_markdown as markdown
from app.report.summary import markdown as summarised
from tests.app.cli.test_store import file_of, record
from tests.support.build import graph, node, tensor
from tests.support.paths import DATA, ROOT
from tmmu_core.base.escaping import for_annotation
from tmmu_core.formats.open_file import read_any
from tmmu_core.formats.planfile.plan_file import to_json
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.plans.making.engine import plan_graph
from tmmu_core.plans.model import Plan

ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
HOOKS = {hook["id"]: hook for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())}


@dataclass(frozen=True)
class Ran:
    """The result of a run of the action."""

    code: int
    verdict: str
    folder: Path
    summary: str
    used: dict[str, dict[str, str]]  # step that uses another action → its inputs
    steps: tuple[str, ...]  # the names of the shell steps that ran
    commented: str  # arguments of ``gh`` and the body that it got


def filled(text: str, values: dict[str, str]) -> str:
    """Return the text with ``${{ … }}`` replaced as a runner does; unknown names are empty."""
    return re.sub(r"\$\{\{\s*(.*?)\s*\}\}", lambda found: values.get(found[1], ""), text)


@pytest.fixture
def programs(tmp_path: Path) -> dict[str, str]:
    """Return an environment in which ``tmmu`` is the command of this checkout."""
    folder = tmp_path / "bin"
    folder.mkdir()
    shim = folder / "tmmu"
    shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m app.cli.main "$@"\n')
    shim.chmod(0o755)
    gh = folder / "gh"
    gh.write_text(
        '#!/bin/sh\nprintf "%s\\n" "$@" > "$RUNNER_TEMP/gh.txt"\n'
        'for last; do :; done\ncat "$last" >> "$RUNNER_TEMP/gh.txt"\n'
    )
    gh.chmod(0o755)
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "TMMU_STORE": ""}


FROM, LABEL = "github.event.pull_request.head.repo.full_name", "github.event.pull_request.head.label"
GITHUB = {
    "github.action": "gate",
    "github.event.pull_request.number": "7",
    "github.event_name": "pull_request",
    "github.repository": "them/net",
    "github.run_attempt": "2",
    "github.run_id": "41",
}


def holds(condition: str, values: dict[str, str], failed: bool) -> bool:
    """Return whether the ``if`` of a step is true: ``NAME == 'text'``, ``!=``, ``always()``, ``&&``."""
    parts = [part.strip() for part in condition.split("&&") if part.strip()]
    if failed and "always()" not in parts:
        return False
    for part in parts:
        if part != "always()":
            name, sign, text = part.split()
            assert sign in ("==", "!=")
            if (values.get(name, "") == text.strip("'")) is (sign == "!="):
                return False
    return True


@pytest.fixture
def act(tmp_path: Path, programs: dict[str, str]) -> Callable[..., Ran]:
    """Return a function that runs the steps whose condition is true; actions of others are only recorded."""

    def run(**inputs: str) -> Ran:
        values = {f"inputs.{name}": str(shown_text.get("default", "")) for name, shown_text in ACTION["inputs"].items()}
        values |= GITHUB | {f"inputs.{name}": text for name, text in ({"install": "false"} | inputs).items()}
        files = {name: tmp_path / name.lower() for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY", "GITHUB_PATH")}
        for path in files.values():
            path.write_text("")
        code, used, steps = 0, {}, []
        for step in ACTION["runs"]["steps"]:
            if not holds(step.get("if", ""), values, failed=code != 0):
                continue
            if "uses" in step:
                used[step["uses"]] = {name: filled(str(text), values) for name, text in step["with"].items()}
                continue
            steps.append(step["name"])
            given = {name: filled(str(text), values) for name, text in step.get("env", {}).items()}
            runner = {**programs, **{name: str(path) for name, path in files.items()}, "RUNNER_TEMP": str(tmp_path)}
            shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
            code = subprocess.run(shell, env=runner | given, cwd=tmp_path, timeout=120).returncode or code
            outputs = dict(line.split("=", 1) for line in files["GITHUB_OUTPUT"].read_text().splitlines())
            values |= {f"steps.{step.get('id')}.outputs.{name}": text for name, text in outputs.items()}
        called = tmp_path / "gh.txt"
        text = called.read_text() if called.exists() else ""
        summary, folder = files["GITHUB_STEP_SUMMARY"].read_text(), Path(outputs["folder"])
        return Ran(code, outputs["verdict"], folder, summary, used, tuple(steps), text)

    return run


def test_artifacts_are_kept_after_a_failed_gate() -> None:
    others = [step for step in ACTION["runs"]["steps"] if "uses" in step]
    assert others
    for step in others:
        assert "always()" in step["if"]


@pytest.mark.parametrize("file", ["action.yml", ".github/workflows/release.yml"])
def test_foreign_actions_are_pinned_by_digest(file: str) -> None:
    used = re.findall(r"^\s*(?:- )?uses: (.*)$", (ROOT / file).read_text(), re.M)
    assert used
    assert [line for line in used if not re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)] == []


def test_every_value_of_a_step_is_defined() -> None:
    """A misspelt name is empty on a runner."""
    known = {f"inputs.{name}" for name in ACTION["inputs"]} | set(GITHUB) | {"github.action_path"}
    for step in ACTION["runs"]["steps"]:
        texts = [*step.get("env", {}).values(), *step.get("with", {}).values(), "${{ " + step.get("if", "") + " }}"]
        names = {name for text in texts for name in re.findall(r"\b(?:inputs|github|steps)\.[\w.-]+", str(text))}
        assert names <= known
        written = {*re.findall(r'echo "(\w+)=', step.get("run", "")), *(["artifact-digest"] if "uses" in step else [])}
        known |= {f"steps.{step.get('id')}.outputs.{name}" for name in written}
    assert {re.sub(r"[${} ]", "", output["value"]) for output in ACTION["outputs"].values()} <= known


def test_no_script_of_the_action_contains_an_input() -> None:
    assert [step["name"] for step in ACTION["runs"]["steps"] if "${{" in step.get("run", "")] == []


@pytest.mark.slow
def test_package_is_installed_and_its_programs_are_on_the_path(tmp_path: Path) -> None:
    """The step runs as a whole; pip is replaced by a recorder."""
    python = tmp_path / "python"
    python.write_text(
        '#!/bin/sh\n[ "$1 $2" = "-m venv" ] && mkdir -p "$3/bin" && cp "$0" "$3/bin/python" && exit\n'
        'printf "%s\\n" "$@" > "$RUNNER_TEMP/requirement"\n'
    )
    python.chmod(0o755)
    (step,) = (step for step in ACTION["runs"]["steps"] if "inputs.install" in step.get("if", ""))
    given = {
        "PYTHON": str(python),
        "HERE": str(ROOT),
        "RUNNER_TEMP": str(tmp_path),
        "GITHUB_PATH": str(tmp_path / "path"),
    }
    assert set(step["env"]) <= set(given)
    subprocess.run(["bash", "-eo", "pipefail", "-c", step["run"]], env=os.environ | given, check=True, timeout=60)
    *_, requirement = (tmp_path / "requirement").read_text().split()
    folder, extras = requirement.removesuffix("]").split("[")
    project = tomllib.loads((Path(folder) / "pyproject.toml").read_text())["project"]
    assert "run" in extras.split(",")  # shapes of ONNX models
    assert any(line.startswith("tflite") for line in project["dependencies"])
    assert set(extras.split(",")) <= set(project["optional-dependencies"])
    assert (tmp_path / "path").read_text() == f"{tmp_path}/tmmu/bin\n"


def test_grown_model_fails_with_bars_tensors_and_report(act: Callable[..., Ran], tmp_path: Path) -> None:
    before, after = file_of(tmp_path, {"a": 1, "b": 1}), file_of(tmp_path, {"a": 1, "b": 3})
    ran = act(plan=after, baseline=before, comment="true")
    assert (ran.code, ran.verdict) == (1, "red")
    assert ran.steps == ("Gate", "Comment", "Verdict")
    (artefact,) = ran.used.values()
    # Another attempt, and another gate of the same job, have names of their own.
    assert artefact == {"name": "tmmu-gate-41-2-gate", "path": str(ran.folder)}
    kept = {path.name for path in ran.folder.iterdir()}
    assert kept >= {"report.html", "summary.md", "gate.json", "compare.txt", "baseline.plan.json"}
    assert ran.commented.startswith("pr\ncomment\n7\n--repo\nthem/net\n")
    assert ran.commented.endswith((ran.folder / "summary.md").read_text())
    rows = dict(re.findall(r"^(baseline|plan|lower bound) +(█+)", ran.summary, re.M))
    assert {name: len(bar) for name, bar in rows.items()} == {"baseline": 24, "plan": 40, "lower bound": 40}
    assert "| `b` | +256 B | 128 B | 384 B |" in ran.summary
    assert "**FAILED**" in ran.summary
    assert "tmmu explore candidate.plan.json baseline.plan.json" in ran.summary
    assert json.loads((ran.folder / "gate.json").read_text())["ok"] is False
    assert "<html" in (ran.folder / "report.html").read_text()[:2000]
    assert isinstance(read_any((ran.folder / "candidate.plan.json").read_bytes()), Plan)
    assert "not comparable" in (ran.folder / "compare.txt").read_text()


def test_exceeded_limit_is_annotated_at_the_model_with_its_planner(
    act: Callable[..., Ran], capfd: pytest.CaptureFixture[str]
) -> None:
    file = DATA / "tflite" / "hello_world_int8.tflite"
    ran = act(plan=str(file), limits="--planner greedy\n--max-extent activations=16\n")
    assert ran.verdict == "red"
    (annotation,) = re.findall(r"^::error .*$", capfd.readouterr().out, re.M)
    assert annotation.startswith(f"::error file={file},title=tmmu gate%3A extent of activations::")
    assert annotation.endswith("limit 16 B (planned by greedy)")


def test_annotation_of_a_name_with_commands_is_one_escaped_line() -> None:
    assert for_annotation("a\n::error::b,c%", is_property=True) == "a\\x0a%3A%3Aerror%3A%3Ab%2Cc%25"


@pytest.mark.slow
def test_unchanged_model_passes_and_is_recorded(
    act: Callable[..., Ran], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
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
    assert (ran.code, ran.verdict, ran.steps) == (0, "green", ("Gate", "Verdict"))
    assert ran.commented == ""
    link = re.search(r"\[Open this comparison\]\((.*?)\)", ran.summary)
    assert link
    kept = r"store%3A[0-9a-f]{64}"
    assert re.fullmatch(rf"https://plans\.example/team/compare\?graph={kept}&baseline={kept}", link[1])
    capfd.readouterr()
    assert run_here(["history", "net", "--store", store, "--json"]) == 0
    runs = json.loads(capfd.readouterr().out)["runs"]
    assert {(run["commit"], run["branch"], run["planner"]) for run in runs} == {
        ("c1", "main", "slots"),
        ("c2", "topic", "greedy"),
    }


def test_unreadable_model_is_an_error(act: Callable[..., Ran], tmp_path: Path) -> None:
    ran = act(plan=str(tmp_path / "$(touch gone).onnx"), baseline="none.json")
    assert (ran.code, ran.verdict) == (1, "error")
    assert "cannot be opened" in ran.summary
    (artefact,) = ran.used.values()
    assert (Path(artefact["path"]) / "errors.txt").stat().st_size > 0
    assert not (tmp_path / "gone").exists()


@pytest.mark.slow
def test_error_message_cannot_inject_commands(
    act: Callable[..., Ran], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    image = "![x](http://127.0.0.1:9/i.png)"
    ran = act(plan=f"a\n```\n{image}\n::set-output name=verdict::green", baseline="none.json", comment="true")
    assert ran.verdict == "error"
    for shown in (ran.summary, ran.commented):
        assert f"\n{image}" not in shown
    assert ran.summary.count("```") == 2
    shown = capfd.readouterr().out
    stopped = re.search(r"^::stop-commands::(\S+)$(.*)^::\1::$", shown, re.M | re.S)
    assert stopped
    assert "cannot be opened" in stopped[2]
    commands = re.findall(r"^\s*::.*$", shown.replace(stopped[0], ""), re.M)
    assert [line.strip() for line in commands] == ["::error title=tmmu gate::The gate could not run; see the summary."]


def _plan(file: str) -> Plan:
    from tmmu_core.formats.open_file import read_graph

    return plan_graph(read_graph(Path(file).read_bytes(), file)).plan


@pytest.mark.slow
@pytest.mark.parametrize(("hook", "lines", "code"), [("tmmu-gate", {"a": 4}, 1), ("tmmu-compare", {"a": 1}, 0)])
def test_hook_passes_or_stops_a_commit(
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


@pytest.mark.slow
@pytest.mark.parametrize(("arenas", "letters"), [(200, 10), (3, 200_000)])
def test_summary_is_shorter_than_a_comment_may_be(arenas: int, letters: int) -> None:
    """GitHub rejects comments over 65,536 characters, and the action adds 20,000 bytes."""
    before, after = (_many(arenas, letters, size) for size in (1, 64))
    grown = CheckRow("growth", "the last", "2", "1", ok=False)
    fine = [CheckRow("growth", arena.name, "1", "1", ok=True) for arena in after.arenas]
    summary = markdown(replace(after, ir_name="n" * letters), before, [*fine, grown])
    assert len(summary) < 45_536
    assert "| growth | `the last` | 2 | 1 | **FAILED** |" in summary
    if arenas > 100:
        assert f"40 of {len(fine) + 1} limits, exceeded limits first" in summary
        assert re.search(r"^\d+ of 200 changed arenas$", summary, re.M)
    assert len(summarised(after, verify_plan(after))) < 45_536


def _many(arenas: int, letters: int, size: int) -> Plan:
    """Return a plan of ``arenas`` arenas with long names, each with 14 tensors that are live at one step."""
    names = [f"a{k}".ljust(letters, "y") for k in range(arenas)]
    tensors = [tensor(f"{a}t{k}", size, arena=a) for a in names for k in range(14)]
    ids = [each.id for each in tensors]
    nodes = [node(f"n{k}", "", t) for k, t in enumerate(ids)] + [node("last", " ".join(ids), "y", inplace="none")]
    made = graph([*tensors, tensor("y", 1)], nodes, "", "y", name="net")
    return plan_graph(made, arenas={name: {} for name in (*names, "activations")}).plan


@pytest.mark.parametrize(
    ("values", "branch"),
    [
        ({"github.ref_name": "main"}, "main"),
        ({"github.ref_name": "7/merge", "github.head_ref": "topic", FROM: "them/net"}, "topic"),
        ({"github.ref_name": "7/merge", "github.head_ref": "main", FROM: "you/net", LABEL: "you:main"}, "you:main"),
        ({"github.ref_name": "7/merge", "github.head_ref": "main", LABEL: "gone:main"}, "gone:main"),
    ],
)
def test_branch_of_a_fork_is_not_one_of_the_repository(values: dict[str, str], branch: str) -> None:
    """``store:main`` is the latest run on main, which a pull request must not replace."""
    (expression,) = re.findall(r"\$\{\{(.*?)\}\}", ACTION["inputs"]["branch"]["default"], re.S)
    given = {"github.repository": "them/net"} | values

    def value(text: str) -> str:
        left, unlike, right = (part.strip() for part in text.partition("!="))
        if unlike:
            return "true" if given.get(left, "") != given.get(right, "") else ""
        return given.get(left, "")

    ways = ([value(part) for part in way.split("&&")] for way in expression.split("||"))
    assert next((way[-1] for way in ways if all(way)), "") == branch
