"""Offloading: copies out and back in the written graph, moved bytes, and live bytes."""

import pytest

from tests.fitting.test_recompute import KIB, F, T, chain_step, needed, sound, step
from tests.support.golden import SAMPLES
from tests.support.paths import read_graph_file
from tmmu_core.base.errors import InvalidIrShapes
from tmmu_core.fitting.move import Move
from tmmu_core.fitting.problem.answer import Capacity
from tmmu_core.fitting.problem.planner_calls import PlanInput, extents, solve_input
from tmmu_core.fitting.recompute.drop_moves import recover_choice
from tmmu_core.fitting.recompute.live_curve import run
from tmmu_core.fitting.recompute.offload import lists_of_moves, single_moves
from tmmu_core.fitting.recompute.recompute_moves import lists_of_moves as lower_by_recomputing
from tmmu_core.fitting.search.candidates import apply_moves
from tmmu_core.graph.model import View
from tmmu_core.judge.verifier.verify import verify_plan


def test_offloaded_tensor_is_copied_out_after_its_last_use_and_back_before_the_next() -> None:
    plan_input = chain_step()
    after = apply_moves(plan_input, [Move("offload", "", details={"drops": [["a", "fb"]]})])
    assert after.graph.execution_order == ("fa", "fb", "a@copy_out", "fc", "bc", "a@back", "bb", "ba")
    nodes = {node.node_id: node for node in after.graph.nodes}
    tensors = {tensor.id: tensor for tensor in after.graph.tensors}
    assert (nodes["a@copy_out"].instr, nodes["a@copy_out"].inputs, nodes["a@copy_out"].outputs) == (
        *("copy_out", ("a",)),
        ("a@offload",),
    )
    assert (nodes["a@back"].instr, nodes["a@back"].inputs) == ("copy_in", ("a@offload",))
    assert nodes["bb"].inputs == ("a@back", "gc")
    assert tensors["a@offload"].arena == "offload"
    sound(plan_input, after.graph)
    assert extents(solve_input(after).plan) == {"activations": 9 * KIB, "gradients": 2 * KIB}


def test_tensor_that_cannot_be_offloaded_is_rejected() -> None:
    with pytest.raises(InvalidIrShapes, match="'gx'"):
        apply_moves(chain_step(), [Move("offload", "", details={"drops": [["gx", "ba"]]})])


def idle_twice() -> PlanInput:
    """Return a graph with ``h`` of 8 KiB, idle while ``a`` (9 KiB) is live and again while ``b`` (8 KiB) is."""
    return step(
        F("fh", "Relu", "x", "h"),
        F("fa", "Relu", "x", "a"),
        F("fy", "Frobnicate", "a", "y"),
        F("fi", "Frobnicate", "y h", "i"),
        F("fb", "Relu", "i", "b"),
        F("fj", "Frobnicate", "b", "j"),
        F("fk", "Frobnicate", "j h", "k"),
        tensors=[T("x"), T("h", 8), T("a", 9), T("y"), T("i"), T("b", 8), T("j"), T("k")],
        outputs=("k",),
    )


def test_offloaded_tensor_leaves_again_for_the_cost_of_the_way_back() -> None:
    plan_input = idle_twice()
    first = Move("offload", "", details={"drops": [["h", "fh"]]})
    after = apply_moves(plan_input, [first])
    (move,) = single_moves(after)
    assert move.tensors == ("h",)
    assert move.what == "offload 'h', idle for 2 steps"
    assert (move.cost.moved_bytes, move.cost.extra_steps) == (8 * KIB, 1)
    assert move.details["drops"] == [["h", "fi"]]
    both = apply_moves(after, [move])
    assert both.graph == apply_moves(plan_input, [first, move]).graph
    sound(plan_input, both.graph)
    found = lists_of_moves(after, Capacity(12 * KIB))
    assert [drops for moves in found for m in moves for drops in m.details["drops"]] == [["h", "fi"]]


def test_view_of_an_input_that_is_copied_back_is_offloaded_again() -> None:
    nodes = (
        F("fa", "Relu", "v", "a"),
        F("fb", "Relu", "a", "b"),
        F("fc", "Add", "b v", "c"),
        F("fd", "Add", "c v", "d"),
    )
    plan_input = step(*nodes, tensors=[T("x"), T("v", view=View("x", 0, KIB)), *map(T, "abcd")], outputs=("d",))
    first, second = (Move("offload", "", details={"drops": [["x", after]]}) for after in ("fa", "fc"))
    after = apply_moves(apply_moves(plan_input, [first]), [second])
    assert after.graph == apply_moves(plan_input, [first, second]).graph
    sound(plan_input, after.graph)


def test_third_of_the_activations_of_resnet50_is_offloaded() -> None:
    plan_input = PlanInput(read_graph_file(SAMPLES / "resnet50_train_b32_224.tmmu.cbor.gz"))
    before = solve_input(plan_input).plan
    whole = sum(map(needed, before.arenas))
    goal = whole - needed(before.arena_of["activations"]) // 3
    moves = next(lists_of_moves(plan_input, Capacity(goal)))
    after = apply_moves(plan_input, moves)
    solution = solve_input(after)
    assert sum(needed(arena) for arena in solution.plan.arenas if arena.name != "offload") <= goal
    assert verify_plan(solution.plan, after.graph).ok
    moved = sum(move.cost.moved_bytes for move in moves)
    assert moved == run(*recover_choice(after)).moved
    assert 2 * (whole - goal) <= moved < 4 * (whole - goal)


def test_recompute_continues_from_offloaded_tensors() -> None:
    plan_input = PlanInput(read_graph_file(SAMPLES / "resnet50_train_b32_224.tmmu.cbor.gz"))
    whole = run(*recover_choice(plan_input)).total
    away = apply_moves(plan_input, next(lists_of_moves(plan_input, Capacity(whole * 9 // 10))))
    moves = next(lower_by_recomputing(away, Capacity(whole * 8 // 10)))
    after = run(*recover_choice(apply_moves(away, moves)))
    assert after.total <= whole * 8 // 10
    assert after.moved == run(*recover_choice(away)).moved
