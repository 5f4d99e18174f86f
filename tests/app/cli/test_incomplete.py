"""A plan that omits a part of its graph is incomplete in every output and fails the gate."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

import tmmu
from app.cli.main import run
from tmmu_core.formats.planfile import plan_file
from tmmu_core.graph.model import GRAPH_SCHEMA, Graph, Node, Tensor
from tmmu_core.graph.native import native_file
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.planners import PLANNERS

PART = "parts that are not planned: choose (true_graph, false_graph)"
GRAPH = Graph(
    ir_schema=GRAPH_SCHEMA,
    name="branching",
    tensors=(Tensor("x", (128,), role="input"), Tensor("w", (8,), role="parameter"), Tensor("y", (128,))),
    nodes=(Node("choose", "cond", ("x", "w"), ("y",), unplanned=("true_graph", "false_graph")),),
    inputs=("x",),
    outputs=("y",),
)


@pytest.fixture
def written(tmp_path: Path) -> dict[str, str]:
    graph, plan = tmp_path / "branching.tmmu.json", tmp_path / "branching.plan.json"
    graph.write_bytes(native_file.encode_json(GRAPH))
    tmmu.plan(GRAPH).save(plan)
    return {"GRAPH": str(graph), "PLAN": str(plan), "FOLDER": str(tmp_path)}


def output_of(command: str, written: dict[str, str], capfd: pytest.CaptureFixture[str]) -> tuple[int, str]:
    for name, path in written.items():
        command = command.replace(name, path)
    capfd.readouterr()
    code = run(command.split())
    return code, capfd.readouterr().out


@pytest.mark.parametrize("planner", sorted(PLANNERS))
def test_no_planner_calls_a_plan_without_the_bodies_optimal(planner: str) -> None:
    plan = tmmu.plan(GRAPH, planner=planner)
    assert {arena.status for arena in plan.arenas} == {"incomplete"}
    assert plan.verify().ok


@pytest.mark.parametrize("ending", ["json", "cbor"])
def test_plan_files_keep_the_status_and_the_name_of_the_missing_part(ending: str, tmp_path: Path) -> None:
    path = tmmu.plan(GRAPH).save(tmp_path / f"plan.{ending}")
    read = tmmu.read(path)
    assert read.incomplete == ("activations", "parameters")
    assert read.notes["unplanned"] == PART


@pytest.mark.parametrize(
    "command",
    [
        "plan GRAPH",
        "plan GRAPH --json",
        "compare PLAN PLAN",
        "compare PLAN GRAPH --planner naive",
        "fit GRAPH --capacity 1MiB",
        "sweep GRAPH",
        "sweep GRAPH --json",
        "sweep GRAPH --capacities 1MiB",
        "export PLAN --to perfetto",
        "gate PLAN --max-extent 1MiB",
        "gate PLAN --max-extent 1MiB --allow-incomplete",
        "gate PLAN --max-extent 1MiB --json",
    ],
)
def test_commands_name_the_missing_part(
    command: str, written: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert PART in output_of(command, written, capfd)[1]


@pytest.mark.parametrize(("option", "code"), [("", 1), (" --allow-incomplete", 0)])
@pytest.mark.parametrize("source", ["GRAPH", "PLAN"])
def test_gate_rejects_an_incomplete_plan_unless_it_is_allowed(
    source: str, option: str, code: int, written: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert output_of(f"gate {source} --max-extent 1MiB{option}", written, capfd)[0] == code
    plan = tmmu.plan(GRAPH)
    assert plan.gate(max_extent="1MiB", allow_incomplete=bool(option)).ok is (code == 0)


def relabelled(plan: Any, notes: dict[str, Any]) -> Any:
    document = json.loads(plan_file.to_json(plan))
    document["notes"] = notes
    for arena in document["arenas"].values():
        arena["status"] = "optimal"
    document.pop("content_hash", None)
    return tmmu.read(msgspec.json.encode(document))


def test_status_that_contradicts_a_missing_part_is_invalid() -> None:
    assert {arena.status for arena in relabelled(tmmu.plan(GRAPH), {"unplanned": PART}).arenas} == {"invalid"}


def test_other_status_is_an_error_against_a_graph_with_missing_bodies() -> None:
    forged = relabelled(tmmu.plan(GRAPH), {})
    assert verify_plan(forged).ok
    assert {finding.rule for finding in verify_plan(forged, GRAPH).errors} == {"certificate"}
