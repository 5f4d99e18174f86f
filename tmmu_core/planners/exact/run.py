"""One model, made ready for the compiled search, asked again and again with other ranks and capacities."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait

import numpy as np

from tmmu_core.planners.exact.kernel import FOUND, LOWEST_FIRST, Ask, search
from tmmu_core.planners.exact.model import Model
from tmmu_core.planners.exact.propagate import ALL
from tmmu_core.planners.exact.tables import FAILS, LOW, TALL, State, fresh, shape_of
from tmmu_core.planners.problem import I64

Watch = Callable[[int], bool]
LOOK = 0.1
"""Seconds."""


class Searcher:
    """Holds a model's tables and asks :func:`search`."""

    def __init__(self, model: Model, switches: int = ALL) -> None:
        self.model = model
        self.shape = shape_of(model)
        self.switches = switches
        self.tall: list[int] = self.shape.unit[:-1, TALL].tolist()
        self.fails: I64 = np.zeros(model.sections, dtype=np.int64)
        """How often each section failed in the last search."""
        self.stop: I64 = np.zeros(1, dtype=np.int64)
        """Set its cell, from any thread, and the search under way ends as SPENT."""

    def ask(
        self,
        capacity: int,
        rank: I64,
        budget: int,
        focus: int = LOWEST_FIRST,
        weight: I64 | None = None,
        watch: Watch | None = None,
    ) -> tuple[int, int, list[int] | None]:
        """FOUND, INFEASIBLE or SPENT; the nodes it took; the offset per unit if found.

        ``watch(nodes)`` is asked every :data:`LOOK` seconds whether to go on; where it says no or raises, the search
        ends within as much again.
        """
        state = fresh(self.model, self.shape)
        nodes = np.zeros(1, dtype=np.int64)
        if weight is None:
            weight = np.zeros(self.model.sections, dtype=np.int64)
        ask = Ask(capacity, rank, weight, focus, self.switches, budget)
        verdict = self._search(state, ask, nodes, watch)
        self.fails = state.section[:, FAILS].copy()
        return int(verdict), int(nodes[0]), state.unit[:, LOW].tolist() if verdict == FOUND else None

    def _search(self, state: State, ask: Ask, nodes: I64, watch: Watch | None) -> int:
        if watch is None:
            return int(search(self.shape, state, ask, nodes, self.stop))
        # The loop lets go of the interpreter's lock. Looking at the clock decides only when ``watch`` is asked.
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(search, self.shape, state, ask, nodes, self.stop)
            try:
                while running not in wait((running,), LOOK).done:
                    if not watch(int(nodes[0])):
                        self.stop[0] = 1
                        break
            except BaseException:
                self.stop[0] = 1
                raise
            return int(running.result())
