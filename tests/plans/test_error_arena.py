"""The record of an error names the arena if the graph or the plan has it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tmmu_core.base.errors import ContractError
from tmmu_core.formats.open_file import read_graph
from tmmu_core.plans.making.engine import plan_graph

HUGE = 1 << 62


def document(*tensors: dict[str, Any]) -> bytes:
    rows = [{"shape": [4], "dtype": "float32", **tensor} for tensor in tensors]
    nodes = [{"node_id": "n", "inputs": ["x"], "outputs": ["y"]}]
    return json.dumps({"tensors": rows, "nodes": nodes, "inputs": ["x"], "outputs": ["y"]}).encode()


def view(base: str, offset: int) -> dict[str, Any]:
    return {"base_tensor_uid": base, "byte_offset": offset, "byte_length": 4, "stride_desc": [1]}


@pytest.mark.parametrize(
    ("tensors", "arena"),
    [
        (({"id": "x", "role": "input"}, {"id": "y", "shape": [HUGE]}), "activations"),
        (({"id": "x", "role": "parameter", "shape": [HUGE]}, {"id": "y"}), "parameters"),
        (({"id": "x", "role": "input"}, {"id": "y", "shape": [HUGE], "arena": "sram"}), "sram"),
        (
            (
                {"id": "x", "role": "input", "arena": "sram"},
                {"id": "y", "shape": [1], "alignment": 16, "view": view("x", 4)},
            ),
            "sram",
        ),
    ],
)
def test_record_names_the_arena_of_the_tensor(tensors: tuple[dict[str, Any], ...], arena: str) -> None:
    with pytest.raises(ContractError) as refused:
        plan_graph(read_graph(document(*tensors)), arenas={"sram": {}, "activations": {}, "parameters": {}})
    assert refused.value.record()["diagnostics"]["arena"] == arena
