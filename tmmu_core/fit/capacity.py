"""How many bytes there are: over all arenas of this memory, or arena by arena."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from tmmu_core.fit.asking import extents
from tmmu_core.graph.model import OFFLOAD_ARENA
from tmmu_core.plan.metrics import live_bytes
from tmmu_core.plan.model import U64, Plan


@dataclass(frozen=True)
class Capacity:
    """Limits in bytes; what is not named is not limited."""

    total: int | None = None
    """Over all arenas of this memory together."""
    arenas: Mapping[str, int] = field(default_factory=dict)
    """Arena → its own limit."""

    def over(self, bytes_of: Mapping[str, int]) -> int:
        """By how many bytes arenas of these sizes are over; 0 where they fit.

        The greater of the two: over the total, and the sum of what each is over its own.
        """
        here = {name: size for name, size in bytes_of.items() if name != OFFLOAD_ARENA}
        apart = sum(max(0, size - self.arenas.get(name, size)) for name, size in here.items())
        together = 0 if self.total is None else max(0, sum(here.values()) - self.total)
        return max(apart, together)

    def fits(self, plan: Plan) -> bool:
        """Whether the plan's extents do."""
        return self.over(extents(plan)) == 0


def bounds(plan: Plan) -> dict[str, int]:
    """Arena → proven least extent for the plan's order, in bytes: what any planner needs at least."""
    return {arena.name: arena.lower_bound_bytes or 0 for arena in plan.arenas if arena.name != OFFLOAD_ARENA}


def live_here(plan: Plan) -> U64:
    """Shape (T,): bytes in use at each step over all arenas of this memory."""
    curves = [live_bytes(plan, arena.name) for arena in plan.arenas if arena.name != OFFLOAD_ARENA]
    return np.sum(curves, axis=0, dtype=np.uint64) if curves else np.zeros(max(plan.steps, 1), np.uint64)
