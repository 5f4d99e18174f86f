"""The table of planners: what it says of a planner is what the planner does."""

from __future__ import annotations

import numpy as np
import pytest

from tests.planners.packings import problem
from tests.support.build import graph, node, residual, tensor
from tests.support.paths import ROOT
from tmmu_core.base.errors import ArenaTooSmall, InvalidIrShapes
from tmmu_core.planners import ARENA_PLANNERS, PLANNERS
from tmmu_core.planners.columns import columns
from tmmu_core.planners.exact import DEFAULT_BUDGET
from tmmu_core.planners.exact.driver import TARGET_STEPS
from tmmu_core.planners.search import DEFAULT_ITERATIONS
from tmmu_core.plans.making.engine import plan_graph


def test_defaults_are_said_once_and_the_same() -> None:
    assert PLANNERS["exact"].options["budget"] == DEFAULT_BUDGET
    assert PLANNERS["search"].options["iterations"] == DEFAULT_ITERATIONS


@pytest.mark.parametrize("name", sorted(PLANNERS))
def test_every_planner_plans_a_residual_block(name: str) -> None:
    plan = plan_graph(residual(), planner=name).plan
    assert plan.planner == name
    assert all(arena.extent_bytes >= (arena.lower_bound_bytes or 0) for arena in plan.arenas)


@pytest.mark.parametrize("name", sorted(set(PLANNERS) - {"slots", "naive"}))
def test_the_same_problem_gets_the_same_layout(name: str) -> None:
    once, again = (plan_graph(residual(), planner=name).plan for _ in range(2))
    assert once.layout_hash == again.layout_hash


def test_an_option_that_a_planner_does_not_have_is_refused_with_those_it_has() -> None:
    with pytest.raises(InvalidIrShapes, match="has no option 'speed'") as caught:
        plan_graph(residual(), planner="greedy", options={"speed": 9})
    assert "fit, order" in caught.value.hint


def test_a_planner_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(InvalidIrShapes) as caught:
        plan_graph(residual(), planner="best")
    assert "portfolio" in caught.value.hint


@pytest.mark.parametrize(
    ("capacity", "answer"),
    [
        # The two large ones fall into different slots: 128 B, though never more than 80 B are alive.
        (79, "no"),
        (100, "portfolio"),
    ],
)
def test_an_arena_that_is_too_small_says_whether_another_planner_would_fit(capacity: int, answer: str) -> None:
    tensors = [tensor("x", 4, role="input"), *(tensor(name, 16 if name in "ad" else 4) for name in "abcdy")]
    nodes = [node(f"n{i}", s, t, inplace="none") for i, (s, t) in enumerate(("xa", "ab", "bc", "cd", "dy"))]
    arenas = {"activations": {"capacity_bytes": capacity, "alignment_bytes": 1}}
    with pytest.raises(ArenaTooSmall) as caught:
        plan_graph(graph(tensors, nodes, "x", "y"), arenas=arenas)
    assert caught.value.diagnostics["another_planner_would_fit"] == answer


def test_what_is_fixed_at_nought_is_fixed() -> None:
    assert not columns(problem((0, 2, 8), fixed=np.array([0]))).plain
    assert columns(problem((0, 2, 8))).plain


def test_a_storage_without_bytes_keeps_the_place_that_it_was_given_and_the_others_theirs() -> None:
    p = problem((0, 2, 8), (0, 2, 0), (0, 2, 0), fixed=np.array([4, 6, -1]))
    packing = ARENA_PLANNERS["greedy"].pack(p, {}, None)
    assert packing.offset.tolist()[:2] == [4, 6]
    assert packing.offset[2] < 1 << 32


def test_the_default_budget_is_the_one_that_the_benchmarks_name() -> None:
    text = (ROOT / "docs" / "measured" / "benchmarks.md").read_text()
    assert f"its default of {DEFAULT_BUDGET:,} nodes" in text


def test_aims_between_bound_and_best_rise_and_stay_below_the_best() -> None:
    """One for each boldness from 0 to 7, in eighths: the best itself would be no aim."""
    assert list(TARGET_STEPS) == sorted(TARGET_STEPS)
    assert len(TARGET_STEPS) == 8
    assert all(0 < step < 8 for step in TARGET_STEPS)
