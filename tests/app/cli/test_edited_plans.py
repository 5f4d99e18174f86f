"""Two hundred plans, each edited at random in one place: nobody who reads one believes it.

The places are all there are in a plan file and in a trace: any value at any depth is changed, taken out, or called by
another name. Left out, by name, is what nobody can hold against anything:

* an edit after which the file says what it said: an optional field that held its default is taken out, a key that
  nobody knows is put in. What is read is then the plan that was written, and the test looks whether it is;
* ``content_hash`` taken out as a whole: that is a file of another writer, and all that it says is still judged.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from app.cli.main import run
from tests.support.paths import SAMPLES
from tmmu_core.base.errors import TmmuError
from tmmu_core.formats.open_file import read_any, read_graph_file
from tmmu_core.formats.planfile import plan_file
from tmmu_core.formats.planfile.compare_plans import same_plan
from tmmu_core.formats.planfile.trace import Trace, to_json_lines
from tmmu_core.judge.verifier.finished_plan import finished
from tmmu_core.plans.making.engine import plan_graph
from tmmu_core.plans.model import PLACES_DERIVED, Plan

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


Place = tuple[str | int, ...]


def places(value: Any, at: Place = ()) -> list[Place]:
    """Every place in a document, down to the single value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = [at] if at else []
    for key, below in inner:
        found += places(below, (*at, key))
    return found


def edited(document: Any, choice: Random) -> str:
    """Change one place of a plan's document, or of a trace's records; where, and how.

    Each key of the head, and each kind of record, is as likely as another.
    """
    if isinstance(document, list):
        kind = choice.choice(sorted({record["record"] for record in document}))
        first = choice.choice([k for k, record in enumerate(document) if record["record"] == kind])
        at = choice.choice(places(document[first], (first,)))
    else:
        first = choice.choice(sorted(document))
        at = choice.choice(places(document[first], (first,)))
    holder = document
    for step in at[:-1]:
        holder = holder[step]
    last: Any = at[-1]
    how = choice.choice(("changed", "changed", "taken out", "called otherwise"))
    value = holder[last]
    if at[-1:] == ("content_hash",):
        how = "changed"
    if how == "changed":
        holder[last] = other(value, choice)
    else:
        del holder[last]
        if how == "called otherwise" and isinstance(last, str):
            holder[f"{last}x"] = value
    return f"{'.'.join(map(str, at))} {how}"


def other(value: Any, choice: Random) -> Any:
    """Another value of the same sort."""
    if isinstance(value, bool):
        return not value
    if value is None:
        return "elsewhere"
    if isinstance(value, int):
        return value + choice.choice((1, 2, 64, 128, 4096))
    if isinstance(value, float):
        return value + choice.choice((0.25, 1.0))
    if isinstance(value, list):
        return [*value, 2]
    if isinstance(value, dict):
        return {**value, "more": 2} if value else {"activations": {"more": 2}}
    if len(value) == 64 and all(c in "0123456789abcdef" for c in value):
        return f"{int(value, 16) ^ 1 << choice.randrange(256):064x}"
    return value + "x"


def originals() -> list[tuple[str, Plan]]:
    paths = [SAMPLES / f"{name}.tmmu.json" for name in GRAPHS]
    return [
        (str(path), plan_graph(read_graph_file(path), planner=planner).plan)
        for path in paths
        for planner in ("slots", "greedy")
    ]


def written(plan: Plan, as_trace: bool) -> Any:
    if as_trace:
        return [msgspec.json.decode(line) for line in to_json_lines(plan).splitlines()]
    return msgspec.json.decode(plan_file.to_json(plan))


def encoded(document: Any) -> bytes:
    if isinstance(document, list):
        return b"\n".join(map(msgspec.json.encode, document))
    return msgspec.json.encode(document)


def read(data: bytes) -> Plan:
    found = read_any(data)
    plan = found.plan if isinstance(found, Trace) else found
    assert isinstance(plan, Plan)
    return plan


def believed(data: bytes) -> Plan | None:
    """The plan that is read, where it is read and believed."""
    try:
        plan = read(data)
    except TmmuError:
        return None
    return plan if finished(plan).ok else None


def says_the_same(one: Plan, other: Plan) -> bool:
    """But for a reader's note that it had to derive what is placed, which is a warning."""
    other = replace(other, notes={key: note for key, note in other.notes.items() if key != PLACES_DERIVED})
    return not same_plan(one, other) and one.arenas == other.arenas


@pytest.mark.parametrize("as_trace", [False, True])
def test_the_originals_are_believed(as_trace: bool) -> None:
    for _, plan in originals():
        assert believed(encoded(written(plan, as_trace))) is not None


@pytest.mark.slow
def test_two_hundred_edits_are_refused_or_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    choice, plans = Random(9), originals()
    out = tmp_path / "written"
    taken_for_true, edits, unsaid = [], 0, 0
    while edits < EDITS:
        (graph, original), as_trace = plans[edits % len(plans)], edits % 3 == 2
        document = written(original, as_trace)
        where = edited(document, choice)
        data = encoded(document)
        plan = believed(data)
        if plan is not None:
            if not says_the_same(read(encoded(written(original, as_trace))), plan):
                taken_for_true.append((where, as_trace))
            unsaid += 1
            assert unsaid < EDITS
            continue
        path = tmp_path / ("plan.jsonl" if as_trace else "plan.json")
        path.write_bytes(data)
        command, *rest = READING[edits % len(READING)]
        more = {"compare": [graph], "checkpoint": ["--graph", graph, *rest, str(out)]}.get(command)
        if more is None:
            more = [*rest, str(out)] if rest[-1:] == ["-o"] else rest
        code = run([command, str(path), *more])
        if code not in (1, 2, 3) or not "".join(capsys.readouterr()):
            taken_for_true.append((where, command))
        if command in ("export", "checkpoint"):
            assert not out.exists(), (where, command)
        out.unlink(missing_ok=True)
        edits += 1
    assert taken_for_true == []
