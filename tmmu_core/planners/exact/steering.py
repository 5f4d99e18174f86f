"""Which unit goes first among equal offsets, attempt after attempt, learnt from where attempts failed.

A search is as good as its order, and how many nodes an order takes is heavy-tailed, so attempts are many and short: an
order that finds a packing at all mostly does so within three to ten nodes a storage (decision 107).
They begin with static orders from the literature (MiniMalloc, ASPLOS '23): by the fullest moment, the life and the
area of a unit. A search that fails counts, section by section, how often it failed there; in the next attempt of the
same order the units of the sections that failed most go first (after weighted-degree ordering: Boussemart and others,
ECAI 2004). What was counted longer ago counts less. A packing found guides one order more: what lies low in it goes
first. Each order is taken both ways round: among equals the first-born before the last-born, then the other way, as if
the model were mirrored in time. Every :data:`PURE`-th attempt follows a static order untaught, and each round of these
is allowed twice the nodes of the round before, so that no order is given up for good.

Whole numbers and raw Philox draws only: the same on every machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from tmmu_core.once import cached_property
from tmmu_core.planners.exact.model import Model, Weights, logarithm, ranker
from tmmu_core.planners.problem import I64

OPENINGS: tuple[Weights, ...] = (
    (256, 17, 44, 30),
    (25, 26, 29, 3),
    (400, 115, 84, 13),
    (59, 27, 25, 7),
    (166, 80, 19, 45),
    (0, 128, 64, 32),
)
"""Weights tried first: what did well on MiniMalloc's A to F. They are quick there and promise nothing elsewhere."""
OPENING = 2_000
"""Nodes of one opening."""
ORDERS = ("TWA", "A", "TAW", "WAT")
"""Static orders, each a list of traits, greatest first: T the fullest section's bytes, W the life, A life × height."""
WAYS = (1, -1)
"""Among equals the first-born goes first, or the last-born: as if the model were mirrored in time."""
SHORTEST = 1_000
"""Nodes of the shortest taught attempt; Luby's sequence multiplies it."""
PURE = 8
PUREST = 4_000
"""Nodes of an untaught attempt of the first round."""
FADING = 5
"""What an attempt counted is divided by this at each later attempt of its order."""
KEY = 4
"""Of the Philox stream that is drawn from."""


@dataclass(frozen=True)
class Attempt:
    """One order to try: ``rank[u]`` (0 goes first), for so many nodes."""

    rank: I64
    nodes: int
    order: int
    """Index into :data:`ORDERS`, the one behind them for the guided order; −1 for an opening."""


