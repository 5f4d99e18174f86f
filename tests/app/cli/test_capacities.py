"""A capacity for a plain instance: every way to give it, and the search ends when everything fits."""

import json
from pathlib import Path
from typing import Any

import pytest

from app.cli.main import run
from tests.support.paths import SAMPLES

A = SAMPLES / "instances" / "A.1048576.csv"
MIXED = A.parents[1] / "mixed_sizes.tmmu.json"
CAPACITY = 1_200_000
EXACT = ("--planner", "exact")


def planned(tmp_path: Path, *arguments: str) -> dict[str, Any]:
    assert run(["plan", str(A), *EXACT, *arguments, "-o", str(tmp_path / "plan.json")]) == 0
    arena: dict[str, Any] = json.loads((tmp_path / "plan.json").read_text())["arenas"]["arena"]
    return arena


def declared(tmp_path: Path, capacity: int) -> str:
    document = {"arena": {"capacity_bytes": capacity, "alignment_bytes": 1, "page_size": 1}}
    (tmp_path / "arenas.json").write_text(json.dumps(document))
    return str(tmp_path / "arenas.json")


def test_capacity_from_a_file_ends_the_search_when_everything_fits(tmp_path: Path) -> None:
    arena = planned(tmp_path, "--arenas", declared(tmp_path, CAPACITY))
    assert arena["capacity_bytes"] == CAPACITY
    assert 1_048_576 < arena["extent_bytes"] <= CAPACITY


def test_minimise_continues_to_the_optimum(tmp_path: Path) -> None:
    arena = planned(tmp_path, "--arenas", declared(tmp_path, CAPACITY), "--option", "minimise=true")
    assert (arena["extent_bytes"], arena["capacity_bytes"]) == (1_048_576, CAPACITY)


def test_arena_alignment_holds_for_every_buffer(tmp_path: Path) -> None:
    document = {"arena": {"capacity_bytes": 2**40, "alignment_bytes": 4096, "page_size": 4096}}
    (tmp_path / "arenas.json").write_text(json.dumps(document))
    given = ["--planner", "greedy", "--arenas", str(tmp_path / "arenas.json"), "-o", str(tmp_path / "plan.json")]
    assert run(["plan", str(A), *given]) == 0
    rows = json.loads((tmp_path / "plan.json").read_text())["tensors"]
    assert {row["offset_bytes"] % 4096 for row in rows} == {0}


@pytest.mark.parametrize("capacities", [("--capacity", "1048575"), ("--capacity", "arena=1048575")])
def test_capacity_below_the_bound_is_rejected_as_proven(
    capacities: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["plan", str(A), *EXACT, *capacities, "--json"]) == 2
    record = json.loads(capsys.readouterr().err.splitlines()[-1])
    assert (record["code_id"], record["diagnostics"]["required"]) == ("ARENA_TOO_SMALL", 1_048_576)
