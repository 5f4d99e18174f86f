"""The synthesised backward pass and rematerialisation (contract §2), on chains that can be followed with a finger."""

import itertools
from collections import Counter
from typing import Any

import msgspec
import pytest

from tests.support.build import chain, graph, node, residual, tensor, view
from tmmu_core.graph.model import MODES, PRESETS, Graph, Mode, Preset
from tmmu_core.judge.reference.schedule import ref_backward as judged
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.liveness import backward
from tmmu_core.liveness.remat import with_rematerialisation
from tmmu_core.plans.making.engine import Solution, plan_graph


def ranges(solution: Solution) -> dict[str, tuple[int, int]]:
    return {row.tensor_id: (row.birth, row.death) for row in solution.plan.rows()}


def linear(**marks: object) -> Graph:
    """``x → MATMUL(w) → h → MATMUL(v) → y``."""
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


def test_every_forward_node_gets_a_backward_step_in_reverse() -> None:
    plan = plan_graph(linear(), mode="backward").plan
    assert plan.execution_order == ("n0", "n1", "n1@grad", "n0@grad")


def test_every_differentiable_tensor_gets_one_gradient() -> None:
    plan = plan_graph(linear(), mode="backward").plan
    gradients = {row.tensor_id for row in plan.rows() if row.role == "gradient"}
    assert gradients == {"x@grad", "w@grad", "h@grad", "v@grad", "y@grad"}


def test_parameter_gradients_live_to_the_end() -> None:
    solution = plan_graph(linear(), mode="backward")
    assert ranges(solution)["v@grad"] == (3, 5)


def test_an_operand_is_held_until_its_gradient_has_been_taken() -> None:
    # h is read by n1 at #2 and, for v's gradient, by n1@grad at #3.
    assert ranges(plan_graph(linear(), mode="backward"))["h"] == (1, 4)


def test_without_retention_nothing_is_held() -> None:
    assert ranges(plan_graph(linear(), mode="backward", preset="inference"))["h"] == (1, 3)


def test_marks_decide_when_there_are_any() -> None:
    # x is not marked, so no backward step reads it; h is, by the steps of its reader and of its writer.
    found = ranges(plan_graph(linear(saved_for_backward=True), mode="backward"))
    assert (found["x"], found["h"]) == ((0, 2), (1, 5))


def test_in_forward_mode_saved_tensors_are_held_to_the_end() -> None:
    found = ranges(plan_graph(linear(saved_for_backward=True), mode="forward"))
    assert found["h"] == (1, 3)
    assert plan_graph(linear(saved_for_backward=True), mode="forward").liveness.timeline.steps == 3


def test_two_consumers_add_to_one_gradient_the_last_one_first() -> None:
    solution = plan_graph(residual(), mode="backward")
    joint = {n.node_id: n for n in solution.liveness.timeline.graph.nodes}
    # x feeds the convolution n0 and the addition n3: n3@grad writes x@grad, n0@grad adds to it.
    assert "x@grad" in joint["n3@grad"].outputs
    assert "x@grad" in joint["n0@grad"].inputs
    assert "x@grad" not in joint["n0@grad"].outputs


def test_gradients_flow_along_declared_edges_only() -> None:
    g = graph(
        [tensor("x", role="input"), tensor("gate", role="input"), tensor("y")],
        [node("n0", "x gate", "y", instr="MUL", grad_edges=((0, 0),))],
        "x gate",
        "y",
    )
    plan = plan_graph(g, mode="backward").plan
    assert {row.tensor_id for row in plan.rows() if row.role == "gradient"} == {"x@grad", "y@grad"}


def test_integers_have_no_gradient() -> None:
    g = graph(
        [tensor("ids", role="input", dtype="int64"), tensor("table", role="parameter"), tensor("y")],
        [node("n0", "ids table", "y", instr="GATHER")],
        "ids",
        "y",
    )
    plan = plan_graph(g, mode="backward").plan
    assert {row.tensor_id for row in plan.rows() if row.role == "gradient"} == {"table@grad", "y@grad"}


def test_a_node_without_a_gradient_holds_none_of_its_operands() -> None:
    g = graph(
        [tensor("ids", role="input", dtype="int64"), tensor("k", dtype="int64"), tensor("y", dtype="int64")],
        [node("n0", "ids", "k", instr="MUL", inplace="none"), node("n1", "k", "y", instr="MUL", inplace="none")],
        "ids",
        "y",
    )
    assert ranges(plan_graph(g, mode="backward"))["k"] == (1, 3)


