"""Count the nodes of a search and stop it at a limit, so that a stopped search can be repeated."""

from collections.abc import Mapping
from typing import Any

from tmmu_core.planners.columns import count_option
from tmmu_core.planners.problem import Progress

OPTION = "max_nodes"
"""The option that stops a planner at a number of nodes, over all arenas of the plan in their order."""


class Meter:
    """Nodes visited by the searches of one plan, and the number at which they stop.

    A node is a node of branch and bound, an iteration of a local search, or a greedy run. If a user stops the search,
    :attr:`limit` is the number of nodes visited: with it, every machine stops at the same result.
    """

    def __init__(self, progress: Progress | None, limit: int | None = None) -> None:
        self.limit, self.used, self.halted = limit, 0, False
        self.watched = progress is not None
        """Whether a user may stop the search."""
        self._progress = progress
        self._improved = getattr(progress, "improved", None)

    def ended(self) -> bool:
        """Return whether the limit is reached."""
        return self.limit is not None and self.used >= self.limit

    def left(self, most: int) -> int:
        """Return the nodes up to the limit, at most ``most``."""
        return most if self.limit is None else max(0, min(most, self.limit - self.used))

    def spend(self, nodes: int) -> None:
        """Count nodes."""
        self.used += nodes

    def __call__(self, what: str, done: int, of: int) -> bool:
        """Report progress; return whether the search may continue."""
        return self._progress is None or self._progress(what, done, of)

    def improved(self, arena: str, extent: int, bound: int) -> None:
        """Report a better packing or bound of an arena, in bytes, if ``progress`` has a method of this name."""
        if self._improved is not None:
            self._improved(arena, self.used, extent, bound)

    def halt(self, more: int = 0) -> None:
        """Set the limit to ``more`` nodes from now, unless it is lower already."""
        self.halted = True
        self.limit = self.left(more) + self.used

    def options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options that repeat this run: ``options``, and the limit if it was stopped."""
        return {**options, OPTION: self.limit} if self.halted else dict(options)


def metered(progress: Progress | None, options: Mapping[str, Any]) -> Meter:
    """Return ``progress`` if it is a meter, else a new meter with the limit of the options."""
    if isinstance(progress, Meter):
        return progress
    return Meter(progress, None if options.get(OPTION) is None else count_option(options, OPTION, 0))
