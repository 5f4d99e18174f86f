"""The hashes that stand for rows: what a digest is compared by, and what tells that a file was changed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from tests.build import graph, node, tensor
from tests.judge.faults import changed
from tests.plan.examples import chain_plan, views_graph
from tmmu_core.graph.model import Graph
from tmmu_core.judge.finished import finished
from tmmu_core.judge.verifier import verify_plan
from tmmu_core.plan.formats import files
from tmmu_core.plan.formats.compare import compare
from tmmu_core.plan.formats.held import FIGURES, PARTS, Held, changed_claim, differing, held_by, sealed
from tmmu_core.plan.formats.trace import Trace, read_trace, to_cbor_sequence, to_json_lines
from tmmu_core.plan.making.engine import plan_graph
from tmmu_core.plan.model import CHANGED, Plan


def digest(plan: Plan) -> Trace:
    return read_trace(to_json_lines(plan, digest=True))


def training() -> Graph:
    """A step in which ``h`` is saved for the backward pass."""
    return graph(
        [
            tensor("x", 8, role="input"),
            tensor("w", 8, role="parameter"),
            tensor("h", 8, saved_for_backward=True),
            tensor("y", 8),
            tensor("z", 8),
            tensor("g", 8, role="gradient"),
        ],
        [
            node("a", "x w", "h", instr="MATMUL", inplace="none"),
            node("b", "h", "y", instr="RELU", inplace="none"),
            node("c", "y", "z", instr="RELU", inplace="none"),
            node("d", "z h", "g", phase="backward", inplace="none"),
        ],
        "x",
        "g",
    )


def test_a_digest_and_its_plan_are_identical_however_they_are_told() -> None:
    plan = chain_plan()
    whole, short = read_trace(to_json_lines(plan)), read_trace(to_cbor_sequence(plan, digest=True))
    for a, b in ((plan, short), (short, whole), (short, short), (whole, plan)):
        assert compare(a, b).identical


@pytest.mark.parametrize(
    ("column", "part"),
    [("death", "ranges"), ("birth", "ranges"), ("logical_slot", "slots"), ("offset", "offsets"), ("size", "offsets")],
)
def test_what_differs_in_one_row_is_found_in_its_arena(column: str, part: str) -> None:
    plan = chain_plan(4, planner="naive")
    other = changed(plan, column, 2, int(getattr(plan, column)[2]) + 1)
    arena = plan.arenas[int(plan.arena[2])].name
    assert [path for path, _, _ in differing(held_by(plan), held_by(other))] == [f"$.digests.arenas.{arena}.{part}"]
    found = compare(digest(plan), digest(other))
    assert found.comparable
    assert not found.identical
    assert f"$.digests.arenas.{arena}.{part}" in {d.path for d in found.divergences}


def test_live_ranges_alone_part_two_digests_whose_layout_is_one() -> None:
    """With a slot for each storage the layout reads no range: the presets differ in nothing but those."""
    kept = plan_graph(training(), mode="forward", preset="train_full", planner="naive").plan
    dropped = plan_graph(training(), mode="forward", preset="inference", planner="naive").plan
    assert kept.layout_hash == dropped.layout_hash
    found = compare(digest(kept), digest(dropped))
    assert not found.identical
    assert "$.digests.arenas.activations.ranges" in {d.path for d in found.divergences}


def test_a_digest_of_an_older_version_cannot_be_compared() -> None:
    lines = to_json_lines(chain_plan(), digest=True).split(b"\n")
    head = msgspec.json.decode(lines[0])
    del head["digests"]
    older = read_trace(b"\n".join([msgspec.json.encode(head), *lines[1:]]))
    found = compare(older, chain_plan())
    assert not found.comparable
    assert not found.identical
    assert [d.path for d in found.incomparable] == ["$.digests"]


@pytest.mark.parametrize(("field", "value"), [("death", 99), ("role", "output"), ("dtype", "int8"), ("shape", [3])])
def test_a_row_that_was_changed_in_the_file_is_told_by_the_judge(field: str, value: Any) -> None:
    document = msgspec.json.decode(files.to_json(plan_graph(views_graph()).plan))
    document["tensors"][0][field] = value
    plan = files.from_document(msgspec.json.encode(document))
    assert "not those that were written" in plan.notes[CHANGED]
    assert "hash" in {finding.rule for finding in verify_plan(plan).errors} or field == "death"
    assert not verify_plan(plan).ok


def digest_lines(**changes: Any) -> list[dict[str, Any]]:
    """The records of a digest, a key of its header changed, or taken out where it is ``None``."""
    lines = [msgspec.json.decode(line) for line in to_json_lines(chain_plan(), digest=True).splitlines()]
    lines[0] = {key: value for key, value in (lines[0] | changes).items() if value is not None}
    return lines


def read_lines(lines: list[dict[str, Any]]) -> Trace:
    return read_trace(b"\n".join(map(msgspec.json.encode, lines)))


@pytest.mark.parametrize("part", [*PARTS, "figures"])
def test_an_edited_hash_of_a_digest_is_told_by_the_judge(part: str) -> None:
    """A digest has no rows that its hashes could be held against: they are held themselves."""
    lines = digest_lines()
    arena = next(iter(lines[0]["digests"]["arenas"].values()))
    arena[part] = "0" * 64
    found = read_lines(lines)
    assert "not those that were written" in found.plan.remark(CHANGED)
    assert not finished(found.plan, complete=False).ok


@pytest.mark.parametrize("how", [{"rows_hash": "0" * 64}, {"rows_hash": None}, {"arenas": {}}])
def test_neither_the_hash_of_the_hashes_nor_an_arena_is_taken_out_of_a_digest(how: dict[str, Any]) -> None:
    found = read_lines(digest_lines(**how))
    assert "written" in found.plan.remark(CHANGED)
    assert not finished(found.plan, complete=False).ok


def test_a_digest_of_a_version_that_did_not_hold_its_hashes_is_read() -> None:
    lines = digest_lines(rows_hash=None)
    header = lines[0]
    head = {key: value for key, value in header.items() if key != "digests"}
    held = sealed(held_by(chain_plan()), header["arenas"], {**head, "summary": lines[-1], "replans": []})
    header["digests"] = msgspec.to_builtins(held)
    found = read_lines(lines)
    assert not found.plan.remark(CHANGED)
    assert finished(found.plan, complete=False).ok


@pytest.mark.parametrize("kind", ["plan", "trace", "digest"])
def test_a_file_without_hashes_says_that_nothing_vouches_for_it(kind: str) -> None:
    """It is judged by what it says, and an edit after which it is a sound plan is not found: so much is said."""
    plan, short = chain_plan(), kind == "digest"
    if kind == "plan":
        document = msgspec.json.decode(files.to_json(plan))
        del document["digests"]
        found = files.from_document(msgspec.json.encode(document))
    else:
        lines = [msgspec.json.decode(line) for line in to_json_lines(plan, digest=short).splitlines()]
        del lines[0]["digests"]
        found = read_lines(lines).plan
    judged = finished(found, complete=not short)
    assert (judged.ok, [(f.rule, f.severity) for f in judged.verdict.findings]) == (True, [("held", "warning")])
    assert not finished(files.from_document(files.to_json(plan))).verdict.findings


@pytest.mark.parametrize("name", ["changed", "places", "unheld"])
def test_an_arena_may_be_called_as_a_reader_speaks(name: str) -> None:
    g = graph([tensor("x", 8, arena=name), tensor("y", 8, arena=name)], [node("n", "", "x"), node("m", "x", "y")])
    plan = plan_graph(g, planner="greedy", arenas={name: {}}).plan
    assert isinstance(plan.notes[name], dict)
    assert verify_plan(files.from_document(files.to_json(plan))).findings == ()


def test_the_bytes_of_activations_are_counted_from_the_rows() -> None:
    plan = plan_graph(training()).plan
    more = replace(plan, metrics={**plan.metrics, "activation_bytes": plan.metrics["activation_bytes"] + 8})
    assert "activation_bytes" in verify_plan(more).errors[0].message


def test_hand_offs_are_held_too() -> None:
    document = msgspec.json.decode(files.to_json(chain_plan()))
    del document["handoffs"][0]
    assert files.from_document(msgspec.json.encode(document)).notes[CHANGED].startswith("the hand-offs")


def test_a_plan_made_anew_from_another_says_nothing_of_it() -> None:
    plan = replace(chain_plan(), planner="mine")
    assert CHANGED not in files.from_document(files.to_json(plan)).notes
    assert set(PARTS) == set(held_by(plan).arenas["activations"])
    assert np.array_equal(files.from_document(files.to_json(plan)).offset, plan.offset)


def test_a_claim_is_held_by_either_of_its_hashes_and_by_none_where_there_is_none() -> None:
    plan = plan_graph(training()).plan
    arenas: dict[str, dict[str, Any]] = {arena.name: {"extent": 7, "unsaid": None} for arena in plan.arenas}
    whole = sealed(held_by(plan), arenas, {"mode": "x"})
    rows_alone = {name: {k: v for k, v in parts.items() if k != FIGURES} for name, parts in whole.arenas.items()}
    first = min(arenas)

    def claim(which: Held, head: str = "x", **figures: int) -> str:
        return changed_claim(which, {**arenas, first: {**arenas[first], **figures}}, {"mode": head})

    assert [claim(whole), claim(msgspec.structs.replace(whole, arenas=rows_alone, head=""), "y", extent=8)] == ["", ""]
    figures = f"the figures of {first} are not those that were written"
    assert [claim(whole, extent=8), claim(msgspec.structs.replace(whole, arenas=rows_alone))] == [figures] * 2
    beside = "what is said of the plan beside its rows is not what was written"
    assert [claim(whole, "y"), claim(msgspec.structs.replace(whole, head=""))] == [beside] * 2
    assert changed_claim(whole, {}, {"mode": "x"}) == "the arenas are not those that were written"
