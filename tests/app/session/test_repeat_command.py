"""The command on the page Report gives the same plan to the byte."""

import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from app.cli.main import run
from app.kit import downloads
from app.session import opening, planning
from app.session.view_state import Choice
from tests.support.paths import SAMPLES
from tmmu_core.base import escaping
from tmmu_core.formats.planfile import plan_file

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
        Choice(source="sample:two_arenas", capacities={"activations": 2**30, "parameters": 2**30}),
        Choice(source="sample:A", planner="search", options={"iterations": 5, "seed": 3}),
        Choice(source="sample:iree_first", capacities={"arena": 2**30}, planner="greedy"),
        Choice(source="sample:iree_first"),
        Choice(source="sample:xla_transformer_step", planner="portfolio", alignment=32),
        Choice(source="sample:dynamic_batch", mode="backward", shard_spec={"mesh": {"tp": 8}}, rank=5, dims={"B": 3}),
    ],
    ids=lambda choice: f"{choice.source.partition(':')[2]}-{choice.planner or 'default'}",
)
def test_command_repeats_the_plan(choice: Choice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = planning.make_plan(choice)
    (tmp_path / "sample_graphs").symlink_to(SAMPLES)
    for name, data in downloads.command_files(shown).items():
        (tmp_path / name).write_bytes(data)
    monkeypatch.chdir(tmp_path)
    words = shlex.split(downloads.command(shown))
    assert run(words[1:]) == 0
    assert without_time((tmp_path / words[-1]).read_bytes()) == without_time(plan_file.to_json(shown.plan))


def test_file_name_is_not_taken_for_an_option() -> None:
    data = (SAMPLES / "views.tmmu.json").read_bytes()
    shown = planning.make_plan(Choice(source=opening.shelf().put("-mine.json", data)))
    assert downloads.command(shown).startswith("tmmu plan ./-mine.json ")


CONTROLS = "\x15touch pwned\n\x1b[201~'$(id)`\\x7f\u202e"


def test_control_characters_of_a_name_are_quoted() -> None:
    """Control characters act on a terminal when they are pasted."""
    document = json.loads((SAMPLES / "dynamic_batch.tmmu.json").read_text())
    text = json.dumps(document).replace('"B"', json.dumps(CONTROLS)).encode()
    shown = planning.make_plan(Choice(source=opening.shelf().put("g.json", text), dims={CONTROLS: 2}))
    line = downloads.command(shown)
    assert escaping.visible(line) == line
    printed = subprocess.run(["bash", "-c", f'printf "%s\\0" {line}'], capture_output=True, check=True).stdout
    words = printed.decode().split("\0")
    assert f"{CONTROLS}=2" in words
    assert words[:3] == ["tmmu", "plan", "g.json"]


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("../../etc/passwd", "passwd"),
        ("C:\\CON\\x.json", "x.json"),
        ("a\n\x15b\0.json", r"a\x0a\x15b\x00.json"),
        ("\u202egpj.json", r"\u202egpj.json"),
        ("..", "file"),
        ("/", "file"),
        ("", "file"),
        ("é" * 300 + ".json", "é" * 250 + ".json"),
    ],
)
def test_stored_name_is_visible_and_has_no_folder(name: str, kept: str) -> None:
    source = opening.shelf().put(name, b"{}")
    assert opening.shelf().get(source) == (kept, b"{}")
