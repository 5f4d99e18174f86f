"""Conditions that changed a result are in ``warnings`` of ``--json``, in the text and in the library."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

import tmmu_core as tmmu
from app.cli.main import run
from tests.support.build import chain, graph, node, tensor
from tests.support.paths import SAMPLES
from tmmu_core.formats.planfile import plan_file
from tmmu_core.graph.model import Dim, Graph, Node
from tmmu_core.graph.native import native_file

MIXED = str(SAMPLES / "mixed_sizes.tmmu.json")
RULE = 'rules=[{"operator":"NOTHING","memory":"SRAM"}]'


def branching() -> Graph:
    """Return a graph with a node whose two bodies are not planned."""
    return graph(
        [tensor("x", 64, role="input"), tensor("y", 64)],
        [Node("choose", "cond", ("x",), ("y",), unplanned=("true_graph", "false_graph"))],
        "x",
        "y",
    )


def reusing() -> Graph:
    """Return a graph with a node that may overwrite its input; the planner ``naive`` never does that."""
    return graph(
        [tensor("x", 64, role="input"), tensor("h", 64), tensor("y", 64)],
        [node("n0", "x", "h", inplace="any"), node("n1", "h", "y", inplace="any")],
        "x",
        "y",
    )


def open_batch() -> Graph:
    """Return a graph with a dynamic size."""
    given = graph([tensor("x", "B", role="input"), tensor("y", "B")], [node("n0", "x", "y")], "x", "y")
    return msgspec.structs.replace(given, dims={"B": Dim(1, 8)}, assumed={"B": 8})


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Name of an example → its file."""
    found = {"MIXED": MIXED}
    examples = {"CHAIN": chain(3), "BRANCHING": branching(), "REUSING": reusing(), "OPEN": open_batch()}
    for name, example in examples.items():
        path = tmp_path / f"{name.lower()}.tmmu.json"
        path.write_bytes(native_file.encode_json(example))
        found[name] = str(path)
        plan = tmp_path / f"{name.lower()}.plan.json"
        tmmu.plan(example, **({"planner": "naive"} if name == "REUSING" else {})).save(plan)
        found[f"PLAN_OF_{name}"] = str(plan)
    bare = json.loads(Path(found["PLAN_OF_CHAIN"]).read_text())
    del bare["content_hash"]
    (tmp_path / "bare.json").write_text(json.dumps(bare))
    found |= {"BARE": str(tmp_path / "bare.json"), "DIGEST": str(tmp_path / "digest.jsonl")}
    run(["trace", found["CHAIN"], "--digest", "-o", found["DIGEST"]])
    own = tmp_path / "own.plan.json"
    tmmu.plan(chain(3), planner="helia").save(own)
    found["OWN_ARENAS"] = str(own)
    return found


def answer(command: str, files: dict[str, str], capfd: pytest.CaptureFixture[str]) -> tuple[dict[str, Any], str]:
    """Return the JSON and the text output of a command."""
    words = [files.get(word, word) for word in command.split()]
    capfd.readouterr()
    assert run([*words, "--json"]) in (0, 1, 3)
    record = json.loads(capfd.readouterr().out)
    run(words)
    return record, capfd.readouterr().out