@dataclass
class Steering:
    """Attempts at one kind of target, and what was learnt from them. Give each result to :meth:`learn`."""

    model: Model
    openings: bool = True
    """Whether to begin with :data:`OPENINGS`."""
    target: int = -1
    """The capacity of the last attempt."""
    turn: int = 0
    taught: int = 0
    untaught: int = 0
    tried: dict[bytes, int] = field(default_factory=dict)
    """Ranks already tried, with the nodes they had since the target last changed."""

    def __post_init__(self) -> None:
        self._fails = [np.zeros(self.model.sections, dtype=np.int64) for _ in ORDERS]
        self._lying: list[int] = []
        self._lucky: Attempt | None = None

    # Most targets are met, or given up, at once: what later attempts go by is worked out when it comes to them.

    @cached_property
    def _traits(self) -> dict[str, I64]:
        return traits(self.model)

    @cached_property
    def _weighted(self) -> Callable[[Weights, I64 | None], I64]:
        return ranker(self.model)

    @cached_property
    def _draws(self) -> np.random.Philox:
        return np.random.Philox(key=KEY)

    @cached_property
    def _static(self) -> dict[tuple[int, int], I64]:
        return {}

    def _rank(self, way: int, order: int) -> I64:
        """Of a static order, or the guided one, one way round."""
        if (way, order) not in self._static:
            number = WAYS[way] * np.arange(len(self.model))
            guided = order == len(ORDERS)
            self._static[way, order] = (
                _ranks(np.lexsort((number, np.asarray(self._lying))))
                if guided
                else static_rank(self._traits, ORDERS[order], WAYS[way])
            )
        return self._static[way, order]

    def attempt(self, target: int) -> Attempt:
        """The next order to try at a capacity; at another one than the last, orders that failed may be tried again."""
        if target != self.target:
            self.target = target
            self.tried.clear()
        if self._lucky is not None:  # what has just succeeded may well do so once more
            again, self._lucky = self._lucky, None
            return again
        if self.openings and self.turn < len(OPENINGS):
            self.turn += 1
            return Attempt(self._weighted(OPENINGS[self.turn - 1], None), OPENING, -1)
        self.turn += 1
        if self.turn % PURE == 0:
            round_, at = divmod(self.untaught, len(self._fails))
            self.untaught += 1
            round_, way = divmod(round_, len(WAYS))
            return Attempt(self._rank(way, at), PUREST << min(round_, 30), at)
        round_, at = divmod(self.taught, len(self._fails))
        self.taught += 1
        round_, way = divmod(round_, len(WAYS))
        nodes = SHORTEST * luby(round_ + 1)
        rank = self._taught(at, way)
        name = rank.tobytes()
        if self.tried.get(name, 0) >= nodes:  # nothing new was learnt: try elsewhere
            rank = self._drawn()
        else:
            self.tried[name] = nodes
        return Attempt(rank, nodes, at)

    def guide(self, offset: list[int]) -> None:
        """A packing that fits a higher capacity: what lies low in it goes first, as one more order."""
        self._lying = offset
        for way in range(len(WAYS)):
            self._static.pop((way, len(ORDERS)), None)
        self._fails[len(ORDERS) :] = [np.zeros(self.model.sections, dtype=np.int64)]

    def learn(self, attempt: Attempt, fails: I64, found: bool) -> None:
        """Take in how often each section failed in an attempt, and whether it succeeded all the same."""
        if found:
            self._lucky = attempt
        if attempt.order >= 0:
            self._fails[attempt.order] = self._fails[attempt.order] // FADING + fails

    def _taught(self, order: int, way: int) -> I64:
        worst = self.model.greatest(self._fails[order][self.model.section])
        # Half powers of two tell well enough who failed most; finer, and chance would decide.
        level = np.asarray([2 * logarithm(1 + int(n)) >> 12 for n in worst], dtype=np.int64)
        return _ranks(np.lexsort((self._rank(way, order), -level)))

    def _drawn(self) -> I64:
        raw = [int(x) for x in self._draws.random_raw(4)]
        noise = (self._draws.random_raw(len(self.model)) % np.uint64(1 << 16)).astype(np.int64)
        return self._weighted((raw[0] % 512, raw[1] % 128, raw[2] % 128, raw[3] % 128), noise)


def traits(model: Model) -> dict[str, I64]:
    """The letters of :data:`ORDERS`, each as a column over units that orders them: what is greater has more of it."""
    return {"T": model.fullest(), "W": model.length, "A": _dense(_areas(model))}


def static_rank(known: Mapping[str, I64], order: str, way: int = 1) -> I64:
    """Ranks by :func:`traits`, the first one deciding, greatest first; then by the unit's number, times ``way``."""
    number = way * np.arange(len(known["T"]))
    return _ranks(np.lexsort((number, *(-known[name] for name in reversed(order)))))


def _dense(values: list[int]) -> I64:
    """Each value's place among the distinct ones: plain integers may pass 64 bits, their places do not."""
    place = {value: k for k, value in enumerate(sorted(set(values)))}
    return np.asarray([place[value] for value in values], dtype=np.int64)


def _areas(model: Model) -> list[int]:
    # Plain integers: steps × bytes may pass 64 bits.
    tall = model.greatest(model.height)
    return [steps * high for steps, high in zip(model.length.tolist(), tall.tolist(), strict=True)]


def _ranks(order: I64) -> I64:
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.arange(len(order))
    return ranks


def luby(k: int) -> int:
    """The k-th term (from 1) of 1, 1, 2, 1, 1, 2, 4, … (Luby, Sinclair and Zuckerman 1993)."""
    while True:
        bits = k.bit_length()
        if k == (1 << bits) - 1:
            return 1 << (bits - 1)
        k -= (1 << (bits - 1)) - 1
