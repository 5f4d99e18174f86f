"""An invalid finished plan fails or is rejected by every command, and nothing is written."""

import json
import re
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from app.cli.main import run
from tests.judge.faults import refigured, rehashed
from tests.support.paths import SAMPLES
from tmmu_core.base.errors import OPERATORS
from tmmu_core.formats.planfile import plan_file as writing
from tmmu_core.graph.native import native_file
from tmmu_core.plans.making.engine import plan_graph

GRAPH = str(SAMPLES / "residual_block.tmmu.json")
GOLDEN = str(SAMPLES / "golden" / "residual_block.inference.trace.jsonl")
OVERLAPPING = "id,lower,upper,size,offset\na,0,3,64,0\nb,1,4,64,0\n"


@pytest.fixture
def tampered(tmp_path: Path) -> str:
    """Return the plan of a sample with all activations at offset 0."""
    path = tmp_path / "tampered.json"
    assert run(["plan", GRAPH, "-o", str(path)]) == 0
    document = msgspec.json.decode(path.read_bytes())
    for row in document["tensors"]:
        if row["arena"] == "activations":
            row["offset_bytes"] = 0
    document["arenas"]["activations"]["extent_bytes"] = max(
        row["size_bytes"] for row in document["tensors"] if row["arena"] == "activations"
    )
    document["arenas"]["activations"]["committed_bytes"] = document["arenas"]["activations"]["extent_bytes"]
    path.write_bytes(msgspec.json.encode(document))
    return str(path)


@pytest.mark.parametrize("limits", [["--max-gap", "5"], ["--baseline", GOLDEN, "--max-growth", "0"]])
def test_gate_fails_with_the_first_findings(
    capsys: pytest.CaptureFixture[str], tampered: str, limits: list[str]
) -> None:
    capsys.readouterr()
    assert run(["gate", tampered, *limits]) == 1
    shown_text = capsys.readouterr().out
    assert shown_text.startswith("failed: ")
    assert "both use bytes" in shown_text
    assert " more. Use tmmu verify.\n" in shown_text
    assert "−" not in shown_text
    assert run(["gate", tampered, *limits, "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert (answer["ok"], answer["valid"], len(answer["findings"])) == (False, False, 5)


def test_verify_gate_and_lint_have_the_same_findings(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "larger.json"
    assert run(["plan", GRAPH, "--planner", "exact", "-o", str(path)]) == 0
    document = msgspec.json.decode(path.read_bytes())
    document["arenas"]["activations"]["extent_bytes"] *= 2  # it is no longer optimal, as the file claims
    path.write_bytes(msgspec.json.encode(document))
    capsys.readouterr()
    assert run(["verify", str(path), "--json"]) == 1
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert run(["gate", str(path), "--max-gap", "5", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["checks"][0]["value"] == str(len(findings))
    arenas = tmp_path / "arenas.json"
    arenas.write_text('{"activations": {"capacity_bytes": 9}}')
    assert run(["plan", GRAPH, "-o", str(path)]) == 0
    assert [run([command, str(path), "--arenas", str(arenas)]) for command in ("verify", "lint")] == [1, 1]


@pytest.mark.parametrize(
    "arguments", [["apply"], ["export", "--to", "c-header"], ["trace"], ["checkpoint", "--graph", GRAPH]]
)
def test_command_that_uses_a_plan_raises_a_collision_and_writes_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, tampered: str, arguments: list[str]
) -> None:
    written = tmp_path / "written"
    name, *rest = arguments
    output = [] if name == "apply" else ["-o", str(written) + (".jsonl" if name == "trace" else "")]
    capsys.readouterr()
    assert run([name, tampered, *rest, *output, "--json"]) == 2
    record = json.loads(capsys.readouterr().err.splitlines()[-1])
    assert (record["code_id"], record["numeric_code"]) == ("ADDRESS_COLLISION", 1307)
    assert len(record["replay_token"]) == 64
    assert record["failure_operator"] in OPERATORS
    assert [path.name for path in tmp_path.iterdir()] == ["tampered.json"]


def test_compare_and_report_show_the_invalid_plan(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, tampered: str
) -> None:
    assert run(["compare", tampered, tampered]) == 1
    assert "INVALID" in capsys.readouterr().out
    assert run(["compare", GRAPH, tampered, "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["invalid"]["left"] == []
    assert answer["invalid"]["right"]
    page = tmp_path / "report.html"
    assert run(["report", tampered, "-o", str(page)]) == 1
    assert "invalid" in capsys.readouterr().err
    assert "<td>invalid</td>" in page.read_text()
    assert "<td>optimal</td>" not in page.read_text()


def test_offsets_of_an_instance_are_verified(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "two.csv"
    path.write_text(OVERLAPPING)
    assert run(["plan", str(path)]) == 1
    shown_text = capsys.readouterr().out
    assert "INVALID" in shown_text
    assert not re.search(r"\boptimal\b", shown_text)
    assert "impossible" in shown_text
    assert run(["gate", str(path), "--max-gap", "5"]) == 1
    assert run(["plan", str(path), "-o", str(tmp_path / "plan.json")]) == 2
    assert not (tmp_path / "plan.json").exists()
    assert run(["plan", str(path), "--planner", "greedy"]) == 0


def test_restored_plan_is_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    solution = plan_graph(native_file.decode(Path(GRAPH).read_bytes()))
    stacked = rehashed(refigured(replace(solution.plan, offset=solution.plan.offset * 0)))
    monkeypatch.setattr(writing, "refuse_invalid", lambda *_: None)  # written by a program that does not verify
    path = tmp_path / "kept.cbor"
    path.write_bytes(writing.checkpoint(stacked, solution.liveness))
    assert run(["restore", str(path), "-o", str(tmp_path / "plan.json")]) == 2
    assert not (tmp_path / "plan.json").exists()
