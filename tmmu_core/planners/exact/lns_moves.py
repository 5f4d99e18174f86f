"""Iterations of the large neighbourhood search: destroy part of a packing and repair it.

A packing lies below a capacity and omits some units. *Ruin and recreate* (Schrimpf et al. 2000; adjacent removal as in
Christiaens and Vanden Berghe 2020) changes it: choose a unit, mostly an omitted one, a time in its lifetime and an
offset; remove the units nearest to this point; reinsert the removed and the omitted units one by one. The result is
accepted if the cost of its omitted units is below a limit: the current cost plus a random allowance, drawn before the
repair (simulated annealing). The repair ends when the cost reaches this limit.

Placed units have no offsets, only an order: of two units that conflict, one is below the other. If all units in this
order are stacked from the bottom, each has its lowest end; if they are stacked from the capacity downwards, each has
its highest offset (heads and tails, Balas 1969). A gap for a unit lies between the lowest ends of the units below it
and the highest offsets of the units above it. A unit is inserted into a gap that is large enough; the other units move
apart (insertion: Werner and Winkler 1995).

All arithmetic is on integers, with a permuted congruential generator (O'Neill 2014): the iterations are the same on
every machine. Cost of an iteration: O(n + sections of all lifetimes) per reinserted unit. The C form is
``native/lns.c``; both forms draw the same numbers and give the same result.
"""

from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tmmu_core.planners.problem import I64

OFFSET, OMITTED, WEIGHT, PLACED_ORDER = range(4)
"""Rows of ``LnsState.work``: offset per unit (−1: omitted); omitted units; weight per unit; placed units, bottom up."""
RANDOM_STATE, PLACED_COUNT, OMITTED_COUNT, COST, FEWEST_OMITTED, ITERATION = range(6)  # cells of ``LnsState.progress``

SCALE = 1024  # length of the whole time, and of the whole capacity, in units of distance
STAGES = 1024  # number of temperatures of the annealing
TIME_FACTORS, BYTE_FACTORS = (48, 10, 144), (60, 300, 20)  # weights in a distance: three pairs, of which one is drawn
NOISE_PERIOD = 4096  # the values of ``noise`` for the units begin at a random column below this number
BY_LOWEST, BY_HIGHEST, BY_MIDDLE, KEEP_ORDER = range(4)  # sort key of placed units: low, high, middle offset; none
LOWEST, TIGHTEST, HIGHEST, WIDEST = range(4)  # rules that choose among the gaps that a unit fits
SKIP_ONE_IN = 128  # one of this many gaps is skipped at random, which diversifies each rule
SHORTFALL_SHARE = 384  # fraction of the cost, in 1/1024, that depends on the bytes that the widest gap lacks
REWEIGHTINGS, REWEIGHT_DIVISOR = 1000, 64
"""About ``REWEIGHTINGS`` times in a run, the weights of omitted units grow by 1 / ``REWEIGHT_DIVISOR``."""
MAX_STEPS = 2**30  # upper limit of a capacity in units of ``LnsRun.step``, so that it fits into 32-bit columns


class LnsState(NamedTuple):
    """n units and a packing; sizes and offsets are in multiples of ``LnsRun.step`` bytes (:mod:`.lns`)."""

    unit: I64
    """(n, 10). Columns 0 to 4: keys for reinsertion, greatest first, up to 2^20: area, bytes, sections, SCALE − begin,
    end. Columns 5 to 9: begin and end of the lifetime, scaled to ``SCALE``; size; alignment; fixed offset, or −1."""
    conflicts: NDArray[np.uint8]  # (n, n): 1 if two units must not share bytes; also on the diagonal
    first_stretch: I64  # (n + 1,): first row of each unit in ``stretch``
    stretch: I64  # (r, 2): consecutive sections of a lifetime: the first, and the one after the last
    temperature: I64  # (STAGES + 1,): in units of ``WEIGHT``, times 2^10
    log_table: I64  # (1024,): −ln of (k + ½) / 1024, in 1/1024
    noise: NDArray[np.int32]
    """(2, NOISE_PERIOD + n at least): row 0: distance factors, 11 to 20; row 1: lifetime-length factors, 0 to 1,023."""
    work: I64  # (15, n + 1): ``OFFSET … PLACED_ORDER``; the other rows are working memory of the native library
    progress: I64  # (6,): ``RANDOM_STATE … ITERATION``


