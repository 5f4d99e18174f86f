"""Small graphs on which planner and reference once disagreed."""

import pytest

from tests.support.build import graph, node, tensor, view
from tests.support.simulator import disagreement
from tmmu_core.base.errors import AlignmentViolation, ArenaTooSmall, InvalidIrShapes
from tmmu_core.graph.model import MODES, PRESETS, Graph, Mode, Preset, Tensor, View
from tmmu_core.plans.making.engine import plan_graph

VIEWS_OF_NOTHING = graph(
    [tensor("b", 8), tensor("x", role="input"), view("v", "b", 4, 16), view("w", "b"), tensor("y")],
    [node("n", "x", "v w"), node("m", "v w", "y", inplace="none")],
    "x",
    "y",
)
"""Nobody writes b, so its views have no address."""

READ_BEFORE_ITS_BASE = graph(
    [tensor("x", role="input"), tensor("q"), view("flat", "q"), view("part", "flat", 2, 8), tensor("y", 2)],
    [node("a", "x", "q"), node("b", "part", "y"), node("c", "q", "flat")],
    "x",
    "y",
)
"""part looks through flat, which is written only after part was read; both have a gradient."""

READ_WITH_ITS_VIEW = graph(
    [tensor("x", role="input"), view("v", "x", 2, 8), tensor("y")], [node("n", "x v", "y", inplace="any")], "x", "y"
)
"""n reads x and a part of x for the last time at one step: y may take over neither."""

OVERWRITTEN_TWICE = graph(
    [tensor("x", 8, "input"), view("v", "x", 4, 16), tensor("a"), tensor("b")],
    [
        node("n0", "v", "a", in_place_write=((0, 0),), inplace="none"),
        node("n1", "a", "b", in_place_write=((0, 0),), inplace="none"),
    ],
    "x",
    "b",
)
"""a overwrites the second half of x, b overwrites a."""

OVERWRITTEN_BY_MORE = graph(
    [tensor("x", 8, "input"), view("v", "x", 4, 16), tensor("a", 8)],
    [node("n0", "v", "a", in_place_write=((0, 0),), inplace="none")],
    "x",
    "a",
)
"""a begins in the middle of x and is as large as x: the storage has 16 + 32 bytes."""

SMALL = (OVERWRITTEN_BY_MORE, VIEWS_OF_NOTHING, READ_BEFORE_ITS_BASE, READ_WITH_ITS_VIEW, OVERWRITTEN_TWICE)


@pytest.mark.parametrize("g", SMALL)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("preset", PRESETS)
def test_planner_and_reference_agree(g: Graph, mode: Mode, preset: Preset) -> None:
    assert disagreement(g, mode, preset, seeds=[0]) is None


def test_tensor_read_with_its_view_is_not_handed_over() -> None:
    assert plan_graph(READ_WITH_ITS_VIEW).plan.handoffs == ()


def test_second_in_place_write_has_the_offset_of_the_first() -> None:
    plan = plan_graph(OVERWRITTEN_TWICE).plan
    assert [int(plan.offset[plan.row_of[name]]) for name in ("x", "v", "a", "b")] == [0, 16, 16, 16]


def test_storage_reaches_to_its_farthest_member() -> None:
    (arena,) = plan_graph(OVERWRITTEN_BY_MORE).plan.arenas
    assert (arena.extent_bytes, arena.peak_live_bytes, arena.storages) == (48, 48, 1)


def test_differentiability_does_not_depend_on_the_order() -> None:
    plan = plan_graph(READ_BEFORE_ITS_BASE, mode="backward").plan
    assert {"part@grad", "flat@grad"} <= set(plan.tensor_ids)


def test_view_of_a_view_off_its_grid_is_misaligned() -> None:
    tensors = [
        tensor("x", role="input"),
        Tensor("bytes", (8,), "int8", view=View("x", 1)),
        Tensor("halves", (2,), "float16", view=View("bytes", 2)),
    ]
    with pytest.raises(AlignmentViolation):
        plan_graph(graph(tensors, [], "x"))


@pytest.mark.parametrize("pairs", [((0, 0), (0, 1)), ((0, 0), (1, 0))])
def test_in_place_write_has_one_input_and_one_output(pairs: tuple[tuple[int, int], ...]) -> None:
    tensors = [tensor("a", role="input"), tensor("b", role="input"), tensor("y"), tensor("z")]
    g = graph(tensors, [node("n", "a b", "y z", in_place_write=pairs)], "a b", "y z")
    with pytest.raises(InvalidIrShapes) as refused:
        plan_graph(g)
    assert refused.value.diagnostics["condition"] == "refcount"


def test_named_arena_must_be_declared() -> None:
    g = graph([tensor("x", role="input", arena="sram")], [], "x")
    with pytest.raises(ArenaTooSmall):
        plan_graph(g)
    assert plan_graph(g, arenas={"sram": {}}).plan.arenas[0].name == "sram"
