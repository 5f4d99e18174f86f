"""Moves are values: they add up, and a table says what each kind does."""

from __future__ import annotations

from tests.build import chain, graph, node, tensor
from tmmu_core.fit.applying import applied
from tmmu_core.fit.asking import Candidate, Question, ask
from tmmu_core.fit.moves import FLOPS_PER_MOVED_BYTE, Cost, Move
from tmmu_core.graph.model import OFFLOAD_ARENA
from tmmu_core.judge.verifier import verify_plan


def test_costs_add_up_figure_by_figure() -> None:
    assert Cost(1, 2, 3) + Cost(10, 20, 30) == Cost(11, 22, 33)


def test_a_moved_byte_weighs_as_many_operations_as_is_said() -> None:
    assert Cost(5, 2, 9).weight == 5 + 2 * FLOPS_PER_MOVED_BYTE


def test_a_move_to_another_planner_asks_that_planner() -> None:
    question = Question(chain(3, "none"))
    assert applied(question, [Move("planner", "naive", details={"planner": "naive"})]).planner == "naive"


def test_a_move_to_another_order_writes_the_order_into_the_graph() -> None:
    two = graph([tensor("x", role="input"), tensor("a"), tensor("b")], [node("n", "x", "a"), node("m", "x", "b")], "x")
    after = applied(Question(two), [Move("order", "n first", details={"order": ["n", "m"]})])
    solution = ask(after)
    assert solution.plan.execution_order == ("n", "m")
    assert verify_plan(solution.plan, after.graph).ok


def test_what_lies_in_another_memory_is_not_counted() -> None:
    away = graph([tensor("x", role="input"), tensor("a", 64, arena=OFFLOAD_ARENA)], [node("n", "x", "a")], "x")
    question = Question(away, arenas={"activations": {}})
    assert Candidate(question, (), ask(question)).extent_bytes == 16
