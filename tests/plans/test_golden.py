from __future__ import annotations

import pytest

from tests.support.golden import GOLDEN, golden_traces, planner_traces, sample_files
from tmmu_core.formats.planfile.compare_plans import compare
from tmmu_core.formats.planfile.trace import read_trace
from tmmu_core.graph.native import unpacking
from tmmu_core.planners import PLANNERS


@pytest.mark.parametrize("file", sample_files())
def test_sample_is_planned_as_its_golden_trace(file: str) -> None:
    traces = golden_traces(file)
    assert {path.name for path in GOLDEN.glob(f"{file.split('.')[0]}.*")} == set(traces)
    for name, trace in traces.items():
        golden = unpacking.unpack((GOLDEN / name).read_bytes(), name)
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
