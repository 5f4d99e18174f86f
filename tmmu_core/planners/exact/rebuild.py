"""What the search leaves open, torn down and put up again: the last share of a budget, where the bound is near.

A search goes from the bottom up, and what it does wrong low down it finds out at the top. :mod:`.rebuilding` begins
with nothing in its place, keeps to the capacity asked for all the time, and leaves units out; what is wrong it mends
where it is. It proves nothing. At capacities closely above the bound it finds packings of hundreds of storages that no
order leads the search to (decision 113).

Budgeted by turns, never by the clock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import isqrt

import numpy as np
from numpy.typing import NDArray

from tmmu_core.loops import calls
from tmmu_core.loops.library import library
from tmmu_core.planners.exact.model import Model, logarithm, step_of
from tmmu_core.planners.exact.rebuilding import (
    BLURS,
    FEWEST,
    LEFT,
    OFFSET,
    ROW,
    STAGES,
    STEPS,
    TURN,
    UNITS,
    WEIGHT,
    Site,
    _draw,
    rebuild,
)
from tmmu_core.planners.exact.run import Watch, watched
from tmmu_core.planners.exact.tables import FIXED, GRID, NEIGHBOURS, OTHER, TALL, Shape
from tmmu_core.planners.problem import I64

TURNS = 1
"""Turns of a run for each node of a budget, for models of up to :data:`MANY` units; of twice the units a quarter, for
each takes twice as long and more."""
CLOSE = 1
"""A run that came to leave out no more units than so many has another of twice the turns follow it."""
FAILURES = 2
"""So many capacities are given up, and nothing between them and the extent is asked for any more."""
LONG = 12
"""Then the low end itself is, with so many times the turns: how far a run comes hangs on how slowly it cools."""
AT_THE_END, ALMOST = 3, 2
"""So often at most, as long as no more than so many are left out; then half the way to the extent again."""
LONG_RUNS = 4
"""So many long runs at most."""
HOPE = 4
"""And not after a run that left out more than so many."""
LAST = 50, 9
"""Where one at the low end came to leave out no more than :data:`CLOSE`, a last one there has so many times the turns,
as a ratio: 40 million at the default budget."""
FEW, MANY, MOST = 32, 256, 2_048
"""Units below which the search needs no help; see :data:`TURNS`; beyond which the table of who meets whom is large."""
NEAR = 8
"""An extent above the bound by more than this part of it is not near."""
RUIN = 4
"""Units torn down in a turn, on average."""
WARM, COLD = 300, 40
"""How much more may be left out, in 1/1024ths of an average unit: at first, and in the end."""
ONE = 1024
"""What a unit left out weighs on average."""
TRAIT = 1 << 20
"""The greatest value of a trait by which units are put back."""
SEED = 747_796_405
"""What the first run draws from; times its number, what another one does."""


@dataclass
class Rebuild:
    """The units of a model, and the packing at hand: at first with none of them but those whose offset is given."""

    site: Site
    """Of those that do not lie at the bottom."""
    units: list[int]
    """Which they are (:func:`either_way`)."""
    bottom: dict[int, int]
    """Unit → offset of those that meet everybody (:func:`at_the_bottom`)."""
    base: int
    """Where the bottom ends."""
    step: int
    """Offsets above it are multiples of so many bytes, which the site counts by."""
    given: I64
    """Ends of those whose offset is given."""
    stop: I64
    """Set its cell, from any thread, and the run under way ends."""

    def run(self, capacity: int, turns: int, watch: Watch | None = None) -> list[int] | None:
        """The offset per unit if all are below a capacity after at most so many turns, else ``None``.

        ``watch(turns)`` is asked now and then (:func:`.run.watched`) whether to go on.
        """
        site, room = self.site, (capacity - self.base) // self.step
        if not min(len(site.unit), 1) <= room < STEPS or (self.given > capacity).any():
            return None
        loop = _loop(site, max(room, 1), turns, self.stop)
        found = loop() if watch is None else watched(loop, self.stop, lambda: watch(int(site.now[TURN])))
        if not found:
            return None
        offsets = (site.work[OFFSET, :-1] * self.step + self.base).tolist()
        lies = {**self.bottom, **dict(zip(self.units, offsets, strict=True))}
        return [lies[u] for u in range(len(lies))]

    @property
    def turns(self) -> int:
        """How many were taken."""
        return int(self.site.now[TURN])

    @property
    def fewest(self) -> int:
        """How many units were left out when the fewest were."""
        return int(self.site.now[FEWEST])


def rebuild_of(model: Model, shape: Shape, number: int) -> Rebuild:
    """Nobody but the fixed units in their places, before a run of a number (from 1): another one draws otherwise."""
    count = len(model)
    meets = np.eye(count, dtype=np.uint8)
    meets[np.repeat(np.arange(count), np.diff(shape.unit[:, NEIGHBOURS])), shape.neighbour[:, OTHER]] = 1
    bottom, base = at_the_bottom(meets, shape)
    loose, begin, end, backwards = either_way(model, shape, [u for u in range(count) if u not in bottom])
    n = len(loose)
    tall, fixed, grid = (shape.unit[loose, column] for column in (TALL, FIXED, GRID))
    step = step_of(*(column.tolist() for column in (tall, fixed, grid)))
    born, dies = begin * UNITS // model.sections, end * UNITS // model.sections
    life = np.diff(model.entry_of)[loose]
    # Plain integers: bytes × sections may pass 64 bits.
    area = [high * long for high, long in zip(tall.tolist(), life.tolist(), strict=True)]
    roots = [isqrt(value) for value in area]
    weight = [max(1, root * n * ONE // max(sum(roots), 1)) for root in roots]
    traits = (area, tall.tolist(), life.tolist(), (UNITS - born).tolist(), dies.tolist())
    scaled = [[value * TRAIT // max(*trait, 1) for value in trait] for trait in traits]
    counted = (tall // step, np.maximum(grid // step, 1), np.where(fixed < 0, -1, fixed // step))
    unit = np.column_stack([*scaled, born, dies, *counted]).astype(np.int64)
    lying = sorted(np.flatnonzero(fixed >= 0).tolist(), key=lambda u: (int(fixed[u]), u))
    out = np.flatnonzero(fixed < 0)
    work = np.zeros((15, n + 1), dtype=np.int64)
    work[WEIGHT, :n], work[ROW, : len(lying)], work[LEFT, : len(out)] = weight, lying, out
    now = np.array([SEED * number % 2**32, len(lying), len(out), 0, len(out), 0], dtype=np.int64)
    near, sky = np.zeros((7, n), dtype=np.int32), np.zeros(model.sections, dtype=np.int32)
    meets = np.ascontiguousarray(meets[np.ix_(loose, loose)])
    lives = (meets, *runs_of(model, loose, backwards), cooling(WARM, COLD), losses(), blurs(BLURS + max(n, MOST)))
    site = Site(unit, *lives, work, near, sky, np.zeros(7, dtype=np.int64), now)
    return Rebuild(site, loose.tolist(), bottom, base, step, (fixed + tall)[fixed >= 0], np.zeros(1, dtype=np.int64))


def runs_of(model: Model, units: I64, backwards: bool) -> tuple[I64, I64]:
    """Where each unit's rows begin, and one more; and the rows: sections of its life that follow each other."""
    begin = [0]
    runs: list[tuple[int, int]] = []
    for u in units.tolist():
        held = model.section[model.entry_of[u] : model.entry_of[u + 1]]
        held = np.unique(model.sections - 1 - held if backwards else held)
        ends = np.flatnonzero(np.diff(held) > 1)
        runs += zip(held[[0, *(ends + 1)]].tolist(), (held[[*ends, -1]] + 1).tolist(), strict=True)
        begin.append(len(runs))
    return np.array(begin, dtype=np.int64), np.array(runs, dtype=np.int64).reshape(-1, 2)


