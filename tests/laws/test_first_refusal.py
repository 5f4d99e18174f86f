"""Of several faults in a graph, planner and reference simulator report the same first one in any listing order."""

import pytest

from tests.support.build import graph, node, tensor, view
from tests.support.refusals import result_or_refusal
from tests.support.simulator import simulate
from tmmu_core.graph.model import Graph, Mode, Tensor
from tmmu_core.plans.making.engine import plan_graph


def both(g: Graph, mode: Mode = "inference", **how: object) -> list[object]:
    asked = {"mode": mode, "preset": "train_full", **how}
    return [
        result_or_refusal(lambda: plan_graph(g, **asked).plan),  # type: ignore[arg-type]
        result_or_refusal(lambda: simulate(g, **asked)),  # type: ignore[arg-type]
    ]


def test_cycle_error_names_a_node_of_the_cycle() -> None:
    tensors = [tensor("x", role="input"), *(tensor(name) for name in "pqr")]
    g = graph(tensors, [node("a", "q", "r"), node("b", "x q", "p"), node("c", "p", "q")], "x")
    assert both(g) == [("LIVENESS_CYCLE", None, None, "b", "", "")] * 2


@pytest.mark.parametrize("names", ["a b", "b a"])
def test_producer_outside_mode_names_lowest_node_id(names: str) -> None:
    reads = [node(name, "z", f"of_{name}") for name in names.split()]
    tensors = [tensor("x", role="input"), tensor("z"), tensor("of_a"), tensor("of_b")]
    g = graph(tensors, [*reads, node("late", "x", "z", phase="backward")], "x")
    assert both(g) == [("INVALID_IR_SHAPES", "producer_outside_mode", None, "a", "", "")] * 2


@pytest.mark.parametrize("listed", ["y z", "z y"])
def test_dangling_view_error_names_first_read(listed: str) -> None:
    roots = [tensor(name) for name in listed.split()]
    tensors = [tensor("x", role="input"), view("v", "z"), *roots, view("w", "y"), tensor("p"), tensor("q")]
    nodes = [node("m", "x v", "q", inplace="none"), node("k", "x w v", "p", inplace="none")]
    assert both(graph(tensors, nodes, "x", "p q")) == [("INVALID_IR_SHAPES", "dangling_input", None, "k", "w", "")] * 2
    ends = graph(tensors, [node("m", "x", "q"), node("k", "x", "p")], "x", "w v")
    assert both(ends) == [("INVALID_IR_SHAPES", "never_produced", None, "", "v", "")] * 2


@pytest.mark.parametrize("ids", ["u v", "v u"])
def test_view_error_names_lowest_tensor_id(ids: str) -> None:
    one, other = ids.split()
    x, y = tensor("x", role="input"), tensor("y")
    nothing = [x, tensor("z"), view(one, "z"), view(other, "z"), y]
    g = graph(nothing, [node("n", "x", f"{one} {other} y", inplace="none")], "x", "y")
    assert both(g) == [("INVALID_IR_SHAPES", "view_of_nothing", None, "n", "u", "")] * 2
    off = [view(name, "x", 1, 4, alignment=8) for name in (one, other)]
    g = graph([x, *off, y], [node("n", "x", "y", inplace="none")], "x", "y")
    assert both(g) == [("ALIGNMENT_VIOLATION", None, None, "", "u", "")] * 2
    apart = [view(one, "x", must_not_alias=("x",)), view(other, "x", must_not_alias=("x",))]
    g = graph([x, *apart, y], [node("n", "x", "y", inplace="none")], "x", "y")
    assert both(g) == [("INVALID_IR_SHAPES", "must_not_alias_same_storage", None, "", "u", "")] * 2


@pytest.mark.parametrize("ids", ["u v", "v u"])
def test_undeclared_arena_error_names_lowest_arena(ids: str) -> None:
    one, other = ids.split()
    lost = [tensor("a", role="input", arena=one), tensor("b", role="input", arena=other)]
    (mine, theirs) = both(graph(lost, [], "a b"), arenas={"activations": {}})
    assert mine == theirs
    assert mine == ("ARENA_TOO_SMALL", None, None, "", "a" if one == "u" else "b", "u")


def test_checks_run_in_a_fixed_order() -> None:
    x, y = tensor("x", role="input"), tensor("y")
    odd = Tensor("z", (-1, "N"), "what")
    twice = graph([x, y, odd], [node("n", "x nobody", "y")], "x", "y y")
    assert both(twice) == [("INVALID_IR_SHAPES", "unknown_dim", None, "", "z", "")] * 2
    twice = graph([x, y], [node("n", "x nobody", "y")], "x", "y y")
    assert both(twice) == [("INVALID_IR_SHAPES", "duplicate_output", None, "", "y", "")] * 2
    lost = graph([x, y, view("v", "gone"), tensor("d")], [node("n", "x d", "y"), node("m", "x", "y")], "x", "y")
    assert both(lost) == [("INVALID_IR_SHAPES", "two_producers", None, "m", "y", "")] * 2
    taken = graph([x, y, tensor("x@grad")], [node("n", "x", "y")], "x", "y")
    assert both(taken, "backward") == [("INVALID_IR_SHAPES", "duplicate_tensor", None, "", "x@grad", "")] * 2
