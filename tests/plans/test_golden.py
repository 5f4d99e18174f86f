import pytest

from app.session import planning
from app.session.view_state import Choice
from tests.support.golden import GOLDEN, golden_traces, planner_traces, sample_files
from tmmu_core.formats.planfile.compare_plans import compare
from tmmu_core.formats.planfile.trace import read_trace
from tmmu_core.graph.native import document
from tmmu_core.planners import PLANNERS
from tmmu_core.plans.figures.live_bytes import live_bytes, live_bytes_by_writer


@pytest.mark.parametrize("file", sample_files())
def test_sample_is_planned_as_its_golden_trace(file: str) -> None:
    traces = golden_traces(file)
    assert {path.name for path in GOLDEN.glob(f"{file.split('.')[0]}.*")} == set(traces)
    for name, trace in traces.items():
        golden = document.unpack((GOLDEN / name).read_bytes(), name)
        if golden != trace:
            verdict = compare(read_trace(golden, name), read_trace(trace, name))
            assert verdict.identical, f"{name}: {verdict.first}"
        assert trace == golden, name


@pytest.mark.parametrize("planner", sorted(set(PLANNERS) - {"slots"}))
def test_planner_plans_as_its_golden_traces(planner: str) -> None:
    traces = planner_traces(planner)
    assert {path.name for path in (GOLDEN / "planners").glob(f"*.{planner}.*")} == set(traces)
    for name, trace in traces.items():
        assert trace == (GOLDEN / "planners" / name).read_bytes(), name


@pytest.mark.parametrize("sample", ["views", "alias_group", "in_place", "training_step"])
def test_bytes_by_node_sum_to_the_live_bytes(sample: str) -> None:
    shown = planning.make_plan(Choice(source=f"sample:{sample}"))
    assert shown.solution is not None
    index = shown.solution.liveness.timeline.index
    for arena in shown.plan.arenas:
        live = live_bytes(shown.plan, arena.name)
        for step in range(shown.plan.steps):
            by_node, loose = live_bytes_by_writer(shown.plan, index, step, arena.name)
            assert int(by_node.sum()) + loose == int(live[step])
