"""Run branch and bound on one model with different capacities and orders; tables are built once."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from typing import Any

import numpy as np

from tmmu_core.planners.exact.branch_and_bound import BUDGET_SPENT, FOUND, TABLES_FULL, FitQuery, search
from tmmu_core.planners.exact.search_model import Model
from tmmu_core.planners.exact.search_tables import FAILURES, LOW, MAX_HEIGHT, State, build_tables, initial_state
from tmmu_core.planners.native import native
from tmmu_core.planners.native.load import library
from tmmu_core.planners.native.native import LARGEST
from tmmu_core.planners.problem import I64

Watch = Callable[[int], bool]
POLL_SECONDS = 0.1
"""Seconds between two calls of ``watch``."""
MOST_EVENTS = 1 << 23
"""Event tables with more rows (48 bytes each) do not grow."""


class Searcher:
    """Runs :func:`search` on the tables of one model."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.tables = build_tables(model)
        self.heights: list[int] = self.tables.unit[:-1, MAX_HEIGHT].tolist()
        self.failures: I64 = np.zeros(model.sections, dtype=np.int64)
        """Conflicts per section in the last search."""
        self.stop: I64 = np.zeros(1, dtype=np.int64)
        """Set ``stop[0]`` from any thread: the current search ends as BUDGET_SPENT."""
        self.room = (64 * len(model) + 4096, 8 * len(model) + 64)
        """Rows of the event and level tables; they grow on demand."""

    def solve(
        self, capacity: int, rank: I64, budget: int, watch: Watch | None = None
    ) -> tuple[int, int, list[int] | None]:
        """Return FOUND, INFEASIBLE or BUDGET_SPENT, the number of nodes, and the offset of each unit if found.

        ``watch(nodes)`` is called every :data:`POLL_SECONDS`; the search stops where it returns ``False`` or raises.
        """
        query = FitQuery(capacity, rank, budget)
        verdict = TABLES_FULL
        while verdict == TABLES_FULL:  # the number of raises is not known beforehand
            state = initial_state(self.model, self.tables, self.room)
            nodes = np.zeros(1, dtype=np.int64)
            verdict = self._search(state, query, nodes, watch)
            if verdict == TABLES_FULL and self.room[0] > MOST_EVENTS:
                verdict = BUDGET_SPENT
            elif verdict == TABLES_FULL:
                self.room = (4 * self.room[0], 2 * self.room[1])
        self.failures = state.section[:, FAILURES].copy()
        return verdict, int(nodes[0]), state.unit[:, LOW].tolist() if verdict == FOUND else None

    def _search(self, state: State, query: FitQuery, nodes: I64, watch: Watch | None) -> int:
        """Run the native search, or :func:`.branch_and_bound.search` without the library or beyond its integers."""
        loops, tables = library(), self.tables
        if loops is None or abs(query.capacity) >= LARGEST:
            loop: Callable[[], int] = partial(search, tables, state, query, nodes, self.stop)
        else:
            fields = {name: value for name, value in tables._asdict().items() if name != "unit"}
            fields |= {**state._asdict(), **query._asdict(), "budget": min(query.budget, LARGEST)}
            counts = {"n": len(state.unit), "sections": len(state.section), "events": len(state.event)}
            fields |= {**counts, "shape": tables.unit, "nodes": nodes, "stop": self.stop}
            loop = partial(native.search, loops, len(state.conflict_levels), **fields)
        return int(loop() if watch is None else watched(loop, self.stop, lambda: watch(int(nodes[0]))))


def watched(loop: Callable[[], Any], stop: I64, keep_going: Callable[[], bool]) -> Any:
    """Run ``loop`` in a thread and return its result; set ``stop[0]`` when ``keep_going`` returns ``False``.

    The native loop releases the interpreter lock. The clock decides only when ``keep_going`` is called.
    """
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(loop)
        try:
            while running not in wait((running,), POLL_SECONDS).done:
                if not keep_going():
                    stop[0] = 1
                    break
        except BaseException:
            stop[0] = 1
            raise
        return running.result()
