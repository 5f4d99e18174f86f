"""A capacity: limits for all arenas together, or for single arenas."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from tmmu_core.fitting.problem.planner_calls import extents
from tmmu_core.graph.model import OFFLOAD_ARENA
from tmmu_core.plans.figures.live_bytes import curve_points_of, live_bytes
from tmmu_core.plans.model import U64, Plan


@dataclass(frozen=True)
class Capacity:
    """Limits in bytes. An arena without a limit is limited only by ``total``."""

    total: int | None = None  # limit of the sum of all arenas except ``offload``
    arenas: Mapping[str, int] = field(default_factory=dict)  # arena → its limit

    @property
    def key(self) -> tuple[int | None, tuple[tuple[str, int], ...]]:
        """The limits as a hashable value, for caches and widget keys."""
        return self.total, tuple(sorted(self.arenas.items()))

    @property
    def limit_bytes(self) -> int:
        """The limit ``total``; without one, the sum of the arenas' limits."""
        return sum(self.arenas.values()) if self.total is None else self.total

    def limited(self, plan: Plan) -> tuple[str, ...]:
        """Return the arenas of the plan that count towards a limit."""
        return tuple(name for name in extents(plan) if self.total is not None or name in self.arenas)

    def limited_bytes(self, plan: Plan) -> int:
        """Return the sum of the limited arenas' extents, in bytes."""
        sizes = extents(plan)
        return sum(sizes[name] for name in self.limited(plan))

    def live(self, plan: Plan) -> U64:
        """Return the live bytes of the limited arenas at each step of the plan."""
        total = np.zeros(max(plan.steps, 1), np.uint64)
        steps_per_point = np.diff(curve_points_of(plan).steps, append=len(total))
        for name in self.limited(plan):
            total += np.repeat(live_bytes(plan, name), steps_per_point)
        return total

    def over(self, bytes_of: Mapping[str, int]) -> int:
        """Return the bytes by which arenas of these sizes exceed the capacity; 0 if they fit."""
        counted = {name: size for name, size in bytes_of.items() if name != OFFLOAD_ARENA}
        over_arenas = sum(max(0, size - self.arenas.get(name, size)) for name, size in counted.items())
        return over_arenas if self.total is None else max(over_arenas, sum(counted.values()) - self.total)

    def fits(self, plan: Plan) -> bool:
        """Return whether the extents of the plan fit."""
        return self.over(extents(plan)) == 0


def bounds(plan: Plan) -> dict[str, int]:
    """Return arena → lower bound of its extent in the plan's order, in bytes."""
    return {arena.name: arena.lower_bound_bytes or 0 for arena in plan.arenas if arena.name != OFFLOAD_ARENA}
