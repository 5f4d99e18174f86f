"""Lower bounds: each is proven by its witness."""

import numpy as np
import pytest
from hypothesis import given, settings

from tests.planners.packings import live_steps, problem, problems, smallest_extent
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.planners.bounds import Bound, lower_bound, on_grid
from tmmu_core.planners.problem import Problem
from tmmu_core.plans.making.instance import plan_problem


def test_bound_is_the_peak_and_its_witness_the_live_storages() -> None:
    bound = lower_bound(problem((0, 2, 8), (1, 3, 5), (2, 4, 4)))
    assert (bound.bytes, bound.witness, bound.step, bound.rule) == (13, (0, 1), 1, "live")


def test_all_but_the_topmost_storage_are_padded_to_the_grid() -> None:
    assert on_grid([(10, 8), (9, 8), (16, 8)]) == 16 + 16 + 16 - 7


def test_few_storages_on_a_coarse_grid_bind_more_than_many_on_a_fine_one() -> None:
    assert lower_bound(problem(*[(0, 1, 1)] * 4, alignment=[64, 64, 64, 1])).bytes == 129


def test_handoff_that_cannot_be_taken_holds_both_at_the_writing_step() -> None:
    apart = {"handoff_from": np.array([-1, 0]), "must_not_alias": np.array([[0, 1]])}
    bound = lower_bound(problem((0, 2, 6), (2, 4, 8), **apart))
    assert (bound.bytes, bound.witness, bound.rule) == (14, (0, 1), "handoff")


def test_must_not_alias_pair_counts_across_time() -> None:
    bound = lower_bound(problem((0, 1, 8), (5, 6, 7), must_not_alias=np.array([[0, 1]])))
    assert (bound.bytes, bound.witness, bound.rule) == (15, (0, 1), "never_alias")


@pytest.mark.parametrize(("gap", "step"), [((2, 3), 1), ((1, 2), 2), ((1, 4), -1)])
def test_fixed_end_is_witnessed_at_its_first_live_step(gap: tuple[int, int], step: int) -> None:
    p = problem((1, 4, 8), (0, 4, 4), fixed=np.array([-1, 16]), gaps=((), (gap,)))
    assert lower_bound(p) == Bound(24, (1,), step, "fixed", 12 if step >= 0 else 4)
    if step >= 0:
        assert verify_plan(plan_problem(p, planner="greedy")).ok


@settings(deadline=None)
@given(problems(most=5))
def test_no_packing_is_below_the_bound(p: Problem) -> None:
    assert lower_bound(p).bytes <= smallest_extent(p)


@given(problems(odd=False))
def test_max_live_is_the_largest_sum_over_steps(p: Problem) -> None:
    sizes = [int(x) for x in p.size]
    most = max((sum(sizes[i] for i in range(len(p)) if t in live_steps(p, i)) for t in range(10)), default=0)
    assert lower_bound(p).max_live == most
