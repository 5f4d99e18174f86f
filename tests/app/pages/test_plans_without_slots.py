"""Planners without slots: storages are not called slots, and machine-readable output is unchanged."""

import json
from pathlib import Path

import numpy as np
import pytest

from app.cli.main import run
from app.kit.tensor_table import frame_of, without_empty_columns
from tests.app.pages.run_page import html, opened
from tests.support.build import chain
from tests.support.paths import SAMPLES
from tmmu_core.plans.making.engine import plan_graph

PLAN = plan_graph(chain(3)).plan
CHAIN = str(SAMPLES / "linear_chain.tmmu.json")


def figures(shown_text: str) -> dict[str, str]:
    head, *rows = [line.split("  ") for line in shown_text.splitlines() if line.startswith(("arena  ", "activations"))]
    names, cells = ([cell.strip() for cell in row if cell.strip()] for row in (head, rows[0]))
    return dict(zip(names, cells, strict=True))


def test_command_line_shows_no_slots_and_json_keeps_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", CHAIN, "--planner", "greedy"]) == 0
    row = figures(capsys.readouterr().out)
    assert (row["slots"], row["reuse"], row["max live buffers"]) == ("–", "–", "1")
    assert run(["plan", CHAIN, "--planner", "greedy", "-o", "-"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["arenas"]["activations"]["slots"] == 9


def test_comparison_shows_a_dash_for_missing_slots(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    baseline, candidate = str(tmp_path / "a.json"), str(tmp_path / "b.json")
    run(["plan", CHAIN, "-o", baseline])
    run(["plan", CHAIN, "--planner", "greedy", "-o", candidate])
    capsys.readouterr()
    assert run(["compare", baseline, candidate]) == 1
    assert figures(capsys.readouterr().out)["slots"] == "1 → –"
    assert "1 → –" in html(opened("compare", graph="sample:linear_chain", planner="greedy", baseline="planner:slots"))


def test_empty_columns_are_not_shown() -> None:
    assert {"view of"} == set(frame_of(PLAN, np.arange(2))) - set(without_empty_columns(frame_of(PLAN, np.arange(2))))
