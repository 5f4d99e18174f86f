"""Live ranges (contract §1) on small graphs."""

import msgspec
import numpy as np
import pytest

from tests.support.build import chain, graph, node, tensor, view
from tests.support.simulator import disagreement
from tmmu_core.base.errors import InvalidIrShapes, LivenessCycle
from tmmu_core.graph.index import index_graph
from tmmu_core.graph.model import Graph
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.liveness.timeline import dependencies
from tmmu_core.plans.making.engine import plan_graph


def ranges(g: Graph, **how: object) -> dict[str, tuple[int, int]]:
    plan = plan_graph(g, **how).plan  # type: ignore[arg-type]
    return {row.tensor_id: (row.birth, row.death) for row in plan.rows()}


def test_loading_is_step_zero() -> None:
    #  #0 @inputs   #1 n0   #2 n1
    assert ranges(chain(2, "none")) == {"t0": (0, 2), "t1": (1, 3), "t2": (2, 3)}


def test_unread_tensor_lives_for_one_step_and_early_output_to_the_end() -> None:
    tensors = [tensor("x", role="input"), *map(tensor, ("unread", "early", "a", "b"))]
    nodes = [node("n0", "x", "unread early"), node("n1", "early", "a"), node("n2", "a", "b")]
    found = ranges(graph(tensors, nodes, "x", "early b"))
    assert (found["unread"], found["early"]) == ((1, 2), (1, 4))


@pytest.mark.parametrize("role", ["parameter", "buffer", "constant", "optimizer_state"])
def test_persistent_tensor_lives_through_every_step(role: str) -> None:
    g = graph([tensor("x", role="input"), tensor("w", role=role), tensor("y")], [node("n0", "x w", "y")], "x", "y")
    assert ranges(g)["w"] == (0, 2)


def test_unwritten_view_is_born_with_its_base() -> None:
    tensors = [tensor("x", role="input"), tensor("b"), view("v", "b", 2), tensor("y")]
    g = graph(tensors, [node("n0", "x", "b"), node("n1", "v", "y", inplace="none")], "x", "y")
    assert ranges(g)["v"] == (1, 3)


def test_unwritten_view_without_its_base_is_not_planned() -> None:
    """``v`` views ``u``, which views ``m``, which only the backward pass writes; ``p`` views ``m`` and is written."""
    tensors = [tensor("x", role="input"), tensor("y"), *(view(*names) for names in ("mx", "um", "vu", "wx", "pm"))]
    g = graph(tensors, [node("n0", "x", "y p"), node("n1", "x", "m", phase="backward")], "x", "y")
    existing = {"inference": {*"xywp"}, "backward": {*"xywpmuv"}}
    for mode, names in existing.items():
        plan = plan_graph(g, mode=mode).plan  # type: ignore[arg-type]
        assert set(plan.tensor_ids) == names
        assert verify_plan(plan, g).ok
        assert verify_plan(plan).ok
        assert disagreement(g, mode, plan.preset, range(1)) is None  # type: ignore[arg-type]
    read = msgspec.structs.replace(g, nodes=(*g.nodes, node("n2", "v", "z")), tensors=(*g.tensors, tensor("z")))
    with pytest.raises(InvalidIrShapes, match="'v'"):
        plan_graph(read, mode="inference")
    assert disagreement(read, "inference", "inference", range(1)) is None


def test_given_order_is_followed_and_ties_of_the_default_order_go_to_the_lowest_id() -> None:
    tensors = [tensor("x", role="input"), tensor("a"), tensor("b"), tensor("y")]
    g = graph(tensors, [node("z", "x", "a"), node("é", "x", "b"), node("m", "a b", "y")], "x", "y")
    # "z" is one byte 0x7a, "é" begins with 0xc3: UTF-8 bytes decide, not an alphabet.
    assert plan_graph(g).plan.execution_order == ("z", "é", "m")
    assert plan_graph(g, order=["é", "z", "m"]).plan.execution_order == ("é", "z", "m")


@pytest.mark.parametrize(
    ("order", "reason"),
    [
        (["n000"], "order_missing_node"),
        (["n000", "n000", "n001"], "order_duplicate_node"),
        (["n000", "n001", "nope"], "order_unknown_node"),
    ],
)
def test_order_that_is_no_permutation_is_rejected(order: list[str], reason: str) -> None:
    with pytest.raises(InvalidIrShapes) as caught:
        plan_graph(chain(2), order=order)
    assert caught.value.diagnostics["reason"] == reason
    assert ("(position" in str(caught.value)) == (reason != "order_missing_node")


def test_cycle_error_names_a_node_of_the_cycle() -> None:
    tensors = [tensor("p"), tensor("q"), tensor("r")]
    g = graph(tensors, [node("behind", "q", "r"), node("m0", "q", "p"), node("m1", "p", "q")], gives="r")
    with pytest.raises(LivenessCycle) as caught:
        plan_graph(g)
    assert caught.value.diagnostics["node_id"] == "m0"


def test_order_that_reads_before_writing_is_rejected_with_token_and_graph_hash() -> None:
    with pytest.raises(LivenessCycle) as caught:
        plan_graph(chain(3), order=["n000", "n002", "n001"], seed=7)
    record = caught.value.record()
    assert record["diagnostics"]["node_id"] == "n002"
    assert len(record["replay_token"]) == 64
    assert len(record["diagnostics"]["ir_hash"]) == 64


def test_view_depends_on_its_writer_or_on_that_of_its_root() -> None:
    tensors = [tensor("h"), view("v", "h"), view("u", "v"), tensor("x", role="input"), view("w", "x"), tensor("y")]
    g = graph(tensors, [node("n0", "x", "h w"), node("n1", "u w", "y")], "x", "y")
    before, after = dependencies(index_graph(g), np.ones(2, np.bool_))
    assert list(zip(before.tolist(), after.tolist(), strict=True)) == [(0, 1), (0, 1)]


def test_output_of_another_mode_is_not_required() -> None:
    tensors = [tensor("g", role="gradient"), tensor("x", role="input"), tensor("y")]
    g = graph(tensors, [node("b", "y", "g", phase="backward"), node("f", "x", "y")], "x", "y g")
    assert ranges(g, mode="inference", preset="inference") == {"x": (0, 1), "y": (1, 2)}


def test_first_step_needs_its_inputs() -> None:
    g = graph([tensor("a"), tensor("y")], [node("n", "a", "y")], "", "y")
    with pytest.raises(InvalidIrShapes) as caught:
        plan_graph(g)
    assert caught.value.diagnostics["reason"] == "dangling_input"
    with pytest.raises(InvalidIrShapes) as caught:
        plan_graph(graph([tensor("a"), tensor("y")], [node("n", "", "y")], "", "a"))
    assert caught.value.diagnostics["reason"] == "never_produced"
