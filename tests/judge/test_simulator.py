"""The reference simulator on problems with hand-computed results: one sentence of the contract per test."""

from __future__ import annotations

import pytest

from tests.support.build import chain, graph, node, residual, tensor, view
from tmmu_core.base.errors import (
    AllocationFailure,
    ArenaTooSmall,
    ContractError,
    InvalidIrShapes,
    LivenessCycle,
)
from tmmu_core.graph.model import Graph, Tensor, View
from tmmu_core.judge.reference.simulator import SimulatedPlan, SimulationRequest, simulate
from tmmu_core.plans.making.engine import plan_graph


def played(g: Graph, mode: str = "inference", preset: str = "inference", **how: object) -> SimulatedPlan:
    return simulate(g, SimulationRequest(mode=mode, preset=preset, **how))  # type: ignore[arg-type]


def lives(plan: SimulatedPlan) -> dict[str, tuple[int, int]]:
    return {row.tensor_id: (row.birth, row.death) for row in plan.rows}


@pytest.mark.parametrize("length", [1, 3, 30])
def test_chain_uses_one_slot(length: int) -> None:
    assert played(chain(length)).arenas[0].slots == 1


@pytest.mark.parametrize("length", [1, 3, 30])
def test_chain_without_reuse_uses_two_slots(length: int) -> None:
    assert played(chain(length, "none")).arenas[0].slots == 2


def test_loading_is_step_0() -> None:
    assert lives(played(chain(2, "none"))) == {"t0": (0, 2), "t1": (1, 3), "t2": (2, 3)}


def test_residual_block_holds_its_skip_connection() -> None:
    plan = played(residual())
    assert lives(plan) == {"x": (0, 5), "a": (1, 3), "b": (2, 4), "c": (3, 5), "y": (4, 5)}
    assert plan.arenas[0].slots == plan.arenas[0].max_live == 3


def test_slots_are_at_aligned_prefix_sums() -> None:
    g = graph([tensor("w", 1, "parameter"), tensor("v", 40, "parameter"), tensor("u", 1, "buffer")], [])
    plan = played(g, arenas={"parameters": {"alignment_bytes": 64}})
    assert plan.logical_address_table == (("parameters", 0, 0), ("parameters", 1, 192), ("parameters", 2, 256))
    assert [row.tensor_id for row in sorted(plan.rows, key=lambda row: row.logical_slot)] == ["v", "u", "w"]


def test_zero_sized_tensor_has_one_byte() -> None:
    plan = played(graph([tensor("a", 0, "parameter"), tensor("b", 0, "parameter")], []))
    assert [row.offset_bytes for row in plan.rows] == [0, 128]
    assert plan.arenas[0].extent_bytes == 129


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


def test_view_is_in_its_base_and_keeps_it_alive() -> None:
    g = graph(
        [tensor("x", 8, "input"), view("v", "x", 4, 16), tensor("y")],
        [node("n0", "v", "y", inplace="none")],
        "x",
        "y",
    )
    plan = played(g)
    rows = {row.tensor_id: row for row in plan.rows}
    assert rows["v"].offset_bytes == rows["x"].offset_bytes + 16
    assert lives(plan) == {"x": (0, 1), "v": (0, 2), "y": (1, 2)}
    assert plan.lives.storages["x"].death == 2


def test_in_place_write_joins_the_storage_of_its_input() -> None:
    g = graph(
        [tensor("x", role="input"), tensor("y"), tensor("z")],
        [node("n0", "x", "y", in_place_write=((0, 0),)), node("n1", "y", "z", inplace="none")],
        "x",
        "z",
    )
    plan = played(g)
    assert plan.lives.storages["x"].members == ("x", "y")
    assert lives(plan) == {"x": (0, 1), "y": (1, 3), "z": (2, 3)}


def test_input_is_overwritten_by_one_output_only() -> None:
    g = graph(
        [tensor("x", role="input"), tensor("y"), tensor("z")],
        [node("n0", "x", "y z", in_place_write=((0, 0), (0, 1)))],
        "x",
        "y z",
    )
    with pytest.raises(InvalidIrShapes) as refused:
        played(g)
    assert refused.value.diagnostics["condition"] == "refcount"


