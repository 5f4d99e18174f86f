"""Arenas of TensorFlow Lite models are aligned to 16 bytes by default, as in the Micro runtime."""

from __future__ import annotations

from typing import Any

import pytest

import tmmu_core as tmmu
from tests.formats.edge.test_tflite_features import Op, T, model
from tmmu_core.formats.edge.tflite import read
from tmmu_core.formats.open_file import read_graph
from tmmu_core.graph.native import native_file
from tmmu_core.judge.verifier.verify import verify_plan

DATA = model([T("x", (5,), "INT8"), T("y", (5,), "INT8")], [Op("TANH", (0,), (1,))])


@pytest.mark.parametrize(
    ("options", "alignment"),
    [
        ({}, 16),
        ({"planner": "exact"}, 16),
        ({"page_size": 4096}, 16),
        ({"capacity": "1MiB"}, 16),
        ({"capacities": {"activations": 4096}}, 16),
        ({"arenas": {"activations": {"capacity_bytes": 4096}}}, 16),
        ({"arenas": {"activations": {"alignment_bytes": 64}}}, 64),
        ({"alignment": 128}, 128),
        ({"alignment": 1}, 1),
    ],
)
def test_alignment_is_16_bytes_where_none_is_given(options: dict[str, Any], alignment: int) -> None:
    graph = read(DATA)
    plan = tmmu.plan(graph, **options)
    assert {arena.alignment_bytes for arena in plan.arenas} == {alignment}
    assert verify_plan(plan, graph).ok


def test_alignment_stays_with_the_graph_when_it_is_saved() -> None:
    graph = read_graph(native_file.encode_json(read(DATA)))
    assert graph.alignment == 16
    assert tmmu.plan(graph).ir_hash == tmmu.plan(read(DATA)).ir_hash


def test_fit_keeps_the_alignment_of_the_model() -> None:
    fitted = tmmu.fit(read(DATA), "1MiB")
    assert {arena.alignment_bytes for arena in fitted.plan.arenas} == {16}


def test_helia_keeps_the_alignment_of_its_memories() -> None:
    memories = [{"name": "SRAM", "max_size": 65_536, "arena_alignment": 32}]
    plan = tmmu.plan(read(DATA), planner="helia", options={"memories": memories})
    assert {arena.alignment_bytes for arena in plan.arenas} == {32}


def test_other_graphs_keep_the_default_of_128_bytes() -> None:
    graph = tmmu.read("sample_graphs/in_place.tmmu.json")
    assert {arena.alignment_bytes for arena in tmmu.plan(graph).arenas} == {128}