def at_the_bottom(meets: NDArray[np.uint8], shape: Shape) -> tuple[dict[int, int], int]:
    """Unit → offset of those that meet everybody, one upon the other from 0 on; and where the last of them ends.

    Everybody else lies wholly above or wholly below such a unit. Taken out, what lay above it comes down by its bytes,
    and all of it goes up by as many when it is put at the bottom: wherever there is a packing there is such a one. Not
    where an offset is given, nor of a unit whose bytes would move another off its grid.
    """
    offsets: dict[int, int] = {}
    base = 0
    if (shape.unit[:-1, FIXED] < 0).all():
        coarsest = shape.unit[:-1, GRID].max(initial=1)
        for u in np.flatnonzero(meets.all(axis=1) & (shape.unit[:-1, TALL] % coarsest == 0)).tolist():
            offsets[u] = base
            base += int(shape.unit[u, TALL])
    return offsets, base


def either_way(model: Model, shape: Shape, units: list[int]) -> tuple[I64, I64, I64, bool]:
    """Units in an order that hangs on nothing but their lives and bytes, the sections each begins and ends at, and
    whether these are counted from the end of time.

    Of a model and of the same with its time running backwards the one whose lives come first in order is taken, so
    that the two are torn down alike, and what packs one packs the other.
    """
    begin = model.section[model.entry_of[:-1]].tolist()
    end = (model.section[model.entry_of[1:] - 1] + 1).tolist()
    as_it_is = sorted((begin[u], end[u], *shape.unit[u, [TALL, FIXED, GRID]].tolist(), u) for u in units)
    last = model.sections
    backwards = sorted((last - row[1], last - row[0], *row[2:]) for row in as_it_is)
    rows = min(as_it_is, backwards, key=lambda rows: [row[:-1] for row in rows])
    one, two, *_, which = np.array(rows, dtype=np.int64).reshape(-1, 6).T
    return which, one, two, rows is backwards


