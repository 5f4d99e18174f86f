"""The least extra FLOPs for which everything fits into so many bytes.

::

    cuts       across the peak's step, at a ladder of prices for a byte held; a step at which what they give is too full
               gets a price as well, and the ladder is climbed again
    between    the cheapest choice that fits gives back what one that does not fit does not drop, part by part
    one by one what is run again is held instead, dearest first, as long as all fits; and for one of them cheaper ones

Every choice is weighed by what it is alive at every step (``simulate.py``), never by what is saved: a tensor that is
made again too early, with all that it is made of, is paid for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import InitVar, dataclass

import numpy as np

from tmmu_core.fit.recompute.cut import Boundary, boundary, cheapest
from tmmu_core.fit.recompute.model import I64, Mask, RecomputeModel, connected_parts
from tmmu_core.fit.recompute.simulate import Choice, Run, run

LADDER = tuple(int(1.6**k) for k in range(30))
"""FLOPs for a byte held: from next to nothing to more than any operator is worth."""
CLIMBS = 6
EXHAUSTED = 12
"""Gaps up to which every set of them is tried."""
TRIALS = 4000
"""Runs that one search may weigh, on a graph of ``TRIALS_OF`` steps; larger graphs get fewer, in proportion."""
TRIALS_OF = 4000
LEAST_TRIALS = 300
"""And never fewer than so many."""
DEAREST = 40
"""Nodes run again that are exchanged for others, at most."""
WORTH_TRYING = 60
"""Nodes that are tried in the place of one, at most."""

GoOn = Callable[[], bool]
Over = Callable[[Mapping[str, int]], int]
"""Arena → bytes ↦ by how many bytes these arenas are over what there is, 0 where they fit."""


@dataclass(frozen=True, eq=False)
class Point:
    """A choice and what it leads to."""

    make: Callable[[], Choice]
    """Gives the choice: thousands are remembered, and few are asked for."""
    run: Run
    """Without its curves where it is one of many."""

    @property
    def choice(self) -> Choice:
        """Where storages are dropped."""
        return self.make()

    @property
    def key(self) -> tuple[int, int, int]:
        """Cheapest first, then smallest, then shortest."""
        return self.run.flops, self.run.total, self.run.extra_steps


@dataclass
class Search:
    """One question's choices, weighed and remembered."""

    model: RecomputeModel
    over: Over
    dropped: InitVar[Choice | None] = None
    """What is dropped already; nothing where nothing is said."""
    go_on: GoOn = lambda: True
    weighed: int = 0

    def __post_init__(self, dropped: Choice | None) -> None:
        self.begun = dropped or Choice.nothing(self.model)
        self.nothing = self.weigh(self.begun)
        self.arena = fullest_arena(self.model, self.nothing.run)
        self.at = boundary(self.model, peak_position(self.nothing.run, self.arena))
        self.seen: dict[bytes, Point] = {}
        self.idle_bytes = np.zeros(len(self.model.node_at), np.int64)
        """Position → bytes idle across the boundary that the node made."""
        idle = self.at.before[self.model.droppable[self.at.before] & self.at.needed[self.at.before]]
        np.add.at(self.idle_bytes, self.model.producer[idle], self.model.size[idle])
        self.most = max(LEAST_TRIALS, TRIALS * TRIALS_OF // max(TRIALS_OF, len(self.model.node_at)))

    def weigh(self, choice: Choice) -> Point:
        """Run it."""
        self.weighed += 1
        return Point(lambda: choice, run(self.model, choice))  # the caller lets go of ``choice``

    def excess(self, found: Run) -> int:
        """By how many bytes a run is over what there is, at the least: planning anew says whether it fits."""
        least = (found.peaks - self.model.spare).tolist()
        return self.over(dict(zip(self.model.liveness.arenas, least, strict=True)))

    def dropping(self, nodes: Mask) -> Point:
        """What these nodes make is dropped across the boundary."""
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
        """Cuts at a ladder of prices, across the peak and across whatever step is fullest then."""
        found: dict[bytes, tuple[Mask, Point]] = {b"": (np.zeros(len(self.model.node_at), np.bool_), self.nothing)}
        weight: dict[int, int] = {self.at.position: 1}
        for _ in range(CLIMBS):
            smallest: Point | None = None
            for rung in LADDER:
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
        return list(found.values())

    def _price(self, weight: dict[int, int]) -> I64:
        idle = np.zeros(len(self.model.size), np.int64)
        for position, count in weight.items():
            idle += count * ((self.at.gap_start < position) & (position <= self.at.gap_end))
        if self.at.position in weight:
            # What the peak's own step reads is held there; behind it, it is idle like the others.
            idle += (self.at.gap_start == self.at.position) & (self.at.gap_end > self.at.position + 1) & (idle == 0)
        idle[self.begun.away] = 0  # not here anyway
        return self.model.size * idle

    # -- small graphs --------------------------------------------------------------------------------------------------

    def cheapest(self, found: list[tuple[Mask, Point]]) -> Point | None:
        """The cheapest choice that fits: of all there are where gaps are few, else what :meth:`settle` finds."""
        gaps = self._gaps()
        return self.settle(found) if len(gaps) > EXHAUSTED else self._exhausted(gaps)

    def _gaps(self) -> list[tuple[str, int]]:
        """All gaps of what may be dropped: the flags of a choice and places in them."""
        reads, makes = self.model.droppable[self.model.in_idx], self.model.droppable[self.model.out_idx]
        gaps = [(name, int(e)) for name in ("used", "again") for e in np.flatnonzero(reads)]
        return gaps + [("born", int(o)) for o in np.flatnonzero(makes)]

    def _exhausted(self, gaps: list[tuple[str, int]]) -> Point | None:
        """Of every subset of the gaps."""
        best: Point | None = None
        for number in range(1 << len(gaps)):
            choice = self.begun.copy()
            for bit, (name, place) in enumerate(gaps):
                if number >> bit & 1:
                    getattr(choice, name)[place] = True
            point = self.weigh(choice)
            if point.run.valid and not self.excess(point.run) and (best is None or point.key < best.key):
                best = point
        return best

    # -- from a choice that fits to a cheaper one ----------------------------------------------------------------------

    def settle(self, found: list[tuple[Mask, Point]]) -> Point | None:
        """The cheapest choice that fits (by the arenas' peaks) and is found from these; ``None`` where none does."""
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
                    best = min(best, self._between(nodes, point, less), key=lambda pair: pair[1].key)
            if self._spent(begun):
                break
        while True:
            before = best[1].key
            best = self._held_instead(*best)
            if not self._spent(begun):
                best = self._exchanged(*best)
            if best[1].key == before or self._spent(begun):
                return best[1]

    def _spent(self, begun: int) -> bool:
        return self.weighed - begun > self.most or not self.go_on()

    def _between(self, nodes: Mask, point: Point, less: Mask) -> tuple[Mask, Point]:
        """Part by part back to what ``less`` drops, as long as it fits and gets cheaper."""
        parts = connected_parts(self.model, nodes ^ less)
        return min(
            (
                self._tried((nodes, point), ((part, ~nodes[part]) for part in self._by_worth(parts, nodes, by)))
                for by in ("flops", "flops a byte")
            ),
            key=lambda pair: pair[1].key,
        )

    def _by_worth(self, parts: list[I64], nodes: Mask, by: str) -> list[I64]:
        """What costs most to run again first, or what costs most for a byte that is idle."""
        model = self.model
        flops = [int(model.made_of[part[nodes[part]]].sum()) for part in parts]
        worth = [
            each / max(1, int(self.idle_bytes[part].sum())) if by == "flops a byte" else each
            for each, part in zip(flops, parts, strict=True)
        ]
        return [parts[i] for i in sorted(range(len(parts)), key=lambda i: (-worth[i], int(parts[i][0])))]

    def _held_instead(self, nodes: Mask, point: Point) -> tuple[Mask, Point]:
        ones = [np.array([n], np.int64) for n in np.flatnonzero(nodes).tolist()]
        return min(
            (
                self._tried((nodes, point), ((part, False) for part in self._by_worth(ones, nodes, by)))
                for by in ("flops", "flops a byte")
            ),
            key=lambda pair: pair[1].key,
        )

    def _tried(self, best: tuple[Mask, Point], changes: Iterable[tuple[I64, Mask | bool]]) -> tuple[Mask, Point]:
        """Each change that still fits and is cheaper (or as cheap, and smaller) is kept."""
        begun = self.weighed
        for part, value in changes:
            if self._spent(begun):
                break
            changed = best[0].copy()
            changed[part] = value
            tried = self.dropping(changed)
            if tried.run.valid and tried.key < best[1].key and not self.excess(tried.run):
                best = changed, tried
        return best

    def _exchanged(self, nodes: Mask, point: Point) -> tuple[Mask, Point]:
        """One dear node is held instead, and cheaper ones are run again for it."""
        model = self.model
        begun = self.weighed
        best = nodes, point
        members = np.flatnonzero(nodes)
        dearest = members[np.lexsort((members, -model.made_of[members]))][:DEAREST]
        for n in dearest.tolist():
            if self._spent(begun):
                continue
            trial = best[0].copy()
            trial[n] = False
            now = self.dropping(trial)
            for other in self._worth(trial, now):
                if self._spent(begun) or now.run.flops >= best[1].run.flops:
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

    def _worth(self, nodes: Mask, point: Point) -> Iterator[int]:
        """Nodes that are not run again, by the bytes idle across the boundary that one of their FLOPs frees."""
        model = self.model
        freed = self.idle_bytes
        over = self.excess(point.run)
        candidates = np.flatnonzero((freed > 0) & ~nodes)
        gain = np.minimum(freed[candidates], max(over, 1)).astype(np.float64)
        by_worth = np.lexsort((candidates, (model.made_of[candidates] + 1) / gain))
        yield from candidates[by_worth][:WORTH_TRYING].tolist()


def choice_of(model: RecomputeModel, at: Boundary, nodes: Mask) -> Choice:
    """What ``nodes`` make is dropped in its gap across the boundary."""
    choice = Choice.nothing(model)
    dropped = at.before[model.droppable[at.before]]
    dropped = dropped[nodes[model.producer[dropped]]]
    gaps = at.gap[dropped]
    choice.used[gaps[gaps >= 0]] = True
    choice.born[-1 - gaps[gaps < 0]] = True
    return choice


def fullest_arena(model: RecomputeModel, found: Run) -> int:
    """The arena in which most bytes lie idle at its fullest step that could be made again."""
    idle = []
    for arena in range(len(model.fixed)):
        at = boundary(model, peak_position(found, arena))
        there = at.before[model.droppable[at.before] & at.needed[at.before]]
        idle.append(int(model.size[there[model.arena[there] == arena]].sum()))
    return int(np.argmax(idle)) if idle else 0


def peak_position(found: Run, arena: int) -> int:
    """Position of the step at which an arena is fullest."""
    return int(found.at[found.live[arena].argmax()]) if found.live.size else 0
