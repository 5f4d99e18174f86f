"""Moves are values: they add up, and a table says what each kind does."""

from __future__ import annotations

from tests.support.build import chain, graph, node, tensor
from tmmu_core.fitting.move import FLOPS_PER_MOVED_BYTE, Cost, Move
from tmmu_core.fitting.problem.planner_calls import Candidate, PlanInput, solve_input
from tmmu_core.fitting.search.apply_moves import apply_moves
from tmmu_core.graph.model import OFFLOAD_ARENA
from tmmu_core.judge.verifier.verify import verify_plan


def test_costs_add_up_figure_by_figure() -> None:
    assert Cost(1, 2, 3) + Cost(10, 20, 30) == Cost(11, 22, 33)


def test_a_moved_byte_weighs_as_many_operations_as_is_said() -> None:
    assert Cost(5, 2, 9).weight == 5 + 2 * FLOPS_PER_MOVED_BYTE


def test_a_move_to_another_planner_asks_that_planner() -> None:
    plan_input = PlanInput(chain(3, "none"))
    assert apply_moves(plan_input, [Move("planner", "naive", details={"planner": "naive"})]).planner == "naive"


def test_a_move_to_another_order_writes_the_order_into_the_graph() -> None:
    two = graph([tensor("x", role="input"), tensor("a"), tensor("b")], [node("n", "x", "a"), node("m", "x", "b")], "x")
    after = apply_moves(PlanInput(two), [Move("order", "n first", details={"order": ["n", "m"]})])
    solution = solve_input(after)
    assert solution.plan.execution_order == ("n", "m")
    assert verify_plan(solution.plan, after.graph).ok


def test_what_lies_in_another_memory_is_not_counted() -> None:
    away = graph([tensor("x", role="input"), tensor("a", 64, arena=OFFLOAD_ARENA)], [node("n", "x", "a")], "x")
    plan_input = PlanInput(away, arenas={"activations": {}})
    assert Candidate(plan_input, (), solve_input(plan_input)).extent_bytes == 16
