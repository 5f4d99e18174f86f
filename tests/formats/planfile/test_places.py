"""What a plan places (slots, bytes or hashed addresses) is a key of every file; without it, it is derived."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from tests.judge.faults import changed, refigured, rehashed
from tests.plans.examples import chain_plan, problem_of, views_graph
from tmmu_core.base.errors import UnreadableInput
from tmmu_core.formats.planfile import plan_file, trace
from tmmu_core.formats.planfile.checkpoint import checkpoint, restore
from tmmu_core.formats.planfile.plan_builder import Addresses, derived
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.planners.problem import Packing, PlainInstance
from tmmu_core.plans.making.engine import plan_graph
from tmmu_core.plans.making.instance import plan_problem
from tmmu_core.plans.making.sparse_addresses import with_sparse_addresses
from tmmu_core.plans.model import PLACES_DERIVED, Plan


def without_the_key(plan: Plan, **changes: Any) -> Plan:
    document = msgspec.json.decode(plan_file.to_json(plan))
    del document["places"], document["own_arenas"], document["content_hash"]
    return plan_file.from_document(msgspec.json.encode(document | changes))


@pytest.mark.parametrize(
    ("planner", "places"), [("slots", "slots"), ("naive", "slots"), ("greedy", "bytes"), ("helia", "bytes")]
)
def test_file_has_what_its_planner_placed(planner: str, places: str) -> None:
    solution = plan_graph(views_graph(), planner=planner)
    plan = solution.plan
    assert (plan.places, plan.own_arenas) == (places, planner == "helia")
    for read in (
        plan_file.from_document(plan_file.to_json(plan)),
        plan_file.from_document(plan_file.to_cbor(plan)),
        trace.read_trace(trace.to_json_lines(plan)).plan,
        restore(checkpoint(plan, solution.liveness)),
        without_the_key(plan),
    ):
        assert (read.places, read.own_arenas) == (places, planner == "helia")


def test_offsets_of_an_instance_are_bytes() -> None:
    packing = Packing(offset=np.array([0, 128], np.uint64))
    assert plan_problem(PlainInstance("", problem_of(("a", 0, 2, 100), ("b", 1, 3, 64)), packing)).places == "bytes"


def test_derived_placement_has_a_warning() -> None:
    plan = without_the_key(chain_plan())
    assert plan.notes[PLACES_DERIVED] == "slots does so"
    assert [warning.rule for warning in verify_plan(plan).warnings] == ["places", "held"]
    assert verify_plan(plan).ok
    assert verify_plan(chain_plan()).warnings == ()


def test_without_the_key_shared_slots_are_slots() -> None:
    shifted = chain_plan(6, planner="slots")
    top = int(shifted.logical_slot.max())
    for row in np.flatnonzero(shifted.logical_slot == top).tolist():
        shifted = changed(shifted, "offset", row, int(shifted.offset[row]) + 4096)
    found = without_the_key(rehashed(refigured(shifted)), planner="unheard of")
    assert found.places == "slots"
    assert {finding.rule for finding in verify_plan(found).errors} == {"slot_offset"}


def test_without_the_key_slots_numbered_by_offset_are_bytes() -> None:
    found = without_the_key(plan_graph(views_graph(), planner="greedy").plan, planner="unheard of")
    assert found.places == "bytes"
    assert verify_plan(found).ok
    turned = replace(found, logical_slot=found.logical_slot[::-1].copy())
    assert without_the_key(turned, planner="unheard of").places == "slots"


def test_unknown_placement_is_rejected() -> None:
    document = msgspec.json.decode(plan_file.to_json(chain_plan())) | {"places": "pages"}
    with pytest.raises(UnreadableInput, match="slots, bytes, sparse") as refused:
        plan_file.from_document(msgspec.json.encode(document))
    assert refused.value.place == "$.places"


def test_hashed_addresses_are_verified_by_their_own_rules() -> None:
    graph = views_graph()
    plan = with_sparse_addresses(plan_graph(graph).plan)
    verdict = verify_plan(plan, graph)
    assert verdict.ok
    assert "sparse_address" in verdict.checked
    assert {"bounds", "slot_offset", "numbering"} == set(dict(verdict.left_out))
    alone = plan.row_of["w"]
    moved = rehashed(changed(plan, "offset", alone, int(plan.offset[alone]) ^ 128))
    assert {finding.rule for finding in verify_plan(moved).errors} == {"sparse_address"}


@pytest.mark.parametrize(
    ("arena", "slot", "generation", "offset", "places"),
    [
        ((), (), (), (), "bytes"),
        ((0, 0), (0, 1), (0, 0), (0, 64), "bytes"),
        ((0, 0), (0, 1), (0, 0), (64, 64), "bytes"),  # at one place, at different times
        ((0, 0), (0, 1), (0, 0), (64, 0), "slots"),
        ((0, 1), (0, 0), (0, 0), (64, 0), "bytes"),  # each in an arena of its own
        ((0, 0), (0, 0), (0, 1), (0, 0), "slots"),  # a second tenant
        ((0, 0, 0), (0, 0, 1), (0, 0, 0), (64, 0, 32), "bytes"),  # two rows of one storage, which starts at 0
        ((0, 0, 0), (1, 0, 0), (0, 0, 0), (32, 64, 48), "slots"),
    ],
)
def test_placement_of_a_foreign_planner_is_derived_from_the_rows(
    arena: tuple[int, ...], slot: tuple[int, ...], generation: tuple[int, ...], offset: tuple[int, ...], places: str
) -> None:
    whole = [np.array(column, np.int64) for column in (slot, generation, [0] * len(slot))]
    rows = Addresses(arena, whole[0], whole[1], np.array(offset, np.uint64), whole[2])
    found = derived("theirs", {}, rows)
    assert (found.places, found.own_arenas) == (places, False)
    assert ("none with another in one slot" in found.why) is (places == "bytes")
    assert derived("theirs", {"addressing": {"kind": "blake3_sparse"}}, rows)[:2] == ("sparse", False)
    assert derived("theirs", {"addressing": {"kind": "other"}}, rows) == found
    assert derived("theirs", {"addressing": "blake3_sparse"}, rows) == found
    assert [derived(name, {}, rows)[:2] for name in ("slots", "greedy", "helia")] == [
        *(("slots", False), ("bytes", False), ("bytes", True)),
    ]
