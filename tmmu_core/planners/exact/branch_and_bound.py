"""Branch and bound: can all units be packed below a capacity?

Depth first, from the bottom up. Choose a unit under which no unplaced unit fits. It can lie at its lowest offset if no
other unit overlaps that place; else it lies above one of those that do: a *hole* that one of them must fill. These two
branches form a *level*. After each decision, :mod:`.propagation` raises the lower bounds of the other offsets.

At a dead end, conflict analysis gives the levels that the conflict depends on (the nogood), and the search jumps back
over all others. The next unit is the one with the lowest possible offset, so no order of units needs to be right for
the whole model.

Canonical bottom-up packings and the section bound are those of MiniMalloc (Moffitt, ASPLOS '23); conflict-directed
backjumping with explanations comes from constraint programming (Prosser 1993; Ohrimenko, Stuckey and Codish 2009).
Deterministic, without recursion. :class:`Searcher` runs it on one model with several capacities and orders.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tmmu_core.planners.exact import search_tables as tab
from tmmu_core.planners.exact.propagation import (
    DOMINATED,
    FAR,
    NO_CANDIDATE,
    SECTION_TOO_FULL,
    TRAIL_FULL,
    analyse_conflict,
    clear_queues,
    close_hole,
    open_hole,
    place_unit,
    propagate,
    undo,
)
from tmmu_core.planners.exact.search_model import Model
from tmmu_core.planners.exact.search_tables import State, Tables, build_tables, initial_state
from tmmu_core.planners.native import native
from tmmu_core.planners.native.load import library
from tmmu_core.planners.native.native import LARGEST
from tmmu_core.planners.problem import I64

Watch = Callable[[int], bool]
POLL_SECONDS = 0.1
"""Seconds between two calls of ``watch``."""
MOST_EVENTS = 1 << 23
"""Event tables with more rows (48 bytes each) do not grow."""
FOUND, INFEASIBLE, BUDGET_SPENT, TABLES_FULL = 1, 0, -1, -2
"""Results. ``INFEASIBLE`` is proven; ``TABLES_FULL``: the trail or the levels need more rows."""


class FitQuery(NamedTuple):
    """Does everything fit below ``capacity``?"""

    capacity: int
    rank: I64
    """(n,): branching order of units with equal lowest offset, 0 first."""
    budget: int
    """Nodes."""


class _Levels:
    """Decisions on the current path: one row per level."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.count = 0
        self.unit_of = np.full(limit + 1, -1, np.int64)
        self.offset_of = np.zeros(limit + 1, np.int64)
        self.second_branch = np.zeros(limit + 1, np.int64)
        self.trail_marks = np.zeros((limit + 1, 3), np.int64)
        self.nogoods = np.empty((limit + 1, limit + 1), np.uint8)
        """Row k: the levels that the first branch of level k failed by."""

    def open(self, state: State, u: int) -> int:
        level = self.count
        self.count += 1
        self.unit_of[level], self.offset_of[level], self.second_branch[level] = u, state.unit[u, tab.LOW], 0
        counters = state.counters
        self.trail_marks[level] = counters[tab.EVENT_COUNT], counters[tab.PLACED_COUNT], counters[tab.FILLED_COUNT]
        return level


def _lowest_open_unit(state: State, rank: I64) -> int:
    """Return the unplaced unit without a hole that has the lowest offset, by rank among equals; −1: none."""
    unit = state.unit
    open_units = np.flatnonzero((unit[:, tab.PLACED] == 0) & (unit[:, tab.HOLE] < 0))
    if not len(open_units):
        return -1
    offsets = unit[open_units, tab.LOW]
    first = open_units[offsets == offsets.min()]
    return int(first[rank[first].argmin()])


def _branching_unit(tables: Tables, state: State, rank: I64, u: int) -> int:
    """Return ``u``, or a unit below it with no further unit below; −1 if no unit can fill the hole below ``u``."""
    unit = state.unit
    while True:
        hole = unit[u, tab.HOLE]
        least, best = FAR if hole >= 0 else unit[u, tab.LOW], -1
        for k in range(tables.unit[u, tab.NEIGHBOURS], tables.unit[u + 1, tab.NEIGHBOURS]):
            w = tables.neighbour[k, tab.OTHER]
            if unit[w, tab.PLACED]:
                continue
            if hole >= 0:  # w may fill it
                if tables.unit[w, tab.FIXED] >= 0 or unit[w, tab.LOW] >= hole + tables.neighbour[k, tab.OWN_HEIGHT]:
                    continue
                at = max(unit[w, tab.LOW] + tables.neighbour[k, tab.OTHER_HEIGHT], hole + 1)
            elif unit[w, tab.LOW] + tables.neighbour[k, tab.OTHER_HEIGHT] <= unit[u, tab.LOW]:
                at = unit[w, tab.LOW]
            else:
                continue
            if at < least or (best >= 0 and at == least and rank[w] < rank[best]):
                least, best = at, w
        if best < 0:
            return -1 if hole >= 0 else u
        u = best


