"""Offsets near 2^63 and 2^64 are exact; an offset past 64 bits is rejected."""

import pytest

from tests.support.build import graph, node
from tests.support.refusals import result_or_refusal
from tests.support.simulator import simulate
from tmmu_core.base.errors import U64_MAX, AllocationOverflow, InvalidIrShapes
from tmmu_core.graph.model import Graph, Tensor, View
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.plans.making.engine import plan_graph

ONE_BYTE_GRID = {"activations": {"alignment_bytes": 1}}


def raw(name: str, nbytes: int, role: str = "activation", view: View | None = None) -> Tensor:
    return Tensor(name, (nbytes,), "uint8", role, view=view)  # type: ignore[arg-type]


def written_over_a_view(whole: int, offset: int, nbytes: int) -> Graph:
    """Return a graph in which ``y`` is written in place of the byte of ``x`` at ``offset``."""
    tensors = [raw("x", whole, "input"), raw("v", 1, view=View("x", offset)), raw("y", nbytes)]
    return graph(tensors, [node("n", "v", "y", inplace="none", in_place_write=((0, 0),))], "x", "y")


@pytest.mark.parametrize("offset", [2**63 - 1, 2**63, U64_MAX - 1])
def test_view_may_begin_at_any_byte(offset: int) -> None:
    g = graph([raw("x", U64_MAX, "input"), raw("v", 1, view=View("x", offset))], [node("n", "v", "")], "x")
    plan = plan_graph(g, arenas=ONE_BYTE_GRID).plan
    assert int(plan.offset[plan.row_of["v"]]) == offset
    assert verify_plan(plan, g, arenas=ONE_BYTE_GRID).ok


@pytest.mark.parametrize(("offset", "fits"), [(U64_MAX - 8, True), (U64_MAX - 7, False), (2**63, True)])
def test_in_place_write_ends_within_64_bits(offset: int, fits: bool) -> None:
    g = written_over_a_view(U64_MAX, offset, 8)
    mine = result_or_refusal(lambda: plan_graph(g, arenas=ONE_BYTE_GRID).plan)
    theirs = result_or_refusal(lambda: simulate(g, arenas=ONE_BYTE_GRID))
    if fits:
        assert (mine.arenas[0].extent_bytes, mine.layout_hash) == (U64_MAX, theirs.layout_hash)
        assert verify_plan(mine, g, arenas=ONE_BYTE_GRID).ok
    else:
        assert mine == theirs == ("ALLOCATION_OVERFLOW", None, None, "", "y", "")


def test_in_place_write_begins_within_64_bits() -> None:
    tensors = [*written_over_a_view(U64_MAX, 2**63 + 1, 2**63).tensors, raw("w", 1, view=View("y", 2**63 - 1))]
    g = graph(tensors, [node("n", "v", "y", inplace="none", in_place_write=((0, 0),))], "x", "y")
    with pytest.raises(AllocationOverflow) as mine:
        plan_graph(g)
    assert (mine.value.diagnostics["tensor"], mine.value.diagnostics["offset"]) == ("w", str(2**64))
    theirs = result_or_refusal(lambda: simulate(g))
    assert theirs == result_or_refusal(lambda: plan_graph(g)) == ("ALLOCATION_OVERFLOW", None, None, "", "w", "")


@pytest.mark.parametrize("more", [0, 1])
def test_view_of_a_view_begins_within_64_bits(more: int) -> None:
    """A view that repeats a byte may reach further than its base."""
    far = View("x", U64_MAX - 16, 1, (0,))
    tensors = [raw("x", U64_MAX, "input"), raw("v", 32, view=far), raw("w", 0, view=View("v", 16 + more)), raw("y", 1)]
    g = graph(tensors, [node("n", "w", "y", inplace="none")], "x")
    arenas = ONE_BYTE_GRID | {"sram": {}}
    g = Graph((*g.tensors[:3], Tensor("y", (1,), "uint8", arena="sram")), g.nodes, g.inputs, g.outputs)
    mine = result_or_refusal(lambda: plan_graph(g, arenas=arenas).plan)
    theirs = result_or_refusal(lambda: simulate(g, arenas=arenas))
    if more:
        assert mine == theirs == ("ALLOCATION_OVERFLOW", None, None, "", "w", "")
    else:  # but the two arenas together are past 64 bits
        assert mine == theirs == ("ALLOCATION_OVERFLOW", None, None, "", "", "")


def test_memories_end_within_64_bits() -> None:
    tensors = [raw("x", 2**63, "input"), raw("y", 2**63 - 1), raw("z", 1)]
    nodes = [node("n", "x", "y", inplace="none"), node("m", "x y", "z", inplace="none")]
    with pytest.raises(AllocationOverflow, match="scratch@"):
        plan_graph(graph(tensors, nodes, "x", "z"), planner="helia")
    plan = plan_graph(graph(tensors[:2], nodes[:1], "x", "y"), planner="helia").plan
    assert plan.arenas[0].extent_bytes == U64_MAX
    assert verify_plan(plan).ok


def test_graph_without_canonical_form_is_rejected_by_both() -> None:
    g = graph([Tensor("x", (2**64, 0), role="input")], [], "x")
    for play in (lambda: plan_graph(g), lambda: simulate(g)):
        with pytest.raises(InvalidIrShapes) as refused:
            play()
        assert refused.value.diagnostics["reason"] == "not_canonical"
