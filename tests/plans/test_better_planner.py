"""The hint of a planner that needs less memory, in text, JSON and report."""

import json
from pathlib import Path

import pytest

import tmmu
from app.cli.main import run
from tests.support.paths import ROOT
from tmmu_core.plans.making.make import make_plan
from tmmu_core.plans.making.request import PlanRequest

MIXED = str(ROOT / "sample_graphs" / "mixed_sizes.tmmu.json")
HINT = "auto needs 264 KiB, 65 % less: add --planner auto"


def test_command_line_hints_at_a_planner_that_needs_less(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", MIXED]) == 0
    assert f"hint: {HINT}" in capsys.readouterr().out.splitlines()
    assert run(["plan", MIXED, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["better_planner"]
    assert found == {"planner": "auto", "extent_bytes": tmmu.plan(MIXED, planner="auto").extent_bytes}


@pytest.mark.parametrize("planner", ["auto", "helia", "greedy"])
def test_minimal_plans_and_plans_of_own_arenas_have_no_hint(planner: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = MIXED if planner != "greedy" else str(ROOT / "sample_graphs" / "linear_chain.tmmu.json")
    assert run(["plan", file, "--planner", planner]) == 0
    assert "hint" not in capsys.readouterr().out


def test_hint_of_an_instance_counts_the_offsets_of_its_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "two.csv"
    path.write_text("id,lower,upper,size,offset\na,0,1,10,0\nb,1,2,10,10\n")
    assert run(["plan", str(path)]) == 0
    assert "hint: auto needs 10 B, 50 % less: add --planner auto" in capsys.readouterr().out


def test_plan_over_its_capacity_has_the_hint() -> None:
    over = make_plan(tmmu.read(MIXED), PlanRequest(capacities={"": 1024}), over_limits=True)
    assert over.better is not None
    assert over.better.extent_bytes == 264 * 1024


def test_reports_hold_the_hint(tmp_path: Path) -> None:
    plan = tmmu.plan(MIXED)
    for name in ("r.html", "r.md"):
        assert HINT in plan.report(tmp_path / name).read_text()  # type: ignore[union-attr]
