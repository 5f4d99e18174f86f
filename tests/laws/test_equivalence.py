"""The planner and the reference simulator agree bit for bit, or reject for the same reason."""

import os
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.support.golden import SAMPLES, sample_files
from tests.support.paths import read_graph_file
from tests.support.simulator import SimulatedPlan, differences, disagreement, simulate
from tests.support.strategies import Case, cases, plannable_cases
from tmmu_core.base.errors import ContractError
from tmmu_core.graph.model import MODES, PRESETS, Mode, Preset
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.planners import PLANNERS
from tmmu_core.plans.analysis.waste_ledger import waste_ledger
from tmmu_core.plans.figures.live_bytes import live_bytes
from tmmu_core.plans.making.engine import Solution, plan_graph

TRIALS = int(os.environ.get("TESTS_TRIALS", "1"))
"""How many times as many random graphs as usual."""
LAW = settings(
    deadline=None,
    suppress_health_check=list(HealthCheck),
    max_examples=20 * TRIALS,
    # Most trials only look for a difference, not for the smallest one.
    phases=[Phase.explicit, Phase.generate] if TRIALS > 1 else list(Phase),
)
SMALL = [file for file in sample_files() if (SAMPLES / file).stat().st_size < 25_000]

Refusal = tuple[str, Any, Any]


def outcome(play: Callable[[], Any]) -> Any:
    """Return the result, or the code, reason and condition of the refusal."""
    try:
        return play()
    except ContractError as error:
        return error.code_id, error.diagnostics.get("reason"), error.diagnostics.get("condition")


def both(case: Case) -> tuple[Solution | Refusal, SimulatedPlan | Refusal]:
    return (
        outcome(lambda: plan_graph(case.graph, seed=case.seed, **case.arguments())),
        outcome(lambda: simulate(case.graph, **case.arguments())),
    )


@LAW
@given(cases())
def test_planner_and_reference_agree_on_any_graph(case: Case) -> None:
    assert_agreement(case)


@pytest.mark.slow
@LAW
@given(plannable_cases(max_nodes=14))
def test_planner_and_reference_agree_on_larger_graphs(case: Case) -> None:
    assert_agreement(case)


def assert_agreement(case: Case) -> None:
    mine, theirs = both(case)
    if isinstance(mine, tuple) or isinstance(theirs, tuple):
        assert mine == theirs
    else:
        assert list(differences(mine.plan, theirs)) == []


@pytest.mark.slow
@LAW
@given(plannable_cases())
def test_planner_and_reference_deny_the_same_handoffs(case: Case) -> None:
    mine, theirs = both(case)
    if isinstance(mine, Solution) and isinstance(theirs, SimulatedPlan):
        refusals = [(r.step, r.source, r.target, r.condition) for r in mine.liveness.refusals]
        assert sorted(refusals) == sorted(each for each in theirs.liveness.decisions if each[3])


@pytest.mark.slow
@LAW
@given(cases())
def test_plan_of_every_planner_verifies(case: Case) -> None:
    for planner in PLANNERS:
        made = outcome(lambda name=planner: plan_graph(case.graph, planner=name, **case.arguments()))
        if isinstance(made, Solution):
            assert verify_plan(made.plan, case.graph, arenas=case.arenas).findings == () or all(
                finding.severity == "warning" for finding in verify_plan(made.plan, case.graph).findings
            )
            assert verify_plan(made.plan).ok


@pytest.mark.slow
@LAW
@given(plannable_cases())
def test_slots_are_as_many_as_live_storages(case: Case) -> None:
    made, _ = both(case)
    if isinstance(made, Solution) and not any(tensor.must_not_alias for tensor in case.graph.tensors):
        assert all(arena.slots == arena.max_live for arena in made.plan.arenas)


@LAW
@given(plannable_cases())
def test_waste_ledger_sums_to_the_extent_at_every_step(case: Case) -> None:
    mine, _ = both(case)
    if isinstance(mine, Solution):
        for arena in mine.plan.arenas:
            ledger = waste_ledger(mine.plan, arena.name)
            for step in range(mine.plan.steps):
                accounts = ledger.at(step)
                assert sum(accounts.values()) == arena.extent_bytes
            if mine.plan.steps:
                assert int(live_bytes(mine.plan, arena.name).max()) == arena.peak_live_bytes


@pytest.mark.slow
@pytest.mark.parametrize("file", SMALL)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("preset", PRESETS)
def test_planner_and_reference_agree_on_the_samples(file: str, mode: Mode, preset: Preset) -> None:
    graph = read_graph_file(SAMPLES / file)
    assert disagreement(graph, mode, preset, seeds=range(2)) is None
