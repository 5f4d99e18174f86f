"""In-place reuse is granted if every condition of contract §1 holds, else refused by the first violated one."""

import pytest

from tests.support.build import chain, graph, node, residual, tensor, view
from tmmu_core.graph.model import Graph, Node, Tensor
from tmmu_core.plans.making.engine import Solution, plan_graph
from tmmu_core.plans.making.plan_rows import without_handoffs


def solve(g: Graph, **how: object) -> Solution:
    return plan_graph(g, **how)  # type: ignore[arg-type]


def granted(g: Graph, **how: object) -> list[tuple[int, str, str]]:
    return list(solve(g, **how).plan.handoffs)


def refused(g: Graph, **how: object) -> list[tuple[str, str]]:
    return [(refusal.source, refusal.condition) for refusal in solve(g, **how).liveness.refusals]


@pytest.mark.parametrize("length", [1, 2, 5, 40])
@pytest.mark.parametrize(("inplace", "slots"), [(None, 1), ("none", 2)])
def test_linear_chain_needs_one_slot_or_two_without_permission(length: int, inplace: str | None, slots: int) -> None:
    plan = solve(chain(length, inplace)).plan
    assert plan.arenas[0].slots == slots
    assert (plan.row(0).death, plan.row(1).birth) == (slots, 1)


def test_residual_block_holds_its_skip_and_hands_over_at_the_add() -> None:
    g = residual("any")
    assert granted(g) == [(2, "a", "b"), (4, "c", "y")]
    assert refused(g) == [("x", "already_taken")]


def one_node(writer: Node, *more: Tensor, gives: str = "y") -> Graph:
    given = [name for name in dict.fromkeys(writer.inputs) if name != "w"]
    tensors = [tensor(name, role="input") for name in given] + [tensor(name) for name in writer.outputs]
    replaced = {extra.id for extra in more}
    return graph([t for t in tensors if t.id not in replaced] + list(more), [writer], " ".join(given), gives)


def test_first_input_or_listed_pair_is_taken() -> None:
    assert granted(one_node(node("n", "a b", "y"))) == [(1, "a", "y")]
    assert granted(one_node(node("n", "a b", "y", inplace=((1, 0), (0, 0))))) == [(1, "b", "y")]


COPY = node("n", "a", "y")
REFUSED: dict[str, tuple[Graph, dict[str, object]]] = {
    "several_outputs": (one_node(node("n", "a", "y z"), gives="y z"), {}),
    "persistent": (one_node(COPY, tensor("a", role="parameter")), {}),
    "graph_output": (one_node(COPY, gives="a y"), {}),
    "saved_for_backward": (one_node(COPY, tensor("a", role="input", saved_for_backward=True)), {"mode": "forward"}),
    "must_not_alias": (one_node(COPY, tensor("a", role="input", must_not_alias=("y",))), {}),
    "other_arena": (
        one_node(COPY, tensor("a", role="input", arena="sram")),
        {"arenas": {"sram": {}, "activations": {}}},
    ),
}


@pytest.mark.parametrize("condition", REFUSED)
def test_input_is_kept_by_each_condition(condition: str) -> None:
    g, how = REFUSED[condition]
    assert refused(g, **how) == [("a", condition)]
    plan = solve(g, **how).plan
    assert plan.row(0).arena != plan.row(1).arena or plan.row(0).logical_slot != plan.row(1).logical_slot


def test_base_is_handed_over_when_its_views_are_dead() -> None:
    tensors = [tensor("x", role="input"), view("v", "x", 2), tensor("y"), tensor("z"), tensor("q")]
    nodes = [node("n0", "x", "y"), node("n1", "v y", "z", inplace="none")]
    assert ("x", "alias_live") in refused(graph(tensors[:4], nodes, "x", "z"))
    nodes = [node("n0", "v", "y", inplace="none"), node("n1", "x", "z", inplace=((0, 0),)), node("n2", "y z", "q")]
    assert (2, "x", "z") in granted(graph(tensors, nodes, "x", "q"))


def test_operand_used_twice_needs_permission_for_both() -> None:
    assert granted(one_node(node("n", "a a", "y", inplace=((0, 0),)))) == []
    assert granted(one_node(node("n", "a a", "y", inplace=((0, 0), (1, 0))))) == [(1, "a", "y")]
    assert granted(one_node(node("n", "a a", "y"))) == [(1, "a", "y")]
    assert granted(one_node(node("n", "a b a", "y", inplace=((0, 0), (1, 0))))) == [(1, "b", "y")]


def test_handoffs_can_be_revoked() -> None:
    granted = plan_graph(chain(3, "any")).liveness
    assert (granted.storages.handoff_from >= 0).sum() == 3
    assert (without_handoffs(granted).storages.handoff_from >= 0).sum() == 0
    assert without_handoffs(granted, across_arenas=True) is granted


def test_output_of_an_existing_storage_takes_no_place() -> None:
    tensors = [tensor("a", role="input"), tensor("first", alias_group_id="g"), tensor("y", alias_group_id="g")]
    g = graph(tensors, [node("n0", "", "first"), node("n1", "a first", "y", inplace=((0, 0),))], "a", "y")
    assert refused(g) == [("a", "alias_live")]
    loaded = graph([tensor("a", role="input"), tensor("w", role="parameter")], [node("n", "a", "w")], "a")
    assert refused(loaded) == [("a", "alias_live")]
    alone = graph([tensor("a", role="input"), tensor("w")], [node("n", "a", "w")], "a", "w")
    assert granted(alone) == [(1, "a", "w")]
