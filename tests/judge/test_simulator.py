"""The reference simulator on problems with hand-computed results: one sentence of the contract per test."""

from __future__ import annotations

import pytest

from tests.support.build import chain, graph, node, tensor
from tmmu_core.base.errors import (
    AllocationFailure,
    ArenaTooSmall,
    InvalidIrShapes,
)
from tmmu_core.graph.model import Graph, Tensor, View
from tmmu_core.judge.reference.simulator import SimulatedPlan, SimulationRequest, simulate


def played(g: Graph, mode: str = "inference", preset: str = "inference", **how: object) -> SimulatedPlan:
    return simulate(g, SimulationRequest(mode=mode, preset=preset, **how))  # type: ignore[arg-type]


def lives(plan: SimulatedPlan) -> dict[str, tuple[int, int]]:
    return {row.tensor_id: (row.birth, row.death) for row in plan.rows}


@pytest.mark.parametrize("length", [1, 3, 30])
def test_chain_uses_one_slot(length: int) -> None:
    assert played(chain(length)).arenas[0].slots == 1


def test_slots_are_at_aligned_prefix_sums() -> None:
    g = graph([tensor("w", 1, "parameter"), tensor("v", 40, "parameter"), tensor("u", 1, "buffer")], [])
    plan = played(g, arenas={"parameters": {"alignment_bytes": 64}})
    assert plan.logical_address_table == (("parameters", 0, 0), ("parameters", 1, 192), ("parameters", 2, 256))
    assert [row.tensor_id for row in sorted(plan.rows, key=lambda row: row.logical_slot)] == ["v", "u", "w"]


def test_waste_ledger_accounts_for_every_byte() -> None:
    g = graph(
        [tensor("x", 100, "input"), tensor("a", 10), tensor("b", 3), tensor("y", 50)],
        [node("n0", "x", "a", inplace="none"), node("n1", "a", "b", inplace="none"), node("n2", "a b", "y")],
        "x",
        "y",
    )
    plan = played(g)
    # b takes x's slot of 400 bytes, y a's, which grows to 200: [0, 400), a gap, [512, 712).
    assert plan.arenas[0].extent_bytes == 712
    assert plan.waste("activations", 2) == {
        "live": 12 + 40,
        "alignment_gaps": 112,
        "slot_rounding": (400 - 12) + (200 - 40),
        "holes": 0,
        "tail": 0,
    }
    assert plan.waste("activations", 0) == {
        "live": 400,
        "alignment_gaps": 0,
        "slot_rounding": 0,
        "holes": 0,
        "tail": 312,
    }


def test_undeclared_arena_is_rejected() -> None:
    with pytest.raises(ArenaTooSmall) as refused:
        played(graph([tensor("x", role="input", arena="sram")], [], "x"))
    assert refused.value.diagnostics["capacity"] == 0


def test_capacity_below_the_extent_is_rejected() -> None:
    with pytest.raises(ArenaTooSmall) as refused:
        played(chain(3, "none"), arenas={"activations": {"capacity_bytes": 143}})
    assert refused.value.diagnostics["required"] == 144


def test_budget_below_the_sum_of_extents_is_rejected() -> None:
    with pytest.raises(AllocationFailure):
        played(chain(3), budget=15)


@pytest.mark.parametrize(
    ("length", "strides", "fine"),
    [
        *((16, None, True), (0, (0,), True), (8, (0,), True), (16, (0,), True)),
        *((8, None, False), (8, (1,), False), (20, (0,), False), (-4, (0,), False), (20, None, False)),
    ],
)
def test_view_with_stride_0_may_be_shorter_than_its_elements(
    length: int, strides: tuple[int, ...] | None, fine: bool
) -> None:
    looks = Tensor("v", (4,), view=View("x", 0, length, strides))
    g = graph([tensor("x", 16, "input"), looks, tensor("y")], [node("n", "v", "y", inplace="none")], "x", "y")
    if fine:
        assert {row.tensor_id: row.size_bytes for row in played(g).rows}["v"] == length
    else:
        with pytest.raises(InvalidIrShapes):
            played(g)
