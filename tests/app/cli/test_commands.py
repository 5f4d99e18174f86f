"""Each command on samples: output, files and exit codes."""

import io
import json
import re
from pathlib import Path
from random import Random

import pytest

from app.cli.main import run
from tests.app.cli.conftest import Tmmu
from tests.planners.test_reuse import document
from tests.support.paths import SAMPLES
from tests.support.same_plan import same_plan
from tmmu_core.formats.open_file import read_any
from tmmu_core.formats.planfile.trace import Trace
from tmmu_core.graph.model import Dim, Graph
from tmmu_core.graph.native import native_file
from tmmu_core.plans.making.engine import plan_graph
from tmmu_core.plans.model import Plan

CHAIN = str(SAMPLES / "linear_chain.tmmu.json")
NONE = str(SAMPLES / "linear_chain_none.tmmu.json")
VIEWS = str(SAMPLES / "views.tmmu.json")
TRAINING = str(SAMPLES / "training_step.tmmu.json")
ARENAS = str(SAMPLES / "two_arenas.tmmu.json")


def graph_of(name: str) -> Graph:
    found = read_any(Path(name).read_bytes(), name)
    assert isinstance(found, Graph)
    return found


def plan_file(tmp_path: Path, name: str, *options: str, as_file: str = "plan.json") -> str:
    path = tmp_path / as_file
    assert run(["plan", name, *options, "-o", str(path)]) == 0
    return str(path)


# --- plan --------------------------------------------------------------------------------------------------------


def test_table_in_a_pipe_has_no_frame_and_sizes_have_units(tmmu: Tmmu) -> None:
    _, out, err = tmmu("plan", CHAIN)
    assert "64.0 KiB (65,536 B)" in out
    assert not set(out) & set("─│┌┐└┘━┃╭╮╰╯")
    assert "\x1b" not in out
    assert err == ""


def test_long_names_are_complete_in_a_pipe(tmmu: Tmmu, tmp_path: Path) -> None:
    name = "a" * 300
    document = json.loads(Path(CHAIN).read_text())
    path = tmp_path / "long.json"
    path.write_text(json.dumps(document).replace('"t3"', f'"{name}"'))
    _, out, _ = tmmu("compare", CHAIN, str(path), "--limit", str(10**30))
    assert any(line.startswith(name + " ") for line in out.splitlines())


def test_standard_input_is_read(tmmu: Tmmu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(Path(CHAIN).read_bytes())))
    code, out, _ = tmmu("plan", "-", "--json")
    assert code == 0
    assert json.loads(out)["ir_name"] == "linear_chain"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--mode", "forward"), {"mode": "forward", "preset": "train_full"}),
        (("--mode", "backward", "--preset", "remat_enabled"), {"mode": "backward", "preset": "remat_enabled"}),
        (("--planner", "naive"), {"planner": "naive"}),
        (("--rank", "1", "--world-size", "4"), {"rank": 1, "world_size": 4}),
        (("--token", "ab" * 32), {"replay_token": "ab" * 32}),
    ],
)
def test_options_reach_the_plan(tmmu: Tmmu, options: tuple[str, ...], expected: dict[str, object]) -> None:
    _, out, _ = tmmu("plan", CHAIN, *options, "--json")
    document = json.loads(out)
    assert {key: document[key] for key in expected} == expected


def test_finished_instance_keeps_its_offsets_unless_a_planner_is_named(tmmu: Tmmu, tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("id,lower,upper,size,offset\na,0,2,100,0\nb,2,4,60,500\n")
    assert json.loads(tmmu("plan", str(path), "--json")[1])["arenas"]["arena"]["extent_bytes"] == 560
    assert json.loads(tmmu("plan", str(path), "--planner", "slots", "--json")[1])["metrics"]["extent_bytes"] == 100


# --- trace, compare ----------------------------------------------------------------------------------------------


def test_renumbered_slots_are_no_moves(tmmu: Tmmu, tmp_path: Path) -> None:
    code, out, _ = tmmu("compare", CHAIN, plan_file(tmp_path, CHAIN, "--planner", "ffd"))
    assert (code, out.partition("\n")[0]) == (1, "diverged in slot numbers only")
    assert re.search(r"^renumbered +8 ", out, re.MULTILINE)
    assert "moved" not in out
    row = next(line for line in out.splitlines() if line.startswith("t1 "))
    assert re.split(" {2,}", row)[1:] == ["renumbered", "activations", "0 → –", "0", "65,536", "[1, 2)"]


def test_incomparable_plans_exit_with_3_and_name_the_reason(tmmu: Tmmu, tmp_path: Path) -> None:
    code, out, _ = tmmu("compare", CHAIN, plan_file(tmp_path, CHAIN, "--seed", "5"))
    assert code == 3
    assert "not comparable: different replay tokens" in out


# --- verify, lint, gate ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        (("--max-extent", "64KiB"), 0),
        (("--max-extent", "65535"), 1),
        (("--max-extent", "activations=1MiB"), 0),
        (("--max-peak", "65535"), 1),
        (("--max-gap", "0"), 0),
        (("--min-reuse", "88%"), 0),
        (("--min-reuse", "89%"), 1),
        (("--max-extent", "64KiB", "--max-peak", "1"), 1),
        (("--baseline", CHAIN), 0),
        (("--baseline", CHAIN, "--max-growth", "5%"), 0),
    ],
)
def test_gate_passes_or_fails(tmmu: Tmmu, limits: tuple[str, ...], code: int) -> None:
    assert tmmu("gate", CHAIN, *limits)[0] == code


