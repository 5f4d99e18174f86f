"""Two hundred plans, each edited at random in one place: nobody who reads one believes it.

The places are those that say where a tensor lies, when, and as what; which hand-offs there are; how large the arenas
are; what ran, and the hashes of all that. What a planner claims or tells of itself (bounds, status, notes, names) is no
part of a layout.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from app.cli.main import run
from tmmu_core.errors import TmmuError
from tmmu_core.judge.finished import finished
from tmmu_core.plan.formats import files
from tmmu_core.plan.formats.reading import read_any, read_graph_file
from tmmu_core.plan.making.engine import plan_graph
from tmmu_core.plan.model import Plan

SAMPLES = Path(__file__).resolve().parents[2] / "sample_graphs"
GRAPHS = ("residual_block", "training_step", "views", "linear_chain")
EDITS = 200
READING = (
    ["gate", "--max-extent", "1TiB"],
    ["compare"],
    ["report", "-o"],
    ["export", "--to", "c-header", "-o"],
    ["apply"],
    ["checkpoint", "-o"],
    ["verify"],
    ["lint"],
)
OF_ARENAS = ("extent_bytes", "committed_bytes", "peak_live_bytes", "slots", "max_live", "storages", "alignment_bytes")
OF_HEAD = ("steps", "mode", "rank", "world_size", "ir_hash", "tmmu_plan_hash", "layout_hash", "execution_order_hash")


def edited(document: dict[str, Any], choice: Random) -> str:
    """Change one place of a plan's document; where."""
    kind = choice.choice(("tensors",) * 6 + ("arenas", "head", "order", "handoffs"))
    if kind == "tensors":
        row = choice.choice(document["tensors"])
        field = choice.choice(sorted(set(row) - {"tensor_id"}))
        row[field] = other(row[field], choice)
        return f"{row['tensor_id']}.{field}"
    if kind == "arenas":
        name = choice.choice(sorted(document["arenas"]))
        field = choice.choice(OF_ARENAS)
        document["arenas"][name][field] += choice.choice((1, 64, 4096))
        return f"{name}.{field}"
    if kind == "order":
        at = choice.randrange(len(document["execution_order"]))
        document["execution_order"][at] += "x"
        return f"order[{at}]"
    if kind == "handoffs" and document["handoffs"]:
        del document["handoffs"][choice.randrange(len(document["handoffs"]))]
        return "handoffs"
    field = choice.choice(OF_HEAD)
    document[field] = other(document[field], choice)
    return field


def other(value: Any, choice: Random) -> Any:
    """Another value of the same sort."""
    if isinstance(value, bool) or value is None:
        return "elsewhere"
    if isinstance(value, int):
        return value + choice.choice((1, 2, 64, 128, 4096))
    if isinstance(value, list):
        return [*value, 2]
    if len(value) == 64 and all(c in "0123456789abcdef" for c in value):
        return f"{int(value, 16) ^ 1 << choice.randrange(256):064x}"
    return value + "x"


def originals() -> list[tuple[str, bytes]]:
    paths = [SAMPLES / f"{name}.tmmu.json" for name in GRAPHS]
    return [
        (str(path), files.to_json(plan_graph(read_graph_file(path), planner=planner).plan))
        for path in paths
        for planner in ("slots", "greedy")
    ]


def test_the_originals_are_believed() -> None:
    for _, data in originals():
        plan = read_any(data)
        assert isinstance(plan, Plan)
        assert finished(plan).ok


def test_two_hundred_edits_are_refused_or_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    choice, plans = Random(9), originals()
    path, written = tmp_path / "plan.json", tmp_path / "written"
    believed = []
    for k in range(EDITS):
        graph, data = plans[k % len(plans)]
        document = msgspec.json.decode(data)
        where = edited(document, choice)
        path.write_bytes(msgspec.json.encode(document))
        try:
            plan = read_any(path.read_bytes())
            assert isinstance(plan, Plan)
            ok = finished(plan).ok
        except TmmuError:
            ok = False
        command, *rest = READING[k % len(READING)]
        more = {"compare": [graph], "checkpoint": ["--graph", graph, *rest, str(written)]}.get(command)
        if more is None:
            more = [*rest, str(written)] if rest[-1:] == ["-o"] else rest
        code = run([command, str(path), *more])
        said = "".join(capsys.readouterr())
        if ok or code not in (1, 2, 3) or not said:
            believed.append((where, command, ok, code))
        if command in ("export", "checkpoint"):
            assert not written.exists(), (where, command)
        written.unlink(missing_ok=True)
    assert believed == []
