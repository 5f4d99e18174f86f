"""The reasons for the live range of a tensor."""

import pytest

from tests.support.build import chain, graph, node, tensor
from tmmu_core.graph.model import Graph
from tmmu_core.liveness.why_live import Explanation, explain
from tmmu_core.plans.making.engine import plan_graph


def why(g: Graph, name: str, **how: str) -> Explanation:
    return explain(plan_graph(g, **how).liveness, name)  # type: ignore[arg-type]


def held() -> Graph:
    """Return a graph in which ``w`` is persistent, ``n0`` runs at step 0 (no inputs) and ``z`` is never read."""
    tensors = [tensor("w", role="parameter"), tensor("a"), tensor("z"), tensor("y")]
    return graph(tensors, [node("n0", "w", "a z"), node("n1", "a w", "y", inplace="none")], "", "y")


def test_reader_at_the_first_step_is_listed() -> None:
    found = why(held(), "w")
    assert [(reader.step, reader.node_id) for reader in found.readers] == [(0, "n0"), (1, "n1")]
    assert found.producer is None
    assert found.reason == "persistent"


@pytest.mark.parametrize(
    ("name", "reason", "span", "words"),
    [
        ("a", "last_read", (0, 2), "#1 n1"),
        ("z", "dead", (0, 1), "never read; live for the step that writes it"),
        ("y", "graph_output", (1, 2), "live to the end: output of the graph"),
        ("w", "persistent", (0, 2), "live at every step: its role is parameter"),
    ],
)
def test_each_end_of_a_live_range_has_its_sentence(name: str, reason: str, span: tuple[int, int], words: str) -> None:
    found = why(held(), name)
    assert (found.reason, (found.birth, found.death), found.sentence) == (reason, span, words)


def test_saved_tensor_lives_to_the_end_of_a_forward_pass() -> None:
    reads = (("n0", "x", "h"), ("n1", "h", "y"), ("n2", "y", "z"))
    tensors = [tensor("x", role="input"), tensor("h", saved_for_backward=True), tensor("y"), tensor("z")]
    g = graph(tensors, [node(*each, inplace="none") for each in reads], "x", "z")
    assert why(g, "h", mode="forward", preset="train_full").reason == "saved_for_backward"
    assert why(g, "h", mode="inference").reason == "last_read"


def test_in_place_reuse_chain_is_explained_from_first_to_last() -> None:
    first, middle, last = (why(chain(2, "any"), name) for name in ("t0", "t1", "t2"))
    assert (first.granted_by, first.handed_to, first.handed_over) == (None, "t1", True)
    assert (middle.takes_over, middle.granted_by, middle.handed_to) == ("t0", "t0", "t2")
    assert (last.takes_over, last.handed_to, last.handed_over) == ("t1", None, False)
    assert first.sentence == "#1 n000, overwritten in place by t1"


def test_denied_handoffs_are_those_of_the_tensor() -> None:
    tensors = [tensor("x", role="input"), tensor("a"), tensor("s"), tensor("y")]
    nodes = [node("n0", "x", "a"), node("n1", "a", "s"), node("n2", "s a", "y")]
    g = graph(tensors, nodes, "x", "x y")
    refused = {name: [(r.source, r.condition) for r in why(g, name).refusals] for name in ("x", "a", "s", "y")}
    assert refused == {"x": [("x", "graph_output")], "a": [("a", "already_taken")], "s": [], "y": []}