def _dominated_by(tables: Tables, state: State, u: int) -> int:
    """Return the smaller unit of the same sections directly below ``u``, or −1. Swapping the two is equivalent."""
    unit = state.unit
    for row in range(tables.unit[u, tab.MATES], tables.unit[u + 1, tab.MATES]):
        w = tables.mate[row]
        if (
            unit[w, tab.PLACED]
            and unit[w, tab.LOW] + tables.unit[w, tab.MAX_HEIGHT] == unit[u, tab.LOW]
            and tables.unit[w, tab.MAX_HEIGHT] < tables.unit[u, tab.MAX_HEIGHT]
        ):
            return int(w)
    return -1


def _propagate_root(tables: Tables, state: State, query: FitQuery) -> bool:
    """Queue everything and propagate; return whether no conflict follows."""
    for u in range(len(state.unit)):
        if state.unit[u, tab.LOW] + tables.unit[u, tab.MAX_HEIGHT] > query.capacity:
            return False
        state.unit[u, tab.QUEUED] = 1
        state.changed[u] = u
    state.counters[tab.CHANGED_COUNT] = len(state.unit)
    for s in range(len(state.section)):
        state.section[s, tab.SECTION_QUEUED] = 1
        state.dirty[s] = s
    state.counters[tab.DIRTY_COUNT] = len(state.section)
    return propagate(tables, state, query.capacity)


def _backjump(tables: Tables, state: State, levels: _Levels) -> bool:
    """Undo levels up to the latest first branch that the conflict depends on; return whether there is one."""
    in_conflict = state.conflict_levels
    while True:
        depends_on = np.flatnonzero(in_conflict[: levels.count])
        if not len(depends_on):
            return False
        level = int(depends_on[-1])
        for k in range(levels.count - 1, level - 1, -1):
            undo(tables, state, levels.trail_marks[k])
            if levels.second_branch[k]:
                close_hole(state, levels.unit_of[k])
        levels.count = level
        in_conflict[level] = 0
        if not levels.second_branch[level]:
            levels.nogoods[level, :level] = in_conflict[:level]
            in_conflict[:level] = 0
            return True
        in_conflict[:level] |= levels.nogoods[level, :level]


def _decide(tables: Tables, state: State, query: FitQuery, levels: _Levels) -> bool:
    """Place the next unit on the first branch of a new level; return whether no conflict follows."""
    counters = state.counters
    u = _lowest_open_unit(state, query.rank)
    if u >= 0:
        u = _branching_unit(tables, state, query.rank, u)
    if u < 0:
        counters[tab.CONFLICT] = NO_CANDIDATE
        return False
    level = -1
    if tables.unit[u, tab.FIXED] < 0:
        level = levels.open(state, u)
        below = _dominated_by(tables, state, u)
        if below >= 0:
            counters[tab.CONFLICT], counters[tab.CONFLICT_A], counters[tab.CONFLICT_B] = DOMINATED, u, below
            return False
    placed = place_unit(tables, state, query.capacity, u, level)
    return placed and propagate(tables, state, query.capacity)


def search(tables: Tables, state: State, query: FitQuery, nodes: I64, stop: I64) -> int:
    """Return FOUND, INFEASIBLE, BUDGET_SPENT or TABLES_FULL; offsets of a packing are ``state.unit[:, tab.LOW]``.

    ``state`` must be initial. ``nodes[0]`` counts the branches tried. Returns BUDGET_SPENT soon after ``stop[0]`` is
    set from another thread.
    """
    counters, in_conflict = state.counters, state.conflict_levels
    levels = _Levels(len(in_conflict) - 1)
    if not _propagate_root(tables, state, query):
        return TABLES_FULL if counters[tab.CONFLICT] == TRAIL_FULL else INFEASIBLE
    while counters[tab.PLACED_COUNT] < len(state.unit):
        if nodes[0] >= query.budget or stop[0]:
            return BUDGET_SPENT
        if levels.count >= levels.limit:
            return TABLES_FULL
        nodes[0] += 1
        consistent = _decide(tables, state, query, levels)
        while not consistent:
            if counters[tab.CONFLICT] == TRAIL_FULL:
                return TABLES_FULL
            if counters[tab.CONFLICT] == SECTION_TOO_FULL:
                state.section[counters[tab.CONFLICT_A], tab.FAILURES] += 1
            clear_queues(state)
            if counters[tab.CONFLICT] != NO_CANDIDATE:
                analyse_conflict(tables, state, query.capacity)
                if counters[tab.CONFLICT] == DOMINATED:
                    in_conflict[levels.count - 1] = 1
            else:
                in_conflict[: levels.count] = 1
            if not _backjump(tables, state, levels):
                return INFEASIBLE
            level = levels.count
            levels.second_branch[level] = 1
            levels.count += 1
            nodes[0] += 1
            open_hole(state, levels.unit_of[level], levels.offset_of[level], level)
            consistent = propagate(tables, state, query.capacity)
    return FOUND


class Searcher:
    """Runs :func:`search` on the tables of one model."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.tables = build_tables(model)
        self.heights: list[int] = self.tables.unit[:-1, tab.MAX_HEIGHT].tolist()
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
        self.failures = state.section[:, tab.FAILURES].copy()
        return verdict, int(nodes[0]), state.unit[:, tab.LOW].tolist() if verdict == FOUND else None

    def _search(self, state: State, query: FitQuery, nodes: I64, watch: Watch | None) -> int:
        """Run the native search, or :func:`search` without the library or beyond its integers."""
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
