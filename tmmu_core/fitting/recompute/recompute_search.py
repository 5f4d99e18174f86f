"""Search for the recomputation with the least extra FLOPs that fits a goal.

::

    cuts       minimum cuts across the peak, at increasing prices per kept byte; other full steps get a price as well
    segments   the same, with what crosses the segments of the forward pass kept
    between    revert the cheapest fitting choice towards one that does not fit, part by part
    one by one keep recomputed nodes instead, most expensive first; exchange one for cheaper ones

Every choice is simulated (``live_curve.py``), so that the memory of recomputation itself is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import InitVar, dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from tmmu_core.fitting.recompute.live_curve import Choice, Run, run
from tmmu_core.fitting.recompute.min_cut import Boundary, boundary, cheapest
from tmmu_core.fitting.recompute.recompute_model import I64, Mask, RecomputeModel, connected_parts
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
"""Fewest simulations per search."""
MOST_EXCHANGED = 40
"""Most recomputed nodes that are exchanged."""
MOST_REPLACEMENTS = 60
"""Most nodes tried in exchange for one."""

GoOn = Callable[[], bool]
Over = Callable[[Mapping[str, int]], int]
"""Arena → bytes ↦ excess over the goal in bytes, 0 if they fit."""


@dataclass(frozen=True, eq=False)
class Point:
    """A choice and its simulation."""

    make: Callable[[], Choice]
    """Returns the choice; it is stored compactly, because few of many are needed."""
    run: Run
    """Without curves for all but a few points."""
    has_segments: bool = False
    """Whether it is a cut that keeps what crosses the segments of the forward pass."""

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
    weighed: int = 0

    def __post_init__(self, dropped: Choice | None) -> None:
        self.begun = dropped or Choice.nothing(self.model)
        self.nothing = self.weigh(self.begun)
        self.arena = fullest_arena(self.model, self.nothing.run)
        self.at = boundary(self.model, peak_position(self.nothing.run, self.arena))
        self.seen: dict[bytes, Point] = {}
        self.idle_bytes = np.zeros(len(self.model.node_at), np.int64)
        """Position → idle bytes at the boundary that the node computed."""
        idle = self.at.before[self.model.droppable[self.at.before] & self.at.needed[self.at.before]]
        np.add.at(self.idle_bytes, self.model.producer[idle], self.model.size[idle])
        self.most = max(LEAST_TRIALS, TRIALS * TRIALS_OF // max(TRIALS_OF, len(self.model.node_at)))

    @cached_property
    def columns(self) -> tuple[list[int], list[int], list[list[int]]]:
        """Producers of storages, FLOPs of positions and operands of positions, as lists."""
        model = self.model
        operands = [model.in_idx[a:b].tolist() for a, b in pairwise(model.in_ptr.tolist())]
        return model.producer.tolist(), model.node_flops.tolist(), operands

    def weigh(self, choice: Choice) -> Point:
        """Simulate a choice."""
        self.weighed += 1
        return Point(lambda: choice, run(self.model, choice))  # the closure keeps ``choice`` alive

    def excess(self, found: Run) -> int:
        """Return the bytes by which a simulation exceeds the goal; planning may need more."""
        least = (found.peaks - self.model.spare).tolist()
        return self.over(dict(zip(self.model.liveness.arenas, least, strict=True)))

    def dropping(self, nodes: Mask) -> Point:
        """Simulate dropping the outputs of ``nodes`` across the boundary."""
        key = np.packbits(nodes).tobytes()
        if key not in self.seen:
            model, at, begun = self.model, self.at, self.begun

            def make() -> Choice:
                bits = np.unpackbits(np.frombuffer(key, np.uint8), count=len(model.node_at))
                return begun | choice_of(model, at, bits.astype(np.bool_))

            self.weighed += 1
            self.seen[key] = Point(make, run(model, begun | choice_of(model, at, nodes)).without_curves())
        return self.seen[key]

    # -- cuts ----------------------------------------------------------------------------------------------------------

    def climb(self) -> list[tuple[Mask, Point]]:
        """Return minimum cuts at increasing prices, across the peak and the steps that become the peak."""
        found: dict[bytes, tuple[Mask, Point]] = {b"": (np.zeros(len(self.model.node_at), np.bool_), self.nothing)}
        weight: dict[int, int] = {self.at.position: 1}
        for _ in range(ROUNDS_OF_CUTS):
            smallest: Point | None = None
            for rung in PRICES:
                nodes = cheapest(self.model, self.at, self._price(weight) * rung)
                point = self.dropping(nodes)
                if point.run.valid:
                    found.setdefault(np.packbits(nodes).tobytes(), (nodes, point))
                    if smallest is None or point.run.total < smallest.run.total:
                        smallest = point
                if not self.go_on():
                    return list(found.values())
            if smallest is None:
                break
            fullest = peak_position(self.weigh(smallest.choice).run, self.arena)
            weight[fullest] = weight.get(fullest, 0) + 1
        for key, pair in self._segmented():
            found.setdefault(key, pair)
        return list(found.values())

    def _segmented(self) -> Iterator[tuple[bytes, tuple[Mask, Point]]]:
        """Yield cuts that keep what crosses the segments of the forward pass, at increasing prices of the rest."""
        price = self._price({self.at.position: 1})
        for kept in segmentations(self.model, self.at):
            for rung in SEGMENT_PRICES:
                nodes = cheapest(self.model, self.at, np.where(kept, 0, price * rung))
                point = self.dropping(nodes)
                if point.run.valid:
                    yield np.packbits(nodes).tobytes(), (nodes, replace(point, has_segments=True))
                if not self.go_on():
                    return

    def _price(self, weight: dict[int, int]) -> I64:
        idle = np.zeros(len(self.model.size), np.int64)
        for position, count in weight.items():
            idle += count * ((self.at.gap_start < position) & (position <= self.at.gap_end))
        if self.at.position in weight:
            # Storages that the peak step reads are idle after it.
            idle += (self.at.gap_start == self.at.position) & (self.at.gap_end > self.at.position + 1) & (idle == 0)
        idle[self.begun.away] = 0  # offloaded already
        return self.model.size * idle

    # -- small graphs --------------------------------------------------------------------------------------------------

    @cached_property
    def is_small(self) -> bool:
        """Whether there are so few gaps that all choices are tried."""
        return len(self._gaps()) <= EXHAUSTIVE_UP_TO

    def _gaps(self) -> list[tuple[str, int]]:
        """Return all gaps of droppable storages: the flag and the index in it."""
        reads, makes = self.model.droppable[self.model.in_idx], self.model.droppable[self.model.out_idx]
        gaps = [(name, int(e)) for name in ("used", "again") for e in np.flatnonzero(reads)]
        return gaps + [("born", int(o)) for o in np.flatnonzero(makes)]

    def exhausted(self) -> Point | None:
        """Return the cheapest fitting choice of all subsets of the gaps."""
        best: Point | None = None
        gaps = self._gaps()
        for number in range(1 << len(gaps)):
            choice = self.begun.copy()
            for bit, (name, place) in enumerate(gaps):
                if number >> bit & 1:
                    getattr(choice, name)[place] = True
            point = self.weigh(choice)
            if point.run.valid and not self.excess(point.run) and (best is None or point.key < best.key):
                best = point
        return best

    # -- improvement of a fitting choice ------- ----------------------------------------------------------------------

    def settle(self, found: list[tuple[Mask, Point]]) -> Point | None:
        """Return the cheapest fitting choice found from these; ``None`` if none fits."""
        fitting = [pair for pair in found if not self.excess(pair[1].run)]
        if not fitting:
            return None
        begun = self.weighed
        best = min(fitting, key=lambda pair: pair[1].key)
        starts = sorted(fitting, key=lambda pair: pair[1].key)[:3]
        over = sorted((pair for pair in found if self.excess(pair[1].run)), key=lambda pair: pair[1].run.total)[:3]
        for nodes, point in starts:
            for less, cheaper in over:
                if cheaper.run.flops < best[1].run.flops:
                    best = min(best, self._revert_parts(nodes, point, less), key=lambda pair: pair[1].key)
            if self._budget_is_spent(begun):
                break
        while True:
            before = best[1].key
            best = self._keep_one_by_one(*best)
            if not self._budget_is_spent(begun):
                best = self._exchange(*best)
            if best[1].key == before or self._budget_is_spent(begun):
                return best[1]

    def _budget_is_spent(self, begun: int) -> bool:
        return self.weighed - begun > self.most or not self.go_on()

    def _revert_parts(self, nodes: Mask, point: Point, less: Mask) -> tuple[Mask, Point]:
        """Revert parts to ``less`` as long as the choice fits and gets cheaper."""
        parts = connected_parts(self.model, nodes ^ less)
        return min(
            (
                self._keep_improvements(
                    (nodes, point), ((part, ~nodes[part]) for part in self._by_cost(parts, nodes, by))
                )
                for by in ("flops", "flops a byte")
            ),
            key=lambda pair: pair[1].key,
        )

    def _by_cost(self, parts: list[I64], nodes: Mask, by: str) -> list[I64]:
        """Sort parts by FLOPs, or by FLOPs per idle byte, descending."""
        model = self.model
        flops = [int(model.node_flops[part[nodes[part]]].sum()) for part in parts]
        worth = [
            each / max(1, int(self.idle_bytes[part].sum())) if by == "flops a byte" else each
            for each, part in zip(flops, parts, strict=True)
        ]
        return [parts[i] for i in sorted(range(len(parts)), key=lambda i: (-worth[i], int(parts[i][0])))]

    def _keep_one_by_one(self, nodes: Mask, point: Point) -> tuple[Mask, Point]:
        ones = [np.array([n], np.int64) for n in np.flatnonzero(nodes).tolist()]
        return min(
            (
                self._keep_improvements((nodes, point), ((part, False) for part in self._by_cost(ones, nodes, by)))
                for by in ("flops", "flops a byte")
            ),
            key=lambda pair: pair[1].key,
        )

    def _keep_improvements(
        self, best: tuple[Mask, Point], changes: Iterable[tuple[I64, Mask | bool]]
    ) -> tuple[Mask, Point]:
        """Keep each change that fits and is cheaper (or as cheap, and smaller)."""
        begun = self.weighed
        for part, value in changes:
            if self._budget_is_spent(begun):
                break
            changed = best[0].copy()
            changed[part] = value
            tried = self.dropping(changed)
            if tried.run.valid and tried.key < best[1].key and not self.excess(tried.run):
                best = changed, tried
        return best

    def _exchange(self, nodes: Mask, point: Point) -> tuple[Mask, Point]:
        """Keep one expensive node and recompute cheaper ones instead."""
        model = self.model
        begun = self.weighed
        best = nodes, point
        members = np.flatnonzero(nodes)
        dearest = members[np.lexsort((members, -model.node_flops[members]))][:MOST_EXCHANGED]
        for n in dearest.tolist():
            if self._budget_is_spent(begun):
                continue
            trial = best[0].copy()
            trial[n] = False
            now = self.dropping(trial)
            for other in self._replacements(trial, now):
                if self._budget_is_spent(begun) or now.run.flops >= best[1].run.flops:
                    break
                more = trial.copy()
                more[other] = True
                tried = self.dropping(more)
                if not tried.run.valid or tried.run.total >= now.run.total:
                    continue
                trial, now = more, tried
                if not self.excess(now.run):
                    break
            if now.run.valid and not self.excess(now.run) and now.key < best[1].key:
                best = trial, now
        return best

    def _replacements(self, nodes: Mask, point: Point) -> Iterator[int]:
        """Yield nodes that are not recomputed, by idle bytes freed per FLOP."""
        model = self.model
        freed = self.idle_bytes
        over = self.excess(point.run)
        candidates = np.flatnonzero((freed > 0) & ~nodes)
        gain = np.minimum(freed[candidates], max(over, 1)).astype(np.float64)
        by_worth = np.lexsort((candidates, (model.node_flops[candidates] + 1) / gain))
        yield from candidates[by_worth][:MOST_REPLACEMENTS].tolist()


def choice_of(model: RecomputeModel, at: Boundary, nodes: Mask) -> Choice:
    """Return the choice that drops the outputs of ``nodes`` in their gaps at the boundary."""
    choice = Choice.nothing(model)
    dropped = at.before[model.droppable[at.before]]
    dropped = dropped[nodes[model.producer[dropped]]]
    gaps = at.gap[dropped]
    choice.used[gaps[gaps >= 0]] = True
    choice.born[-1 - gaps[gaps < 0]] = True
    return choice


def fullest_arena(model: RecomputeModel, found: Run) -> int:
    """Return the arena with most idle recomputable bytes at its peak."""
    idle = []
    for arena in range(len(model.fixed)):
        at = boundary(model, peak_position(found, arena))
        there = at.before[model.droppable[at.before] & at.needed[at.before]]
        idle.append(int(model.size[there[model.arena[there] == arena]].sum()))
    return int(np.argmax(idle)) if idle else 0


def peak_position(found: Run, arena: int) -> int:
    """Return the position of the arena's peak."""
    return int(found.at[found.live[arena].argmax()]) if found.live.size else 0