def test_must_not_alias_storages_never_share_a_slot() -> None:
    tensors = [tensor("x", role="input"), tensor("a"), tensor("b", must_not_alias=("x",))]
    g = graph(tensors, [node("n0", "x", "a", inplace="none"), node("n1", "a", "b", inplace="none")], "x", "b")
    plan = played(g)
    slot = {row.tensor_id: row.logical_slot for row in plan.rows}
    assert slot == {"x": 0, "a": 1, "b": 2}


def test_backward_steps_are_synthesised_in_reverse() -> None:
    plan = played(chain(2), "backward", "train_full")
    assert plan.execution_order == ("n000", "n001", "n001@grad", "n000@grad")
    # RELU's gradient reads its output; the loss's gradient is written by the last node's own step.
    assert lives(plan)["t1"] == (1, 5)
    assert lives(plan)["t2@grad"] == (3, 4)


def test_marked_tensor_is_recomputed_before_its_first_backward_reader() -> None:
    g = chain(3)
    marked = tuple(tensor("t1", remat=True) if t.id == "t1" else t for t in g.tensors)
    plan = played(Graph(tensors=marked, nodes=g.nodes, inputs=g.inputs, outputs=g.outputs), "backward", "remat_enabled")
    assert plan.execution_order[-3:] == ("n001@grad", "n000@remat", "n000@grad")
    assert "t1@remat" in lives(plan)


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
    ("order", "reason"),
    [
        (("n000",), "order_missing_node"),
        (("n000", "n001", "n001"), "order_duplicate_node"),
        (("n000", "n001", "n2"), "order_unknown_node"),
    ],
)
def test_order_must_be_a_permutation(order: tuple[str, ...], reason: str) -> None:
    with pytest.raises(InvalidIrShapes) as refused:
        played(chain(2), order=order)
    assert refused.value.diagnostics["reason"] == reason


def test_order_that_reads_before_writing_names_the_node() -> None:
    with pytest.raises(LivenessCycle) as refused:
        played(chain(3), order=("n000", "n002", "n001"))
    assert refused.value.diagnostics["node_id"] == "n002"


def test_token_changes_the_plan_hash_and_not_the_layout() -> None:
    one, other = played(chain(2), token=bytes(32)), played(chain(2), token=bytes([1] * 32))
    assert one.layout_hash == other.layout_hash
    assert one.tmmu_plan_hash != other.tmmu_plan_hash == one.bound_to(bytes([1] * 32))


def test_incomplete_graph_is_rejected() -> None:
    with pytest.raises(ContractError):
        played(graph([tensor("x")], [node("n", "x", "y")], "x"))


@pytest.mark.parametrize(("mode", "preset"), [("nobody's", "inference"), ("inference", "nobody's")])
def test_unknown_mode_or_preset_is_rejected(mode: str, preset: str) -> None:
    with pytest.raises(InvalidIrShapes, match=f"no mode {mode} or preset {preset}"):
        played(chain(1), mode, preset)


def test_in_place_write_into_a_living_storage_is_rejected() -> None:
    # y lies with m, which was written a step earlier: its bytes are not free to be those of x.
    g = graph(
        [tensor("x", role="input"), tensor("m", alias_group_id="g"), tensor("y", alias_group_id="g")],
        [node("n0", "x", "m", inplace="none"), node("n1", "x", "y", in_place_write=((0, 0),))],
        "x",
        "y",
    )
    for plan in (played, plan_graph):
        with pytest.raises(InvalidIrShapes) as refused:
            plan(g)
        assert refused.value.diagnostics["condition"] == "refcount"


def test_gradient_flows_along_declared_edges_only() -> None:
    # v looks at x, which has a gradient; but n0 writes it, and no gradient flows along n0 from v.
    g = graph(
        [tensor("x", role="input"), tensor("a"), view("v", "x"), tensor("y")],
        [node("n0", "x", "a v", instr="RELU", grad_edges=((0, 0),)), node("n1", "v", "y", instr="RELU")],
        "x",
        "a y",
    )
    plan = played(g, "backward", "train_full")
    assert {row.tensor_id for row in plan.rows if row.role == "gradient"} == {"x@grad", "a@grad"}


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
