"""Why a storage has its offset, what another offset would change, and where two plans differ first."""

import pytest
from hypothesis import given

import tmmu
from tests.support.build import chain, graph, node, tensor
from tests.support.strategies import Case, plannable_cases
from tmmu_core.graph.model import Graph
from tmmu_core.plans.analysis.why_offset import explain_offset, first_different_placement, placed_in
from tmmu_core.plans.figures.live_bytes import storages_of
from tmmu_core.plans.making.engine import Solution, plan_graph

ARENAS = {"activations": {"alignment_bytes": 1}, "parameters": {}}


def three() -> Graph:
    """Return a plan: ``x`` (16 B) is live in [0, 2), ``a`` (64 B) [1, 3), ``b`` (32 B) [2, 4), ``y`` (16 B) [3, 4)."""
    tensors = [tensor("x", 4, role="input"), tensor("a", 16), tensor("b", 8), tensor("y", 4)]
    nodes = [
        node("n0", "x", "a", inplace="none"),
        node("n1", "a", "b", inplace="none"),
        node("n2", "b", "y", inplace="none"),
    ]
    return graph(tensors, nodes, "x", "y")


def solved(planner: str, which: Graph | None = None) -> Solution:
    return plan_graph(which or three(), planner=planner, arenas=ARENAS, preset="inference", mode="inference")


def test_slot_is_as_large_as_its_largest_tenant() -> None:
    plan = solved("slots").plan
    why = explain_offset(plan, "x")
    assert why.slot is not None
    assert (plan.tensor_ids[why.slot.largest], why.slot.backing) == ("b", 32)
    assert why.slot.occupied_below == ()
    of_a = explain_offset(plan, "a").slot
    assert of_a is not None
    assert [(slot, plan.tensor_ids[row]) for slot, row in of_a.occupied_below] == [(0, "x")]
    assert (of_a.slot, of_a.backing) == (1, 64)


def test_lower_offsets_are_blocked_by_storages_placed_before() -> None:
    solution = solved("greedy")
    plan = solution.plan
    placed = placed_in(plan, "activations", solution.problems)
    ids = [plan.tensor_ids[storages_of(plan).head[i]] for i in placed.storages]
    assert (ids, placed.by, placed.fit, placed.is_known) == (["a", "b", "x", "y"], "size", "lowest", True)
    why = explain_offset(plan, "b", placed.storages)
    assert (why.position, why.storages, why.offset) == (1, 4, 64)
    assert [(plan.tensor_ids[b.row], b.start, b.end, b.step) for b in why.blockers] == [("a", 0, 64, 2)]
    assert (why.free_ranges, why.lowest, why.slot) == ((), 64, None)
    first = explain_offset(plan, "a", placed.storages)
    assert (first.blockers, first.lowest) == ((), 0)


def test_placement_order_has_fixed_offsets_first_and_all_live_parts() -> None:
    rows = b"id,lower,upper,size,offset,gaps\na,0,6,4,,2-4\nb,2,4,8,,\nc,0,6,2,0,\n"
    instance = tmmu.read(rows)
    plan = tmmu.plan(rows, planner="greedy")
    placed = placed_in(plan, "arena", instance.problems)
    ids = [plan.tensor_ids[storages_of(plan).head[i]] for i in placed.storages]
    assert (ids, placed.by) == (["c", "b", "a", "a@part1"], "size")
    why = explain_offset(plan, "b", placed.storages)
    assert [(plan.tensor_ids[b.row], b.start, b.end) for b in why.blockers] == [("c", 0, 2)]
    assert explain_offset(plan, "a@part1", placed.storages).position == 3


def test_gap_that_is_too_small_is_listed() -> None:
    plan = solved("naive").plan  # x [0, 16), a [16, 80), b [80, 112), y [112, 128)
    why = explain_offset(plan, "b")
    assert [(b.start, b.end) for b in why.blockers] == [(16, 80)]
    assert why.free_ranges == ((0, 16),)
    assert why.lowest == 80
    assert explain_offset(plan, "y").lowest == 0


def test_first_decision_that_differs_is_found() -> None:
    slots, greedy = solved("slots").plan, solved("greedy").plan
    found = first_different_placement(slots, greedy, "activations")
    assert found is not None
    assert (found.equal_count, found.left, found.right, found.left_offset, found.right_offset) == (0, "x", "x", 0, 64)
    assert found.by == "birth"
    assert first_different_placement(slots, slots, "activations") is None


@pytest.mark.parametrize("planner", ["slots", "naive", "greedy", "portfolio", "search", "exact", "ffd", "auto"])
def test_placement_order_holds_each_storage_once(planner: str) -> None:
    solution = solved(planner, chain(6, floats=8))
    placed = placed_in(solution.plan, "activations", solution.problems)
    assert sorted(placed.storages) == list(range(solution.plan.arena_of["activations"].storages))


@given(plannable_cases())
def test_lowest_free_offset_is_free_and_not_above_the_offset(case: Case) -> None:
    plan = plan_graph(case.graph, planner="greedy", arenas=case.arenas, mode=case.mode, preset=case.preset).plan
    s = storages_of(plan)
    for name in plan.tensor_ids[:6]:
        why = explain_offset(plan, name)
        assert why.lowest <= why.offset
        k, end = plan.storage[why.row], why.lowest + why.size
        is_live = (s.arena == s.arena[k]) & (s.birth < s.death[k]) & (s.death > s.birth[k]) & (s.size > 0)
        is_live[k] = False
        assert not (is_live & (s.offset < end) & (s.offset + s.size > why.lowest)).any() or why.size == 0
