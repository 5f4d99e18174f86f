"""Traces, checkpoints and what a file says in free maps: each claim at its borders, by eye or beside the plainest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import cbor2
import msgspec
import pytest

from tests.build import chain, graph, node, tensor
from tests.odd import drawn
from tests.plan.examples import chain_plan, ledger_plan, views_graph
from tmmu_core.cbor import H
from tmmu_core.errors import U64_MAX, ContractError, UnreadableInput
from tmmu_core.judge.verifier import verify_plan
from tmmu_core.plan.formats import checkpoint, said, trace
from tmmu_core.plan.making.engine import Solution, plan_graph
from tmmu_core.plan.model import CHANGED, UNHELD, UNSAID, Plan

Document = dict[str, Any]


def refusal(call: Any) -> UnreadableInput:
    with pytest.raises(UnreadableInput) as caught:
        call()
    return caught.value


# --- what is said in free maps -----------------------------------------------------------------------------------


def test_a_figure_is_a_count_a_moment_a_ratio_or_counts_by_name() -> None:
    odd: list[Any] = [True, False, -1, 1.5, "1", None, b"1", [], {}]
    counts, moments = [0, 1, 2**63 - 1, 2**63, U64_MAX], [0, 1, 2**63 - 1]
    ratios = [0, 10**9 - 1, 999_999_999.5, -999_999_999.5, 0.0, 1.5]
    maps: list[Any] = [{}, {"a": 0}, {"a": 0, "b": U64_MAX}]
    more: list[Any] = [
        U64_MAX + 1,
        10**9,
        1e9,
        -1e9,
        float("inf"),
        float("nan"),
        {"a": -1},
        {"a": 0, "b": -1},
        {"a": "1"},
    ]
    every = [*odd, *counts, *moments, *ratios, *maps, *more]
    for fine, some in (
        (said._is_count, [*counts, *moments, *ratios[:2], 10**9]),
        (said._is_moment, [*moments, *ratios[:2], 10**9]),
        (said._is_ratio, [*ratios, 0, 1]),
        (said._are_counts, maps),
    ):
        for value in every:
            wanted = any(type(value) is type(one) and value == one for one in some)
            assert fine(value) == wanted, (fine, value)
    assert said.figures({"max_live": U64_MAX, "colour": "red"}, "") == {"max_live": U64_MAX, "colour": "red"}
    refused = refusal(lambda: said.figures({"max_live": "x" * 99}, "from"))
    assert (refused.message, refused.place, refused.hint) == (
        f"{'x' * 99!r:.80} is no figure.",
        "$.metrics.max_live",
        "Plan again.",
    )


def test_free_maps_hold_what_json_has() -> None:
    said.check_plain({"a": [1, 1.5, None, True, "x", {"b": []}]}, "$", "")
    for value, message, place in (
        ({"a": [0, b"x"]}, "b'x' is no text and no number.", "$.a[1]"),
        ({"a": {"b": (1,)}}, "(1,) is no text and no number.", "$.a.b"),
        ({"a": {b"k": 1}}, "the key b'k' is no text.", "$.a"),
        ({1: 1}, "the key 1 is no text.", "$"),
        ([[], [b""]], "b'' is no text and no number.", "$[1][0]"),
    ):
        refused = refusal(lambda: said.check_plain(value, "$", "from"))  # noqa: B023
        assert (refused.message, refused.place, refused.source) == (message, place, "from")


def test_figures_of_all_arenas_together_are_of_64_bits() -> None:
    one = chain_plan(1).arenas[0]
    for field in said.SUMMED:
        rest = dict.fromkeys(said.SUMMED, 0)
        most = replace(one, **{**rest, field: U64_MAX - 1})
        said.check_sums((most, replace(one, **{**rest, field: 1})), "")
        more = (replace(one, **{**rest, field: 2}), most)
        refused = refusal(lambda: said.check_sums(iter(more), "from"))  # noqa: B023
        assert refused.message == f"all {field} together are more than 64 bits hold."
        assert (refused.place, refused.source) == ("$.arenas", "from")


REGION = {"memory": "A", "role": "scratch", "source_memory": "A"}
SPILLED = {**REGION, "said_by": {"order": ["x"]}, "spills": [{"storage": "x", "reason": "full"}], "alignment": 1}
NO_TEXT, NO_MAP = "this note is no text.", "what is noted of an arena is no map."


@pytest.mark.parametrize(
    ("notes", "arenas", "place", "message"),
    [
        ({}, ("a",), "", ""),
        ({UNSAID: "x", CHANGED: "", UNHELD: "y", "colour": 3}, ("a",), "", ""),
        ({UNSAID: 3}, ("a",), UNSAID, NO_TEXT),
        ({CHANGED: None}, ("a",), CHANGED, NO_TEXT),
        ({UNHELD: {}}, ("a",), UNHELD, NO_TEXT),
        ({UNHELD: {}}, (UNHELD,), "", ""),
        ({UNHELD: "text", "b": {}}, (UNHELD, "b"), "", ""),
        ({CHANGED: "text", "zz": "text"}, (CHANGED, "zz"), "zz", NO_MAP),
        ({UNHELD: 3}, (UNHELD,), UNHELD, NO_MAP),
        ({"a": "text"}, ("a",), "a", NO_MAP),
        ({"a": [], "b": {}}, ("b", "a"), "a", NO_MAP),
        ({"a": "text"}, ("b",), "", ""),
        ({"addressing": {"kind": "x", "bits": 48}}, (), "", ""),
        ({"addressing": "x"}, (), "addressing", "not as planners"),
        ({"addressing": {"bits": "x"}}, ("a",), "addressing", "not as planners"),
        ({"addressing": {"bits": "x"}}, ("addressing",), "", ""),
        ({"a": {"picked": "x", "sharing_pairs": 0, "saved_bytes": 0}}, ("a",), "", ""),
        ({"a": {"saved_bytes": -1}}, ("a",), "a", "not as planners"),
        ({"b": {}, "a": {"sharing_pairs": -1}}, ("b", "a"), "a", "not as planners"),
        ({"a": REGION}, ("a",), "", ""),
        ({"a": {**REGION, "origin": 0}}, ("a",), "", ""),
        ({"a": {**REGION, "origin": -1}}, ("a",), "a", "not as planners"),
        ({"a": {"memory": "A"}}, ("a",), "a", "not as planners"),
        ({"a": {"role": 3}}, ("a",), "", ""),
        ({"a": SPILLED}, ("a",), "", ""),
        ({"a": {**SPILLED, "alignment": 0}}, ("a",), "a", "not as planners"),
        ({"a": {"said_by": {}}}, ("a",), "a", "not as planners"),
    ],
)
def test_a_note_is_as_planners_and_readers_write_it(
    notes: Document, arenas: tuple[str, ...], place: str, message: str
) -> None:
    if not place:
        said.check_notes(notes, arenas, "from")
        return
    refused = refusal(lambda: said.check_notes(notes, arenas, "from"))
    assert message in refused.message
    assert (refused.place, refused.source) == (f"$.notes.{place}", "from")


# --- checkpoints -------------------------------------------------------------------------------------------------


def positions_plainly(solution: Solution) -> dict[str, tuple[int, int]]:
    timeline, liveness = solution.liveness.timeline, solution.liveness
    nodes = timeline.graph.nodes
    found = {}
    for step, number in enumerate(timeline.node_at.tolist()):
        for k, name in enumerate(nodes[number].outputs if number >= 0 else timeline.graph.inputs):
            found[name] = (step, k)
    lived = [i for i, birth in zip(timeline.index.tensor_ids, liveness.birth.tolist(), strict=True) if birth >= 0]
    rest = sorted(set(lived) - set(found))
    return found | {name: (-1, k) for k, name in enumerate(rest)}


def test_rows_stand_by_who_makes_them_and_lie_in_slots() -> None:
    two = graph(
        [tensor("b"), tensor("a"), tensor("w", role="parameter"), tensor("v", role="parameter"), tensor("unused")],
        [node("n0", "w v", "b a")],
        gives="a b",
    )
    met = set()
    odd = [(case.graph, case.arguments()) for case in map(drawn, range(30))]
    for given, options in ((two, {}), (chain(3), {}), (views_graph(), {}), *odd):
        try:
            solution = plan_graph(given, **options)
        except ContractError:
            continue
        plan = solution.plan
        assert verify_plan(plan).ok
        found = checkpoint.positions(solution.liveness)
        wanted = positions_plainly(solution)
        assert {name: found[name] for name in plan.tensor_ids} == {name: wanted[name] for name in plan.tensor_ids}
        data = checkpoint.checkpoint(plan, solution.liveness)
        body = cbor2.loads(data)["body"]
        rows = {(row.arena, row.logical_slot): plan.size[0] for row in plan.rows()}
        starts = {key: min(r.offset_bytes for r in plan.rows() if (r.arena, r.logical_slot) == key) for key in rows}
        table = {(arena, slot): offset for arena, slot, offset in body["logical_address_table"]}
        assert table == starts
        for row in body["rows"]:
            own = plan.row(plan.row_of[row[2]])
            assert (row[0], row[1]) == wanted[row[2]]
            assert row[6] == own.offset_bytes - starts[own.arena, own.logical_slot]
            met.add((row[0] >= 0, row[1] > 0, row[6] > 0))
        assert list(checkpoint.restore(data).rows()) == list(plan.rows())
        assert checkpoint.rows_in_order(data) == [(row[0], row[1], row[2]) for row in body["rows"]]
    assert len(met) > 3


def damaged(change: Any) -> bytes:
    solution = plan_graph(chain(2))
    whole = cbor2.loads(checkpoint.checkpoint(solution.plan, solution.liveness))
    change(whole)
    if whole["digest"] == "anew":
        whole["digest"] = H(whole["body"])
    return cbor2.dumps(whole)


def put(*path: Any, value: Any, anew: bool = True) -> Any:
    def change(whole: Any) -> None:
        if anew:
            whole["digest"] = "anew"
        for key in path[:-1]:
            whole = whole[key]
        whole[path[-1]] = value

    return change


NOUGHT = bytes(32)


@pytest.mark.parametrize(
    ("change", "place", "message"),
    [
        (put("schema", value="tmmu_checkpoint/9"), "$.schema", "this is not a checkpoint."),
        (put("schema", value=3), "$.schema", "this is not a checkpoint."),
        (lambda whole: whole.pop("body"), "", "this checkpoint is damaged: KeyError 'body'."),
        (put("body", "rows", value=3), "", "this checkpoint is damaged: ValidationError"),
        (put("body", "rows", 0, 3, value=9), "", "this checkpoint is damaged: KeyError 9."),
        (
            put("body", "head", "execution_order_hash", value=NOUGHT),
            "$.execution_order_hash",
            "says execution_order_hash",
        ),
        (put("body", "head", "layout_hash", value=NOUGHT), "$.layout_hash", f"says layout_hash {NOUGHT.hex()}, its"),
        (put("body", "head", "mode", value="forward"), "$.tmmu_plan_hash", "says tmmu_plan_hash"),
        (put("body", "head", "metrics", value={}, anew=False), "$.digest", "says digest "),
        (put("digest", value=3), "$.digest", "says digest 3, its content gives"),
        (put("digest", value=NOUGHT), "$.digest", f"says digest {NOUGHT.hex()}, its content gives"),
        (lambda whole: whole.update(digest=None), "$.digest", "says digest None, its content gives"),
    ],
)
def test_a_checkpoint_that_was_changed_does_not_restore(change: Any, place: str, message: str) -> None:
    refused = refusal(lambda: checkpoint.restore(damaged(change), "from"))
    assert message in refused.message
    assert (refused.place, refused.source) == (place, "from")
    assert refused.hint


def test_a_checkpoint_is_cbor_that_calls_itself_one() -> None:
    restored = checkpoint.restore(damaged(lambda whole: None), token=plan_graph(chain(2)).plan.replay_token)
    assert restored.layout_hash == plan_graph(chain(2)).plan.layout_hash
    refused = refusal(lambda: checkpoint.restore(damaged(lambda whole: None), "from", token=NOUGHT))
    assert refused.message.endswith(f", not {NOUGHT.hex()}.")
    assert (refused.place, refused.source) == ("$.body.head.replay_token", "from")
    for document, known in (
        ({"schema": "tmmu_checkpoint/1"}, True),
        ({"schema": "tmmu_checkpoint/9"}, True),
        ({"schema": "tmmu_plan/1"}, False),
        ({"schema": 3}, False),
        ({}, False),
    ):
        assert checkpoint.is_checkpoint(cbor2.dumps(document)) == known
        assert not checkpoint.is_checkpoint(msgspec.json.encode(document))
    refused = refusal(lambda: checkpoint.restore(b'{"schema": "tmmu_checkpoint/1"}', "from"))
    assert (refused.message, refused.place) == ("this is not a checkpoint.", "$.schema")


# --- traces ------------------------------------------------------------------------------------------------------


def records(plan: Plan, **options: Any) -> list[Document]:
    return [msgspec.json.decode(line) for line in trace.to_json_lines(plan, **options).splitlines()]


def lines(written: list[Any], gap: str = "\n") -> bytes:
    return gap.join(msgspec.json.encode(record).decode() for record in written).encode()


def read(written: list[Any]) -> trace.Trace:
    return trace.read_trace(lines(written), "from")


def test_a_trace_says_the_plan_whole_or_by_its_hashes() -> None:
    plan = replace(plan_graph(views_graph()).plan, metrics=ledger_plan().metrics)
    named = tuple("pair" if name in ("left", "right") else None for name in plan.tensor_ids)
    plan = replace(plan, alias_group_ids=named)
    again = {"record": "replan", "old": "a"}
    whole, digest = records(plan, replans=[again]), records(plan, digest=True, replans=[again])
    assert [record["record"] for record in digest] == ["allocation_header", "replan", "summary"]
    kinds = ["allocation_header", *["tensor"] * len(plan), *["handoff"] * len(plan.handoffs), "replan", "summary"]
    assert [record["record"] for record in whole] == kinds
    assert (whole[0]["rows"], digest[0]["rows"]) == ("all", "digest")
    assert whole[0]["execution_order"] == list(plan.execution_order) != []
    assert digest[0]["execution_order"] == []
    assert "rows_hash" not in whole[0]
    assert len(digest[0]["rows_hash"]) == 64
    assert {record["tensor_count"] for record in (whole[0], digest[0])} == {len(plan)}
    assert {key for arena in whole[0]["arenas"].values() for key in arena if "witness" in key} == set()
    for record in (whole[-1], digest[-1]):
        assert record["total_logical_slots"] == sum(arena.slots for arena in plan.arenas)
        assert record["peak_bytes_per_arena"] == {arena.name: arena.extent_bytes for arena in plan.arenas}
        assert record["reuse_ratio"] == plan.metrics["memory_reuse_ratio"] == 0.25
        assert record["fragmentation_pct"] == 100 * plan.metrics["internal_fragmentation_ratio"] > 0
    bare = records(replace(plan, metrics={}))[-1]
    assert (bare["reuse_ratio"], bare["fragmentation_pct"]) == (0.0, 0.0)
    for record in whole[1 : 1 + len(plan)]:
        row = plan.row(plan.row_of[record["tensor_id"]])
        assert ("alias_group_id" in record, "base_tensor_uid" in record) == (
            row.alias_group_id is not None,
            row.base_tensor_uid is not None,
        )
        assert record["logical_address"] == [row.arena, row.offset_bytes]
        assert record["live_range"] == [row.birth, row.death]
        assert (record["generation"], record["alignment"]) == (row.generation, row.alignment)
    assert list(read(whole).plan.rows()) == list(plan.rows())
    assert (read(whole).complete, read(digest).complete) == (True, False)
    assert read(whole).replans == read(digest).replans == (again,)


LEDGER = ledger_plan()


def changed(at: int, *path: Any, value: Any, digest: bool = False) -> list[Document]:
    written = records(LEDGER, digest=digest)
    inner: Any = written[at]
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return written


HEADER, *TENSORS, SUMMARY = records(LEDGER)
assert len(TENSORS) == 4


@pytest.mark.parametrize(
    ("written", "place", "message"),
    [
        ([], "", "the trace is empty."),
        ([HEADER], "line 1", "the trace is cut off: it has no summary."),
        ([HEADER, *TENSORS], "line 5", "the trace is cut off: it has no summary."),
        ([HEADER, *TENSORS, SUMMARY, SUMMARY], "line 7", "a record follows the summary."),
        ([SUMMARY], "line 1", 'this is not a trace: its first record is no "allocation_header".'),
        ([[1]], "line 1", 'this is not a trace: its first record is no "allocation_header".'),
        (
            [{**HEADER, "record": "header"}],
            "line 1",
            'this is not a trace: its first record is no "allocation_header".',
        ),
        ([HEADER, [1]], "line 2", "there is no record None."),
        ([HEADER, {"record": "odd"}], "line 2", "there is no record 'odd'."),
        ([HEADER, HEADER], "line 2", "there is no record 'allocation_header'."),
        ([HEADER, {"record": "tensor"}], "line 2", "tensor: Object missing required field `tensor_id`."),
        ([HEADER, {"record": "handoff"}], "line 2", "handoff: Object missing required field `step`."),
        ([HEADER, {**SUMMARY, "notes": 3}], "line 2", "summary: Expected `object`, got `int` - at `$.notes`."),
        ([{**HEADER, "steps": "x"}], "line 1", "allocation_header: Expected `int`, got `str` - at `$.steps`."),
        ([HEADER, *TENSORS[:3], SUMMARY], "line 5", "the header tells of 4 tensors, 3 follow."),
        (
            [HEADER, {**TENSORS[0], "logical_address": ["b", 0]}],
            "line 2",
            f'"{TENSORS[0]["tensor_id"]}" lies in arena, and its address in b.',
        ),
    ],
)
def test_records_of_a_trace_come_in_their_order_and_are_whole(written: list[Any], place: str, message: str) -> None:
    refused = refusal(lambda: read(written))
    assert (refused.message, refused.place, refused.source) == (message, place, "from")


ROWS = "the offsets, sizes or alignments of arena are not those that were written"
HASHES = "the hashes of the rows are not those that were written"
FIGURES = "the figures of arena are not those that were written"
BESIDE = "what is said of the plan beside its rows is not what was written"


@pytest.mark.parametrize(
    ("written", "note"),
    [
        (records(LEDGER), ""),
        (records(LEDGER, digest=True), ""),
        (changed(1, "size", value=7), ROWS),
        (changed(0, "arenas", "arena", "extent_bytes", value=7), FIGURES),
        (changed(0, "preset", value="odd"), BESIDE),
        (changed(-1, "metrics", value={}), BESIDE),
        (changed(4, "bytes", value=7), 'the slot of "d" is said to have 7 bytes, the rows make 100'),
        (changed(4, "bytes", value=None), ""),
        (changed(0, "digests", value=None), ""),
        (changed(0, "preset", value="odd", digest=True), BESIDE),
        (changed(0, "rows_hash", value="00" * 32, digest=True), HASHES),
        (changed(0, "digests", "handoffs", value="00" * 32, digest=True), HASHES),
        (changed(0, "digests", value=None, digest=True), ""),
        (changed(0, "tensor_count", value=9, digest=True), BESIDE),
    ],
)
def test_what_was_changed_in_a_trace_is_noted(written: list[Document], note: str) -> None:
    found = read(written)
    held = written[0]["digests"] is not None
    assert found.plan.notes.get(CHANGED, "") == note
    assert (UNHELD in found.plan.notes) is not held
    assert (found.digests is not None) is held
    both = [{**written[0], "preset": "other"}, *written[1:]]
    beside = note or (BESIDE if held else "")
    assert read(both).plan.notes.get(CHANGED, "") == (BESIDE if "the slot" in beside else beside)


def test_a_slot_that_is_told_otherwise_is_noted_where_nothing_is_held() -> None:
    written = changed(4, "bytes", value=7)
    written[0]["digests"] = None
    plan = read(written).plan
    assert plan.notes[CHANGED] == 'the slot of "d" is said to have 7 bytes, the rows make 100'
    assert UNHELD in plan.notes


def test_a_digest_without_the_hash_of_its_hashes_is_held_by_its_head() -> None:
    written = records(LEDGER, digest=True)
    del written[0]["rows_hash"]
    assert read(written).plan.notes[CHANGED] == BESIDE


def test_lines_of_a_trace_may_stand_apart_and_each_is_json() -> None:
    whole = lines([HEADER, *TENSORS, SUMMARY], "\n \r\n")
    assert len(trace.read_trace(b"\xef\xbb\xbf" + whole + b"\n\n").plan) == 4
    first = msgspec.json.encode(HEADER)
    for line, message, place in (
        (b"{", "this line is not JSON: Input data was truncated.", "line 3"),
        (b'{"a": "\xff"}', "this line is not JSON: ", "line 3"),
        (b'{"a": ' + b"9" * 30 + b"}", f"{'9' * 30} takes more than 64 bits.", "$.a"),
        (b'{"record": "replan", "record": "replan"}', "an object says this key twice.", "$.record"),
    ):
        refused = refusal(lambda: trace.read_trace(first + b"\n\n" + line + b"\n", "from"))  # noqa: B023
        assert refused.message.startswith(message)
        assert refused.source == "from"
        assert refused.place == place
    packed = trace.to_cbor_sequence(LEDGER)
    assert list(trace.read_trace(packed).plan.rows()) == list(LEDGER.rows())
    at = len(cbor2.dumps(HEADER))
    refused = refusal(lambda: trace.read_trace(packed[:at] + b"\x1f", "from"))
    assert (refused.place, refused.source) == (f"byte {at}", "from")
    assert refused.message.startswith("this record is not CBOR: ")


def test_a_trace_is_known_by_its_first_record() -> None:
    for first, known in ((HEADER, True), ({"record": "allocation_header"}, True), (SUMMARY, False), ({}, False)):
        for data in (lines([first, HEADER]), cbor2.dumps(first) + cbor2.dumps(HEADER)):
            assert trace.is_trace(data) is known
    assert not trace.is_trace(b"")
    assert not trace.is_trace(b"\n[1]")
