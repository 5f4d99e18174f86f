"""The moves that a fit may use, and its result."""

from dataclasses import dataclass
from typing import Literal

from tmmu_core.fitting.move import Kind
from tmmu_core.fitting.problem.capacity import Capacity
from tmmu_core.fitting.problem.lower_bounds import LowerBound
from tmmu_core.fitting.problem.planner_calls import Candidate, extents
from tmmu_core.fitting.unknown import UnknownOperator
from tmmu_core.plans.analysis.plan_notes import plan_warnings

Answer = Literal["fits", "cannot", "open"]


ALLOWED: tuple[Kind, ...] = ("planner", "order", "inplace", "recompute", "offload")
"""Moves that are allowed by default: all moves that keep the results of the graph."""


@dataclass(frozen=True)
class Allowed:
    """The moves that a fit may use."""

    kinds: frozenset[Kind] = frozenset(ALLOWED)
    max_cost: int | None = None
    """Maximum extra FLOPs, in thousandths of a percent of the graph's FLOPs; ``None``: unlimited."""
    keep_phases: bool = False
    """Whether forward, backward and optimizer nodes stay separate."""


@dataclass(frozen=True, eq=False)
class Fitted:
    """The result of a fit."""

    answer: Answer
    capacity: Capacity
    start: Candidate
    """The initial plan."""
    best: Candidate
    """The cheapest plan that fits; else the plan that exceeds the capacity least."""
    bound: LowerBound
    """Lower bound over all plans that the allowed moves can reach, by arena."""
    proven_bytes: int
    """Lower bound of the sum over all arenas; it can exceed the sum of ``bound``."""
    curve: tuple[Candidate, ...]
    """Candidates from the initial plan on, by rising cost and falling bytes."""
    flops: int
    """Known FLOPs of the initial graph."""
    stopped: bool = False
    """Whether the search was stopped early."""

    unknown: tuple[UnknownOperator, ...] = ()
    """Operators with unknown properties that limit the answer."""
    allowed: Allowed = Allowed()
    """The moves that the search could use."""

    @property
    def next_steps(self) -> tuple[str, ...]:
        """Suggested changes of the request if nothing fits: the least capacity, and moves that were not allowed."""
        if self.answer == "fits":
            return ()
        is_open = self.answer == "open"
        least = self.capacity.taken(self.best.plan) if is_open else self.bound_within(self.capacity)
        others = [kind for kind in ALLOWED if kind not in self.allowed.kinds]
        dims = self.start.plan_input.graph.dims if "sizes" not in self.allowed.kinds else {}
        sizes = sorted(name for name, dim in dims.items() if dim.max > dim.min)
        steps = [f"a capacity of {least:,} bytes" if is_open else f"a capacity of at least {least:,} bytes"]
        steps += ["a larger maximum cost"] * (self.allowed.max_cost is not None)
        steps += [f"allow {', '.join(others)}"] * bool(others)
        return (*steps, *(f"a smaller {name}" for name in sizes))

    @property
    def warnings(self) -> tuple[str, ...]:
        """Conditions of the input, the request and the best plan that changed the answer."""
        return tuple(dict.fromkeys((*self.start.warnings, *plan_warnings(self.best.plan))))

    @property
    def over_bytes(self) -> int:
        """Bytes by which the best plan exceeds the capacity."""
        return self.capacity.over(extents(self.best.plan))

    def bound_within(self, capacity: Capacity) -> int:
        """Return the lower bound of the arenas that ``capacity`` limits."""
        if capacity.total is not None:
            return self.lower_bound_bytes
        return sum(need.bytes for need in self.bound.needs if need.arena in capacity.arenas)

    @property
    def lower_bound_bytes(self) -> int:
        """Lower bound over all arenas."""
        return max(self.bound.bytes, self.proven_bytes)
