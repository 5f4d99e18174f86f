"""The planner slots on small problems, its invariant, and the limits of 64 bits."""

import numpy as np
import pytest
from hypothesis import given

from tests.planners.packings import live_steps, problem, problem_with, problems
from tmmu_core.base.errors import AllocationOverflow, InvalidIrShapes
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.planners import ARENA_PLANNERS, PLANNERS
from tmmu_core.planners.problem import PlainInstance, Problem
from tmmu_core.planners.slots import assign_slots, plan_naive, plan_slots, slot_sizes
from tmmu_core.plans.making.make import make_plan
from tmmu_core.plans.making.request import PlanRequest

HALF = 2**63


def test_lowest_slot_that_is_free_at_birth_is_taken_whatever_its_size() -> None:
    assert assign_slots(problem((0, 2, 8), (2, 4, 8), (4, 5, 8))).tolist() == [0, 0, 0]
    p = problem((0, 1, 64), (0, 2, 32), (1, 3, 8), (2, 3, 32), alignment=[1, 1, 8, 2])
    assert assign_slots(p).tolist() == [0, 1, 0, 1]
    assert [column.tolist() for column in slot_sizes(p, assign_slots(p))] == [[64, 32], [8, 2]]


def test_slots_are_adjacent_and_aligned() -> None:
    p = problem((0, 2, 10), (0, 2, 7), (0, 2, 5), alignment=[1, 16, 4])
    packing = plan_slots(p, {})
    assert packing.offset.tolist() == [0, 16, 24]
    assert packing.slot is not None
    assert packing.slot.tolist() == [0, 1, 2]
    assert plan_slots(problem((0, 2, 0), (0, 2, 0)), {}).offset.tolist() == [0, 1]  # an empty storage takes a byte


def test_naive_gives_every_storage_a_slot() -> None:
    packing = plan_naive(problem((0, 1, 8), (1, 2, 8)), {})
    assert packing.slot is not None
    assert (packing.slot.tolist(), packing.offset.tolist()) == ([0, 1], [0, 8])


@given(problems(odd=False))
def test_number_of_slots_is_the_maximum_of_live_storages(p: Problem) -> None:
    steps = range(int(p.death.max(initial=0)))
    live = max((sum(step in live_steps(p, i) for i in range(len(p))) for step in steps), default=0)
    assert int(assign_slots(p).max(initial=-1)) + 1 == live


@pytest.mark.parametrize("name", ["slots", "naive"])
def test_end_past_64_bits_overflows_and_names_the_slot(name: str) -> None:
    p = problem((0, 2, HALF), (0, 2, HALF))
    with pytest.raises(AllocationOverflow, match="slot 1 of arena 'arena'") as refused:
        PLANNERS[name].pack(p, {}, None)
    assert refused.value.record()["numeric_code"] == 1303
    assert refused.value.diagnostics["offset"] == HALF


@pytest.mark.parametrize("name", ["slots", "naive", "exact", "greedy", "ffd"])
def test_overflow_names_an_alignment_above_all_sizes(name: str) -> None:
    p = problem(*[(0, 2, 8)] * 3, alignment=[2**63] * 3)
    with pytest.raises(AllocationOverflow) as refused:
        ARENA_PLANNERS[name].pack(p, ARENA_PLANNERS[name].checked_options({}), None)
    assert "Lower the alignment of 9,223,372,036,854,775,808 B" in refused.value.hint


@pytest.mark.parametrize("name", ["slots", "naive"])
def test_fixed_offset_is_kept_or_rejected(name: str) -> None:
    entry = ARENA_PLANNERS[name]
    p = problem((0, 2, 8), (0, 2, 8), fixed=np.array([-1, 8]))
    assert entry.pack(p, {}, None).offset.tolist() == [0, 8]
    with pytest.raises(InvalidIrShapes, match=r" 8,.* 24") as caught:
        entry.pack(problem_with(p, fixed=np.array([-1, 24])), {}, None)
    assert caught.value.diagnostics["reason"] == "fixed_offset"
    with pytest.raises(InvalidIrShapes):
        entry.pack(problem_with(p, fixed=np.array([8, -1])), {}, None)


def test_instance_with_some_offsets_is_planned_around_them() -> None:
    instance = PlainInstance("", problem((0, 2, 100), (1, 3, 100), fixed=np.array([200, -1])))
    made = make_plan(instance, PlanRequest())
    assert (made.request.planner, made.plan.offset.tolist()) == ("greedy", [200, 0])
    assert verify_plan(made.plan).ok
