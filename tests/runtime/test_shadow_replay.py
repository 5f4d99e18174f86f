"""The shadow replay accepts every valid plan and finds every broken one."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.runtime import faults
from tests.support.paths import SAMPLES
from tests.support.shadow_replay import shadow_replay
from tests.support.strategies import Case, cases
from tmmu_core.base.errors import ContractError
from tmmu_core.formats.open_file import read_graph_file
from tmmu_core.graph.model import MODES, PRESETS
from tmmu_core.planners import PLANNERS
from tmmu_core.plans.making.engine import Solution, plan_graph

FILES = [*sorted(SAMPLES.glob("*.tmmu.json*")), SAMPLES / "node_centric.json"]


def solved(case: Case) -> Solution:
    try:
        return plan_graph(case.graph, **case.arguments())
    except ContractError:
        assume(False)
        raise


@pytest.mark.slow
@pytest.mark.parametrize("sample", FILES, ids=lambda path: path.name.split(".")[0])
def test_sample_is_replayed_without_a_finding(sample) -> None:
    graph = read_graph_file(sample)
    for mode in MODES:
        for preset in PRESETS:
            solution = plan_graph(graph, mode=mode, preset=preset)
            assert shadow_replay(solution).ok
            assert shadow_replay(solution.plan).ok


@pytest.mark.parametrize("planner", sorted(PLANNERS))
@pytest.mark.parametrize("name", ["fan_out_fan_in", "in_place", "must_not_alias", "training_step", "views"])
def test_plan_of_every_planner_is_replayed_without_a_finding(name: str, planner: str) -> None:
    solution = plan_graph(read_graph_file(SAMPLES / f"{name}.tmmu.json"), planner=planner)
    assert shadow_replay(solution).findings == ()
    assert shadow_replay(solution.plan).findings == ()


@settings(suppress_health_check=list(HealthCheck))
@given(cases())
def test_random_plan_is_replayed_without_a_finding(case: Case) -> None:
    assert shadow_replay(solved(case)).findings == ()


@pytest.mark.parametrize("kind", faults.KINDS)
@pytest.mark.parametrize("name", ["views", "residual_block", "fan_out_fan_in", "in_place"])
def test_fault_in_a_sample_is_found(kind: str, name: str) -> None:
    solution = plan_graph(read_graph_file(SAMPLES / f"{name}.tmmu.json"))
    for broken in faults.spread(faults.KINDS[kind](solution), 20):
        assert not shadow_replay(broken, solution.liveness.timeline).ok


@pytest.mark.slow
@settings(suppress_health_check=list(HealthCheck))
@given(cases(), st.sampled_from(sorted(faults.KINDS)), st.data())
def test_fault_in_a_random_plan_is_found(case: Case, kind: str, data: st.DataObject) -> None:
    solution = solved(case)
    broken = faults.spread(faults.KINDS[kind](solution), 50)
    assume(broken)
    assert not shadow_replay(data.draw(st.sampled_from(broken)), solution.liveness.timeline).ok


def test_read_after_death_is_a_dead_access() -> None:
    solution = plan_graph(read_graph_file(SAMPLES / "residual_block.tmmu.json"))
    row = int(solution.plan.death.argmax())
    early = faults.changed(solution.plan, "death", row, solution.plan.death[row] - 1)
    assert {finding.kind for finding in shadow_replay(early, solution.liveness.timeline).findings} == {"dead_access"}
