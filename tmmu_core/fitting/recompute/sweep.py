"""Sweeps: drop idle storages from the first step to the last, wherever the live bytes exceed the goal.

Dynamic tensor rematerialization (Kirisame et al. 2021) with known next uses: at the first step above the goal, the idle
storages with the least FLOPs per byte and step until their next use are dropped. All nodes that run again count.
Recomputed storages are dropped in the same way, so that chains shrink to a few tensors (Griewank 1992). A sweep starts
from a cut or from nothing. The cheapest results are improved: drops are removed where the plan still fits; one drop
after the other is forbidden, and another sweep replaces it.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tmmu_core.fitting.recompute.live_curve import Choice, Run
from tmmu_core.fitting.recompute.recompute_model import I64, RecomputeModel
from tmmu_core.fitting.recompute.recompute_search import Point, Search

DISTANCES = (1, 0)
"""Exponents of the steps until the next use in the order of drops."""
TRIMMED, IMPROVED = 6, 3
"""Number of cheapest results from which unneeded drops are removed, and number of these that are then improved."""
ROUNDS_OF = 32_000
"""A round removes at least the share n / ``ROUNDS_OF`` of the excess in a graph of n steps."""
MOST_OPERANDS = 8
"""Maximum depth at which operands of dropped storages are dropped too."""
MOST_TRIED = 1_000
"""Maximum number of simulations of one sweep."""
MOST_REPLACED = 60
"""Maximum number of drops of a result that are forbidden, one at a time."""


@dataclass(frozen=True)
class Idle:
    """A storage that is idle at a step, and the drop (``Choice.drops``) that frees it there."""

    storage: int
    drop: int
    distance: int
    """Steps until its next use."""


def search_sweeps(search: Search, starts: Sequence[Point]) -> list[Point]:
    """Return the results of sweeps from ``starts``; unneeded drops are removed from the cheapest that fit."""
    found: dict[tuple[int, int, int], Point] = {}
    last = search.simulations + search.most_simulations // 4
    for distance in DISTANCES:
        for start in starts:
            if search.simulations > last or not search.go_on():
                break
            point = sweep(search, start.choice, distance)
            found.setdefault(point.key, point)
    fitting = [point for point in found.values() if not search.excess(point.run)]
    trimmed = [remove_drops(search, point) for point in sorted(fitting, key=lambda point: point.key)[:TRIMMED]]
    return [*trimmed, *(point for point in found.values() if point.run.valid and search.excess(point.run))]


def cheapest_of(search: Search, points: Iterable[Point | None]) -> Point | None:
    """Return the cheapest point that fits; ``None`` if none does."""
    fitting = [point for point in points if point is not None and point.run.valid and not search.excess(point.run)]
    return min(fitting, key=lambda point: point.key, default=None)


def improve(search: Search, points: Iterable[Point | None]) -> Point | None:
    """Return the cheapest fitting point after improving the cheapest ones; ``None`` if none fits."""
    known = {point.key: point for point in points if point is not None and not search.excess(point.run)}
    starts = [known[key] for key in sorted(known)[:IMPROVED]]
    return cheapest_of(
        search, [_improved(search, point, search.simulations + search.most_simulations // 8) for point in starts]
    )


def sweep(search: Search, choice: Choice, distance: int, forbidden: frozenset[int] = frozenset()) -> Point:
    """Add drops to ``choice`` until the goal is met or no drop helps, and return the point.

    ``forbidden`` drops are not added.

    Each round ends with a later first step above the goal, fewer bytes there, or fewer bytes above the goal in total.
    """
    model, arena = search.model, search.arena
    level = (
        int(search.initial_point.run.peaks[arena]) - search.excess(search.initial_point.run) - int(model.fixed[arena])
    )
    point = search.simulate(choice)
    useless: set[int] = set()
    position = -1
    last = search.simulations + MOST_TRIED
    while point.run.valid and search.simulations < last and search.go_on():
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
        share = (int(live.max()) - level) * len(live) // ROUNDS_OF
        drops = _cheapest_drops(search, point.run, step, idle, max(int(live[step]) - level, share), distance)
        for some in [drops, *([each] for each in drops if len(drops) > 1)]:
            better = _dropped(search, point, some, step, level)
            if better is not None:
                point = better
                break
        else:
            useless.update(drops)
    return point


def _dropped(search: Search, point: Point, drops: Sequence[int], step: int, level: int) -> Point | None:
    """Return the point after ``drops`` at a step above the goal; ``None`` if it is not better.

    The operands of a dropped storage would stay live for its recomputation, so they are dropped as well.
    """
    arena, lives = search.arena, point.run.lives
    known = set(lives.storage[(lives.birth <= step) & (lives.last >= step)].tolist())
    choice = point.choice
    for _ in range(MOST_OPERANDS):
        choice = choice.dropping(drops)
        tried = search.simulate(choice)
        if not tried.run.valid:
            return None
        if _progresses(point.run, tried.run, arena, level):
            return tried
        steps = np.flatnonzero(tried.run.for_position == point.run.for_position[step])
        fullest = int(steps[tried.run.live[arena][steps].argmax()])
        drops = [each.drop for each in idle_at(search.model, tried.run, fullest, arena) if each.storage not in known]
        if not drops:
            return None
    return None


def _progresses(before: Run, after: Run, arena: int, level: int) -> bool:
    """Return whether the first step above ``level`` is later, its peak is lower, or fewer bytes are above in all."""
    over = np.flatnonzero(after.live[arena] > level)
    if not len(over):
        return True
    position = int(before.for_position[np.flatnonzero(before.live[arena] > level)[0]])
    reached = int(after.for_position[over[0]])
    peaks = [int(run.live[arena][run.for_position == position].max()) for run in (before, after)]
    above = [bytes_above(run.live[arena], level) for run in (before, after)]
    return reached > position or (reached == position and peaks[1] < peaks[0]) or above[1] < above[0]


def bytes_above(live: I64, level: int) -> int:
    """Return the bytes above ``level``, summed over the steps."""
    return int((live[live > level] - level).sum())


def _cheapest_drops(search: Search, run: Run, step: int, idle: list[Idle], missing: int, distance: int) -> list[int]:
    """Return the drops that free ``missing`` bytes at a step, least FLOPs per byte (and idle step) first."""
    lives = run.lives
    available = np.zeros(len(search.model.size), np.bool_)
    available[lives.storage[(lives.birth <= step) & (lives.last >= step)]] = True
    is_available, size = available.tolist(), search.model.size
    worth = []
    for each in idle:
        cost = _flops_to_restore(search, is_available, each.storage) + 1
        worth.append((cost / int(size[each.storage]) / each.distance**distance, each.storage, each.drop))
    drops = []
    for _, storage, drop in sorted(worth):
        drops.append(drop)
        missing -= int(size[storage])
        if missing <= 0:
            break
    return drops


def _flops_to_restore(search: Search, available: list[bool], storage: int) -> int:
    """Return the FLOPs to recompute a storage, including those of its operands that are not available."""
    producer, flops, operands = search.columns
    seen: set[int] = set()
    total, pending = 0, [producer[storage]]
    while pending:
        n = pending.pop()
        if n < 0 or n in seen:
            continue
        seen.add(n)
        total += flops[n]
        pending += [producer[z] for z in operands[n] if not available[z]]
    return total


def idle_at(model: RecomputeModel, run: Run, step: int, arena: int, useless: Collection[int] = ()) -> list[Idle]:
    """Return the idle recomputable storages of ``arena`` at ``step``, with drops that are not ``useless``.

    If a recomputing run used the storage last, it is dropped after all such runs of the node, if possible.
    """
    lives = run.lives
    candidates = np.flatnonzero((lives.birth < step) & (lives.last > step))
    of = lives.storage[candidates]
    candidates = candidates[model.droppable[of] & (model.arena[of] == arena) & (model.size[of] > 0)]
    reading = np.repeat(np.arange(len(lives.node)), np.diff(lives.read_ptr))
    reads = lives.reads[: len(reading)]
    used, following = np.full(len(lives.storage), -1, np.int64), np.full(len(lives.storage), -1, np.int64)
    split, after = int(lives.read_ptr[step]), int(lives.read_ptr[step + 1])
    used[reads[:split]] = np.arange(split)  # the last assignment wins: reads are in order
    following[reads[after:][::-1]] = reading[after:][::-1]
    found = []
    for life in candidates[~np.isin(candidates, reads[split:after])].tolist():
        s, read = int(lives.storage[life]), int(used[life])
        at = int(reading[read]) if read >= 0 else int(lives.birth[life])
        drops = [int(run.for_position[at]) * len(model.size) + s]
        if read >= 0 and lives.is_rerun[at]:
            drops.insert(0, int(lives.read_ptr[at] - read - 1 - model.in_ptr[lives.node[at]]))
        elif run.for_position[at] == run.for_position[step]:
            continue
        drop = next((drop for drop in drops if drop not in useless), None)
        if drop is not None:
            found.append(Idle(s, drop, int(following[life]) - step))
    return found


def drops_by_cost(search: Search, point: Point) -> list[int]:
    """Return the drops of a point, most expensive first."""
    new = point.choice - search.initial
    flops = search.model.node_flops[search.model.producer[new.storages(search.model)]]
    drops: list[int] = new.drops[np.lexsort((new.drops, -flops))].tolist()
    return drops


def remove_drops(search: Search, point: Point) -> Point:
    """Remove drops one by one, most expensive first, as long as the point fits and gets cheaper."""
    for drop in drops_by_cost(search, point):
        tried = search.simulate(point.choice.keeping([drop]))
        if tried.run.valid and not search.excess(tried.run) and tried.key < point.key:
            point = tried
        if not search.go_on():
            break
    return point


def _improved(search: Search, point: Point, last: int) -> Point:
    """Forbid one drop after the other, most expensive first, and sweep again; keep cheaper results."""
    point = search.simulate(point.choice)
    tried: set[int] = set()
    while len(tried) < MOST_REPLACED and search.simulations <= last and search.go_on():
        drop = next((drop for drop in drops_by_cost(search, point) if drop not in tried), None)
        if drop is None or not point.run.flops:
            break
        tried.add(drop)
        other = sweep(search, point.choice.keeping([drop]), 1, frozenset([drop]))
        if other.run.valid and not search.excess(other.run):
            point = min(point, remove_drops(search, other), key=lambda each: each.key)
    return point
