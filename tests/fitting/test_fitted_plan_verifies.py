"""A fitted plan verifies against its fitted graph."""

import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

import tmmu
from tests.support.paths import SAMPLES
from tests.support.strategies import Case, cases
from tmmu_core.base.errors import ContractError
from tmmu_core.fitting.move import KINDS
from tmmu_core.graph.model import Graph

SMALL = sorted(path.name for path in SAMPLES.glob("*.tmmu.json"))
ALLOWED = [*[("planner", kind) for kind in KINDS if kind != "planner"], ("planner",)]


def assert_verifies(graph: Graph, allow: tuple[str, ...], **how: str) -> None:
    today = tmmu.plan(graph, **how).extent_bytes
    for percent in (60, 90):
        fitted = tmmu.fit(graph, today * percent // 100, allow=list(allow), **how)
        verdict = tmmu.verify(fitted.plan, fitted.graph)
        assert verdict.ok, (allow, percent, verdict)
        assert fitted.plan.graph == fitted.graph


@pytest.mark.parametrize("name", SMALL)
def test_fitted_plan_of_sample_verifies_against_fitted_graph(name: str) -> None:
    for allow in ALLOWED:
        assert_verifies(tmmu.read(SAMPLES / name), allow)


@pytest.mark.parametrize("mode", ["inference", "forward", "backward"])
@pytest.mark.parametrize("preset", ["inference", "train_full", "remat_enabled"])
def test_fitted_plan_of_any_mode_and_preset_verifies(mode: str, preset: str) -> None:
    assert_verifies(tmmu.read(SAMPLES / "residual_block.tmmu.json"), ("planner", "order"), mode=mode, preset=preset)


@settings(max_examples=12, suppress_health_check=list(HealthCheck))
@given(cases(), st.sampled_from(ALLOWED))
def test_fitted_plan_of_random_graph_verifies(case: Case, allow: tuple[str, ...]) -> None:
    try:
        tmmu.plan(case.graph)
    except ContractError:
        reject()
    assert_verifies(case.graph, allow)


def test_planning_the_fitted_graph_gives_the_fitted_plan() -> None:
    graph = tmmu.read(SAMPLES / "mixed_sizes.tmmu.json")
    fitted = tmmu.fit(graph, tmmu.plan(graph).extent_bytes // 2)
    again = tmmu.plan(fitted.graph)
    assert (again.ir_hash, again.layout_hash) == (fitted.plan.ir_hash, fitted.plan.layout_hash)
