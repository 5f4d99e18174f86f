"""Lower bounds: each provable, each with its witness."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.planners.packings import live_steps, problem, problems, smallest_extent
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.planners import bounds
from tmmu_core.planners.bounds import Bound, lower_bound, on_grid, reachable
from tmmu_core.planners.columns import columns
from tmmu_core.planners.problem import Problem
from tmmu_core.plans.making.instance import plan_problem


def test_the_fullest_moment_is_the_bound_and_its_storages_the_witness() -> None:
    bound = lower_bound(problem((0, 2, 8), (1, 3, 5), (2, 4, 4)))
    assert (bound.bytes, bound.witness, bound.step, bound.rule) == (13, (0, 1), 1, "live")


def test_on_a_common_grid_all_but_the_topmost_are_padded() -> None:
    assert on_grid([(10, 8), (9, 8), (16, 8)]) == 16 + 16 + 16 - 7


def test_an_extent_ends_where_a_storage_can_end() -> None:
    cols = columns(problem((0, 2, 10), (1, 3, 70), alignment=64))
    assert [reachable(cols, at) for at in (0, 10, 11, 71, 75)] == [10, 10, 70, 74, 134]


@settings(deadline=None, max_examples=60)
@given(problems(most=5), st.integers(0, 40))
def test_no_packing_ends_between_what_is_asked_and_what_is_reachable(p: Problem, at: int) -> None:
    least = smallest_extent(p)
    if least >= at:
        assert reachable(columns(p), at) <= least


def test_a_coarser_few_can_bind_harder_than_a_finer_many() -> None:
    assert on_grid([(1, 64), (1, 64), (1, 64), (1, 1)]) == 129


def test_a_place_that_cannot_be_passed_on_is_held_at_the_step_of_writing() -> None:
    apart = {"handoff_from": np.array([-1, 0]), "must_not_alias": np.array([[0, 1]])}
    bound = lower_bound(problem((0, 2, 6), (2, 4, 8), **apart))
    assert (bound.bytes, bound.witness, bound.rule) == (14, (0, 1), "handoff")


def test_what_lives_on_after_its_place_was_to_be_passed_on_counts_once() -> None:
    """It is alive when the other is made, so nothing ends there that would count besides."""
    apart = {"handoff_from": np.array([-1, 0]), "must_not_alias": np.array([[0, 1]])}
    bound = lower_bound(problem((0, 3, 6), (2, 4, 8), **apart))
    assert (bound.bytes, bound.witness, bound.rule) == (14, (0, 1), "live")


def test_a_place_can_be_passed_on_to_what_is_larger() -> None:
    assert lower_bound(problem((0, 2, 6), (2, 4, 8), handoff_from=np.array([-1, 0]))).bytes == 8


def test_a_place_that_can_be_passed_on_counts_once() -> None:
    assert lower_bound(problem((0, 2, 8), (2, 4, 6), handoff_from=np.array([-1, 0]))).bytes == 8


def test_what_must_not_alias_counts_when_dead_too() -> None:
    bound = lower_bound(problem((0, 1, 8), (5, 6, 7), must_not_alias=np.array([[0, 1]])))
    assert (bound.bytes, bound.witness, bound.rule) == (15, (0, 1), "never_alias")


def test_a_fixed_end_is_a_bound() -> None:
    bound = lower_bound(problem((0, 1, 8), fixed=np.array([16])))
    assert (bound.bytes, bound.rule) == (24, "fixed")


@pytest.mark.parametrize(("gap", "step"), [((2, 3), 1), ((1, 2), 2), ((1, 4), -1)])
def test_a_fixed_end_is_held_when_it_is_first_held(gap: tuple[int, int], step: int) -> None:
    """And so says a plan of it, which is verified."""
    p = problem((1, 4, 8), (0, 4, 4), fixed=np.array([-1, 16]), gaps=((), (gap,)))
    assert lower_bound(p) == Bound(24, (1,), step, "fixed", 12 if step >= 0 else 4)
    if step >= 0:
        assert verify_plan(plan_problem(p, planner="greedy")).ok


def test_nothing_needs_nothing() -> None:
    assert lower_bound(problem()).bytes == 0


@settings(deadline=None)
@given(problems(most=5))
def test_no_packing_is_below_the_bound(p: Problem) -> None:
    assert lower_bound(p).bytes <= smallest_extent(p)


@given(problems(odd=False))
def test_max_live_is_what_counting_step_by_step_gives(p: Problem) -> None:
    sizes = [int(x) for x in p.size]
    most = max((sum(sizes[i] for i in range(len(p)) if t in live_steps(p, i)) for t in range(10)), default=0)
    assert lower_bound(p).max_live == most


def test_what_passes_int64_is_left_as_it_is() -> None:
    """Sizes that no column of machine integers holds: nothing is said of grids."""
    assert reachable(columns(problem((0, 1, 2**63), alignment=8)), 7) == 7
    assert reachable(columns(problem((0, 1, 12), alignment=8)), 7) == 12
    assert reachable(columns(problem((0, 1, 12), alignment=8)), 13) == 20
    assert reachable(columns(problem()), 13) == 13


def test_what_must_not_alias_counts_on_a_grid_too() -> None:
    """Padded to the grid each moment has 8 bytes: what more there is is found all the same."""
    p = problem((0, 1, 8), (2, 3, 8), alignment=8, must_not_alias=np.array([[0, 1]]))
    assert (lower_bound(p).bytes, lower_bound(p).rule) == (16, "never_alias")


def test_what_reaches_2_62_is_left_as_it_is() -> None:
    cols = columns(problem((0, 1, 1), alignment=8))
    assert (reachable(cols, 2**62), reachable(cols, 2**62 - 1)) == (2**62, 2**62 + 1)


def test_one_kept_apart_from_many_is_no_look_at_every_pair() -> None:
    many = 400
    pairs = np.array([(0, k) for k in range(1, many)])
    cols = columns(problem((0, 1, 8), *[(1, 2, 8)] * (many - 1), must_not_alias=pairs))
    assert bounds.bound_of(cols).bytes == 8 * many
    assert len(cols.memo["conflicts"]) < 5


def test_of_two_that_lie_apart_from_a_third_alone_the_larger_counts() -> None:
    p = problem((0, 1, 10), (2, 3, 4), (4, 5, 7), must_not_alias=np.array([[0, 1], [0, 2]]))
    bound = lower_bound(p)
    assert (bound.bytes, bound.witness) == (17, (0, 2))
