"""One model, made ready for the compiled search, asked again and again with other ranks and capacities."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import numpy as np

from tmmu_core.loops import calls
from tmmu_core.loops.calls import LARGEST
from tmmu_core.loops.library import library
from tmmu_core.planners.exact.kernel import CRAMPED, FOUND, SPENT, Ask, search
from tmmu_core.planners.exact.model import Model
from tmmu_core.planners.exact.propagate import ALL
from tmmu_core.planners.exact.tables import FAILS, LOW, TALL, Shape, State, fresh, shape_of
from tmmu_core.planners.problem import I64

Watch = Callable[[int], bool]
LOOK = 0.1
"""Seconds."""
MOST_EVENTS = 1 << 23
"""Tables of more rows (48 bytes each) are given no more room."""


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
        self.room = (64 * len(model) + 4096, 8 * len(model) + 64)
        """Events and levels of the tables; more as soon as they do not do."""

    def ask(
        self,
        capacity: int,
        rank: I64,
        budget: int,
        watch: Watch | None = None,
    ) -> tuple[int, int, list[int] | None]:
        """FOUND, INFEASIBLE or SPENT; the nodes it took; the offset per unit if found.

        ``watch(nodes)`` is asked every :data:`LOOK` seconds whether to go on; where it says no or raises, the search
        ends within as much again.
        """
        ask = Ask(capacity, rank, self.switches, budget)
        verdict = CRAMPED
        while verdict == CRAMPED:  # how often a unit is raised cannot be told beforehand: where many meet, very often
            state = fresh(self.model, self.shape, self.room)
            nodes = np.zeros(1, dtype=np.int64)
            verdict = self._search(state, ask, nodes, watch)
            if verdict == CRAMPED and self.room[0] > MOST_EVENTS:
                verdict = SPENT
            elif verdict == CRAMPED:
                self.room = (4 * self.room[0], 2 * self.room[1])
        self.fails = state.section[:, FAILS].copy()
        return int(verdict), int(nodes[0]), state.unit[:, LOW].tolist() if verdict == FOUND else None

    def _search(self, state: State, ask: Ask, nodes: I64, watch: Watch | None) -> int:
        find = search_by(ask)
        if watch is None:
            return int(find(self.shape, state, ask, nodes, self.stop))
        return int(
            watched(lambda: find(self.shape, state, ask, nodes, self.stop), self.stop, lambda: watch(int(nodes[0])))
        )


def watched(loop: Callable[[], Any], stop: I64, goes_on: Callable[[], bool]) -> Any:
    """What ``loop`` gives. Every :data:`LOOK` seconds it is asked whether to go on; if not, ``stop[0]`` is set.

    The loop lets go of the interpreter's lock. Looking at the clock decides only when ``goes_on`` is asked.
    """
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(loop)
        try:
            while running not in wait((running,), LOOK).done:
                if not goes_on():
                    stop[0] = 1
                    break
        except BaseException:
            stop[0] = 1
            raise
        return running.result()


def search_by(ask: Ask) -> Callable[[Shape, State, Ask, I64, I64], int]:
    """The library's loop where it can be handed the question; else :func:`.kernel.search`."""
    loops = library()
    if loops is None or abs(ask.capacity) >= LARGEST:
        return search

    def ahead(shape: Shape, state: State, ask: Ask, nodes: I64, stop: I64) -> int:
        return calls.search(
            loops,
            len(state.blame),
            n=len(state.unit),
            m=len(state.section),
            events=len(state.event),
            shape=shape.unit,
            nodes=nodes,
            stop=stop,
            **{name: value for name, value in shape._asdict().items() if name != "unit"},
            **state._asdict(),
            **{**ask._asdict(), "budget": min(ask.budget, LARGEST)},
        )

    return ahead
