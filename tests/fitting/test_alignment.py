"""Alignment moves: the largest alignment that fits, never below the element size."""

import tmmu
from tests.fitting.test_fitting import shown, started
from tmmu_core.fitting.move import KINDS
from tmmu_core.fitting.problem.answer import Allowed, Capacity
from tmmu_core.fitting.search.fit_search import fit
from tmmu_core.fitting.search.overviews import curve
from tmmu_core.graph.model import Graph, Node, Tensor

ALONE = Allowed(frozenset({"alignment"}))


def odd_sizes() -> Graph:
    """Return four results of 4 × 9 bytes read by one node: 128 bytes each by default, 36 at the smallest alignment."""
    names = tuple(f"t{k}" for k in range(4))
    nodes = [Node(name, "Relu", ("x",), (name,), inplace="none") for name in names]
    return Graph(
        tensors=(Tensor("x", (9,)), *(Tensor(name, (9,)) for name in names), Tensor("y", (9,))),
        nodes=(*nodes, Node("sum", "Sum", names, ("y",), inplace="none")),
        inputs=("x",),
        outputs=("y",),
    )


def test_largest_alignment_that_fits_is_taken() -> None:
    start = started(odd_sizes())
    assert start.extent_bytes == 4 * 128 + 36
    fitted = shown(fit(start, Capacity(4 * 64 + 36), ALONE))
    (move,) = fitted.best.moves
    assert (fitted.answer, move.details["alignment"], move.bytes) == ("fits", 64, 4 * 64)
    assert {arena.alignment_bytes for arena in fitted.best.plan.arenas} == {64}
    assert tmmu.plan(fitted.best.plan_input.graph).extent_bytes == fitted.best.extent_bytes


def test_element_is_not_split_and_the_bound_holds_for_the_finest_alignment() -> None:
    fitted = shown(fit(started(odd_sizes()), Capacity(5 * 36 - 1), ALONE))
    assert (fitted.answer, fitted.lower_bound_bytes) == ("cannot", 5 * 36)
    reached = shown(fit(started(odd_sizes()), Capacity(5 * 36), ALONE))
    assert [move.details["alignment"] for move in reached.best.moves] == [4]
    points = curve(started(odd_sizes()), Allowed(frozenset({"planner", "alignment"})))
    assert points[-1].extent_bytes == 5 * 36


def test_alignment_is_unchanged_by_default() -> None:
    assert "alignment" in KINDS
    fitted = fit(started(odd_sizes()), Capacity(5 * 36))
    assert all(move.kind != "alignment" for move in fitted.best.moves)
