"""One model, made ready for the compiled search, asked again and again with other ranks and capacities."""

from __future__ import annotations

import numpy as np

from tmmu_core.planners.exact.kernel import FOUND, LOWEST_FIRST, Ask, search
from tmmu_core.planners.exact.model import Model
from tmmu_core.planners.exact.propagate import ALL
from tmmu_core.planners.exact.tables import FAILS, LOW, TALL, fresh, shape_of
from tmmu_core.planners.problem import I64


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
        self, capacity: int, rank: I64, budget: int, focus: int = LOWEST_FIRST, weight: I64 | None = None
    ) -> tuple[int, int, list[int] | None]:
        """FOUND, INFEASIBLE or SPENT; the nodes it took; the offset per unit if found."""
        state = fresh(self.model, self.shape)
        nodes = np.zeros(1, dtype=np.int64)
        if weight is None:
            weight = np.zeros(self.model.sections, dtype=np.int64)
        verdict = search(self.shape, state, Ask(capacity, rank, weight, focus, self.switches, budget), nodes, self.stop)
        self.fails = state.section[:, FAILS].copy()
        return int(verdict), int(nodes[0]), state.unit[:, LOW].tolist() if verdict == FOUND else None
