"""Branch and bound: decide whether all units (:mod:`.search_model`) can be packed below a capacity.

The search is depth first, from the bottom up. It chooses a unit under which no unplaced unit fits. In the first branch,
the unit lies at its lowest offset. In the second, it lies higher, and its place at the lowest offset is a *hole* that
another unit must overlap. Both branches form a *level*. Then :mod:`.propagation` raises lower bounds of offsets.

At a dead end, conflict analysis gives the levels that the conflict depends on (the nogood), and the search jumps back
to the latest of them. The lowest offsets determine the next unit; a branching order only breaks ties.

Canonical bottom-up packings and the section bound are those of MiniMalloc (Moffitt, ASPLOS '23); conflict-directed
backjumping with explanations comes from constraint programming (Prosser 1993; Ohrimenko, Stuckey and Codish 2009).
The search is deterministic and not recursive. :class:`Searcher` runs it on one model, for several capacities, in the
native library (``native/branch_and_bound.c``) or in plain Python (:class:`PlainSearch`), with the same nodes.

A *branching order* ranks units with equal lowest offsets. Most orders are learned from conflicts of earlier attempts.
Attempts are many and short, because an order that finds a packing mostly finds it early.

The first attempts use weighted sums of properties of a unit (:data:`OPENING_WEIGHTS`). Then static orders from the
literature (:data:`ORDERS`; MiniMalloc, ASPLOS '23) take turns, with both ways to break ties. A packing that is found
adds an order: by offset, lowest first. A *learned* attempt ranks first the units whose sections had the most conflicts
in earlier attempts with the same order (weighted-degree branching: Boussemart et al., ECAI 2004); the counts decay.

The node budgets of learned attempts follow the Luby sequence. Every :data:`STATIC_EVERY`-th attempt is *static*: it
ignores the counts. The node budgets of static attempts double each round (geometric restarts). All numbers are
integers, so the orders are the same on every machine.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from tmmu_core.planners.exact.propagation import DOMINATED, FAR, NO_CANDIDATE, SECTION_TOO_FULL, Propagation
from tmmu_core.planners.exact.search_model import Model, log2_fixed
from tmmu_core.planners.exact.search_tables import FAILURES, LOW, State, Tables, build_tables, initial_state
from tmmu_core.planners.native import library, native
from tmmu_core.planners.native.native import LARGEST
from tmmu_core.planners.problem import I64

Watch = Callable[[int], bool]  # ``watch(nodes)``: return whether the search may go on
POLL_SECONDS = 0.1  # seconds between two calls of ``watch``
MOST_EVENTS = 1 << 23  # an event table with more rows (48 bytes each) does not grow: the search ends as BUDGET_SPENT
FOUND, INFEASIBLE, BUDGET_SPENT, TABLES_FULL = 1, 0, -1, -2
"""Results of a search. ``INFEASIBLE`` is proven; ``TABLES_FULL``: the tables of the native library need more rows."""
OPENING_WEIGHTS = np.array(
    [(256, 17, 44, 30), (25, 26, 29, 3), (400, 115, 84, 13), (59, 27, 25, 7), (166, 80, 19, 45), (0, 128, 64, 32)]
)
"""Weights of the rows of ``Model.log_traits`` in the first attempts, fitted to MiniMalloc's instances A to F."""
OPENING_NODES = 2_000  # nodes of an opening attempt
ORDERS = ("TWA", "A", "TAW", "WAT")
"""Static orders: keys, greatest first. T: bytes of the fullest section; W: lifetime; A: lifetime × height."""
DIRECTIONS = (1, -1)  # ties are broken by unit number, ascending or descending
RESTART_NODES = 1_000  # base node budget of learned attempts, multiplied by terms of the Luby sequence
STATIC_EVERY = 8
STATIC_NODES = 4_000  # nodes of a static attempt in the first round
WEIGHT_DECAY = 5  # counts are divided by this at each attempt of their order


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
        """Prepare a search below ``capacity`` within ``budget`` nodes; ``rank``: see :meth:`Searcher.solve`."""
        super().__init__(tables, state, capacity)
        self.rank, self.budget = rank.tolist(), budget
        self.levels: list[_Level] = []  # decisions on the current path

    def run(self, nodes: I64, stop: I64) -> int:
        """Run the search; return FOUND, INFEASIBLE or BUDGET_SPENT. If found, the offsets are ``low``.

        ``nodes[0]`` counts the branches tried. The result is BUDGET_SPENT soon after a thread sets ``stop[0]``.
        """
        self.changed, self.dirty = dict.fromkeys(range(self.count), 0), dict.fromkeys(range(len(self.failures)))
        is_too_high = (low + height > self.capacity for low, height in zip(self.low, self.max_height, strict=False))
        if any(is_too_high) or not self.propagate():
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
            for w in self.mates[u]:  # adjacent mates can swap: only packings with the larger one below are searched
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
        """Undo all levels back to the latest first branch that the conflict depends on, and make it a second branch.

        The caller opens its hole. Return whether there is such a branch.
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


@dataclass(frozen=True)
class Attempt:
    """One branching order, ``rank[u]`` (0 is first), and its node budget."""

    rank: I64
    nodes: int
    order: int  # index into :data:`ORDERS`; ``len(ORDERS)``: the order of the last packing; −1: an opening attempt


class BranchingOrder:
    """Generate attempts to pack into a capacity, and learn from their results."""

    def __init__(self, model: Model, *, openings: bool = True) -> None:
        """With ``openings``, begin with :data:`OPENING_WEIGHTS`."""
        self.model, self.openings = model, openings
        self.turn, self.learned_attempts, self.static_attempts = 0, 0, 0
        self.spent = 0  # nodes of all attempts
        self._failures = [np.zeros(model.sections, dtype=np.int64) for _ in ORDERS]
        """Decayed conflicts per section, for each static order, and for the order of the last packing, if any."""
        self._packing: list[int] = []  # offsets of the last packing
        self._successful: Attempt | None = None  # attempt that found the last packing, until it is repeated
        self._static: dict[tuple[int, int], I64] = {}

    def _rank(self, direction: int, order: int) -> I64:
        """Return the ranks of a static order, greatest first, or of the last packing, lowest first."""
        if (direction, order) not in self._static:
            model, keys = self.model, [np.asarray(self._packing)]
            if order < len(ORDERS):
                area = model.length.astype(object) * model.max_height  # may exceed 64 bits; its rank does not
                traits = {"T": model.fullest, "W": model.length, "A": np.unique(area, return_inverse=True)[1]}
                keys = [-traits[name] for name in reversed(ORDERS[order])]
            number = DIRECTIONS[direction] * np.arange(len(model))
            self._static[direction, order] = _ranks(np.lexsort((number, *keys)))
        return self._static[direction, order]

    def _turn_of(self, number: int) -> tuple[int, int, int]:
        """Return the round, direction and order of attempt ``number``. A round has all orders in both directions."""
        rest, order = divmod(number, len(self._failures))
        return *divmod(rest, len(DIRECTIONS)), order

    def next_attempt(self) -> Attempt:
        """Return the next attempt."""
        if self._successful is not None:  # an order that found a packing often finds the next one
            successful, self._successful = self._successful, None
            return successful
        self.turn += 1
        if self.openings and self.turn <= len(OPENING_WEIGHTS):
            return Attempt(weighted_ranks(self.model.log_traits, OPENING_WEIGHTS[self.turn - 1]), OPENING_NODES, -1)
        if self.turn % STATIC_EVERY == 0:
            round_, direction, order = self._turn_of(self.static_attempts)
            self.static_attempts += 1
            return Attempt(self._rank(direction, order), STATIC_NODES << min(round_, 30), order)
        round_, direction, order = self._turn_of(self.learned_attempts)
        self.learned_attempts += 1
        nodes = RESTART_NODES * luby(round_ + 1)
        most_failures = self.model.greatest(self._failures[order][self.model.section])
        # Counts are compared in steps of a factor √2: a finer scale would rank by random differences.
        failure_class = 2 * log2_fixed(1 + most_failures) >> 12
        return Attempt(_ranks(np.lexsort((self._rank(direction, order), -failure_class))), nodes, order)

    def attempt(
        self, searcher: Searcher, target: int, budget: int, watch: Watch | None
    ) -> tuple[int, int, list[int] | None]:
        """Run the next attempt within ``budget`` nodes and learn from it unless it is stopped.

        Return the results of ``Searcher.solve``; at least one node is counted.
        """
        attempt = self.next_attempt()
        outcome, nodes, offset = searcher.solve(target, attempt.rank, min(attempt.nodes, budget), watch)
        if not searcher.stop[0]:
            if outcome == FOUND:
                self._successful = attempt
            if attempt.order >= 0:
                self._failures[attempt.order] = self._failures[attempt.order] // WEIGHT_DECAY + searcher.failures
        self.spent += max(nodes, 1)
        return outcome, max(nodes, 1), offset

    def follow_packing(self, offset: list[int]) -> None:
        """Store the offsets of a new packing for the order of the last packing, and reset the counts of this order."""
        self._packing = offset
        for direction in range(len(DIRECTIONS)):
            self._static.pop((direction, len(ORDERS)), None)
        self._failures = [*self._failures[: len(ORDERS)], np.zeros(self.model.sections, dtype=np.int64)]


def luby(k: int) -> int:
    """Return term k (from 1) of 1, 1, 2, 1, 1, 2, 4, … (Luby, Sinclair and Zuckerman 1993)."""
    while True:
        bits = k.bit_length()
        if k == (1 << bits) - 1:
            return 1 << (bits - 1)
        k -= (1 << (bits - 1)) - 1


def _ranks(order: I64) -> I64:
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.arange(len(order))
    return ranks


def weighted_ranks(log_traits: I64, weights: I64, noise: I64 | int = 0) -> I64:
    """Return the rank of each unit; rank 0 has the greatest weighted sum of ``log_traits`` (4, n) plus ``noise``."""
    return _ranks(np.argsort(-(weights @ log_traits + noise), kind="stable"))
