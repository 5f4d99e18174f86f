"""Reuse penalties of a graph whose nodes run on several engines."""

from typing import Any

import pytest

import tmmu
from tmmu_core.base.errors import UnreadableInput
from tmmu_core.graph.model import Graph
from tmmu_core.plans.analysis.reuse_costs import Engines, engine_instance, read_engines
from tmmu_core.plans.making.request import PlanRequest

TILES = 4
NPU = Engines({"dma": ["Load*"], "matrix": ["MatMul"]}, "vector", costs={"matrix>dma": 3})


def pipeline() -> dict[str, Any]:
    """Return tiles that are loaded one step ahead, multiplied and summed (double buffering)."""
    size: dict[str, Any] = {"shape": [64], "dtype": "float32"}
    tensors = [{"id": "x", **size, "role": "input"}]
    tensors += [{"id": f"{name}{k}", **size} for k in range(TILES) for name in "lmo"]
    load = [{"node_id": f"load{k}", "instr": "LoadTile", "inputs": ["x"], "outputs": [f"l{k}"]} for k in range(TILES)]
    multiply = [
        {"node_id": f"mul{k}", "instr": "MatMul", "inputs": [f"l{k}"], "outputs": [f"m{k}"]} for k in range(TILES)
    ]
    add = [
        {"node_id": f"add{k}", "instr": "Add", "inputs": [f"m{k}", *([f"o{k - 1}"] if k else [])], "outputs": [f"o{k}"]}
        for k in range(TILES)
    ]
    nodes = [load[0]]
    for k in range(TILES):
        nodes += [*load[k + 1 : k + 2], multiply[k], add[k]]
    nodes = [{**node, "inplace": "none"} for node in nodes]
    head = {"ir_schema": "uml_model_ir/1", "name": "pipeline", "inputs": ["x"], "outputs": [f"o{TILES - 1}"]}
    return {**head, "tensors": tensors, "nodes": nodes}


ORDER = tuple(node["node_id"] for node in pipeline()["nodes"])


def penalties(
    engines: Engines, document: dict[str, Any] | None = None, request: PlanRequest | None = None
) -> dict[tuple[str, str], int]:
    graph = tmmu.read(document or pipeline())
    assert isinstance(graph, Graph)
    found = {}
    for problem in engine_instance(graph, engines, request or PlanRequest(order=ORDER)).problems:
        assert problem.reuse is not None
        found |= {(problem.ids[i], problem.ids[j]): cost for i, j, cost in problem.reuse.penalties}
    return found


def test_load_into_a_tile_that_the_matrix_unit_reads_waits() -> None:
    found = penalties(NPU)
    assert found["l0", "l2"] == 3
    assert ("l0", "l1") not in found  # live together
    assert ("l0", "m1") not in found  # one engine runs both in order


def test_data_dependency_orders_two_engines_without_a_wait() -> None:
    assert ("m0", "o1") not in penalties(NPU)
    assert penalties(NPU)["m0", "l3"] == 1


def test_one_engine_needs_no_wait() -> None:
    assert penalties(Engines({}, "stream 0")) == {}


def test_user_of_a_view_is_a_user_of_its_storage() -> None:
    document = pipeline()
    whole = {"base_tensor_uid": "l0", "byte_offset": 0, "byte_length": 256, "stride_desc": [1]}
    document["tensors"].append({"id": "a view", "shape": [64], "dtype": "float32", "view": whole})
    nodes = {node["node_id"]: node for node in document["nodes"]}
    nodes["mul0"]["inputs"] = ["a view"]
    document["nodes"] += [{"node_id": "view", "instr": "View", "inputs": ["l0"], "outputs": ["a view"]}]
    request = PlanRequest(order=(ORDER[0], "view", *ORDER[1:]))
    assert penalties(NPU, document, request)["l0", "l2"] == 3


def test_gradient_that_another_engine_reads_has_a_penalty() -> None:
    assert penalties(NPU, request=PlanRequest(mode="backward"))["o2@grad", "x@grad"] == 1


def test_plan_weighs_waits_within_the_capacity() -> None:
    graph = tmmu.read(pipeline())
    assert isinstance(graph, Graph)
    instance = engine_instance(graph, NPU, PlanRequest(order=ORDER))
    roomy, tight = (tmmu.plan(instance, capacity=capacity) for capacity in ("4KiB", "1280"))
    cost = [sum(arena.reuse_cost or 0 for arena in plan.arenas) for plan in (roomy, tight)]
    assert cost[0] < cost[1]
    assert roomy.verify().ok
    assert tight.verify().ok


@pytest.mark.parametrize(
    "text",
    [
        '{"engines": {}}',
        '{"engines": {}, "default": "a", "more": 1}',
        '{"engines": {}, "default": "a", "costs": {"a>b": 1}}',
        '{"engines": {}, "default": "a", "cost": -1}',
    ],
)
def test_bad_assignment_is_rejected(text: str) -> None:
    with pytest.raises(UnreadableInput):
        read_engines(text.encode(), "engines.json")


def test_engine_instance_has_the_arenas_and_alignment_of_the_request() -> None:
    graph = tmmu.read(pipeline())
    assert isinstance(graph, Graph)
    (problem,) = engine_instance(graph, NPU, PlanRequest(alignment=512, capacities={"": 8192})).problems
    assert problem.arena == "memory"
    assert set(problem.alignment.tolist()) == {512}


def test_engine_and_pattern_without_nodes_are_reported() -> None:
    graph = tmmu.read(pipeline())
    assert isinstance(graph, Graph)
    engines = Engines({"dma": ["Load*", "Copy"], "second": ["LoadTile"]}, "vector")
    notes = ("no node runs on engine 'second'", "the pattern 'Copy' of engine 'dma' matches no node")
    assert engine_instance(graph, engines, PlanRequest()).notes == notes