def draw(rng: int) -> tuple[int, int]:
    """Return the next state and 32 random bits."""
    word = (((rng >> ((rng >> 28) + 4)) ^ rng) * 277803737) & 0xFFFFFFFF
    return (rng * 747796405 + 2891336453) & 0xFFFFFFFF, (word >> 22) ^ word


class Packing(NamedTuple):
    """The placed units in order (each after the units below it), and the lowest end and highest offset of each."""

    order: list[int]
    low_end: dict[int, int]
    high_offset: dict[int, int]


class Search:
    """Packing, weights and random state of a run."""

    def __init__(self, state: LnsState, capacity: int) -> None:
        self.state, self.capacity, self.random = state, capacity, int(state.progress[RANDOM_STATE])
        *self.traits, self.born, self.dies, size, align, fixed = state.unit.T
        self.size, self.align, self.fixed = size.tolist(), align.tolist(), fixed.tolist()
        self.span = np.minimum(size * SCALE // capacity, SCALE)
        self.conflicts = [row.tobytes() for row in state.conflicts]
        stretches = [np.arange(begin, end) for begin, end in state.stretch.tolist()]
        self.sections = [np.concatenate(stretches[a:b]) for a, b in pairwise(state.first_stretch.tolist())]
        self.weight: list[int] = state.work[WEIGHT, :-1].tolist()
        self.omitted: list[int] = state.work[OMITTED, : state.progress[OMITTED_COUNT]].tolist()
        self.packing = self.packed(state.work[PLACED_ORDER, : state.progress[PLACED_COUNT]].tolist())
        self.cost = self.total_cost(self.omitted, self.packing)

    def draw(self) -> int:
        """Return 32 random bits."""
        self.random, bits = draw(self.random)
        return bits

    def lowest_offset(self, i: int, floor: int) -> int:
        """Return the fixed offset of ``i``, else its lowest offset at or above a floor."""
        return self.fixed[i] if self.fixed[i] >= 0 else (floor + self.align[i] - 1) & -self.align[i]

    def highest_offset(self, i: int, ceiling: int) -> int:
        """Return the fixed offset of ``i``, else its highest offset with an end at or below a ceiling."""
        return self.fixed[i] if self.fixed[i] >= 0 else (ceiling - self.size[i]) & -self.align[i]

    def skyline(self, at: int) -> I64:
        """Return an array with the offset ``at`` for each section: the skyline before any unit is placed."""
        return np.full(self.state.stretch.max(initial=0), at, np.int64)

    def packed(self, order: list[int]) -> Packing:
        """Return the packing of the units in this order."""
        packing, ends, starts = Packing(order, {}, {}), self.skyline(0), self.skyline(self.capacity)
        for i in order:
            sections = self.sections[i]
            packing.low_end[i] = self.lowest_offset(i, int(ends[sections].max())) + self.size[i]
            ends[sections] = np.maximum(ends[sections], packing.low_end[i])
        for i in reversed(order):
            sections = self.sections[i]
            packing.high_offset[i] = self.highest_offset(i, int(starts[sections].min()))
            starts[sections] = np.minimum(starts[sections], packing.high_offset[i])
        return packing

    def gaps(self, i: int, packing: Packing) -> list[tuple[int, int, int]]:
        """Return the gaps for ``i``: one below each conflicting unit, and one at the top.

        A gap is ``(place in the order, highest end below the gap, lowest offset above it)``.
        """
        order, low_end, high_offset = packing
        conflicts = self.conflicts[i]
        places = [k for k, j in enumerate(order) if conflicts[j]]
        floors = accumulate((low_end[order[k]] for k in places), max, initial=0)
        ceilings = accumulate((high_offset[order[k]] for k in reversed(places)), min, initial=self.capacity)
        return list(zip([*places, len(order)], floors, reversed([*ceilings]), strict=True))

    def omission_cost(self, i: int, lacking: int) -> int:
        """Return the cost of omitting ``i`` if its widest gap is ``lacking`` bytes too small."""
        weight, size = self.weight[i], self.size[i]
        share = max(min(lacking, size), 0) * SHORTFALL_SHARE // max(size, 1)
        return weight - (weight * SHORTFALL_SHARE >> 10) + (weight * share >> 10)

    def total_cost(self, omitted: list[int], packing: Packing) -> int:
        """Return the cost of omitting these units."""
        widest = (max(ceiling - floor for _, floor, ceiling in self.gaps(i, packing)) for i in omitted)
        return sum(self.omission_cost(i, self.size[i] - room) for i, room in zip(omitted, widest, strict=True))

    def destroy(self, mean_destroyed: int) -> tuple[list[int], list[int]]:
        """Return the units to reinsert (the nearest to a random centre, and the omitted ones) and the other units."""
        random = self.draw()
        count = 1 + random % (2 * mean_destroyed)
        bottom = self.sort_placed(random >> 20 & 3)
        random = self.draw()
        is_omitted, number = random & 7, random >> 3
        centre = self.omitted[number % len(self.omitted)] if is_omitted else number % len(self.size)
        time = int(self.born[centre] + self.draw() % max(self.dies[centre] - self.born[centre], 1))
        random = self.draw()
        low = int(bottom[centre]) if bottom[centre] >= 0 else random % SCALE
        random = self.draw()
        column, length_column = (random >> 4) % NOISE_PERIOD, (random >> 16) % NOISE_PERIOD
        noise, n = self.state.noise.astype(np.int64), len(bottom)
        in_time = np.maximum(np.maximum(self.born - time, time - self.dies), 0)
        above, below = bottom - (low + self.span[centre]), low - (bottom + self.span)
        in_bytes = np.maximum(np.maximum(above, below), 0)
        distance = TIME_FACTORS[random % 3] * in_time + BYTE_FACTORS[random % 3] * in_bytes
        length = 3 * (self.dies - self.born) * noise[1, length_column : length_column + n] >> 6
        distance = distance * noise[0, column : column + n] + length
        movable = np.flatnonzero(bottom >= 0)
        nearest = movable[np.argsort(distance[movable], kind="stable")][:count].tolist()
        removed = set(nearest)
        return [*self.omitted, *nearest], [i for i in self.packing.order if i not in removed]

    def sort_placed(self, by: int) -> I64:
        """Sort placed units by position unless ``KEEP_ORDER``. Return positions up to ``SCALE``; omitted, fixed: −1."""
        order, low_end, high_offset = self.packing
        twice = {}  # unit → 2 × its position
        for i in order:
            low = low_end[i] - self.size[i]
            twice[i] = 2 * low if by == BY_LOWEST else 2 * high_offset[i] if by == BY_HIGHEST else low + high_offset[i]
        if by != KEEP_ORDER:
            order.sort(key=twice.__getitem__)
        bottom = np.full(len(self.size), -1, np.int64)
        scale = (SCALE << 32) // self.capacity
        for i in order:
            if self.fixed[i] < 0:
                bottom[i] = twice[i] * scale >> 33
        return bottom

    def repair(self, units: list[int], packing: Packing, cost_limit: int) -> tuple[list[int], int]:
        """Reinsert units until the cost of omitted units reaches the limit; return the omitted units and the cost."""
        main_rule = self.draw() & 3
        cost, omitted = 0, list[int]()
        for i in units:
            if cost >= cost_limit:
                return omitted, cost
            random = self.draw()
            gap = self.choose_gap(i, packing, main_rule if random & 7 else random >> 3 & 3)
            if gap is None:
                omitted.append(i)
                cost += self.omission_cost(i, 0)
            else:
                self.insert(i, packing, *gap)
        return omitted, self.total_cost(omitted, packing) if cost < cost_limit else cost

    def choose_gap(self, i: int, packing: Packing, rule: int) -> tuple[int, int, int] | None:
        """Return the gap for ``i`` by a rule; ``None`` if no gap is large enough or all such gaps are skipped."""
        best, least = None, 0
        for k, gap in enumerate(self.gaps(i, packing)):
            _, floor, ceiling = gap
            room = ceiling - floor - self.size[i]
            if room < 0 or self.lowest_offset(i, floor) > self.highest_offset(i, ceiling):
                continue
            key = {LOWEST: k, TIGHTEST: room, HIGHEST: -k, WIDEST: -room}[rule]
            if self.draw() % SKIP_ONE_IN and (best is None or key < least):
                best, least = gap, key
                if rule == LOWEST:
                    break
        return best

    def insert(self, i: int, packing: Packing, place: int, floor: int, ceiling: int) -> None:
        """Insert ``i`` into a gap; the units above it move up, the units below it move down."""
        order, low_end, high_offset = packing
        low_end[i] = highest_end = self.lowest_offset(i, floor) + self.size[i]
        high_offset[i] = lowest_start = self.highest_offset(i, ceiling)
        ends, starts = self.skyline(0), self.skyline(self.capacity)
        ends[self.sections[i]], starts[self.sections[i]] = highest_end, lowest_start
        for j in order[place:]:
            if low_end[j] - self.size[j] < highest_end:
                sections = self.sections[j]
                floor = int(ends[sections].max())
                if floor > low_end[j] - self.size[j]:
                    low_end[j] = self.lowest_offset(j, floor) + self.size[j]
                    ends[sections] = np.maximum(ends[sections], low_end[j])
                    highest_end = max(highest_end, low_end[j])
        for j in reversed(order[:place]):
            if high_offset[j] + self.size[j] > lowest_start:
                sections = self.sections[j]
                ceiling = int(starts[sections].min())
                if ceiling < high_offset[j] + self.size[j]:
                    high_offset[j] = self.highest_offset(j, ceiling)
                    starts[sections] = np.minimum(starts[sections], high_offset[j])
                    lowest_start = min(lowest_start, high_offset[j])
        order.insert(place, i)


def destroy_and_repair(state: LnsState, capacity: int, iterations: int, mean_destroyed: int, stop: I64) -> bool:
    """Run up to ``iterations`` iterations; return whether all units are placed, at ``state.work[OFFSET]``."""
    search, progress = Search(state, capacity), state.progress
    every = max(iterations // REWEIGHTINGS, 1)
    while search.omitted and progress[ITERATION] < iterations and not stop[0]:
        units, kept = search.destroy(mean_destroyed)
        by, key = search.draw() % 6, {}  # the trait that orders the insertion; 5: random order
        for i in units:
            random = search.draw()
            key[i] = -(random & 0xFFFFF) if by == 5 else -int(search.traits[by][i]) * (64 + (random >> 4) % 33)
        units.sort(key=key.__getitem__)
        temperature = int(state.temperature[progress[ITERATION] * STAGES // iterations])
        allowance = temperature * int(state.log_table[search.draw() & 1023]) >> 20
        cost_limit, packing = search.cost + max(allowance, 0), search.packed(kept)
        omitted, cost = search.repair(units, packing, cost_limit)
        if cost < cost_limit:
            search.packing, search.omitted, search.cost = packing, omitted, cost
            progress[FEWEST_OMITTED] = min(progress[FEWEST_OMITTED], len(omitted))
        progress[ITERATION] += 1
        if progress[ITERATION] % every == 0:
            for i in search.omitted:
                search.weight[i] += search.weight[i] // REWEIGHT_DIVISOR + 1
            search.cost = search.total_cost(search.omitted, search.packing)
    progress[:FEWEST_OMITTED] = search.random, len(search.packing.order), len(search.omitted), search.cost
    state.work[OFFSET] = -1
    for i, end in search.packing.low_end.items():
        state.work[OFFSET, i] = end - search.size[i]
    return not search.omitted
