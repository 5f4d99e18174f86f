"""The table of moves that cost compute or transfers: single moves, and lists of moves that reach a goal.

* ``single(task, solution)`` yields single moves that may lower the peak, best first, without planning.
* ``lower(task, solution, goal, report)`` yields complete lists of moves, cheapest first, each with a lower peak than
  the one before; the cost curve uses them too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module

from tmmu_core.fitting.move import Kind, Move
from tmmu_core.fitting.problem.capacity import Capacity
from tmmu_core.fitting.problem.planner_calls import PlanInput
from tmmu_core.planners.problem import Progress
from tmmu_core.plans.making.engine import Solution

Single = Callable[[PlanInput, Solution], Iterator[Move]]
Lower = Callable[[PlanInput, Solution, Capacity, Progress | None], Iterator[tuple[Move, ...]]]


@dataclass(frozen=True)
class Proposing:
    """The module and the two functions of one kind."""

    module: str
    single_name: str = "single_moves"
    lower_name: str = "lower"

    @property
    def single(self) -> Single:
        """The function that yields single moves."""
        function: Single = getattr(import_module(self.module), self.single_name)
        return function

    @property
    def lower(self) -> Lower:
        """The function that yields lists of moves."""
        function: Lower = getattr(import_module(self.module), self.lower_name)
        return function


PROPOSING: dict[Kind, Proposing] = {
    "recompute": Proposing("tmmu_core.fitting.recompute"),
    "offload": Proposing("tmmu_core.fitting.moves.offload"),
}
