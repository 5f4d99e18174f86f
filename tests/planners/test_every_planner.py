"""Every planner's plan passes the verifier, on random instances and on the samples."""

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.planners.packings import problems
from tests.support.golden import SAMPLES, sample_files
from tests.support.paths import read_graph_file
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.planners import ARENA_PLANNERS, PLANNERS
from tmmu_core.planners.problem import Problem
from tmmu_core.plans.making.engine import plan_graph
from tmmu_core.plans.making.instance import plan_problem

EXAMPLES = int(os.environ.get("TESTS_EXAMPLES", "10"))
"""Random instances for each planner; ``TESTS_EXAMPLES=2000`` asks for more."""
OF_ONE_ARENA = sorted(ARENA_PLANNERS)
SMALL = [file for file in sample_files() if (SAMPLES / file).stat().st_size < 25_000]
OPTIONS = {
    "greedy": st.fixed_dictionaries(
        {
            "order": st.sampled_from(["size", "area", "birth", "length", "size_length", "breadth"]),
            "fit": st.sampled_from(["lowest", "tightest", "free_list"]),
        }
    ),
    "search": st.fixed_dictionaries({"seed": st.integers(0, 9), "iterations": st.integers(0, 50)}),
    "exact": st.fixed_dictionaries({"budget": st.sampled_from([0, 1, 100, 10_000])}),
}


@pytest.mark.parametrize("planner", [name for name in OF_ONE_ARENA if name not in ("slots", "naive")])
def test_plan_of_a_random_instance_verifies(planner: str) -> None:
    @settings(max_examples=EXAMPLES, deadline=None)
    @given(problems(odd=False), OPTIONS.get(planner, st.just({})))
    def holds(problem: Problem, options: dict[str, object]) -> None:
        plan = plan_problem(problem, planner=planner, options=options)
        assert verify_plan(plan).findings == ()

    holds()


@pytest.mark.parametrize("planner", ["slots", "naive"])
@settings(max_examples=EXAMPLES, deadline=None)
@given(problem=problems(odd=False))
def test_slots_of_a_random_instance_verify(planner: str, problem: Problem) -> None:
    plan = plan_problem(problem, planner=planner)
    assert [f for f in verify_plan(plan).findings if f.severity != "warning"] == []


@pytest.mark.slow
@pytest.mark.parametrize("file", SMALL)
@pytest.mark.parametrize("planner", sorted(PLANNERS))
def test_plan_of_a_sample_verifies(planner: str, file: str) -> None:
    graph = read_graph_file(SAMPLES / file)
    for mode in ("inference", "backward"):
        solved = plan_graph(graph, planner=planner, mode=mode)  # type: ignore[arg-type]
        assert [f for f in verify_plan(solved.plan, graph).findings if f.severity != "warning"] == []