def _loop(site: Site, capacity: int, turns: int, stop: I64) -> Callable[[], bool]:
    """The library's loop, or :func:`.rebuilding.rebuild` where there is none."""
    loops = library()
    if loops is None:
        return lambda: bool(rebuild(site, capacity, turns, RUIN, stop))
    asked = {"capacity": capacity, "turns": turns, "ruin": RUIN, "stop": stop}
    return lambda: calls.rebuild(loops, len(site.unit), **site._asdict(), **asked)


@cache
def cooling(warm: int, cold: int) -> I64:
    """(STAGES + 1,): from ``warm`` to ``cold`` by equal factors, times 2^10; by square roots of whole numbers alone."""
    heat = [warm << 20] * (STAGES + 1)
    heat[STAGES] = cold << 20
    step = STAGES
    while step > 1:
        for k in range(0, STAGES, step):
            heat[k + step // 2] = isqrt(heat[k] * heat[k + step])
        step //= 2
    return np.array([value >> 10 for value in heat], dtype=np.int64)


@cache
def losses() -> I64:
    """(1024,): −ln((k + ½) / 1024) × 1024, to one or two."""
    eleven = 11 << 12  # log₂ of 2,048, as of :func:`.model.logarithm`
    return np.array([(eleven - logarithm(2 * k + 1)) * 45_426 >> 18 for k in range(1024)], dtype=np.int64)


@cache
def blurs(count: int) -> NDArray[np.int32]:
    """(2, count): 11 to 20 and 0 to 1,023, drawn."""
    state, drawn = SEED, []
    for _ in range(count):
        state, r = _draw(state)
        drawn.append((11 + r % 10, r >> 8 & 1023))
    return np.array(drawn, dtype=np.int32).T.copy()


def is_for(model: Model, extent: int, bound: int) -> bool:
    """Whether a model is of a size, and an extent as near its bound, as this is for."""
    return FEW <= len(model) <= MOST and 0 < (extent - bound) * NEAR <= bound and extent < STEPS * model.grain


def turns_for(model: Model, nodes: int) -> int:
    """How many turns go with so many nodes."""
    return TURNS * nodes * MANY**2 // max(len(model), MANY) ** 2


@dataclass
class Aims:
    """What to ask for, run after run, between a bound (or a goal) and the extent so far."""

    low: int
    grain: int
    turns: int
    """Of a run."""
    asked: int = -1
    """The capacity of the last run."""
    given_up: int = -1
    """The highest capacity that was."""
    longer: int = 1
    failures: int = 0
    long: int = 0
    """Long runs that were asked for."""
    nearest: int = -1
    """How many were left out by the long run at the low end that left out fewest; −1: there was none."""
    last: bool = False
    """Whether the last run was asked for."""

    def next(self, extent: int, fewest: int) -> tuple[int, int]:
        """Capacity and turns of the next run, after one that left out so many (−1: there was none); turns 0: no more.

        Half the way from the low end, or from what was given up, to the extent; the low end when nothing is between.
        When too much was given up nothing is, and the low end itself is asked for, for long and while it is close;
        then half the way again, and if it was close the low end for very long.
        """
        if fewest > 0:
            if fewest <= CLOSE and self.longer == 1 and not self.long:
                self.longer = 2
                return self.asked, 2 * self.turns
            self.given_up = self.asked
            self.failures += 1
            if self.long and self.asked == self.low:
                self.nearest = fewest if self.nearest < 0 else min(self.nearest, fewest)
        self.longer = 1
        at = self._half(extent)
        if not self.long:
            if self.given_up < at < extent and self.failures < FAILURES:
                self.asked = at
                return at, self.turns
            self.given_up, at = -1, self.low
        elif self.asked == self.low and fewest <= ALMOST and self.long < AT_THE_END:
            self.given_up, at = -1, self.low
        if not self.given_up < at < extent or fewest > HOPE or self.long >= LONG_RUNS:
            return self._last()
        self.long += 1
        self.asked = at
        return at, LONG * self.turns

    @property
    def most(self) -> int:
        """Turns of all runs there may be but the last: by so many, how far it has come is told."""
        return (LONG_RUNS * LONG + 4) * self.turns

    def _last(self) -> tuple[int, int]:
        if self.last or not 0 < self.nearest <= CLOSE:
            return self.low, 0
        self.last, self.long, self.asked = True, LONG_RUNS + 1, self.low
        return self.low, LONG * self.turns * LAST[0] // LAST[1]

    def _half(self, extent: int) -> int:
        base = max(self.low, self.given_up)
        return max((base + extent) // 2 // self.grain * self.grain, self.low)
