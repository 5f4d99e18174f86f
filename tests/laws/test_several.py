"""Where several things are wrong at once planner and judge name the same, whichever way round the file lists them."""

from __future__ import annotations

from random import Random

import pytest

from tests.build import graph, node, tensor, view
from tests.several import crowded, disagreement, named, planned, several_wrong, turned
from tmmu_core.graph.model import Graph, Mode, Tensor
from tmmu_core.judge.simulator import Asked, simulate
from tmmu_core.plan.making.engine import plan_graph


@pytest.mark.parametrize("part", range(8))
def test_of_several_things_wrong_both_name_the_same(part: int) -> None:
    assert {k: found for k in range(part, 320, 8) if (found := disagreement(several_wrong(k)))} == {}


@pytest.mark.parametrize("part", range(8))
def test_of_what_a_whole_graph_is_refused_for_both_name_the_same_any_way_round(part: int) -> None:
    cases = {k: crowded(k) for k in range(part, 320, 8)}
    assert {k: found for k, case in cases.items() if (found := disagreement(case) or turned(case, Random(k)))} == {}


def both(g: Graph, mode: Mode = "inference", **how: object) -> list[object]:
    asked = {"mode": mode, "preset": "train_full", **how}
    return [
        named(lambda: plan_graph(g, **asked).plan),  # type: ignore[arg-type]
        named(lambda: simulate(g, Asked(**asked))),  # type: ignore[arg-type]
    ]


def test_who_only_waits_for_a_cycle_is_not_on_one() -> None:
    g = graph(
        [tensor("x", role="input"), *(tensor(name) for name in "pqr")],
        [node("a", "q", "r"), node("b", "x q", "p"), node("c", "p", "q")],
        "x",
    )
    assert both(g) == [("LIVENESS_CYCLE", None, None, "b", "", "")] * 2


@pytest.mark.parametrize("names", ["a b", "b a"])
def test_of_nodes_that_read_another_mode_the_lowest_id_is_told_of(names: str) -> None:
    reads = [node(name, "z", f"of_{name}") for name in names.split()]
    tensors = [tensor("x", role="input"), tensor("z"), tensor("of_a"), tensor("of_b")]
    g = graph(tensors, [*reads, node("late", "x", "z", phase="backward")], "x")
    assert both(g) == [("INVALID_IR_SHAPES", "producer_outside_mode", None, "a", "", "")] * 2


@pytest.mark.parametrize("listed", ["y z", "z y"])
def test_of_what_nothing_writes_that_is_told_of_which_is_read_first(listed: str) -> None:
    """By the steps and their operands, not by where the file lists it: views of what no node writes."""
    roots = [tensor(name) for name in listed.split()]
    tensors = [tensor("x", role="input"), view("v", "z"), *roots, view("w", "y"), tensor("p"), tensor("q")]
    nodes = [node("m", "x v", "q", inplace="none"), node("k", "x w v", "p", inplace="none")]
    assert both(graph(tensors, nodes, "x", "p q")) == [("INVALID_IR_SHAPES", "dangling_input", None, "k", "w", "")] * 2
    ends = graph(tensors, [node("m", "x", "q"), node("k", "x", "p")], "x", "w v")
    assert both(ends) == [("INVALID_IR_SHAPES", "never_produced", None, "", "v", "")] * 2


@pytest.mark.parametrize("ids", ["u v", "v u"])
def test_of_views_the_lowest_id_is_told_of(ids: str) -> None:
    """That look at nothing, or lie off a grid, or share what must be apart: not the first that the file lists."""
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
def test_of_arenas_that_are_not_declared_the_lowest_name_is_told_of(ids: str) -> None:
    one, other = ids.split()
    lost = [tensor("a", role="input", arena=one), tensor("b", role="input", arena=other)]
    (mine, theirs) = both(graph(lost, [], "a b"), arenas={"activations": {}})
    assert mine == theirs
    assert mine == ("ARENA_TOO_SMALL", None, None, "", "a" if one == "u" else "b", "u")


def test_the_questions_come_in_one_order() -> None:
    """A duplicated output, an operand that is nothing, a dtype that is none, a name that is taken by a gradient."""
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


def test_a_case_that_is_refused_says_so() -> None:
    """The laws above compare names: of refusals they are there."""
    refused = [said for k in range(200) if isinstance(said := planned(crowded(k)), tuple)]
    assert len({said[:3] for said in refused}) > 8
    assert all(any(said[3:]) for said in refused)
