"""TensorFlow Lite models: their graph, and plans that are never above those of the Micro runtime."""

from typing import Any

import pytest

import tmmu_core as tmmu
from tests.formats.edge.test_tflite_features import Op, T
from tests.formats.edge.test_tflite_features import model as made
from tests.support.paths import DATA, read_graph_file
from tmmu_core.base.errors import InvalidIrShapes, UnreadableInput
from tmmu_core.formats.edge.tflite import read
from tmmu_core.formats.open_file import read_graph
from tmmu_core.graph.model import Graph
from tmmu_core.graph.native import native_file
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.plans.making.engine import plan_graph

MODELS = DATA / "tflite"
MICRO_ARENAS = {name: {"alignment_bytes": 16} for name in ("activations", "parameters")}
"""The Micro runtime aligns to 16 bytes."""

MEASURED = {
    "person_detect": (31, 89, 55_296, 55_296),
    "vww_96_int8": (31, 89, 55_296, 73_728),
    "kws_ref_model": (13, 35, 16_000, 16_000),
}
"""Model → (operators, tensors, lower bound, head of the Micro runtime's arena as it printed it)."""


def model(name: str) -> Graph:
    return read_graph_file(MODELS / f"{name}.tflite")


@pytest.mark.parametrize("name", MEASURED)
def test_best_plan_of_a_published_model_reaches_the_bound_and_is_not_above_the_micro_runtime(name: str) -> None:
    graph, (operators, tensors, bound, measured) = model(name), MEASURED[name]
    assert (len(graph.nodes), len(graph.tensors)) == (operators, tensors)
    best = plan_graph(graph, planner="portfolio", arenas=MICRO_ARENAS).plan.arena_of["activations"]
    assert best.extent_bytes == best.lower_bound_bytes == bound <= measured


def test_reshape_permits_in_place_reuse_and_a_convolution_does_not() -> None:
    permits = {node.instr: node.inplace for node in model("person_detect").nodes}
    assert permits == {
        "DEPTHWISE_CONV_2D": "none",
        "CONV_2D": "none",
        "AVERAGE_POOL_2D": "none",
        "RESHAPE": ((0, 0),),
        "SOFTMAX": ((0, 0),),
    }


def test_string_tensor_is_rejected_by_name() -> None:
    data = made([T("words", (1,), "STRING"), T("y", (1,), "INT8")], [Op("RELU", (0,), (1,))])
    with pytest.raises(InvalidIrShapes, match="STRING") as caught:
        read(data)
    assert caught.value.diagnostics["tensor"] == "words"


def test_operator_that_writes_constant_data_is_rejected() -> None:
    data = made([T("x"), T("y", data=bytes(16))], [Op("RELU", (0,), (1,))])
    with pytest.raises(UnreadableInput, match=r"operator 0 \(RELU\) writes tensor 1, which has constant data"):
        read(data)


# --- arenas are aligned to 16 bytes by default, as in the Micro runtime -----------------------------------------------

TANH = made([T("x", (5,), "INT8"), T("y", (5,), "INT8")], [Op("TANH", (0,), (1,))])


@pytest.mark.parametrize(
    ("options", "alignment"),
    [
        ({}, 16),
        ({"planner": "exact"}, 16),
        ({"page_size": 4096}, 16),
        ({"capacity": "1MiB"}, 16),
        ({"capacity": {"activations": 4096}}, 16),
        ({"arenas": {"activations": {"capacity_bytes": 4096}}}, 16),
        ({"arenas": {"activations": {"alignment_bytes": 64}}}, 64),
        ({"alignment": 128}, 128),
        ({"alignment": 1}, 1),
    ],
)
def test_alignment_is_16_bytes_where_none_is_given(options: dict[str, Any], alignment: int) -> None:
    graph = read(TANH)
    plan = tmmu.plan(graph, **options)
    assert {arena.alignment_bytes for arena in plan.arenas} == {alignment}
    assert verify_plan(plan, graph).ok


def test_alignment_stays_with_the_graph_when_it_is_saved() -> None:
    graph = read_graph(native_file.encode_json(read(TANH)))
    assert graph.alignment == 16
    assert tmmu.plan(graph).ir_hash == tmmu.plan(read(TANH)).ir_hash


def test_fit_keeps_the_alignment_of_the_model() -> None:
    fitted = tmmu.fit(read(TANH), "1MiB")
    assert {arena.alignment_bytes for arena in fitted.plan.arenas} == {16}


def test_helia_keeps_the_alignment_of_its_memories() -> None:
    memories = [{"name": "SRAM", "max_size": 65_536, "arena_alignment": 32}]
    plan = tmmu.plan(read(TANH), planner="helia", options={"memories": memories})
    assert {arena.alignment_bytes for arena in plan.arenas} == {32}


def test_other_graphs_keep_the_default_of_128_bytes() -> None:
    graph = tmmu.read("sample_graphs/in_place.tmmu.json")
    assert {arena.alignment_bytes for arena in tmmu.plan(graph).arenas} == {128}
