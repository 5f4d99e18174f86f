"""Traces for Perfetto and node data for Model Explorer."""

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import tmmu
from app.cli.main import run
from tests.support.paths import DATA, ROOT

SAMPLES = ROOT / "sample_graphs"
MODELS = [SAMPLES / "resnet50.tmmu.json.gz", SAMPLES / "views.tmmu.json", DATA / "tflite" / "person_detect.tflite"]


def exported(model: Path, form: str, folder: Path) -> Any:
    target = folder / "out.json"
    assert run(["export", str(model), "--to", form, "-o", str(target)]) == 0
    return json.loads(target.read_bytes())


@pytest.mark.parametrize("model", MODELS, ids=lambda path: path.name)
def test_trace_has_a_slice_per_tensor_and_none_overlap_on_a_track(model: Path, tmp_path: Path) -> None:
    plan = tmmu.plan(model)
    events = exported(model, "perfetto", tmp_path)["traceEvents"]
    slices = [event for event in events if event["ph"] == "X" and event["pid"]]
    assert sorted(event["name"] for event in slices) == sorted(plan.tensor_ids)
    tracks = defaultdict(list)
    for event in slices:
        tracks[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for ranges in tracks.values():
        ranges.sort()
        assert all(one[1] <= other[0] for one, other in pairwise(ranges))


@pytest.mark.parametrize("model", MODELS, ids=lambda path: path.name)
def test_counter_of_an_arena_is_its_live_bytes(model: Path, tmp_path: Path) -> None:
    """Recomputed from the slices, at every step."""
    plan = tmmu.plan(model)
    events = exported(model, "perfetto", tmp_path)["traceEvents"]
    for number, arena in enumerate(plan.arenas, start=1):
        counter = {e["ts"]: e["args"]["bytes"] for e in events if e["ph"] == "C" and e["pid"] == number}
        assert max(counter.values()) == arena.peak_live_bytes
        slices = [e for e in events if e["ph"] == "X" and e["pid"] == number]
        if any(e["args"]["base"] for e in slices):  # a view holds the bytes of its base
            continue
        for step, size in counter.items():
            live = [e["args"]["size_bytes"] for e in slices if e["ts"] <= step < e["ts"] + e["dur"]]
            assert sum(live) == size


def test_node_data_are_keyed_by_nodes_and_outputs(tmp_path: Path) -> None:
    plan = tmmu.plan(MODELS[2])
    data = exported(MODELS[2], "model-explorer", tmp_path)
    values = {name: result["value"] for name, result in data["results"].items()}
    assert set(plan.execution_order) <= set(values)
    assert max(values.values()) == plan.peak_live_bytes
    outputs = {name for name, role in zip(plan.tensor_ids, plan.roles, strict=True) if role == "activation"}
    assert outputs <= set(values)
    assert [stop["stop"] for stop in data["gradient"]] == [0, 0.5, 1]
    results = exported(SAMPLES / "in_place.tmmu.json", "model-explorer", tmp_path)["results"]
    assert "cache" not in results  # a buffer is live from the start, without a node that writes it
