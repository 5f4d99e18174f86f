"""Search for the recomputation with the least extra FLOPs that fits a goal.

::

    cuts       minimum cuts across the peak, at increasing prices per kept byte; also priced at other full steps
    segments   cuts that keep all storages between segments of the forward pass
    mixes      the parts between cheapest cuts that fit and lowest cuts that do not: a knapsack (``settle.py``)
    one by one keep recomputed nodes instead, most expensive first
    sweeps     drops at the first step above the goal, then at the next (``sweep.py``)

Every choice is simulated (``live_curve.py``), so that the memory of recomputation itself is counted.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import InitVar, dataclass
from functools import cached_property

import numpy as np

from tmmu_core.fitting.order.order_model import csr_rows
from tmmu_core.fitting.recompute.live_curve import Choice, Run, Tables, run
from tmmu_core.fitting.recompute.min_cut import Boundary, boundary, cheapest
from tmmu_core.fitting.recompute.recompute_model import I64, Mask, RecomputeModel
from tmmu_core.fitting.recompute.segments import segmentations

PRICES = tuple(int(1.6**k) for k in range(30))
"""Prices per kept byte, in FLOPs: from nearly nothing to more than any operator costs."""
SEGMENT_PRICES = (*PRICES[::3], PRICES[-1] * 1000)
"""Prices per kept byte within segments."""
ROUNDS_OF_CUTS = 6
EXHAUSTIVE_UP_TO = 12
"""Number of gaps up to which all subsets are tried."""
TRIALS = 4000
"""Simulations per search on a graph of ``TRIALS_OF`` steps; fewer on larger graphs, in proportion."""
TRIALS_OF = 4000
LEAST_TRIALS = 300
"""Minimum number of simulations per search."""

GoOn = Callable[[], bool]
Over = Callable[[Mapping[str, int]], int]
"""Function from arena sizes in bytes, by arena, to the excess over the goal in bytes; 0 if the arenas fit."""


@dataclass(frozen=True, eq=False)
class Point:
    """A choice and its simulation."""

    make: Callable[[], Choice]
    """Function that creates the choice. A choice is large, and few points need one."""
    run: Run
    """The simulation; only a few points keep its curves."""

    @property
    def choice(self) -> Choice:
        """The gaps in which storages are dropped."""
        return self.make()

    @property
    def key(self) -> tuple[int, int, int]:
        """Sort key: FLOPs, then bytes, then steps."""
        return self.run.flops, self.run.total, self.run.extra_steps


@dataclass
class Search:
    """The simulated choices of one plan input."""

    model: RecomputeModel
    over: Over
    dropped: InitVar[Choice | None] = None
    """Storages that are dropped initially."""
    go_on: GoOn = lambda: True
    simulations: int = 0
    """Number of simulations so far."""

    def __post_init__(self, dropped: Choice | None) -> None:
        self.tables = Tables(self.model)
        self.initial = dropped or Choice.nothing(self.model)
        self.initial_point = self.simulate(self.initial)
        self.arena = fullest_arena(self.model, self.initial_point.run)
        self.boundary = boundary(self.model, peak_position(self.initial_point.run, self.arena))
        self.seen: dict[bytes, Point] = {}
        self.idle_bytes = np.zeros(len(self.model.node_at), np.int64)
        """Position → idle bytes at the boundary that the node computed."""
        idle = self.boundary.idle(self.model.droppable)
        np.add.at(self.idle_bytes, self.model.producer[idle], self.model.size[idle])
        self.most_simulations = max(LEAST_TRIALS, TRIALS * TRIALS_OF // max(TRIALS_OF, len(self.model.node_at)))

    @cached_property
    def columns(self) -> tuple[list[int], list[int], list[list[int]]]:
        """Producers of storages, FLOPs of positions and operands of positions, as lists."""
        model = self.model
        return model.producer.tolist(), model.node_flops.tolist(), csr_rows(model.in_ptr, model.in_idx)

    def simulate(self, choice: Choice) -> Point:
        """Simulate a choice."""
        self.simulations += 1
        return Point(lambda: choice, run(self.model, choice, self.tables))  # the closure keeps ``choice`` alive

    def excess(self, found: Run) -> int:
        """Return the bytes by which a simulation exceeds the goal; planning may need more."""
        least = (found.peaks - self.model.spare).tolist()
        return self.over(dict(zip(self.model.liveness.arenas, least, strict=True)))

    def choice(self, nodes: Mask) -> Choice:
        """Return the choice that drops the outputs of ``nodes`` across the boundary."""
        return self.initial | choice_of(self.model, self.boundary, nodes)

    def dropping(self, nodes: Mask) -> Point:
        """Simulate dropping the outputs of ``nodes`` across the boundary."""
        key = np.packbits(nodes).tobytes()
        if key not in self.seen:
            model, at, initial = self.model, self.boundary, self.initial

            def make() -> Choice:
                bits = np.unpackbits(np.frombuffer(key, np.uint8), count=len(model.node_at))
                return initial | choice_of(model, at, bits.astype(np.bool_))

            self.simulations += 1
            self.seen[key] = Point(make, run(model, self.choice(nodes), self.tables).without_curves())
        return self.seen[key]

    # -- cuts ----------------------------------------------------------------------------------------------------------

    def climb(self) -> list[tuple[Mask, Point]]:
        """Return minimum cuts at increasing prices, across the peak and the steps that become the peak."""
        found: dict[bytes, tuple[Mask, Point]] = {
            b"": (np.zeros(len(self.model.node_at), np.bool_), self.initial_point)
        }
        weight: dict[int, int] = {self.boundary.position: 1}
        for _ in range(ROUNDS_OF_CUTS):
            smallest: Point | None = None
            for rung in PRICES:
                nodes = cheapest(self.model, self.boundary, self._price(weight) * rung)
                point = self.dropping(nodes)
                if point.run.valid:
                    found.setdefault(np.packbits(nodes).tobytes(), (nodes, point))
                    if smallest is None or point.run.total < smallest.run.total:
                        smallest = point
                if not self.go_on():
                    return list(found.values())
            if smallest is None:
                break
            fullest = peak_position(self.simulate(smallest.choice).run, self.arena)
            weight[fullest] = weight.get(fullest, 0) + 1
        for key, pair in self._segmented():
            found.setdefault(key, pair)
        return list(found.values())

    def _segmented(self) -> Iterator[tuple[bytes, tuple[Mask, Point]]]:
        """Yield cuts that keep storages between segments of the forward pass, at rising prices of other storages."""
        price = self._price({self.boundary.position: 1})
        for kept_storages in segmentations(self.model, self.boundary):
            for rung in SEGMENT_PRICES:
                nodes = cheapest(self.model, self.boundary, np.where(kept_storages, 0, price * rung))
                point = self.dropping(nodes)
                if point.run.valid:
                    yield np.packbits(nodes).tobytes(), (nodes, point)
                if not self.go_on():
                    return

    def _price(self, weight: dict[int, int]) -> I64:
        idle = np.zeros(len(self.model.size), np.int64)
        for position, count in weight.items():
            idle += count * ((self.boundary.gap_start < position) & (position <= self.boundary.gap_end))
        if self.boundary.position in weight:
            # Storages that the peak step reads are idle after it.
            idle += (
                (self.boundary.gap_start == self.boundary.position)
                & (self.boundary.gap_end > self.boundary.position + 1)
                & (idle == 0)
            )
        idle[self.initial.away] = 0  # offloaded already
        return self.model.size * idle

    def budget_is_spent(self, start: int) -> bool:
        """Return whether the search has made its maximum of simulations since number ``start``, or was stopped."""
        return self.simulations - start > self.most_simulations or not self.go_on()

    # -- small graphs --------------------------------------------------------------------------------------------------

    @cached_property
    def is_small(self) -> bool:
        """Whether there are so few gaps that all choices are tried."""
        return len(self._gaps()) <= EXHAUSTIVE_UP_TO

    def _gaps(self) -> list[int]:
        """Return the drops of recomputable storages after each position that is followed by a use."""
        model, count = self.model, len(self.model.size)
        readers = np.repeat(np.arange(len(model.node_at)), np.diff(model.in_ptr))
        last = np.full(count, -1, np.int64)
        last[model.in_idx] = readers
        droppable = np.flatnonzero(model.droppable)
        return [k * count + s for s in droppable.tolist() for k in range(model.producer[s], last[s])]

    def exhausted(self) -> Point | None:
        """Return the cheapest fitting choice of all subsets of the gaps."""
        best: Point | None = None
        gaps = np.array(self._gaps(), np.int64)
        for number in range(1 << len(gaps)):
            point = self.simulate(self.initial.dropping(gaps[(number >> np.arange(len(gaps))) & 1 == 1]))
            if point.run.valid and not self.excess(point.run) and (best is None or point.key < best.key):
                best = point
        return best


def choice_of(model: RecomputeModel, at: Boundary, nodes: Mask) -> Choice:
    """Return the choice that drops the outputs of ``nodes`` in their gaps at the boundary."""
    dropped = at.present[model.droppable[at.present]]
    dropped = dropped[nodes[model.producer[dropped]]]
    return Choice.nothing(model).dropping(at.gap_start[dropped] * len(model.size) + dropped)


def fullest_arena(model: RecomputeModel, found: Run) -> int:
    """Return the arena with most idle recomputable bytes at its peak."""
    idle = []
    for arena in range(len(model.fixed)):
        at = boundary(model, peak_position(found, arena))
        idle.append(int(model.size[at.idle(model.droppable & (model.arena == arena))].sum()))
    return int(np.argmax(idle)) if idle else 0


def peak_position(found: Run, arena: int) -> int:
    """Return the position of the arena's peak."""
    return int(found.for_position[found.live[arena].argmax()]) if found.live.size else 0
