"""Moves are values: their costs add up, and applying them changes the planner input."""

from tests.support.build import graph, node, tensor
from tmmu_core.fitting.move import Move
from tmmu_core.fitting.problem.planner_calls import Candidate, PlanInput, solve_input
from tmmu_core.fitting.search.candidates import apply_moves
from tmmu_core.graph.model import OFFLOAD_ARENA
from tmmu_core.judge.verifier.verify import verify_plan


def test_order_move_writes_the_execution_order() -> None:
    two = graph([tensor("x", role="input"), tensor("a"), tensor("b")], [node("n", "x", "a"), node("m", "x", "b")], "x")
    after = apply_moves(PlanInput(two), [Move("order", "n first", details={"order": ["n", "m"]})])
    solution = solve_input(after)
    assert solution.plan.execution_order == ("n", "m")
    assert verify_plan(solution.plan, after.graph).ok


def test_memory_of_another_device_is_not_counted() -> None:
    away = graph([tensor("x", role="input"), tensor("a", 64, arena=OFFLOAD_ARENA)], [node("n", "x", "a")], "x")
    plan_input = PlanInput(away, arenas={"activations": {}})
    assert Candidate(plan_input, (), solve_input(plan_input)).extent_bytes == 16
