"""Searches that add drops to a choice, a few at a time.

A *drop* frees a storage after a use; the storage is recomputed before its next use. The steps between the two uses are
the *gap*; in its gap, a storage is *idle*. A *point* is a choice of drops with its simulation. A *cut* is a point from
a minimum cut (``recompute_search.py``).

A **sweep** starts from a cut or from the initial choice. It drops storages that are idle at the first step whose live
bytes exceed the goal, then at the next such step. As in dynamic tensor rematerialization (Kirisame et al. 2021), but
with known next uses, storages with the lowest FLOPs / (bytes · steps until the next use) are dropped first. The FLOPs
are the sum over all nodes that must run again. Recomputed storages are dropped too, so that only a few tensors of a
chain are live at a time (Griewank 1992). The cheapest results are improved: drops without which the plan still fits are
removed; then one drop at a time is forbidden, and another sweep finds its replacement.

**Nested recomputation** drops storages, also recomputed ones, that are idle at the peak. Each round adds the drops that
save the most bytes above the goal per FLOP. At the end, unneeded drops are removed. For a chain of n equal tensors, a
cut needs the memory of 2·√n tensors. Nested recomputation needs that of a few tensors, but more FLOPs.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tmmu_core.fitting.recompute.live_curve import Choice, Run
from tmmu_core.fitting.recompute.recompute_model import I64, RecomputeModel
from tmmu_core.fitting.recompute.recompute_search import Point, Search

DISTANCE_EXPONENTS = (1, 0)
"""Exponents of the number of steps until the next use, in the rank of an idle storage. Exponent 0 ignores the steps.
With exponent 1, the bytes of a storage count only up to the excess over the goal at the peak."""
MOST_IMPROVED = 6  # maximum number of results that are improved, cheapest first
EXCESS_DIVISOR = 32_000  # with n steps, a round frees at least n / 32,000 of the peak's excess: 1/10 for 3,200 steps
MOST_OPERAND_ROUNDS = 8  # maximum number of times that the operands of the last drops are dropped as well
MOST_TRIED = 1_000  # maximum number of simulations of a sweep
MOST_REPLACED = 60  # maximum number of drops of a result that are forbidden, one at a time
MOST_POSITIONS = 40  # maximum number of positions above the goal whose idle storages are tried, from the peak down
TARGET_DIVISOR = 4  # a round of nested search aims to lower the peak by at most 1 / ``TARGET_DIVISOR``
MOST_TRIMMED = 3  # number of cheapest nested results from which unneeded drops are removed
STRIDES = (1, 2, 3, 4, 6)  # sets of drops: of all idle storages, or of all but every second, third, … one
MOST_SINGLE = 24  # maximum number of idle storages that are tried alone, largest first


@dataclass(frozen=True)
class Idle:
    """A storage that is idle at a step, and the drop (``Choice.drops``) that frees it there."""

    storage: int
    drop: int
    distance: int  # steps until its next use


def search_sweeps(search: Search, starts: Sequence[Point]) -> list[Point]:
    """Sweep from ``starts``. Return the cheapest results that fit, without unneeded drops, and all that do not fit."""
    found: dict[tuple[int, int, int], Point] = {}
    last_simulation = search.simulations + search.most_simulations // 4
    for exponent in DISTANCE_EXPONENTS:
        for start in starts:
            if search.simulations > last_simulation or not search.should_continue():
                break
            point = sweep(search, start.choice, exponent)
            found.setdefault(point.key, point)
    others = [point for point in found.values() if search.excess(point.run)]
    return [*without_unneeded_drops(search, found.values(), MOST_IMPROVED), *others]


def without_unneeded_drops(search: Search, points: Iterable[Point], most: int) -> list[Point]:
    """Return the ``most`` cheapest points that fit, without their unneeded drops."""
    return [_remove_drops(search, point) for point in search.fitting(points)[:most]]


def improve(search: Search, points: Iterable[Point]) -> Point | None:
    """Improve the cheapest points that fit, and return the cheapest result; ``None`` if none fits.

    To improve a point, forbid one drop at a time, most expensive first, and sweep again. Keep the result if cheaper.
    """
    improved = []
    for start in list({point.key: point for point in search.fitting(points)}.values())[:MOST_IMPROVED]:
        last_simulation = search.simulations + search.most_simulations // 8
        point = search.simulate(start.choice)
        tried: set[int] = set()
        while len(tried) < MOST_REPLACED and search.simulations <= last_simulation and search.should_continue():
            drop = next((drop for drop in _drops_by_cost(search, point) if drop not in tried), None)
            if drop is None or not point.run.flops:
                break
            tried.add(drop)
            other = sweep(search, point.choice.without([drop]), 1, frozenset([drop]))
            if not search.excess(other.run):
                point = min(point, _remove_drops(search, other), key=lambda point: point.key)
        improved.append(point)
    return next(iter(search.fitting(improved)), None)


def sweep(search: Search, choice: Choice, exponent: int, forbidden: frozenset[int] = frozenset()) -> Point:
    """Add drops to ``choice`` until the goal is met or no drop helps, and return the point.

    ``exponent`` is one of ``DISTANCE_EXPONENTS``; ``forbidden`` drops are not added. Drops help if the first position
    above the goal then comes later or has a lower peak, or if fewer bytes in total are above the goal.
    """
    model, arena, initial = search.model, search.arena, search.initial_point.run
    level = int(initial.peaks[arena] - model.fixed[arena]) - search.excess(initial)  # the goal, in live bytes
    point = search.simulate(choice)
    useless: set[int] = set()
    position = -1
    last_simulation = search.simulations + MOST_TRIED
    while search.simulations < last_simulation and search.should_continue():
        live = point.run.live[arena]
        over = np.flatnonzero(live > level)
        if not len(over):
            break
        step = int(over[0])
        if int(point.run.for_position[step]) != position:
            position = int(point.run.for_position[step])
            useless = set(forbidden)
        idle = idle_at(model, point.run, step, arena, useless)
        if not idle:
            break
        peak_excess = int(live.max()) - level
        bytes_to_free = max(int(live[step]) - level, peak_excess * len(live) // EXCESS_DIVISOR)
        counted = np.minimum(model.size, peak_excess) if exponent else model.size
        drops = _cheapest_drops(search, point.run, step, idle, bytes_to_free, (counted, exponent))
        for tried in [drops, *([drop] for drop in drops if len(drops) > 1)]:
            better = _drop_with_operands(search, point, tried, step, level)
            if better is not None:
                point = better
                break
        else:
            useless.update(drops)
    return point


def _drop_with_operands(search: Search, point: Point, drops: Sequence[int], step: int, level: int) -> Point | None:
    """Return a better point with ``drops``, else ``None``. ``step`` is the first step above ``level``.

    If y = f(x) is dropped, x stays live until y is recomputed. If the point is not better, x is dropped too, and so on.
    """
    arena, lives = search.arena, point.run.lives
    live_before = set(lives.storage[(lives.birth <= step) & (lives.last >= step)].tolist())
    choice = point.choice
    for _ in range(MOST_OPERAND_ROUNDS):
        choice = choice.dropping(drops)
        tried = search.simulate(choice)
        if _is_better(point.run, tried.run, arena, level):
            return tried
        steps = np.flatnonzero(tried.run.for_position == point.run.for_position[step])
        if not len(steps):
            return None
        fullest = int(steps[tried.run.live[arena][steps].argmax()])
        idle = idle_at(search.model, tried.run, fullest, arena)
        drops = [operand.drop for operand in idle if operand.storage not in live_before]  # live because of the drops
        if not drops:
            return None
    return None


def _is_better(before: Run, after: Run, arena: int, level: int) -> bool:
    """Return whether fewer bytes exceed ``level``, or the first position above it is later or has a lower peak."""
    position, reached = (int(run.for_position[(run.live[arena] > level).argmax()]) for run in (before, after))
    peaks = [int(run.live[arena][run.for_position == position].max(initial=0)) for run in (before, after)]
    above = [bytes_above(run.live[arena], level) for run in (before, after)]
    return above[1] < above[0] or reached > position or (reached == position and peaks[1] < peaks[0])


def bytes_above(live: I64, level: int) -> int:
    """Return the bytes above ``level``, summed over the steps."""
    return int((live[live > level] - level).sum())


def _cheapest_drops(
    search: Search, run: Run, step: int, idle: list[Idle], missing: int, rank_by: tuple[I64, int]
) -> list[int]:
    """Return drops that together free ``missing`` bytes at a step, lowest rank first (``DISTANCE_EXPONENTS``).

    ``rank_by``: array of shape (storages,) with the bytes that count, and one of ``DISTANCE_EXPONENTS``.
    """
    available = np.zeros(len(search.model.size), np.bool_)
    available[run.lives.storage[(run.lives.birth <= step) & (run.lives.last >= step)]] = True
    is_available = available.tolist()
    counted, exponent = rank_by

    def rank(candidate: Idle) -> tuple[float, int, int]:
        seen: set[int] = set()  # nodes that run again: producers of the storage and, recursively, of missing operands
        pending = [search.producer[candidate.storage]]
        while pending:
            n = pending.pop()
            if n >= 0 and n not in seen:
                seen.add(n)
                pending += [search.producer[z] for z in search.operands[n] if not is_available[z]]
        cost = (sum(search.node_flops[n] for n in seen) + 1) / int(counted[candidate.storage])
        return cost / candidate.distance**exponent, candidate.storage, candidate.drop

    drops = []
    for _, storage, drop in sorted(map(rank, idle)):
        if missing <= 0:
            break
        drops.append(drop)
        missing -= int(search.model.size[storage])
    return drops


def idle_at(model: RecomputeModel, run: Run, step: int, arena: int, useless: Collection[int] = ()) -> list[Idle]:
    """Return the idle recomputable storages of ``arena`` at ``step``, with drops that are not ``useless``.

    If the last read before the step is by a recomputing run, prefer a drop after every such run of the reading node.
    """
    lives = run.lives
    candidates = np.flatnonzero((lives.birth < step) & (lives.last > step))
    storages = lives.storage[candidates]
    candidates = candidates[model.droppable[storages] & (model.arena[storages] == arena) & (model.size[storages] > 0)]
    step_of_read = np.repeat(np.arange(len(lives.node)), np.diff(lives.read_ptr))
    last_read, next_step = np.full((2, len(lives.storage)), -1, np.int64)
    begin, end = int(lives.read_ptr[step]), int(lives.read_ptr[step + 1])
    last_read[lives.reads[:begin]] = np.arange(begin)  # the last assignment wins: reads are in order
    next_step[lives.reads[end:][::-1]] = step_of_read[end:][::-1]
    found = []
    for life in candidates[~np.isin(candidates, lives.reads[begin:end])].tolist():
        s, read_index = int(lives.storage[life]), int(last_read[life])
        last_use = int(step_of_read[read_index]) if read_index >= 0 else int(lives.birth[life])
        drops = [int(run.for_position[last_use]) * len(model.size) + s]
        if read_index >= 0 and lives.is_rerun[last_use]:
            drops.insert(0, -1 - int(model.in_ptr[lives.node[last_use]] + read_index - lives.read_ptr[last_use]))
        elif run.for_position[last_use] == run.for_position[step]:
            continue  # the drop would come after the step
        drop = next((drop for drop in drops if drop not in useless), None)
        if drop is not None:
            found.append(Idle(s, drop, int(next_step[life]) - step))
    return found


def _drops_by_cost(search: Search, point: Point) -> list[int]:
    """Return the drops that a point adds to the initial choice, most expensive first."""
    new = point.choice - search.initial
    flops = search.model.node_flops[search.model.producer[new.storages(search.model)]]
    return new.drops[np.lexsort((new.drops, -flops))].tolist()


def _remove_drops(search: Search, point: Point) -> Point:
    """Remove drops, most expensive first, if the point still fits without them and is cheaper."""
    point = search.simulate(point.choice)
    is_needed = _needed_drops(search, point.run)
    for drop in _drops_by_cost(search, point):
        if is_needed(drop):
            continue
        tried = search.simulate(point.choice.without([drop]))
        if not search.excess(tried.run) and tried.key < point.key:
            point = tried
        if not search.should_continue():
            break
    return point


def _needed_drops(search: Search, run: Run) -> Callable[[int], bool]:
    """Return a function: drop → whether the storage would exceed the goal if it stayed live in its gap.

    Example: a gap has 5, 7 and 6 live bytes. If a storage of 4 bytes stays live there, its gap needs 11. What only its
    recomputation needs does not count: steps that recompute or copy are ignored, and these bytes are subtracted:
    generator states, and storages that a recomputing run at the end of the gap reads last.
    """
    model, lives, arena = search.model, run.lives, search.arena
    freed = np.zeros(len(model.node_at), np.int64)  # position → bytes that are live only for recomputation there
    born, ended = run.for_position[lives.birth], run.for_position[lives.last]
    rerun_steps = np.flatnonzero(lives.is_rerun)
    ended_by_rerun = np.flatnonzero(lives.is_rerun[lives.last] & (born < ended))
    np.add.at(freed, run.for_position[rerun_steps], model.state_size[lives.node[rerun_steps]])
    np.add.at(freed, ended[ended_by_rerun], model.size[lives.storage[ended_by_rerun]])
    is_read = np.bincount(lives.reads, minlength=len(lives.storage)) > 0
    used = np.flatnonzero(is_read | ~lives.is_rerun[lives.birth])  # without unread results of recomputing runs
    used = used[np.lexsort((lives.birth[used], lives.storage[used]))]
    before, after = used[:-1], used[1:]
    is_gap = (lives.storage[before] == lives.storage[after]) & (lives.birth[after] > lives.last[before] + 1)
    is_gap &= model.arena[lives.storage[before]] == arena
    begin, end, s = lives.last[before[is_gap]], lives.birth[after[is_gap]], lives.storage[before[is_gap]]
    if not len(s):
        return lambda drop: False
    at_first_runs = np.where(lives.is_rerun | (lives.node < 0), 0, run.live[arena])
    peak_in_gap = np.maximum.reduceat(at_first_runs, np.stack([begin + 1, end], axis=1).ravel())[::2]
    peak_in_gap += model.size[s] - freed[run.for_position[end]] + model.fixed[arena]
    peaks = np.sort(peak_in_gap).tolist()

    def exceeds(peak: int) -> bool:
        changed = run.peaks.copy()
        changed[arena] = max(changed[arena], peak)
        return search.excess(replace(run, peaks=changed)) > 0

    is_full = peak_in_gap > peaks[max(0, bisect_left(peaks, True, key=exceeds) - 1)]  # above the largest that fits
    full_gaps: dict[int, list[tuple[int, int, int]]] = {}
    """Storage → (position before, position after, recomputing node before or −1) of each gap without room for it."""
    node = np.where(lives.is_rerun[begin], lives.node[begin], -1)
    rows = zip(*(c[is_full].tolist() for c in (s, run.for_position[begin], run.for_position[end], node)), strict=True)
    for storage, *gap in rows:
        full_gaps.setdefault(storage, []).append(tuple(gap))

    def is_needed(drop: int) -> bool:
        if drop < 0:
            edge = -1 - drop
            return any(node == model.reader[edge] for *_, node in full_gaps.get(int(model.in_idx[edge]), ()))
        position, storage = divmod(drop, len(model.size))
        return any(first <= position < last for first, last, _ in full_gaps.get(storage, ()))

    return is_needed


def search_nested(search: Search, starts: Sequence[Point]) -> list[Point]:
    """Add the best drops to each start, round by round. Return all points, and the cheapest without unneeded drops.

    The rounds end at the goal, when no drop helps, or when the budget of simulations is spent.
    """
    found: list[Point] = []
    for start in starts:
        last_simulation = search.simulations + search.most_simulations
        point: Point | None = search.simulate(start.choice)
        while point is not None and search.simulations <= last_simulation and search.should_continue():
            peak = int(point.run.live[search.arena].max())
            point = _with_best_drops(search, point, peak - min(search.excess(point.run), peak // TARGET_DIVISOR))
            found += [] if point is None else [point]
    return [*found, *without_unneeded_drops(search, found, MOST_TRIMMED)]


def _with_best_drops(search: Search, point: Point, level: int) -> Point | None:
    """Return the point with the drops that save the most bytes above ``level`` per FLOP; ``None`` if none save any.

    The positions above ``level`` are tried from the peak down, until drops at one of them help.
    """
    model, run = search.model, point.run
    live = run.live[search.arena]
    bytes_before = bytes_above(live, level)
    steps = np.flatnonzero(live > level)
    steps = steps[np.lexsort((steps, -live[steps]))]
    first_of_position = np.sort(np.unique(run.for_position[steps], return_index=True)[1])
    for step in steps[first_of_position[:MOST_POSITIONS]].tolist():
        best: tuple[float, Point] | None = None
        idle = idle_at(model, run, step, search.arena)
        for sets_of_drops in (_sets_of_drops(idle, model), _sets_with_operands(idle, search)):
            for drops in sets_of_drops:
                tried = search.simulate(point.choice.dropping(drops))
                saved = bytes_before - bytes_above(tried.run.live[search.arena], level)
                ratio = saved / (1 + max(0, tried.run.flops - run.flops))
                if ratio > (0 if best is None else best[0]):
                    best = ratio, tried
            if best is not None:
                return best[1]
    return None


def _sets_of_drops(idle: list[Idle], model: RecomputeModel) -> Iterator[list[int]]:
    """Yield sets of drops: subsets of all idle storages by ``STRIDES``, then the largest storages alone."""
    by_producer = sorted(idle, key=lambda i: (int(model.producer[i.storage]), i.storage, i.drop))
    drops = [i.drop for i in by_producer]
    subsets = [tuple(drop for k, drop in enumerate(drops) if stride == 1 or k % stride) for stride in STRIDES]
    yield from (list(subset) for subset in dict.fromkeys(subsets) if len(subset) > 1)
    flops = model.node_flops[model.producer]
    by_size = sorted(idle, key=lambda i: (-int(model.size[i.storage]), int(flops[i.storage]), i.drop))
    yield from ([largest.drop] for largest in by_size[:MOST_SINGLE])


def _sets_with_operands(idle: list[Idle], search: Search) -> Iterator[list[int]]:
    """Yield sets of drops: of an idle storage that a recomputing run read last, and of the operands to recompute it.

    A set also has the operands of the operands, recursively. All of these would else stay live until the storage is
    recomputed. Operands that the initial choice reads after the peak are left out.
    """
    model = search.model
    for candidate in (candidate for candidate in idle if candidate.drop < 0):
        drops, storages = [candidate.drop], [candidate.storage]
        for storage in storages:  # the loop appends to the list
            n = int(model.producer[storage])
            for edge in range(int(model.in_ptr[n]), int(model.in_ptr[n + 1])):
                operand = int(model.in_idx[edge])
                if model.droppable[operand] and not search.boundary.read_later[operand] and operand not in storages:
                    drops.append(-1 - edge)
                    storages.append(operand)
        if len(drops) > 1:
            yield drops