def test_baseline_of_another_model_is_reported(tmmu: Tmmu, tmp_path: Path) -> None:
    other = plan_file(tmp_path, VIEWS)
    code, out, _ = tmmu("gate", CHAIN, "--baseline", other, "--max-growth", "1MiB", "--out", str(tmp_path / "out"))
    sentence = "linear_chain, 9 tensors) have no tensor in common"
    assert (code, sentence in out) == (0, True)
    assert "`linear_chain`, 9 tensors) have no tensor in common" in (tmp_path / "out" / "summary.md").read_text()
    record = json.loads(tmmu("gate", CHAIN, "--baseline", other, "--max-growth", "1MiB", "--json")[1])
    assert record["tensors_in_common"] == 0
    assert "no tensor in common" not in tmmu("gate", NONE, "--baseline", CHAIN)[1]
    assert json.loads(tmmu("gate", NONE, "--baseline", CHAIN, "--json")[1])["tensors_in_common"] == 9


# --- export, report, convert, checkpoint, restore, sweep, apply --------------------------------------------------


@pytest.mark.parametrize("format_", ["json", "cbor", "trace", "trace-cbor"])
def test_export_is_read_back(tmp_path: Path, format_: str) -> None:
    path = tmp_path / "out"
    assert run(["export", plan_file(tmp_path, VIEWS), "--to", format_, "-o", str(path)]) == 0
    found = read_any(path.read_bytes())
    plan = found.plan if isinstance(found, Trace) else found
    assert isinstance(plan, Plan)
    assert same_plan(plan, plan_graph(graph_of(VIEWS)).plan) == ()


def test_convert_reports_lost_constraints(tmmu: Tmmu, tmp_path: Path) -> None:
    problem = tmp_path / "kernel.json"
    problem.write_text(json.dumps(document(Random(1), ("separations",))))
    code, _, error = tmmu("convert", str(problem), "-o", str(tmp_path / "out.csv.gz"))
    assert code == 0
    assert "does not contain the capacity, constraints and reuse penalties of the input" in error
    code, _, error = tmmu("convert", str(problem), "-o", str(tmp_path / "out.json"))
    assert code == 2
    assert "an instance is written as CSV" in error


@pytest.mark.parametrize("format_", ["html", "svg"])
def test_format_of_pictures_names_the_report(tmmu: Tmmu, format_: str) -> None:
    code, _, error = tmmu("export", CHAIN, "--to", format_)
    assert code == 2
    assert f"tmmu report {CHAIN} -o OUT.html" in error


def test_bounds_of_dimensions_are_given_to_convert(tmmu: Tmmu, tmp_path: Path) -> None:
    wide = tmp_path / "wide.tmmu.json"
    batches = str(SAMPLES / "dynamic_batch.tmmu.json")
    assert run(["convert", batches, "--dims", "B=2:64", "-o", str(wide)]) == 0
    assert native_file.decode(wide.read_bytes()).dims["B"] == Dim(2, 64)


@pytest.mark.parametrize("bounds", ["B", "B=x", "B=8:1", "=4"])
def test_malformed_bound_is_rejected(tmmu: Tmmu, bounds: str) -> None:
    code, _, err = tmmu("convert", str(SAMPLES / "dynamic_batch.tmmu.json"), "--dims", bounds)
    assert code == 2
    assert bounds in err


def test_checkpoint_restores_the_plan(tmmu: Tmmu, tmp_path: Path) -> None:
    path = tmp_path / "c.tmmu-checkpoint"
    assert run(["checkpoint", TRAINING, "--seed", "3", "-o", str(path)]) == 0
    code, out, _ = tmmu("restore", str(path), "--json")
    assert code == 0
    assert same_plan(read_any(out.encode()), plan_graph(graph_of(TRAINING), seed=3).plan) == ()  # type: ignore[arg-type]


def test_plan_is_applied_to_memory(tmmu: Tmmu) -> None:
    code, out, _ = tmmu("apply", TRAINING, "--json")
    assert code == 0
    found = json.loads(out)
    assert found["tensors_bound"] == len(plan_graph(graph_of(TRAINING)).plan)
    assert tmmu("apply", TRAINING, "--json")[1] == out


def test_plan_larger_than_the_memory_of_the_machine_is_not_applied(tmmu: Tmmu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sysconf", lambda _: 1)
    code, out, err = tmmu("apply", CHAIN)
    assert (code, out, "(1302)" in err, "this machine has 1 B" in err) == (2, "", True, True)


def test_folder_of_snapshots_rejects_an_output_and_planning_options(tmmu: Tmmu, tmp_path: Path) -> None:
    (tmp_path / "job_rank0.json").write_text('{"segments": [], "device_traces": [[]]}')
    code, _, err = tmmu("plan", str(tmp_path), "-o", str(tmp_path / "out.json"), "--planner", "greedy")
    assert (code, "no effect on a folder of snapshots: -o, --planner." in err) == (2, True)


def test_instance_of_2_to_the_60_steps_is_planned_and_applied(tmmu: Tmmu, tmp_path: Path) -> None:
    file = tmp_path / "long.csv"
    file.write_text("id,lower,upper,size\na,0,1152921504606846976,100\nb,5,9,50\n")
    assert " #5 " in tmmu("plan", str(file))[1].splitlines()[5]
    assert "150 B zeroed" in tmmu("apply", str(file))[1]