CONDITIONS = [
    ("fit BRANCHING --capacity 1MiB", "parts that are not planned"),
    ("gate PLAN_OF_BRANCHING --max-extent 1MiB", "parts that are not planned"),
    ("compare PLAN_OF_BRANCHING PLAN_OF_BRANCHING", "parts that are not planned"),
    ("verify PLAN_OF_BRANCHING", "parts that are not planned"),
    ("verify PLAN_OF_BRANCHING --graph BRANCHING", "parts that are not planned"),
    ("plan BRANCHING", "parts that are not planned"),
    ("fit OPEN --capacity 1MiB", "B = 8; for other sizes"),
    ("gate OPEN --max-extent 1MiB", "B = 8; for other sizes"),
    ("compare OPEN OPEN", "B = 8; for other sizes"),
    ("verify PLAN_OF_OPEN", "open.plan.json: assumed sizes of dynamic dimensions: B = 8"),
    ("plan OPEN", "B = 8; for other sizes"),
    ("gate PLAN_OF_REUSING --max-extent 1MiB", "not taken by the planner"),
    ("verify PLAN_OF_REUSING", "not taken by the planner"),
    ("compare PLAN_OF_REUSING PLAN_OF_REUSING", "not taken by the planner"),
    ("fit REUSING --planner naive --capacity 1MiB", "not taken by the planner"),
    (f"gate CHAIN --planner helia --option {RULE} --max-extent 1MiB", "helia rule 1"),
    (f"fit CHAIN --planner helia --option {RULE} --capacity scratch@SRAM=1MiB", "helia rule 1"),
    ("fit CHAIN --capacity 1MiB --seed 4", "no effect on fit: --seed"),
    ("fit CHAIN --capacity 1MiB --budget 1KiB", "no effect on fit: --budget"),
    ("gate PLAN_OF_CHAIN --planner greedy --max-extent 1MiB", "no effect on a finished plan: --planner"),
    ("gate BARE --max-extent 1MiB", "no content hash"),
    ("gate DIGEST --max-extent 1MiB", "digest"),
    ("gate OWN_ARENAS --max-extent 1MiB", "not checked: configuration (the plan defines its own arenas)"),
    ("gate OWN_ARENAS --graph CHAIN --max-extent 1MiB", "not checked: configuration, arena"),
    ("verify OWN_ARENAS --graph CHAIN", "not checked: configuration, arena"),
]


@pytest.mark.parametrize(("command", "warning"), CONDITIONS)
def test_condition_that_changed_the_answer_is_in_json_and_text(
    command: str, warning: str, files: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    record, text = answer(command, files, capfd)
    assert warning in " ".join(record["warnings"])
    assert warning in text


@pytest.mark.parametrize(
    ("command", "hint"),
    [("plan PLAN_OF_CHAIN", "Check it with tmmu verify"), ("lint PLAN_OF_CHAIN --seed 1 --dims B=1", "and --dims")],
)
def test_error_on_a_finished_plan_names_the_next_step(
    command: str, hint: str, files: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert run([files.get(word, word) for word in command.split()]) == 2
    assert hint in capfd.readouterr().err


def test_gate_lists_the_rules_that_it_did_not_check(files: dict[str, str], capfd: pytest.CaptureFixture[str]) -> None:
    record, _ = answer("gate OWN_ARENAS --graph CHAIN --max-extent 1MiB", files, capfd)
    assert {"arena", "configuration"} <= set(record["not_checked"])


@pytest.mark.parametrize(
    ("example", "warning"), [(branching(), "parts that are not planned"), (open_batch(), "B = 8; for other sizes")]
)
def test_plans_and_fits_of_the_library_have_warnings(example: Graph, warning: str) -> None:
    plan = tmmu.plan(example)
    assert warning in " ".join(plan.warnings)
    assert warning in " ".join(plan.gate(max_extent="1MiB").warnings)
    assert warning in " ".join(tmmu.fit(example, "1MiB").warnings)


def test_library_gate_names_the_rules_that_it_did_not_check(files: dict[str, str]) -> None:
    assert "not checked: configuration" in " ".join(tmmu.read(files["OWN_ARENAS"]).gate(max_extent="1MiB").warnings)


def test_export_of_an_instance_names_what_it_leaves_out(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    packed = tmmu.pack([0, 5], [5, 9], [4, 4], reuse_penalties=[[0, 1, 3]])
    (tmp_path / "plan.json").write_bytes(plan_file.to_json(packed.plan))
    assert run(["export", str(tmp_path / "plan.json"), "--to", "instance", "-o", str(tmp_path / "out.csv")]) == 0
    assert "does not contain the constraints and reuse penalties" in capsys.readouterr().err
