"""Branch and bound: decide whether all units (:mod:`.search_model`) can be packed below a capacity.

Depth first, from the bottom up. Choose a unit under which no unplaced unit fits. First branch: the unit lies at its
lowest offset. Second branch: the unit lies higher; its place at the lowest offset is a *hole* that another unit
must overlap. Both branches form a *level*. After each decision, :mod:`.propagation` raises lower bounds of offsets.

At a dead end, conflict analysis gives the levels that the conflict depends on (the nogood), and the search jumps back
to the latest of them. The lowest offsets determine the next unit; a branching order only breaks ties.

Canonical bottom-up packings and the section bound are those of MiniMalloc (Moffitt, ASPLOS '23); conflict-directed
backjumping with explanations comes from constraint programming (Prosser 1993; Ohrimenko, Stuckey and Codish 2009).
The search is deterministic and not recursive. :class:`Searcher` runs it on one model, for several capacities, in the
native library (``native/branch_and_bound.c``) or in plain Python (:class:`PlainSearch`), with the same nodes.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from tmmu_core.planners.exact.propagation import DOMINATED, FAR, NO_CANDIDATE, SECTION_TOO_FULL, Propagation
from tmmu_core.planners.exact.search_model import Model
from tmmu_core.planners.exact.search_tables import FAILURES, LOW, State, Tables, build_tables, initial_state
from tmmu_core.planners.native import library, native
from tmmu_core.planners.native.native import LARGEST
from tmmu_core.planners.problem import I64

Watch = Callable[[int], bool]  # ``watch(nodes)``: return whether the search may go on
POLL_SECONDS = 0.1  # seconds between two calls of ``watch``
MOST_EVENTS = 1 << 23  # an event table with more rows (48 bytes each) does not grow: the search ends as BUDGET_SPENT
FOUND, INFEASIBLE, BUDGET_SPENT, TABLES_FULL = 1, 0, -1, -2
"""Results of a search. ``INFEASIBLE`` is proven; ``TABLES_FULL``: the tables of the native library need more rows."""


@dataclass
class _Level:
    """A decision: one of two branches for a unit and its lowest offset."""

    unit: int
    offset: int
    marks: tuple[int, int, int]  # numbers of events, placements and filled holes before the decision
    is_second_branch: bool = False
    nogood: set[int] = field(default_factory=set)  # levels that the conflict of the first branch depends on


class PlainSearch(Propagation):
    """The search in plain Python."""

    def __init__(self, tables: Tables, state: State, *, capacity: int, rank: I64, budget: int) -> None:
        """Search for a packing below ``capacity`` within ``budget`` nodes; ``rank``: see :meth:`Searcher.solve`."""
        super().__init__(tables, state, capacity)
        self.rank, self.budget = rank.tolist(), budget
        self.levels: list[_Level] = []  # decisions on the current path

    def run(self, nodes: I64, stop: I64) -> int:
        """Run the search; return FOUND, INFEASIBLE or BUDGET_SPENT. If found, the offsets are ``low``.

        ``nodes[0]`` counts the branches tried. The result is BUDGET_SPENT soon after a thread sets ``stop[0]``.
        """
        self.changed, self.dirty = dict.fromkeys(range(self.count), 0), dict.fromkeys(range(len(self.failures)))
        is_over = (low + height > self.capacity for low, height in zip(self.low, self.max_height, strict=False))
        if any(is_over) or not self.propagate():
            return INFEASIBLE
        while len(self.placed) < self.count:
            if nodes[0] >= self.budget or stop[0]:
                return BUDGET_SPENT
            nodes[0] += 1
            consistent = self._decide()
            while not consistent:
                if not self._backjump():
                    return INFEASIBLE
                nodes[0] += 1
                level = self.levels[-1]
                self.open_hole(level.unit, (level.offset, len(self.levels) - 1))
                consistent = self.propagate()
        return FOUND

    def _decide(self) -> bool:
        """Place the next unit; return whether no conflict follows. A unit without a fixed offset begins a level."""
        u = self._branching_unit()
        if u < 0:
            return self.fail(NO_CANDIDATE, -1, -1)
        level = -1
        if self.fixed[u] < 0:
            level = len(self.levels)
            self.levels.append(_Level(u, self.low[u], (len(self.events), len(self.placed), len(self.filled))))
            for w in self.mates[u]:  # a smaller mate just below can swap with ``u``: the larger goes below
                is_below = self.placed_since[w] is not None and self.low[w] + self.max_height[w] == self.low[u]
                if is_below and self.max_height[w] < self.max_height[u]:
                    return self.fail(DOMINATED, u, w)
        return self.place_unit(u, level) and self.propagate()

    def _branching_unit(self) -> int:
        """Return an unplaced unit under which no unplaced unit fits; −1 if there is none.

        Begin at the lowest unit that has no hole; the rank breaks ties. Go down to a neighbour that fits below,
        until there is none. The neighbours that can fill the hole of a unit count as below it.
        """
        placed_since, low, rank = self.placed_since, self.low, self.rank
        open_units = (u for u in range(self.count) if placed_since[u] is None and u not in self.hole)
        best = min(open_units, key=lambda u: (low[u], rank[u]), default=-1)
        u = -1
        while best >= 0:
            u, best = best, -1
            hole = self.hole.get(u, (-1, 0))[0]
            least = FAR if hole >= 0 else low[u]
            for w, own_height, other_height in self.neighbours[u]:
                if placed_since[w] is not None:
                    continue
                if hole >= 0:
                    if self.fixed[w] >= 0 or low[w] >= hole + own_height:
                        continue
                    at = max(low[w] + other_height, hole + 1)
                elif low[w] + other_height <= low[u]:
                    at = low[w]
                else:
                    continue
                if at < least or (best >= 0 and at == least and rank[w] < rank[best]):
                    least, best = at, w
        return -1 if u in self.hole else u

    def _backjump(self) -> bool:
        """Undo all levels back to the latest first branch that the conflict depends on, and take its second branch.

        Return whether there is such a branch.
        """
        kind, section, _ = self.conflict
        if kind == SECTION_TOO_FULL:
            self.failures[section] += 1
        self.changed.clear()
        self.dirty.clear()
        if kind == NO_CANDIDATE:
            self.nogood = set(range(len(self.levels)))
        else:
            self.analyse_conflict()
        if kind == DOMINATED:
            self.nogood.add(len(self.levels) - 1)
        while self.nogood:
            latest = max(self.nogood)
            for level in reversed(self.levels[latest:]):
                self.undo(*level.marks)
                if level.is_second_branch:
                    self.close_hole(level.unit)
            del self.levels[latest + 1 :]
            self.nogood.remove(latest)
            level = self.levels[latest]
            if not level.is_second_branch:
                level.is_second_branch, level.nogood, self.nogood = True, self.nogood, set()
                return True
            self.levels.pop()
            self.nogood |= level.nogood
        return False


class Searcher:
    """Runs searches on one model, with several capacities and branching orders."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.tables = build_tables(model)
        self.failures: I64 = np.zeros(model.sections, dtype=np.int64)  # conflicts per section in the last search
        self.stop: I64 = np.zeros(1, dtype=np.int64)
        """Any thread may set ``stop[0]``: the current search ends as BUDGET_SPENT."""
        self.table_rows = (512 * len(model) + 4096, 8 * len(model) + 64)
        """Rows of the event and level tables of the native library. The tables grow on demand."""

    def solve(
        self, capacity: int, rank: I64, budget: int, watch: Watch | None = None
    ) -> tuple[int, int, list[int] | None]:
        """Search for a packing of all units below ``capacity`` within ``budget`` nodes.

        Among units with equal lowest offset, the one with the lowest ``rank`` (n,) goes first. ``watch(nodes)`` is
        called every :data:`POLL_SECONDS`; the search stops if it returns ``False`` or raises. Return FOUND, INFEASIBLE
        or BUDGET_SPENT, the number of nodes, and the offset of each unit if found.
        """
        query: dict[str, Any] = {"capacity": capacity, "rank": rank, "budget": budget}
        nodes = np.zeros(1, dtype=np.int64)
        loops = library() if abs(capacity) < LARGEST else None
        while True:  # the number of rows is not known beforehand
            state, nodes[0] = initial_state(self.model, self.tables, capacity), 0
            if loops is None:
                plain = PlainSearch(self.tables, state, **query)
                loop: Callable[[], int] = partial(plain.run, nodes, self.stop)
            else:
                loop = partial(native.run, loops, self._native_call(state, query, nodes))
            outcome = int(loop() if watch is None else watched(loop, self.stop, lambda: watch(int(nodes[0]))))
            if loops is None:
                state.unit[LOW], state.section[:, FAILURES] = plain.low, plain.failures
            if outcome != TABLES_FULL or self.table_rows[0] > MOST_EVENTS:
                break
            self.table_rows = (4 * self.table_rows[0], 2 * self.table_rows[1])
        self.failures = state.section[:, FAILURES].copy()
        outcome = BUDGET_SPENT if outcome == TABLES_FULL else outcome
        return outcome, int(nodes[0]), state.unit[LOW].tolist() if outcome == FOUND else None

    def _native_call(self, state: State, query: dict[str, Any], nodes: I64) -> Any:
        """Return the arguments of the native search. Other threads can read ``nodes`` and set ``stop``."""
        (events, levels), n, sections = self.table_rows, len(self.model), self.model.sections
        shapes: dict[str, Any] = {"dirty": sections, "event": (events, 2), "reason": (events, 4)}
        shapes |= {"level": (levels, 7), "filled": (levels, 3), **dict.fromkeys(("changed", "holes", "placed"), n)}
        fields: dict[str, Any] = {name: np.empty(shape, np.int64) for name, shape in shapes.items()}
        fields |= {"nogood": np.zeros(levels, np.uint8), "nogoods": np.empty(levels * (levels - 1) // 2, np.uint8)}
        fields |= {"n": n, "entries": len(self.tables.entry), "sections": sections}
        fields |= {"max_events": events, "max_levels": levels, "shape": self.tables.unit, "nodes": nodes}
        fields |= {**self.tables._asdict(), **state._asdict(), **query, "budget": min(query["budget"], LARGEST)}
        return native.call_of("search", **fields, stop=self.stop)


def watched(loop: Callable[[], Any], stop: I64, keep_going: Callable[[], bool]) -> Any:
    """Run ``loop`` in a thread and return its result; set ``stop[0]`` when ``keep_going`` returns ``False`` or raises.

    ``keep_going`` is called every :data:`POLL_SECONDS`. The native loop releases the interpreter lock.
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
