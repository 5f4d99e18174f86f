"""What each kind of move offers to the search and to what-if: ``PROPOSING``, one table, two functions a kind.

* ``single(question, solution)``: every single move of the kind that may lower the peak, most promising first, as
  :class:`Move` values without ``bytes`` (what they bring is found by planning anew). Cheap: no planning here.
* ``lower(question, solution, goal, report)``: moves of the kind that bring the plan down to the goal at the least cost,
  or as far as they go. The generator may be taken from repeatedly: each value is a *complete* list of moves to make on
  ``question``, cheapest first, each lower than the one before; so the curve of bytes and cost comes from here too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module

from tmmu_core.fit.asking import Question
from tmmu_core.fit.capacity import Capacity
from tmmu_core.fit.moves import Kind, Move
from tmmu_core.plan.making.engine import Solution
from tmmu_core.planners.problem import Progress

Single = Callable[[Question, Solution], Iterator[Move]]
Lower = Callable[[Question, Solution, Capacity, Progress | None], Iterator[tuple[Move, ...]]]


@dataclass(frozen=True)
class Proposing:
    """Where a kind's two functions stand."""

    module: str
    single_name: str = "single_moves"
    lower_name: str = "lower"

    @property
    def single(self) -> Single:
        """Single moves."""
        function: Single = getattr(import_module(self.module), self.single_name)
        return function

    @property
    def lower(self) -> Lower:
        """Lists of moves, from the cheapest to the lowest."""
        function: Lower = getattr(import_module(self.module), self.lower_name)
        return function


PROPOSING: dict[Kind, Proposing] = {
    "recompute": Proposing("tmmu_core.fit.recompute"),
    "offload": Proposing("tmmu_core.fit.offload"),
}
