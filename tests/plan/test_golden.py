from __future__ import annotations

import msgspec
import pytest

from tests.golden import GOLDEN, PLAIN, golden_traces, planner_traces, sample_files
from tmmu_core.graph import document
from tmmu_core.plan.formats.compare import compare
from tmmu_core.plan.formats.trace import read_trace
from tmmu_core.planners import PLANNERS


@pytest.mark.parametrize("file", sample_files())
def test_a_sample_is_planned_as_its_golden_trace_tells(file: str) -> None:
    traces = golden_traces(file)
    assert {path.name for path in GOLDEN.glob(f"{file.split('.')[0]}.*")} == set(traces)
    for name, trace in traces.items():
        golden = document.unpack((GOLDEN / name).read_bytes(), name)
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


def test_every_golden_trace_of_a_planner_is_of_one_that_there_is() -> None:
    names = {path.name.split(".")[1] for path in (GOLDEN / "planners").iterdir()}
    assert names == set(PLANNERS) - {"slots"}


def test_every_golden_trace_is_of_a_sample() -> None:
    stems = {file.split(".")[0] for file in sample_files()}
    assert {path.name.split(".")[0] for path in GOLDEN.glob("*.trace.jsonl*")} == stems


def test_every_golden_trace_is_whole_and_the_large_ones_are_gzipped() -> None:
    for path in GOLDEN.glob("*.trace.jsonl*"):
        head = msgspec.json.decode(document.unpack(path.read_bytes(), path.name).split(b"\n", 1)[0])
        assert head["rows"] == "all"
        assert path.name.endswith(".gz") == (head["tensor_count"] > PLAIN)
