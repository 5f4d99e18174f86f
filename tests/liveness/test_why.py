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


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("a", "#1 n1"),
        ("z", "never read; live for the step that writes it"),
        ("y", "live to the end: output of the graph"),
        ("w", "live at every step: its role is parameter"),
    ],
)
def test_each_end_of_a_live_range_has_its_reason(name: str, reason: str) -> None:
    assert why(held(), name).reason == reason


def test_saved_tensor_lives_to_the_end_of_a_forward_pass() -> None:
    reads = (("n0", "x", "h"), ("n1", "h", "y"), ("n2", "y", "z"))
    tensors = [tensor("x", role="input"), tensor("h", saved_for_backward=True), tensor("y"), tensor("z")]
    g = graph(tensors, [node(*each, inplace="none") for each in reads], "x", "z")
    assert "saved for a backward pass" in why(g, "h", mode="forward", preset="train_full").reason
    assert why(g, "h", mode="inference").reason == "#2 n1"


def test_in_place_reuse_is_the_end_of_a_live_range() -> None:
    assert why(chain(2, "any"), "t0").reason == "#1 n000, overwritten in place by t1"


def test_denied_handoffs_are_those_of_the_tensor() -> None:
    tensors = [tensor("x", role="input"), tensor("a"), tensor("s"), tensor("y")]
    nodes = [node("n0", "x", "a"), node("n1", "a", "s"), node("n2", "s a", "y")]
    g = graph(tensors, nodes, "x", "x y")
    refused = {name: [(r.source, r.condition) for r in why(g, name).refusals] for name in ("x", "a", "s", "y")}
    assert refused == {"x": [("x", "graph_output")], "a": [("a", "already_taken")], "s": [], "y": []}
