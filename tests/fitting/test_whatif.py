"""What-if: single moves ranked by the bytes that planning again saves."""

from tests.fitting.test_fitting import started
from tests.fitting.test_order import two_branches
from tests.support.build import chain, graph, node, tensor
from tmmu_core.fitting.move import KINDS
from tmmu_core.fitting.problem.planner_calls import extents, extents_of, solve_input
from tmmu_core.fitting.search.candidates import apply_moves
from tmmu_core.fitting.search.overviews import what_if


def test_moves_are_ranked_by_their_saved_bytes() -> None:
    start = started(two_branches(), alignment=4, planner="naive")
    found = what_if(start, KINDS)
    assert found.moves[0].kind == "planner"
    assert [m.bytes for m in found.moves] == sorted((m.bytes for m in found.moves), reverse=True)
    for move in found.moves:
        after = solve_input(apply_moves(start.plan_input, (move,)))
        assert move.bytes == start.extent_bytes - sum(extents(after.plan).values()) > 0


def test_missing_permission_at_the_peak_is_listed() -> None:
    ir = chain(4, "none", floats=64)
    more = [node("grow", "t4", "big", inplace="none"), node("relu", "big", "after", inplace="none", instr="RELU")]
    ir = graph(
        [*ir.tensors, tensor("big", 128), tensor("after", 128), tensor("end", 1)],
        [*ir.nodes, *more, node("shrink", "after", "end", inplace="none")],
        "t0",
        "end",
        execution_order=(*(n.node_id for n in ir.nodes), "grow", "relu", "shrink"),
    )
    found = what_if(started(ir, alignment=4, planner="auto"), ["inplace"])
    assert [(move.nodes, move.bytes) for move in found.moves] == [(("relu",), 1024 - 768)]


def test_whatif_can_be_stopped() -> None:
    found = what_if(started(two_branches(), alignment=4), KINDS, lambda what, done, of: False)
    assert found.stopped
    assert found.planned == 0


def test_extents_without_details_equal_those_of_the_plan() -> None:
    for planner in ("slots", "naive", "greedy", "auto", "helia"):
        start = started(two_branches(), planner=planner)
        assert extents_of(start.plan_input) == extents(start.plan)
