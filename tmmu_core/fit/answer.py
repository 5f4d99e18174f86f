"""What may be done so that a plan fits, and the answer: the cheapest that does, and what it rests on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tmmu_core.fit.asking import Candidate, extents
from tmmu_core.fit.bounds import LowerBound
from tmmu_core.fit.capacity import Capacity
from tmmu_core.fit.moves import Kind

Answer = Literal["fits", "cannot", "open"]


ALLOWED: tuple[Kind, ...] = ("planner", "order", "inplace", "recompute", "offload")
"""What may be moved where nothing is said: all that computes the same. Sizes are changed where that is asked for."""


@dataclass(frozen=True)
class Allowed:
    """What may be done."""

    kinds: frozenset[Kind] = frozenset(ALLOWED)
    max_cost: int | None = None
    """Extra operations, in thousandths of a percent of the graph's; ``None``: any."""
    keep_phases: bool = False
    """Whether forward, backward and optimizer nodes stay apart."""


@dataclass(frozen=True, eq=False)
class Fitted:
    """The answer, and what it rests on."""

    answer: Answer
    capacity: Capacity
    start: Candidate
    """Today's plan."""
    best: Candidate
    """The cheapest plan that fits; else the one that is over by the least."""
    bound: LowerBound
    """No plan that the allowed moves lead to needs less."""
    proven_bytes: int
    """The same over all arenas, where their sum is known to need more."""
    curve: tuple[Candidate, ...]
    """From today's plan on: dearer and smaller, point by point."""
    flops: int
    """Operations of the graph as given, as far as they are known."""
    stopped: bool = False
    """Whether it was told to stop."""

    @property
    def over_bytes(self) -> int:
        """By how much the best plan is over the capacity."""
        return self.capacity.over(extents(self.best.plan))

    def bound_within(self, capacity: Capacity) -> int:
        """The bound of what a capacity limits; over all arenas where it limits their sum."""
        if capacity.total is not None:
            return self.lower_bound_bytes
        return sum(need.bytes for need in self.bound.needs if need.arena in capacity.arenas)

    @property
    def lower_bound_bytes(self) -> int:
        """Over all arenas."""
        return max(self.bound.bytes, self.proven_bytes)
