"""The content hash of plan files and traces, and the tensors' hash that digests are compared by."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from tests.plans.examples import chain_plan
from tests.support.build import graph, node, tensor
from tmmu_core.formats.planfile import plan_file
from tmmu_core.formats.planfile.compare_plans import compare
from tmmu_core.formats.planfile.trace import Trace, read_trace, to_cbor_sequence, to_json_lines
from tmmu_core.graph.model import Graph
from tmmu_core.judge.verifier.finished_plan import verify_finished
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.plans.making.engine import plan_graph
from tmmu_core.plans.model import CHANGED, Plan

Document = dict[str, Any]


def digest(plan: Plan) -> Trace:
    return read_trace(to_json_lines(plan, digest=True))


def document_of(plan: Plan) -> Document:
    found: Document = msgspec.json.decode(plan_file.to_json(plan))
    return found


def read_document(document: Document) -> Plan:
    return plan_file.from_document(msgspec.json.encode(document))


def records_of(plan: Plan, *, digest: bool = False) -> list[Document]:
    return [msgspec.json.decode(line) for line in to_json_lines(plan, digest=digest).splitlines()]


def read_records(records: list[Document]) -> Trace:
    return read_trace(b"\n".join(map(msgspec.json.encode, records)))


def training() -> Graph:
    """Return a training step in which ``h`` is saved for the backward pass."""
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


def test_plan_file_has_one_content_hash_and_the_hashes_of_the_contract() -> None:
    hashes = {key for key in document_of(chain_plan()) if key.endswith(("_hash", "digests"))}
    contract = {"ir_hash", "shard_spec_hash", "arena_config_hash", "execution_order_hash", "tmmu_plan_hash"}
    assert hashes == contract | {"layout_hash", "content_hash"}


@pytest.mark.parametrize(
    "edit",
    [
        lambda d: d["tensors"][0].update(death=99),
        lambda d: d["tensors"][0].update(role="output"),
        lambda d: d["tensors"][0].update(dtype="int8"),
        lambda d: d["tensors"][0].update(shape=[3]),
        lambda d: d["handoffs"].pop(0),
        lambda d: d["arenas"]["activations"].update(witness=[]),
        lambda d: d["planner_options"].update(budget=1),
        lambda d: d.update(preset="train_full"),
        lambda d: d["metrics"].update(allocation_failures=1),
        lambda d: d.update(content_hash="0" * 64),
        lambda d: d.update(content_hash=""),
    ],
)
def test_edit_of_a_plan_file_breaks_its_content_hash(edit: Callable[[Document], Any]) -> None:
    document = document_of(chain_plan(3, planner="greedy"))
    assert CHANGED not in read_document(document).notes
    edit(document)
    plan = read_document(document)
    assert plan.notes[CHANGED] == "its content hash does not match its content"
    assert not verify_plan(plan).ok


@pytest.mark.parametrize("key", ["tensors_hash", "content_hash"])
@pytest.mark.parametrize("value", ["0" * 64, ""])
def test_edited_hash_of_a_digest_is_an_error(key: str, value: str) -> None:
    records = records_of(chain_plan(), digest=True)
    records[0][key] = value
    plan = read_records(records).plan
    assert "content hash" in plan.remark(CHANGED)
    assert not verify_finished(plan, complete=False).verdict.ok


@pytest.mark.parametrize("is_digest", [False, True])
@pytest.mark.parametrize(
    "edit",
    [
        lambda r: r[0]["arenas"]["activations"].update(witness_step=3),
        lambda r: r[0].update(mode="forward"),
        lambda r: r[-1]["metrics"].update(allocation_failures=1),
        lambda r: r.insert(-1, {"record": "replan"}),
    ],
)
def test_edit_of_a_trace_outside_its_tensors_breaks_its_content_hash(
    edit: Callable[[list[Document]], Any], is_digest: bool
) -> None:
    records = records_of(chain_plan(), digest=is_digest)
    assert read_records(records).plan.remark(CHANGED) == ""
    edit(records)
    assert "content hash" in read_records(records).plan.remark(CHANGED)


@pytest.mark.parametrize("kind", ["plan", "trace", "digest"])
@pytest.mark.parametrize("older", [False, True])
def test_file_without_content_hash_is_read_with_a_warning(kind: str, older: bool) -> None:
    """Older versions wrote hashes per arena under ``digests``."""
    plan, records = chain_plan(), []
    document = document_of(plan)
    if kind != "plan":
        records = records_of(plan, digest=kind == "digest")
        document = records[0]
        document.pop("tensors_hash", None)
    del document["content_hash"]
    if older:
        document["digests"] = {"arenas": {"activations": {"ranges": "0" * 64}}, "handoffs": "0" * 64, "head": "0" * 64}
    found = read_records(records).plan if records else read_document(document)
    verdict = verify_finished(found, complete=kind != "digest").verdict
    assert (verdict.ok, *((f.rule, f.severity) for f in verdict.findings)) == (True, ("content_hash", "warning"))


def test_digest_and_plan_are_identical_in_every_encoding() -> None:
    plan = chain_plan()
    whole, short = read_trace(to_json_lines(plan)), read_trace(to_cbor_sequence(plan, digest=True))
    for a, b in ((plan, short), (short, whole), (short, short), (whole, plan)):
        assert compare(a, b).identical


def test_digests_of_one_layout_differ_in_live_ranges_alone() -> None:
    """With a slot for each storage, the layout does not depend on live ranges, in which alone the presets differ."""
    kept = plan_graph(training(), mode="forward", preset="train_full", planner="naive").plan
    dropped = plan_graph(training(), mode="forward", preset="inference", planner="naive").plan
    assert kept.layout_hash == dropped.layout_hash
    found = compare(digest(kept), digest(dropped))
    assert not found.identical
    assert "$.tensors_hash" in {d.path for d in found.divergences}


def test_digest_of_an_older_version_is_not_comparable() -> None:
    records = records_of(chain_plan(), digest=True)
    del records[0]["tensors_hash"]
    found = compare(read_records(records), chain_plan())
    assert not found.identical
    assert [d.path for d in found.incomparable] == ["$.tensors_hash"]


def test_verifier_counts_activation_bytes_from_the_rows() -> None:
    plan = plan_graph(training()).plan
    more = replace(plan, metrics={**plan.metrics, "activation_bytes": plan.metrics["activation_bytes"] + 8})
    assert "activation_bytes" in verify_plan(more).errors[0].message
