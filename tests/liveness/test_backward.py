"""The synthesised backward pass and rematerialisation (contract §2) on small chains."""

import itertools

import pytest

from tests.support.build import chain, graph, node, residual, tensor, view
from tmmu_core.base.errors import InvalidIrShapes
from tmmu_core.graph.model import MODES, PRESETS, Graph, Mode, Preset
from tmmu_core.liveness.backward import with_rematerialisation
from tmmu_core.plans.making.engine import Solution, plan_graph


def ranges(solution: Solution) -> dict[str, tuple[int, int]]:
    return {row.tensor_id: (row.birth, row.death) for row in solution.plan.rows()}


def linear(**marks: object) -> Graph:
    """Return ``x → MATMUL(w) → h → MATMUL(v) → y``."""
    return graph(
        [
            tensor("x", role="input"),
            tensor("w", role="parameter"),
            tensor("h", **marks),
            tensor("v", role="parameter"),
            tensor("y"),
        ],
        [
            node("n0", "x w", "h", instr="MATMUL", inplace="none"),
            node("n1", "h v", "y", instr="MATMUL", inplace="none"),
        ],
        "x",
        "y",
    )


def test_every_node_has_a_backward_step_in_reverse_and_every_tensor_a_gradient() -> None:
    plan = plan_graph(linear(), mode="backward").plan
    assert plan.execution_order == ("n0", "n1", "n1@grad", "n0@grad")
    gradients = {row.tensor_id for row in plan.rows() if row.role == "gradient"}
    assert gradients == {"x@grad", "w@grad", "h@grad", "v@grad", "y@grad"}


def test_parameter_gradients_live_to_the_end() -> None:
    solution = plan_graph(linear(), mode="backward")
    assert ranges(solution)["v@grad"] == (3, 5)


def test_operand_lives_until_its_gradient_is_computed() -> None:
    # h is read by n1 at #2 and, for v's gradient, by n1@grad at #3.
    assert ranges(plan_graph(linear(), mode="backward"))["h"] == (1, 4)


def test_inference_preset_retains_nothing() -> None:
    assert ranges(plan_graph(linear(), mode="backward", preset="inference"))["h"] == (1, 3)


def test_saved_marks_replace_the_default_retention() -> None:
    # x is not marked, so no backward step reads it; h is, by the steps of its reader and of its writer.
    found = ranges(plan_graph(linear(saved_for_backward=True), mode="backward"))
    assert (found["x"], found["h"]) == ((0, 2), (1, 5))


def test_forward_mode_holds_saved_tensors_to_the_end() -> None:
    found = ranges(plan_graph(linear(saved_for_backward=True), mode="forward"))
    assert found["h"] == (1, 3)
    assert plan_graph(linear(saved_for_backward=True), mode="forward").liveness.timeline.steps == 3


def test_gradients_of_two_consumers_are_accumulated() -> None:
    solution = plan_graph(residual(), mode="backward")
    joint = {n.node_id: n for n in solution.liveness.timeline.graph.nodes}
    # x feeds the convolution n0 and the addition n3: n3@grad writes x@grad, n0@grad adds to it.
    assert "x@grad" in joint["n3@grad"].outputs
    assert "x@grad" in joint["n0@grad"].inputs
    assert "x@grad" not in joint["n0@grad"].outputs


def test_gradients_flow_along_declared_edges_only() -> None:
    tensors = [tensor("x", role="input"), tensor("gate", role="input"), tensor("y")]
    g = graph(tensors, [node("n0", "x gate", "y", instr="MUL", grad_edges=((0, 0),))], "x gate", "y")
    plan = plan_graph(g, mode="backward").plan
    assert {row.tensor_id for row in plan.rows() if row.role == "gradient"} == {"x@grad", "y@grad"}


def test_integers_have_no_gradient() -> None:
    tensors = [tensor("ids", role="input", dtype="int64"), tensor("table", role="parameter"), tensor("y")]
    g = graph(tensors, [node("n0", "ids table", "y", instr="GATHER")], "ids", "y")
    plan = plan_graph(g, mode="backward").plan
    assert {row.tensor_id for row in plan.rows() if row.role == "gradient"} == {"table@grad", "y@grad"}


def test_node_without_a_gradient_retains_no_operand() -> None:
    g = graph(
        [tensor("ids", role="input", dtype="int64"), tensor("k", dtype="int64"), tensor("y", dtype="int64")],
        [node("n0", "ids", "k", instr="MUL", inplace="none"), node("n1", "k", "y", instr="MUL", inplace="none")],
        "ids",
        "y",
    )
    assert ranges(plan_graph(g, mode="backward"))["k"] == (1, 3)


