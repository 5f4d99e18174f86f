"""A plan over its limits is returned on request, with the limits that it exceeds."""

import json
from typing import Any

import pytest

from tests.support.build import chain
from tests.support.paths import SAMPLES, read_graph_file
from tmmu_core.base.errors import AllocationFailure, ArenaTooSmall, ContractError, InvalidIrShapes
from tmmu_core.formats.open_file import read_any, read_graph
from tmmu_core.judge.canonical_hashes import ir_hash
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.planners.problem import PlainInstance
from tmmu_core.plans.making import plan_rows
from tmmu_core.plans.making.engine import plan_graph
from tmmu_core.plans.making.make import make_plan
from tmmu_core.plans.making.plan_sets import plan_ranks
from tmmu_core.plans.making.request import PlanRequest

MIXED = read_graph_file(SAMPLES / "mixed_sizes.tmmu.json")


def test_plan_over_its_capacity_keeps_it_and_has_a_finding() -> None:
    request = PlanRequest(capacities={"activations": 1024})
    with pytest.raises(ArenaTooSmall):
        make_plan(MIXED, request)
    plan = make_plan(MIXED, request, over_limits=True).plan
    arena = plan.arena_of["activations"]
    assert arena.capacity_bytes == 1024 < arena.extent_bytes
    assert {finding.rule for finding in verify_plan(plan, MIXED).findings} == {"capacity"}


def test_instance_over_its_capacity_is_planned() -> None:
    found = read_any((SAMPLES / "instances" / "iree_first.csv").read_bytes(), "iree_first.csv")
    assert isinstance(found, PlainInstance)
    plan = make_plan(found, PlanRequest(planner="greedy", capacities={"arena": 64}), over_limits=True).plan
    assert plan.arenas[0].capacity_bytes == 64
    assert {finding.rule for finding in verify_plan(plan).findings} == {"capacity"}


SHARED = {"mesh": {"tp": 2}, "contracts": {"parameters": {"axis": 0, "mesh": "tp"}}}


@pytest.mark.parametrize("limit", [{"capacities": {"activations": 1024}}, {"budget": 1, "addressing": "blake3_sparse"}])
def test_ranks_over_a_limit_equal_ranks_planned_alone(limit: dict[str, Any]) -> None:
    request = PlanRequest(shard_spec=SHARED, **limit)
    with pytest.raises((ArenaTooSmall, AllocationFailure)):
        plan_ranks(MIXED, request)
    ranks = plan_ranks(MIXED, request, over_limits=True)
    for rank in range(2):
        alone = make_plan(MIXED, request.but(rank=rank), over_limits=True).plan
        assert ranks.plan(rank).tmmu_plan_hash == ranks.plan_hashes[rank] == alone.tmmu_plan_hash
        assert ranks.plan(rank).arenas == alone.arenas


def test_ranks_that_fit_are_unchanged() -> None:
    request = PlanRequest(shard_spec=SHARED, capacities={"activations": 2**30})
    assert plan_ranks(MIXED, request, over_limits=True).plan_hashes == plan_ranks(MIXED, request).plan_hashes


def test_undeclared_arena_is_rejected() -> None:
    with pytest.raises(ArenaTooSmall):
        make_plan(chain(3), PlanRequest(arenas={"elsewhere": {}}), over_limits=True)
    with pytest.raises(ArenaTooSmall):
        plan_ranks(chain(3), PlanRequest(arenas={"elsewhere": {}}, shard_spec=SHARED), over_limits=True)


def test_tensor_that_fits_no_memory_is_rejected() -> None:
    memories = PlanRequest(planner="helia", arenas={"SRAM": {"capacity_bytes": 8}})
    with pytest.raises(ArenaTooSmall, match=r"scratch|SRAM"):
        make_plan(chain(3), memories, over_limits=True)


def test_budget_that_is_met_exactly_passes() -> None:
    needed = sum(arena.extent_bytes for arena in make_plan(MIXED, PlanRequest()).plan.arenas)
    assert make_plan(MIXED, PlanRequest(budget=needed)).plan.arenas
    with pytest.raises(AllocationFailure) as caught:
        make_plan(MIXED, PlanRequest(budget=needed - 1))
    assert caught.value.diagnostics["memory_bytes_budget"] == needed - 1


FIVE = b"id,lower,upper,size\na,0,3,4\nb,3,9,4\nc,0,9,4\nd,9,21,4\ne,0,21,4\n"
"""12 bytes are alive at most, and can be had."""


@pytest.mark.parametrize(
    ("capacity", "tried_up_to", "other", "says"),
    [
        (11, 5, "no", "No plan fits: at least 12 B"),
        (12, 5, "portfolio", "It fits with --planner portfolio."),
        (12, 4, "unknown", "12 B, so another plan may fit: try --planner exact"),
    ],
)
def test_arena_too_small_names_what_would_fit(
    monkeypatch: pytest.MonkeyPatch, capacity: int, tried_up_to: int, other: str, says: str
) -> None:
    monkeypatch.setattr(plan_rows, "ALTERNATIVE_UP_TO", tried_up_to)
    found = read_any(FIVE, "five.csv")
    assert isinstance(found, PlainInstance)
    with pytest.raises(ArenaTooSmall) as caught:
        make_plan(found, PlanRequest(planner="naive", capacities={"arena": capacity}))
    assert caught.value.diagnostics["another_planner_would_fit"] == other
    assert says in caught.value.hint


def test_plan_of_a_rank_names_the_graph_it_was_cut_from() -> None:
    assert make_plan(chain(2), PlanRequest()).whole_hash is None
    cut = make_plan(chain(2), PlanRequest(shard_spec={}, rank=0, world_size=1))
    assert cut.whole_hash == cut.plan.ir_hash == ir_hash(chain(2))


def test_instance_without_offsets_has_no_given_plan() -> None:
    found = read_any(FIVE, "five.csv")
    assert isinstance(found, PlainInstance)
    with pytest.raises(InvalidIrShapes, match="given"):
        make_plan(found, PlanRequest(planner="given"))


HUGE = 1 << 62


def document(*tensors: dict[str, Any]) -> bytes:
    rows = [{"shape": [4], "dtype": "float32", **tensor} for tensor in tensors]
    nodes = [{"node_id": "n", "inputs": ["x"], "outputs": ["y"]}]
    return json.dumps({"tensors": rows, "nodes": nodes, "inputs": ["x"], "outputs": ["y"]}).encode()


def view(base: str, offset: int) -> dict[str, Any]:
    return {"base_tensor_uid": base, "byte_offset": offset, "byte_length": 4, "stride_desc": [1]}


@pytest.mark.parametrize(
    ("tensors", "arena"),
    [
        (({"id": "x", "role": "input"}, {"id": "y", "shape": [HUGE]}), "activations"),
        (({"id": "x", "role": "parameter", "shape": [HUGE]}, {"id": "y"}), "parameters"),
        (({"id": "x", "role": "input"}, {"id": "y", "shape": [HUGE], "arena": "sram"}), "sram"),
        (
            (
                {"id": "x", "role": "input", "arena": "sram"},
                {"id": "y", "shape": [1], "alignment": 16, "view": view("x", 4)},
            ),
            "sram",
        ),
    ],
)
def test_record_names_the_arena_of_the_tensor(tensors: tuple[dict[str, Any], ...], arena: str) -> None:
    with pytest.raises(ContractError) as refused:
        plan_graph(read_graph(document(*tensors)), arenas={"sram": {}, "activations": {}, "parameters": {}})
    assert refused.value.record()["diagnostics"]["arena"] == arena
