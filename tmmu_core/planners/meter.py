"""Count the nodes of a search and stop it at a limit, so that a run that a user stopped can be repeated."""

from collections.abc import Mapping
from typing import Any

from tmmu_core.planners.columns import count_option
from tmmu_core.planners.problem import Progress

OPTION = "max_nodes"  # name of the planner option that limits the nodes of all arenas of a plan together


class Meter:
    """Number of nodes that the searches of one plan used, and the limit at which they stop.

    A branch of a tree search, an iteration of a local search and a greedy run count as one node each. If a user stops
    the search, :attr:`limit` becomes the count at which it ends. With this limit, every machine gives the same result.
    """

    def __init__(self, progress: Progress | None, limit: int | None) -> None:
        self.limit, self.used, self.halted = limit, 0, False
        self.watched = progress is not None  # whether there is a ``progress`` that may stop the search
        self._progress = progress
        self._best: dict[str, tuple[int, int]] = {}  # arena → least extent and greatest bound so far

    def ended(self) -> bool:
        """Return whether the nodes used have reached the limit."""
        return self.limit is not None and self.used >= self.limit

    def left(self, most: int) -> int:
        """Return how many more nodes may be used, at most ``most``."""
        return most if self.limit is None else max(0, min(most, self.limit - self.used))

    def __call__(self, what: str, done: int, of: int) -> bool:
        """Report progress; return whether the search may go on."""
        return self._progress is None or self._progress(what, done, of)

    def improved(self, arena: str, extent: int, bound: int) -> None:
        """Call ``progress.improved(arena, nodes, extent, bound)``, if any, when the extent or the bound is better."""
        if (report := getattr(self._progress, "improved", None)) is not None:
            before = self._best.get(arena, (extent, bound))
            best = min(extent, before[0]), max(bound, before[1])
            if self._best.get(arena) != best:
                self._best[arena] = best
                report(arena, self.used, *best)

    def count_run(self, what: str, done: int, of: int, best: tuple[str, int, int]) -> bool:
        """Count a node, and report progress and ``best`` (arena, extent, bound); return whether the search must end."""
        self.improved(*best)
        self.used += 1
        if not self(what, done, of):
            self.halt()
        return self.ended()

    def halt(self, more: int = 0) -> None:
        """Record that a user stopped the search, and lower the limit so that at most ``more`` nodes follow."""
        self.halted = True
        self.limit = self.left(more) + self.used

    def options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options that repeat this run: ``options``, with ``max_nodes`` if a user stopped the run."""
        return {**options, OPTION: self.limit} if self.halted else dict(options)


def metered(progress: Progress | None, options: Mapping[str, Any]) -> Meter:
    """Return ``progress`` if it is a meter, else a new meter with the limit in the option ``max_nodes``."""
    if isinstance(progress, Meter):
        return progress
    return Meter(progress, None if options.get(OPTION) is None else count_option(options, OPTION, 0))
