"""Branching orders: which unit goes first among equal offsets, learned from the conflicts of earlier attempts.

The number of nodes that an order needs is heavy-tailed, so attempts are many and short: an order that finds a packing
mostly does so within three to ten nodes per storage (decision 5). Static orders from the literature come first
(MiniMalloc, ASPLOS '23): fullest section, lifetime and area of a unit. Each attempt counts conflicts per section; the
next attempt of that order puts the units of the sections with most conflicts first (weighted-degree branching:
Boussemart et al., ECAI 2004); counts decay. A packing adds one order: the units that lie low in it first. Every order
is used in both directions of time.

Learned attempts have the lengths of the Luby sequence. Every :data:`STATIC_EVERY`-th attempt follows a static order
without weights. The length of these attempts doubles each round (geometric restarts), so no order is dropped.

Integers and raw Philox words only: the same on every machine.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from tmmu_core.planners.exact.search_model import Model, Weights, log2_fixed, weighted_ranks
from tmmu_core.planners.problem import I64

OPENING_WEIGHTS: tuple[Weights, ...] = (
    (256, 17, 44, 30),
    (25, 26, 29, 3),
    (400, 115, 84, 13),
    (59, 27, 25, 7),
    (166, 80, 19, 45),
    (0, 128, 64, 32),
)
"""Weights of the first attempts, fitted to MiniMalloc's instances A to F."""
OPENING_NODES = 2_000
"""Nodes of an opening attempt."""
ORDERS = ("TWA", "A", "TAW", "WAT")
"""Static orders: keys, greatest first. T: bytes of the fullest section; W: lifetime; A: lifetime × height."""
DIRECTIONS = (1, -1)
"""Ties are broken by unit number, ascending or descending (time reversed)."""
RESTART_NODES = 1_000
"""Nodes of the shortest learned attempt; longer ones are multiples by the Luby sequence."""
STATIC_EVERY = 8
STATIC_NODES = 4_000
"""Nodes of a static attempt in the first round."""
WEIGHT_DECAY = 5
"""Counts are divided by this at each attempt of their order."""
PHILOX_KEY = 4
"""Key of the random stream."""


@dataclass(frozen=True)
class Attempt:
    """One branching order, ``rank[u]`` (0 is first), and its node budget."""

    rank: I64
    nodes: int
    order: int
    """Index into :data:`ORDERS`; ``len(ORDERS)``: the order of the last packing; −1: an opening attempt."""


@dataclass
class BranchingOrder:
    """Generates attempts at one kind of target and learns from their results (:meth:`learn`)."""

    model: Model
    openings: bool = True
    """Whether to begin with :data:`OPENING_WEIGHTS`."""
    target: int = -1
    """Capacity of the last attempt."""
    turn: int = 0
    learned_attempts: int = 0
    static_attempts: int = 0
    tried: dict[bytes, int] = field(default_factory=dict)
    """Ranks tried since the target changed, with their nodes."""

    def __post_init__(self) -> None:
        self._failures = [np.zeros(self.model.sections, dtype=np.int64) for _ in ORDERS]
        self._guide: list[int] = []
        self._repeat: Attempt | None = None
        self._static: dict[tuple[int, int], I64] = {}

    # Computed on first use: most targets are decided by the first attempts.

    @cached_property
    def _traits(self) -> dict[str, I64]:
        """Keys of :data:`ORDERS` as columns over units."""
        model = self.model
        max_height = model.greatest(model.height).tolist()
        # Python integers: steps × bytes may exceed 64 bits, their ranks do not.
        areas = [steps * high for steps, high in zip(model.length.tolist(), max_height, strict=True)]
        place = {area: k for k, area in enumerate(sorted(set(areas)))}
        return {"T": model.fullest(), "W": model.length, "A": np.array([place[area] for area in areas], np.int64)}

    @cached_property
    def _weighted(self) -> Callable[[Weights, I64 | None], I64]:
        return weighted_ranks(self.model)

    @cached_property
    def _draws(self) -> np.random.Philox:
        return np.random.Philox(key=PHILOX_KEY)

    def _rank(self, direction: int, order: int) -> I64:
        """Return the ranks of a static order, greatest first, or of the last packing, lowest first.

        Ties go by unit number, ascending or descending.
        """
        if (direction, order) not in self._static:
            keys = [np.asarray(self._guide)]
            if order < len(ORDERS):
                keys = [-self._traits[name] for name in reversed(ORDERS[order])]
            number = DIRECTIONS[direction] * np.arange(len(self.model))
            self._static[direction, order] = _ranks(np.lexsort((number, *keys)))
        return self._static[direction, order]

    def next_attempt(self, target: int) -> Attempt:
        """Return the next attempt at a capacity. At a new capacity all orders may be tried again."""
        if target != self.target:
            self.target = target
            self.tried.clear()
        if self._repeat is not None:  # an order that found a packing often finds the next one
            successful, self._repeat = self._repeat, None
            return successful
        self.turn += 1
        if self.openings and self.turn <= len(OPENING_WEIGHTS):
            return Attempt(self._weighted(OPENING_WEIGHTS[self.turn - 1], None), OPENING_NODES, -1)
        if self.turn % STATIC_EVERY == 0:
            round_, at = divmod(self.static_attempts, len(self._failures))
            self.static_attempts += 1
            round_, direction = divmod(round_, len(DIRECTIONS))
            return Attempt(self._rank(direction, at), STATIC_NODES << min(round_, 30), at)
        round_, at = divmod(self.learned_attempts, len(self._failures))
        self.learned_attempts += 1
        round_, direction = divmod(round_, len(DIRECTIONS))
        nodes = RESTART_NODES * luby(round_ + 1)
        worst = self.model.greatest(self._failures[at][self.model.section])
        # Weights in steps of √2: a finer scale would rank by random differences.
        level = np.asarray([2 * log2_fixed(1 + int(n)) >> 12 for n in worst], dtype=np.int64)
        rank = _ranks(np.lexsort((self._rank(direction, at), -level)))
        if self.tried.get(rank.tobytes(), 0) >= nodes:  # this order has failed with as many nodes
            raw = [int(x) for x in self._draws.random_raw(4)]
            noise = (self._draws.random_raw(len(self.model)) % np.uint64(1 << 16)).astype(np.int64)
            rank = self._weighted((raw[0] % 512, raw[1] % 128, raw[2] % 128, raw[3] % 128), noise)
        else:
            self.tried[rank.tobytes()] = nodes
        return Attempt(rank, nodes, at)

    def follow_packing(self, offset: list[int]) -> None:
        """Add the order of a packing: units that lie low in it first."""
        self._guide = offset
        for direction in range(len(DIRECTIONS)):
            self._static.pop((direction, len(ORDERS)), None)
        self._failures[len(ORDERS) :] = [np.zeros(self.model.sections, dtype=np.int64)]

    def learn(self, next_attempt: Attempt, failures: I64, found: bool) -> None:
        """Store the conflicts per section of an attempt, and repeat it next if it succeeded."""
        if found:
            self._repeat = next_attempt
        if next_attempt.order >= 0:
            self._failures[next_attempt.order] = self._failures[next_attempt.order] // WEIGHT_DECAY + failures


def _ranks(order: I64) -> I64:
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.arange(len(order))
    return ranks


def luby(k: int) -> int:
    """Return term k (from 1) of 1, 1, 2, 1, 1, 2, 4, … (Luby, Sinclair and Zuckerman 1993)."""
    while True:
        bits = k.bit_length()
        if k == (1 << bits) - 1:
            return 1 << (bits - 1)
        k -= (1 << (bits - 1)) - 1