def own_backward() -> Graph:
    """Return a graph with hand-written backward nodes and an optimizer step."""
    return graph(
        [
            tensor("x", role="input"),
            tensor("w", role="parameter"),
            tensor("m", role="optimizer_state"),
            tensor("h", saved_for_backward=True),
            tensor("y"),
            tensor("dh", role="gradient"),
            tensor("dw", role="gradient"),
            tensor("w2", role="parameter"),
        ],
        [
            node("f0", "x w", "h", inplace="none"),
            node("f1", "h", "y", inplace="none"),
            node("b0", "y h", "dh", phase="backward", inplace="none"),
            node("b1", "dh x", "dw", phase="backward", inplace="none"),
            node("opt", "w dw m", "w2", phase="optimizer", inplace="none", in_place_write=((0, 0),)),
        ],
        "x",
        "y",
    )


def test_id_that_an_added_gradient_also_has_is_rejected_with_its_origin() -> None:
    ir = graph([tensor("x", role="input"), tensor("x@grad")], [node("n", "x", "x@grad")], "x", "x@grad")
    with pytest.raises(InvalidIrShapes) as refused:
        plan_graph(ir, mode="backward")
    assert "with the steps that mode backward and preset" in str(refused.value.diagnostics["source"])


def test_graph_with_its_own_backward_pass_runs_as_written() -> None:
    plan = plan_graph(own_backward()).plan
    assert plan.mode == "backward"
    assert plan.execution_order == ("f0", "f1", "b0", "b1", "opt")
    forward = plan_graph(own_backward(), mode="inference").plan
    assert {"dh", "dw"}.isdisjoint(forward.tensor_ids)


def test_optimizer_step_writes_the_parameter_in_place() -> None:
    rows = {row.tensor_id: row for row in plan_graph(own_backward()).plan.rows()}
    assert rows["w2"].offset_bytes == rows["w"].offset_bytes
    assert (rows["w"].birth, rows["w"].death) == (0, 6)


def test_rematerialisation_drops_after_the_last_forward_use_and_recomputes() -> None:
    solution = plan_graph(linear(remat=True), mode="backward", preset="remat_enabled")
    assert solution.plan.execution_order == ("n0", "n1", "n0@remat", "n1@grad", "n0@grad")
    found = ranges(solution)
    assert found["h"] == (1, 3)
    assert found["h@remat"] == (3, 5)


def test_rematerialisation_without_marks_is_full_retention() -> None:
    full = plan_graph(linear(), mode="backward", preset="train_full").plan
    remat = plan_graph(linear(), mode="backward", preset="remat_enabled").plan
    assert full.layout_hash == remat.layout_hash


def test_dropped_input_is_recomputed_first() -> None:
    g = graph(
        [tensor("x", role="input"), tensor("a", remat=True), tensor("b", remat=True), tensor("y")],
        [node(f"n{i}", s, t, instr="MATMUL", inplace="none") for i, (s, t) in enumerate(("xa", "ab", "by"))],
        "x",
        "y",
    )
    order = plan_graph(g, mode="backward", preset="remat_enabled").plan.execution_order
    assert order == ("n0", "n1", "n2", "n0@remat", "n1@remat", "n2@grad", "n1@grad", "n0@grad")


@pytest.mark.parametrize(("mode", "preset"), list(itertools.product(MODES, PRESETS)))
@pytest.mark.parametrize("g", [chain(4), residual(), linear(remat=True), own_backward()], ids="abcd")
def test_every_mode_runs_with_every_preset(g: Graph, mode: Mode, preset: Preset) -> None:
    plan = plan_graph(g, mode=mode, preset=preset).plan
    assert all(arena.slots == arena.max_live for arena in plan.arenas)


def test_dropped_tensor_is_no_longer_saved_and_its_copy_views_the_copy_of_its_base() -> None:
    tensors = [
        tensor("x", role="input"),
        tensor("base"),
        view("a", "base", remat=True, saved_for_backward=True),
        tensor("b", saved_for_backward=True),
        tensor("g"),
    ]
    nodes = [node("n", "x", "base a"), node("m", "a", "b"), node("back", "a b", "g", phase="backward")]
    expanded, order = with_rematerialisation(graph(tensors, nodes, "x", "g"), ["n", "m", "back"])
    assert order == ["n", "m", "n@remat", "back"]
    assert {t.id: (t.saved_for_backward, t.remat, t.view and t.view.base_tensor_uid) for t in expanded.tensors} == {
        "x": (False, False, None),
        "base": (False, False, None),
        "a": (False, True, "base"),
        "b": (True, False, None),
        "g": (False, False, None),
        "base@remat": (False, False, None),
        "a@remat": (False, False, "base@remat"),
    }