def own_backward() -> Graph:
    """Forward, backward and an optimizer step, written out by hand."""
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


def test_a_graph_with_its_own_backward_runs_it_as_written() -> None:
    plan = plan_graph(own_backward()).plan
    assert plan.mode == "backward"
    assert plan.execution_order == ("f0", "f1", "b0", "b1", "opt")


def test_its_forward_part_alone_plans_no_gradients() -> None:
    plan = plan_graph(own_backward(), mode="inference").plan
    assert {"dh", "dw"}.isdisjoint(plan.tensor_ids)


def test_an_optimizer_step_writes_the_parameter_in_place() -> None:
    rows = {row.tensor_id: row for row in plan_graph(own_backward()).plan.rows()}
    assert rows["w2"].offset_bytes == rows["w"].offset_bytes
    assert (rows["w"].birth, rows["w"].death) == (0, 6)


def test_rematerialisation_drops_after_the_last_forward_use_and_computes_again() -> None:
    solution = plan_graph(linear(remat=True), mode="backward", preset="remat_enabled")
    assert solution.plan.execution_order == ("n0", "n1", "n0@remat", "n1@grad", "n0@grad")
    found = ranges(solution)
    assert found["h"] == (1, 3)
    assert found["h@remat"] == (3, 5)


def test_without_marks_rematerialisation_is_full_retention() -> None:
    full = plan_graph(linear(), mode="backward", preset="train_full").plan
    remat = plan_graph(linear(), mode="backward", preset="remat_enabled").plan
    assert full.layout_hash == remat.layout_hash


def test_a_dropped_input_of_a_dropped_tensor_is_computed_first() -> None:
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


def test_what_is_dropped_is_no_longer_saved_and_what_is_kept_still_is() -> None:
    tensors = [
        tensor("x", role="input"),
        tensor("a", remat=True, saved_for_backward=True),
        tensor("b", saved_for_backward=True),
        tensor("g"),
    ]
    nodes = [node("n", "x", "a"), node("m", "a", "b"), node("back", "a b", "g", phase="backward")]
    expanded, order = with_rematerialisation(graph(tensors, nodes, "x", "g"), ["n", "m", "back"])
    assert order == ["n", "m", "n@remat", "back"]
    assert {t.id: (t.saved_for_backward, t.remat) for t in expanded.tensors} == {
        "x": (False, False),
        "a": (False, True),
        "b": (True, False),
        "g": (False, False),
        "a@remat": (False, False),
    }


def through_views(length: int) -> Graph:
    """A chain in which every node reads a view, which nobody writes, of what the one before wrote."""
    tensors, nodes, last = [tensor("x", role="input")], [], "x"
    for k in range(length):
        tensors += [tensor(f"t{k:03}"), view(f"v{k:03}", f"t{k:03}")]
        nodes.append(node(f"n{k:03}", last, f"t{k:03}", inplace="none"))
        last = f"v{k:03}"
    return graph(tensors, nodes, "x", f"t{length - 1:03}")


@pytest.mark.parametrize("of", [backward, judged])
def test_what_has_a_gradient_is_found_along_views_in_one_pass(of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each node is asked for its edges once for that, and once for its backward step: not once for each view."""
    asked: Counter[str] = Counter()
    name = "_edges" if of is backward else "gradient_edges"
    edges = getattr(of, name)
    monkeypatch.setattr(of, name, lambda node: asked.update([node.node_id]) or edges(node))
    g = through_views(60)
    plan = plan_graph(g, mode="backward").plan
    assert verify_plan(plan, g).ok
    assert set(asked.values()) == {2}
    assert {f"t{k:03}@grad" for k in range(60)} < set(plan.tensor_ids)


class Searched(tuple):  # type: ignore[type-arg]
    """A list that must not be searched for each tensor in turn."""

    def __contains__(self, name: object) -> bool:
        raise AssertionError(f"{name} is looked for from the first to the last")


@pytest.mark.parametrize("mode", ["inference", "backward"])
def test_what_is_handed_out_is_not_searched_for_each_tensor(mode: Mode) -> None:
    g = chain(5)
    g = msgspec.structs.replace(g, inputs=Searched(g.inputs), outputs=Searched(g.outputs))
    assert verify_plan(plan_graph(g, mode=mode, preset="remat_enabled").plan, g).ok
