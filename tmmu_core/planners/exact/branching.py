"""Branching orders: ranks of units with equal lowest offsets. Most are learned from conflicts of earlier attempts.

The number of nodes that an order needs is heavy-tailed, so attempts are many and short: an order that finds a packing
mostly does so within three to ten nodes per storage (decision 5).

The first attempts use weighted sums of properties of a unit (:data:`OPENING_WEIGHTS`). Then static orders from the
literature (:data:`ORDERS`; MiniMalloc, ASPLOS '23) take turns, with both ways to break ties. The last packing adds an
order: by offset, lowest first. A *learned* attempt first takes the units whose sections had the most conflicts in
earlier attempts of its order (weighted-degree branching: Boussemart et al., ECAI 2004); the counts decay.

The node budgets of learned attempts follow the Luby sequence. Every :data:`STATIC_EVERY`-th attempt is *static*: it
ignores the counts. The node budgets of static attempts double each round (geometric restarts).

All numbers are integers, so the orders are the same on every machine.
"""

from dataclasses import dataclass

import numpy as np

from tmmu_core.planners.exact.branch_and_bound import FOUND, Searcher, Watch
from tmmu_core.planners.exact.search_model import Model, log2_fixed
from tmmu_core.planners.problem import I64

OPENING_WEIGHTS = np.array(
    [(256, 17, 44, 30), (25, 26, 29, 3), (400, 115, 84, 13), (59, 27, 25, 7), (166, 80, 19, 45), (0, 128, 64, 32)]
)
"""Weights of the rows of ``Model.log_traits`` in the first attempts, fitted to MiniMalloc's instances A to F."""
OPENING_NODES = 2_000  # nodes of an opening attempt
ORDERS = ("TWA", "A", "TAW", "WAT")
"""Static orders: keys, greatest first. T: bytes of the fullest section; W: lifetime; A: lifetime × height."""
DIRECTIONS = (1, -1)  # ties are broken by unit number: ascending, or descending as if time were reversed
RESTART_NODES = 1_000  # base node budget of learned attempts, multiplied by terms of the Luby sequence
STATIC_EVERY = 8
STATIC_NODES = 4_000  # nodes of a static attempt in the first round
WEIGHT_DECAY = 5  # counts are divided by this at each attempt of their order


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
        """Decayed conflicts per section, for each order."""
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
        # Conflict counts in steps of a factor √2: a finer scale would rank by random differences.
        level = 2 * log2_fixed(1 + most_failures) >> 12
        rank = _ranks(np.lexsort((self._rank(direction, order), -level)))
        return Attempt(rank, nodes, order)

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
        """Store the offset of each unit in a new packing, for the order of the last packing; reset its counts."""
        self._packing = offset
        for direction in range(len(DIRECTIONS)):
            self._static.pop((direction, len(ORDERS)), None)
        self._failures[len(ORDERS) :] = [np.zeros(self.model.sections, dtype=np.int64)]


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
    """Return the rank of each unit by the weighted sum of its ``log_traits`` (4, n), plus ``noise``, greatest first."""
    return _ranks(np.argsort(-(weights @ log_traits + noise), kind="stable"))
