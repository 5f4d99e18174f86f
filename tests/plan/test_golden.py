from __future__ import annotations

import pytest

from tests.golden import GOLDEN, TOLD, golden_traces, sample_files
from tmmu_core.plan.formats.compare import compare
from tmmu_core.plan.formats.trace import read_trace


@pytest.mark.parametrize("file", sample_files())
def test_a_sample_is_planned_as_its_golden_trace_tells(file: str) -> None:
    traces = golden_traces(file)
    assert {path.name for path in GOLDEN.glob(f"{file.split('.')[0]}.*")} == set(traces)
    for name, trace in traces.items():
        golden = (GOLDEN / name).read_bytes()
        verdict = compare(read_trace(golden, name), read_trace(trace, name))
        assert verdict.identical, f"{name}: {verdict.first}"
        assert trace == golden, name


def test_every_golden_trace_is_of_a_sample() -> None:
    stems = {file.split(".")[0] for file in sample_files()}
    assert {path.name.split(".")[0] for path in GOLDEN.glob("*.trace.jsonl")} == stems


def test_small_samples_are_told_whole() -> None:
    for path in GOLDEN.glob("*.trace.jsonl"):
        found = read_trace(path.read_bytes(), path.name)
        assert found.complete == (found.tensor_count <= TOLD)
