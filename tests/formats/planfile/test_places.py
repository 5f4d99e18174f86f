"""Every file states whether a plan places slots, bytes or hashed addresses; without the key it is derived."""

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from tests.judge.faults import changed, refigured, rehashed
from tests.plans.examples import chain_plan, views_graph
from tmmu_core.base.errors import UnreadableInput
from tmmu_core.formats.planfile import plan_file, trace
from tmmu_core.formats.planfile.plan_file import checkpoint, restore
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.plans.making.engine import plan_graph
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


def test_derived_placement_has_a_warning() -> None:
    plan = without_the_key(chain_plan())
    assert plan.notes[PLACES_DERIVED] == "slots does so"
    assert [warning.rule for warning in verify_plan(plan).warnings] == ["places", "content_hash"]
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
    assert "numbering" in {each.rule for each in verify_plan(without_the_key(turned, planner="unheard of")).errors}


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
    assert {"bounds", "slot_offset", "numbering"} == set(dict(verdict.not_checked))
    alone = plan.row_of["w"]
    moved = rehashed(changed(plan, "offset", alone, int(plan.offset[alone]) ^ 128))
    assert {finding.rule for finding in verify_plan(moved).errors} == {"sparse_address"}
