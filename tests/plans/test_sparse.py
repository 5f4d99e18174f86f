from dataclasses import replace

import pytest
from blake3 import blake3

from tests.plans.examples import chain_plan, views_graph
from tmmu_core.base.errors import AddressCollision, InvalidIrShapes
from tmmu_core.formats.planfile.plan_file import checkpoint, from_document, restore, to_cbor, to_json
from tmmu_core.formats.planfile.trace import read_trace, to_json_lines
from tmmu_core.judge.lint import lint_verdict
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.plans.analysis.waste_ledger import explain_peak
from tmmu_core.plans.canonical import plan_digests
from tmmu_core.plans.making.engine import plan_graph
from tmmu_core.plans.making.make import make_plan
from tmmu_core.plans.making.plan_sets import plan_ranks
from tmmu_core.plans.making.request import PlanRequest
from tmmu_core.plans.making.request_options import OPTION_SPECS
from tmmu_core.plans.making.sparse_addresses import in_memory, sparse_address, with_sparse_addresses
from tmmu_core.runtime.apply import apply_plan

TOKEN = bytes(range(32))


def test_address_is_the_first_bits_of_the_drafts_hash() -> None:
    digest = blake3(TOKEN + b"tmmu_va" + "é".encode() + (5).to_bytes(8, "big")).digest()
    assert sparse_address(TOKEN, "é", 5) == int.from_bytes(digest[:8], "big")
    assert sparse_address(TOKEN, "é", 5, bits=12) == int.from_bytes(digest[:2], "big") >> 4


def test_slots_stay_and_both_hashes_follow_the_addresses() -> None:
    plan = plan_graph(views_graph()).plan
    sparse = with_sparse_addresses(plan)
    assert (sparse.logical_slot == plan.logical_slot).all()
    assert sparse.layout_hash != plan.layout_hash
    assert plan_digests(sparse) == (sparse.tmmu_plan_hash, sparse.layout_hash)
    assert sparse.places == "sparse"
    assert plan.places == "slots"


def test_view_stays_inside_its_base() -> None:
    sparse = with_sparse_addresses(plan_graph(views_graph()).plan)
    offsets = {row.tensor_id: row.offset_bytes for row in sparse.rows()}
    assert offsets["left"] == offsets["h"]
    assert offsets["right"] == offsets["h"] + 16


def test_addresses_depend_on_the_token() -> None:
    one, other = (with_sparse_addresses(chain_plan(seed=seed)) for seed in (1, 2))
    assert one.layout_hash != other.layout_hash


def test_collision_of_short_addresses_is_raised() -> None:
    with pytest.raises(AddressCollision) as refused:
        with_sparse_addresses(chain_plan(4, planner="naive"), bits=8)
    record = refused.value.record()
    assert (record["numeric_code"], record["severity"]) == (1307, "FATAL")
    assert {"arena", "logical_slot"} <= set(record["diagnostics"])


def test_slots_in_memory_have_the_offsets_of_the_contract() -> None:
    plan = plan_graph(views_graph()).plan
    placed = in_memory(with_sparse_addresses(plan))
    assert placed.offset.tolist() == plan.offset.tolist()
    assert in_memory(plan) is plan


def test_size_of_a_draft_plan_is_explained_in_memory() -> None:
    plan = chain_plan(4, planner="naive")
    assert str(explain_peak(with_sparse_addresses(plan))) == str(explain_peak(plan))


def test_draft_plan_is_verified_linted_and_applied() -> None:
    solution = plan_graph(views_graph())
    sparse = with_sparse_addresses(solution.plan)
    assert verify_plan(sparse, views_graph()).ok
    assert lint_verdict(sparse, views_graph()).ok
    applied = apply_plan(sparse)
    row, address = applied.tensor_map()["right"]
    assert row.offset_bytes == int(sparse.offset[sparse.row_of["right"]])
    assert address == applied.pointer("h") + 16
    assert applied.enter(0) == 32
    applied.debug_fill("h", 1)
    assert applied.array("left").any()


DRAFTS = bytes(range(64)) + b"and more"


@pytest.mark.parametrize("token", [DRAFTS, DRAFTS[:64]], ids=["72 bytes", "64 bytes, the least"])
def test_token_of_the_drafts_length_is_kept_by_every_file(token: bytes) -> None:
    graph = views_graph()
    made = make_plan(graph, PlanRequest(token=token, addressing="blake3_sparse"))
    assert verify_plan(made.plan, graph).ok
    assert lint_verdict(made.plan, graph).ok
    for again in (
        from_document(to_json(made.plan)),
        from_document(to_cbor(made.plan)),
        read_trace(to_json_lines(made.plan)).plan,
    ):
        assert again.replay_token == token
        assert verify_plan(again, graph).ok
    assert made.solution is not None
    assert restore(checkpoint(made.plan, made.solution.liveness)).replay_token == token


def test_token_of_the_drafts_length_is_rejected_for_offsets() -> None:
    for planned in (make_plan, plan_ranks):
        with pytest.raises(InvalidIrShapes, match="blake3_sparse"):
            planned(views_graph(), PlanRequest(token=DRAFTS))
    plan = replace(plan_graph(views_graph()).plan, replay_token=DRAFTS)
    assert "replay_token has 72 bytes, not 32." in [finding.message for finding in verify_plan(plan).errors]
    assert OPTION_SPECS["token"].read(DRAFTS.hex()) == DRAFTS
    with pytest.raises(ValueError, match="128 or more"):
        OPTION_SPECS["token"].read("00" * 63)


def test_planner_without_slots_has_no_hashed_addresses() -> None:
    with pytest.raises(InvalidIrShapes, match="'greedy'"):
        make_plan(views_graph(), PlanRequest(planner="greedy", addressing="blake3_sparse"))


def test_debug_fill_writes_the_drafts_pattern() -> None:
    plan = with_sparse_addresses(plan_graph(views_graph(), token=TOKEN).plan)
    applied = apply_plan(plan)
    applied.debug_fill("h", 7)
    address = int(plan.offset[plan.row_of["h"]])
    expected = blake3(TOKEN + b"tmmu_fill" + address.to_bytes(8, "big") + (7).to_bytes(8, "big"))
    assert applied.array("h").tobytes() == expected.digest(length=len(applied.array("h")))
