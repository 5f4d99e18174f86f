"""The command of the page Report makes the same plan, to the byte."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import msgspec
import pytest

from app.cli.main import run
from app.session import opening, planning, repeat
from app.session.choice import Choice
from tmmu_core.plan.formats import files

ROOT = Path(__file__).resolve().parents[2]
MEMORIES = {"memories": [{"name": "DTCM", "max_size": 4096}, {"name": "SRAM"}], "min_alignment": 32}


def without_time(plan: bytes) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.json.decode(plan)
    return document


@pytest.mark.parametrize(
    "choice",
    [
        Choice(source="sample:training_step"),
        Choice(source="sample:training_step", mode="inference", preset="inference", planner="auto"),
        Choice(source="sample:mixed_sizes", planner="greedy", options={"fit": "tightest", "order": "area"}),
        Choice(source="sample:mixed_sizes", planner="helia", options=MEMORIES),
        Choice(source="sample:dynamic_batch", dims={"B": 2}, alignment=64, page_size=4096, budget=2**40),
        Choice(source="sample:two_arenas", capacities={"activations": 2**30}),
        Choice(source="sample:A", planner="search", options={"iterations": 5, "seed": 3}),
        Choice(source="sample:iree_first", capacities={"arena": 2**30}, planner="greedy"),
        Choice(source="sample:iree_first"),
        Choice(source="sample:xla_transformer_step", planner="portfolio", alignment=32),
        Choice(source="sample:dynamic_batch", mode="backward", shard_spec={"mesh": {"tp": 8}}, rank=5, dims={"B": 3}),
    ],
    ids=lambda choice: f"{choice.source.partition(':')[2]}-{choice.planner or 'default'}",
)
def test_the_command_repeats_the_plan(choice: Choice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = planning.make_plan(choice)
    (tmp_path / "sample_graphs").symlink_to(ROOT / "sample_graphs")
    for name, data in repeat.files(shown).items():
        (tmp_path / name).write_bytes(data)
    monkeypatch.chdir(tmp_path)
    words = shlex.split(repeat.command(shown))
    assert run(words[1:]) == 0
    assert without_time((tmp_path / words[-1]).read_bytes()) == without_time(files.to_json(shown.plan))


def test_an_opened_file_is_called_by_its_own_name() -> None:
    data = (ROOT / "sample_graphs" / "views.tmmu.json").read_bytes()
    shown = planning.make_plan(Choice(source=opening.shelf().put("mine.json", data)))
    assert repeat.command(shown).startswith("tmmu plan mine.json --mode inference --preset inference --planner slots")


def test_a_file_is_never_taken_for_an_option() -> None:
    data = (ROOT / "sample_graphs" / "views.tmmu.json").read_bytes()
    shown = planning.make_plan(Choice(source=opening.shelf().put("-mine.json", data)))
    assert repeat.command(shown).startswith("tmmu plan ./-mine.json ")


def test_a_text_option_that_looks_like_json_stays_a_text() -> None:
    shown = planning.make_plan(Choice(source="sample:views", planner="greedy"))
    object.__setattr__(shown.choice, "options", {"order": "1"})
    assert "--option 'order=\"1\"'" in repeat.command(shown)
