"""Large neighbourhood search (destroy and repair) between and after attempts of branch and bound, near the lower bound.

Branch and bound packs from the bottom up and detects an early mistake only at the top. This search keeps the capacity
fixed, leaves some units out, and repeatedly removes and reinserts units (:mod:`.lns_moves`). It proves nothing; at
capacities just above the bound it finds packings of hundreds of storages that branch and bound does not find.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import cache, partial
from math import isqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tmmu_core.planners.exact import lns_moves as moves
from tmmu_core.planners.exact.branch_and_bound import Watch, watched
from tmmu_core.planners.exact.search_model import Model, common_grain, log2_fixed
from tmmu_core.planners.exact.search_tables import ALIGNMENT, FIXED, MAX_HEIGHT, NEIGHBOURS, OTHER, Tables
from tmmu_core.planners.native import library, native
from tmmu_core.planners.problem import I64

CLOSE_OMITTED = 1  # a normal run that omits 1 to this many units is repeated with twice the iterations
MAX_FAILURES = 2  # number of failed capacities after which normal runs end
LONG_RUN_FACTOR = 12  # iterations of a long run, in multiples of a normal one: slower cooling finds tighter packings
MAX_LONG_RUNS_AT_LOW = 3  # maximum number of long runs at the low end (the bound or the goal); later ones bisect
FEW_OMITTED = 2
"""If a run omits more units: long runs bisect from then on; during branch and bound, no other run is made."""
MAX_LONG_RUNS = 4  # from this number on, only a long run that succeeds is followed by another one
PLANNED_RUNS = MAX_LONG_RUNS * LONG_RUN_FACTOR + 4
"""Expected iterations of all runs but the last, divided by those of a normal run, for the progress report."""
MAX_OMITTED = 4  # no long run follows a run that omitted more units
LAST_RUN_FACTOR = 50, 9
"""Iterations of the last run divided by those of a long run: numerator, denominator. The last run is made if a long run
at the low end omitted at most :data:`CLOSE_OMITTED` units."""
MIN_UNITS, FULL_BUDGET_UNITS, MAX_UNITS = 32, 256, 2_048
"""Minimum number of units; number above which runs are shorter; maximum number, because of the conflict matrix."""
NEAR_FRACTION = 8  # an extent is near the bound if it is at most bound / NEAR_FRACTION above the bound
MEAN_DESTROYED = 4  # an iteration removes 1 to 2 · MEAN_DESTROYED units
START_TEMPERATURE, END_TEMPERATURE = 300, 40
"""Temperature of the simulated annealing at the start and at the end, in 1/1024 of a mean weight."""
MEAN_WEIGHT = 1024  # mean initial weight of a unit
MAX_TRAIT = 1 << 20  # largest value of a trait that orders the reinsertion
LOG_TABLE: I64 = ((11 << 12) - log2_fixed(2 * np.arange(1024) + 1)) * 45_426 >> 18  # 45,426 / 2^18: ln 2 / 4
"""Shape (1024,): −ln((k + ½) / 1024) × 1024, within two units. ``11 << 12`` is :func:`log2_fixed` of 2048."""
SEED = 747_796_405  # random state of run 1; run k starts at k times this
Run = tuple[int, int, int]  # capacity, iterations (0: no run), and the number, which gives the random state


@dataclass
class LnsRun:
    """A run on a model. At the start only units with a fixed offset are placed."""

    state: moves.LnsState
    units: I64  # unit of ``state`` → its number in the model (:func:`canonical_direction`)
    step: int  # offsets are counted in multiples of this many bytes
    fixed_ends: I64  # ends of the units with a fixed offset, in bytes
    stop: I64  # set ``stop[0]`` from any thread to end the run

    def run(self, capacity: int, iterations: int, watch: Watch | None = None) -> list[int] | None:
        """Return the offset of each unit if all fit below the capacity within ``iterations``, else ``None``.

        The run stops when ``watch(iterations)`` returns ``False`` (:func:`.branch_and_bound.watched`).
        """
        state, capacity_steps = self.state, capacity // self.step
        if not 0 < capacity_steps < moves.MAX_STEPS or (self.fixed_ends > capacity).any():
            return None
        limits: dict[str, Any] = {"capacity": capacity_steps, "iterations": iterations}
        limits |= {"mean_destroyed": MEAN_DESTROYED, "stop": self.stop}
        loop: Callable[[], int] = partial(moves.destroy_and_repair, state, **limits)
        if (loops := library()) is not None:
            n, sections = len(self.units), int(state.stretch.max(initial=0))
            limits |= {"n": n, "sections": sections, "noise_rows": state.noise.shape[1]}
            scratch = {"proximity": np.zeros((7, n), np.int32), "skyline": np.zeros(sections, np.int32)}
            scratch["target"] = np.zeros(6, np.int64)
            loop = partial(native.run, loops, native.call_of("lns", **limits, **scratch, **state._asdict()))
        if not (loop() if watch is None else watched(loop, self.stop, lambda: watch(self.iterations))):
            return None
        offsets = np.empty(len(self.units), np.int64)
        offsets[self.units] = state.work[moves.OFFSET, :-1] * self.step
        return offsets.tolist()

    @property
    def iterations(self) -> int:
        """Iterations done."""
        return int(self.state.progress[moves.ITERATION])

    @property
    def fewest_omitted(self) -> int:
        """Fewest units omitted so far."""
        return int(self.state.progress[moves.FEWEST_OMITTED])


def lns_run(model: Model, tables: Tables, number: int) -> LnsRun:
    """Return run ``number`` (from 1) on a model; the number seeds its random state."""
    count = len(model)
    conflicts = np.eye(count, dtype=np.uint8)
    conflicts[np.repeat(np.arange(count), np.diff(tables.unit[:, NEIGHBOURS])), tables.neighbour[:, OTHER]] = 1
    units, begin, end, backwards = canonical_direction(model, tables)
    max_height, fixed, align = (tables.unit[units, column] for column in (MAX_HEIGHT, FIXED, ALIGNMENT))
    grain = common_grain(*(column.tolist() for column in (max_height, fixed, align)))
    born, dies = begin * moves.SCALE // model.sections, end * moves.SCALE // model.sections
    life = np.diff(model.entry_of)[units]
    area = (max_height.astype(object) * life).tolist()  # bytes × sections may exceed 64 bits
    roots = [isqrt(value) for value in area]
    root_sum = max(sum(roots), 1)
    weight = [max(1, root * count * MEAN_WEIGHT // root_sum) for root in roots]
    traits = (area, max_height.tolist(), life.tolist(), (moves.SCALE - born).tolist(), dies.tolist())
    largest = [max([1, *trait]) for trait in traits]
    scaled = [[value * MAX_TRAIT // most for value in trait] for trait, most in zip(traits, largest, strict=True)]
    in_grains = (max_height // grain, np.maximum(align // grain, 1), np.where(fixed < 0, -1, fixed // grain))
    unit = np.column_stack([*scaled, born, dies, *in_grains]).astype(np.int64)
    placed = sorted(np.flatnonzero(fixed >= 0).tolist(), key=lambda u: (int(fixed[u]), u))
    out = np.flatnonzero(fixed < 0)
    work = np.zeros((15, count + 1), dtype=np.int64)
    work[moves.WEIGHT, :count], work[moves.OMITTED, : len(out)] = weight, out
    work[moves.PLACED_ORDER, : len(placed)] = placed
    progress = np.array([SEED * number % 2**32, len(placed), len(out), 0, len(out), 0], dtype=np.int64)
    conflicts = np.ascontiguousarray(conflicts[np.ix_(units, units)])
    first, stretches = [0], list[tuple[int, int]]()
    for u in units.tolist():
        sections = model.section[model.entry_of[u] : model.entry_of[u + 1]]
        sections = np.unique(model.sections - 1 - sections if backwards else sections)
        ends = np.flatnonzero(np.diff(sections) > 1)
        stretches += zip(sections[[0, *(ends + 1)]].tolist(), (sections[[*ends, -1]] + 1).tolist(), strict=True)
        first.append(len(stretches))
    stretch = np.array(first, np.int64), np.array(stretches, np.int64).reshape(-1, 2)
    noise = noise_of(moves.NOISE_PERIOD + max(count, MAX_UNITS))
    state = moves.LnsState(unit, conflicts, *stretch, temperatures(), LOG_TABLE, noise, work, progress)
    return LnsRun(state, units, grain, (fixed + max_height)[fixed >= 0], np.zeros(1, dtype=np.int64))


def canonical_direction(model: Model, tables: Tables) -> tuple[I64, I64, I64, bool]:
    """Return units sorted by lifetime and size, their half-open section ranges, and whether time is reversed.

    The lexicographically smaller of a model and its time reversal is used, so both give the same packing.
    """
    begin = model.section[model.entry_of[:-1]].tolist()
    end = (model.section[model.entry_of[1:] - 1] + 1).tolist()
    keys = tables.unit[:-1, [MAX_HEIGHT, FIXED, ALIGNMENT]].tolist()
    forwards = sorted((begin[u], end[u], *key, u) for u, key in enumerate(keys))
    sections = model.sections
    backwards = sorted((sections - row[1], sections - row[0], *row[2:]) for row in forwards)
    rows = min(forwards, backwards, key=lambda rows: [row[:-1] for row in rows])
    first, end_of, *_, unit = np.array(rows, dtype=np.int64).reshape(-1, 6).T
    return unit, first, end_of, rows is backwards


@cache
def temperatures() -> I64:
    """Return an array of shape (STAGES + 1,): temperatures of a geometric cooling, times 2^10, in integers."""
    temperature = [START_TEMPERATURE << 20] * moves.STAGES + [END_TEMPERATURE << 20]
    step = moves.STAGES
    while step > 1:
        for k in range(0, moves.STAGES, step):
            temperature[k + step // 2] = isqrt(temperature[k] * temperature[k + step])
        step //= 2
    return np.array([value >> 10 for value in temperature], dtype=np.int64)


@cache
def noise_of(count: int) -> NDArray[np.int32]:
    """Return an array of shape (2, count): random numbers, in row 0 from 11 to 20, in row 1 from 0 to 1,023."""
    rng, drawn = SEED, []
    for _ in range(count):
        rng, r = moves.draw(rng)
        drawn.append((11 + r % 10, r >> 8 & 1023))
    return np.array(drawn, dtype=np.int32).T.copy()


def applies(model: Model, extent: int, bound: int) -> bool:
    """Return whether a model has a suitable size and its extent is near the bound."""
    is_near = 0 < (extent - bound) * NEAR_FRACTION <= bound
    return MIN_UNITS <= len(model) <= MAX_UNITS and is_near and extent < moves.MAX_STEPS * model.grain


def run_schedule(low: int, grain: int, normal: int, extent: int) -> Generator[Run, tuple[int, int], None]:
    """Yield the runs after branch and bound; the caller sends the extent and the fewest omitted units of each run.

    Runs of ``normal`` iterations bisect between ``low`` (the bound or the goal) and the extent. Long runs follow: at
    the low end while few units are omitted, then bisecting for as long as runs succeed, then a very long run at the low
    end. The numbers of long runs, and so their random states, do not depend on earlier runs.
    """

    def middle() -> int:
        return max((max(low, failed) + extent) // 2 // grain * grain, low)

    failed, failures, fewest, number = -1, 0, 0, MAX_LONG_RUNS + 1
    while failures < MAX_FAILURES and failed < (at := middle()) < extent:
        extent, fewest = yield at, normal, number
        if 0 < fewest <= CLOSE_OMITTED:
            extent, fewest = yield at, 2 * normal, number + 1
            number += 1
        number += 1
        if fewest:
            failed, failures = at, failures + 1
    at, failed, long_runs, fewest_at_low = low, -1, 0, MAX_UNITS
    while (long_runs < MAX_LONG_RUNS or not fewest) and fewest <= MAX_OMITTED and failed < at < extent:
        long_runs += 1
        extent, fewest = yield at, LONG_RUN_FACTOR * normal, min(long_runs, MAX_LONG_RUNS)
        fewest_at_low = min(fewest_at_low, fewest) if at == low else fewest_at_low
        if at > low or fewest > FEW_OMITTED or long_runs >= MAX_LONG_RUNS_AT_LOW:
            failed = at if fewest else failed
            at = middle()
    if fewest_at_low <= CLOSE_OMITTED:
        yield low, LONG_RUN_FACTOR * normal * LAST_RUN_FACTOR[0] // LAST_RUN_FACTOR[1], MAX_LONG_RUNS + 1
    yield low, 0, 0
