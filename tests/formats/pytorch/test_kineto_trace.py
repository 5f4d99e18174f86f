"""Traces of ``torch.profiler`` with memory events as finished plans."""

import json
from pathlib import Path
from typing import Any

import pytest

from tmmu_core.base.errors import UnreadableInput
from tmmu_core.formats.open_file import read_any
from tmmu_core.formats.pytorch.snapshot.torch_snapshot import History
from tmmu_core.planners.problem import PlainInstance


def memory(ts: float, size: int, addr: int, total: int, *, reserved: int = 0, device: int = 0) -> dict[str, Any]:
    args = {"Bytes": size, "Addr": addr, "Device Type": int(bool(reserved)), "Device Id": device - (not reserved)}
    args |= {"Total Allocated": total, "Total Reserved": reserved}
    return {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "tid": 1, "ts": ts, "args": args}


def span(ts: float, dur: float, name: str, cat: str = "cpu_op") -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "tid": 1, "ts": ts, "dur": dur, "args": {}}


PROFILE = {
    "schemaVersion": 1,
    "traceEvents": [
        span(0, 50, "train.py(7): main", "python_function"),
        span(1, 10, "nn.Module: Linear_0", "python_function"),
        span(2, 5, "aten::addmm"),
        memory(3, 4096, 64, 5096),
        span(20, 10, "autograd::engine::evaluate_function: AddmmBackward0"),
        span(21, 5, "aten::mm"),
        memory(22, 1024, 8192, 6120),
        memory(23, -4096, 64, 2024),
        memory(40, -500, 4_000_000, 1524),
    ],
}


def opened(document: Any) -> History:
    found = read_any(json.dumps(document).encode(), "run.json")
    assert isinstance(found, PlainInstance)
    assert isinstance(found.recorded, History)
    return found.recorded


def test_peak_is_the_profilers_total_and_stacks_enclose_events() -> None:
    found = opened(PROFILE)
    assert sum(total.size for total in found.totals("line", found.peak[0])) == 6120
    assert sorted((found.ids[k], found.categories[k], int(found.size[k])) for k in range(4)) == [
        ("before the trace #0", "other", 500),
        ("before the trace #1", "other", 500),
        ("train.py:7 main #0", "activation", 4096),
        ("train.py:7 main #1", "gradient", 1024),
    ]


def test_device_with_the_highest_peak_is_shown_with_its_reserved_bytes() -> None:
    gpu = [memory(60, 512, 16, 10_000, reserved=20_000), memory(61, 1024, 2048, 11_024, reserved=40_000)]
    found = opened({"traceEvents": [*PROFILE["traceEvents"], *gpu]})
    assert found.reserved_peak_bytes == 40_000
    assert sum(total.size for total in found.totals("category", found.peak[0])) == 11_024


@pytest.mark.parametrize("wrong", [{"Addr": -5}, {"Addr": 1 << 70}, {"Bytes": "x"}, {"Bytes": 1 << 62}])
def test_damaged_event_is_rejected(wrong: dict[str, Any]) -> None:
    event = memory(1, 8, 8, 8)
    event["args"] |= wrong
    with pytest.raises(UnreadableInput, match="damaged"):
        opened({"traceEvents": [event]})


@pytest.mark.torch
def test_trace_of_a_real_step_has_the_profilers_peak(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 64))
    optimizer = torch.optim.AdamW(module.parameters())
    with torch.profiler.profile(profile_memory=True, with_stack=True) as recorded:
        for _ in range(2):
            module(torch.randn(32, 64)).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    path = tmp_path / "step.json"
    recorded.export_chrome_trace(str(path))
    document = json.loads(path.read_text())
    peak = max(one["args"]["Total Allocated"] for one in document["traceEvents"] if one["name"] == "[memory]")
    found = opened(document)
    assert sum(total.size for total in found.totals("line", found.peak[0])) == peak
