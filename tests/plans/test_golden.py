from __future__ import annotations

import msgspec
import pytest

from tests.support.golden import BY_EVERY_PLANNER, GOLDEN, PLAIN, SAMPLES, golden_traces, planner_traces, sample_files
from tmmu_core.formats.open_file import read_graph_file
from tmmu_core.formats.planfile.compare_plans import compare
from tmmu_core.formats.planfile.trace import read_trace
from tmmu_core.graph.native import unpacking
from tmmu_core.planners import PLANNERS
from tmmu_core.plans.making.engine import plan_graph


@pytest.mark.parametrize("file", sample_files())
def test_a_sample_is_planned_as_its_golden_trace_tells(file: str) -> None:
    traces = golden_traces(file)
    assert {path.name for path in GOLDEN.glob(f"{file.split('.')[0]}.*")} == set(traces)
    for name, trace in traces.items():
        golden = unpacking.unpack((GOLDEN / name).read_bytes(), name)
        if golden != trace:
            verdict = compare(read_trace(golden, name), read_trace(trace, name))
            assert verdict.identical, f"{name}: {verdict.first}"
        assert trace == golden, name


@pytest.mark.parametrize("planner", sorted(set(PLANNERS) - {"slots"}))
def test_every_planner_plans_as_its_golden_traces_tell(planner: str) -> None:
    traces = planner_traces(planner)
    assert {path.name for path in (GOLDEN / "planners").glob(f"*.{planner}.*")} == set(traces)
    for name, trace in traces.items():
        assert trace == (GOLDEN / "planners" / name).read_bytes(), name


def test_every_planner_has_its_golden_traces_and_nobody_else_has() -> None:
    """``slots`` has those of every sample (above); the others one for each of some that hold what is odd."""
    names = {path.name for path in (GOLDEN / "planners").iterdir()}
    samples = [file.split(".")[0] for file in BY_EVERY_PLANNER]
    assert names == {f"{stem}.{planner}.trace.jsonl" for stem in samples for planner in set(PLANNERS) - {"slots"}}


def test_the_samples_that_every_planner_plans_hold_each_oddity_of_a_problem() -> None:
    graphs = [read_graph_file(SAMPLES / file) for file in BY_EVERY_PLANNER]
    tensors = [tensor for graph in graphs for tensor in graph.tensors]
    assert any(tensor.must_not_alias for tensor in tensors)
    assert any(tensor.view is not None for tensor in tensors)
    plans = [plan_graph(graph).plan for graph in graphs]
    assert any(plan.handoffs for plan in plans)
    assert max(len(plan.arenas) for plan in plans) >= 3
    assert max(len(set(plan.size.tolist())) for plan in plans) >= 5


def test_every_golden_trace_is_of_a_sample() -> None:
    stems = {file.split(".")[0] for file in sample_files()}
    assert {path.name.split(".")[0] for path in GOLDEN.glob("*.trace.jsonl*")} == stems


def test_every_golden_trace_is_whole_and_the_large_ones_are_gzipped() -> None:
    for path in GOLDEN.glob("*.trace.jsonl*"):
        head = msgspec.json.decode(unpacking.unpack(path.read_bytes(), path.name).split(b"\n", 1)[0])
        assert head["rows"] == "all"
        assert path.name.endswith(".gz") == (head["tensor_count"] > PLAIN)
