"""How many bytes there are: over all arenas of this memory, or arena by arena."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from tmmu_core.fit.asking import extents
from tmmu_core.graph.model import OFFLOAD_ARENA
from tmmu_core.plan.figures.storages import live_bytes
from tmmu_core.plan.model import U64, Plan


@dataclass(frozen=True)
class Capacity:
    """Limits in bytes; what is not named is not limited."""

    total: int | None = None
    """Over all arenas of this memory together."""
    arenas: Mapping[str, int] = field(default_factory=dict)
    """Arena → its own limit."""

    @property
    def key(self) -> tuple[int | None, tuple[tuple[str, int], ...]]:
        """The same limits as a value that can name things."""
        return self.total, tuple(sorted(self.arenas.items()))

    @property
    def limit_bytes(self) -> int:
        """What there is in all, of what is limited."""
        return sum(self.arenas.values()) if self.total is None else self.total

    def limited(self, plan: Plan) -> tuple[str, ...]:
        """The arenas whose bytes count: those that have a limit, or all of this memory."""
        names = (arena.name for arena in plan.arenas if arena.name != OFFLOAD_ARENA)
        return tuple(name for name in names if self.total is not None or name in self.arenas)

    def taken(self, plan: Plan) -> int:
        """Bytes of their extents."""
        sizes = extents(plan)
        return sum(sizes[name] for name in self.limited(plan))

    def live(self, plan: Plan) -> U64:
        """Shape (T,): bytes in use at each step in what is limited."""
        curves = [live_bytes(plan, name) for name in self.limited(plan)]
        return np.sum(curves, axis=0, dtype=np.uint64) if curves else np.zeros(max(plan.steps, 1), np.uint64)

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
