"""Sweeps: drop idle storages from the first step to the last, wherever the live bytes exceed the goal.

Dynamic tensor rematerialization (Kirisame et al. 2021) with known next uses: at the first step above the goal, the idle
storages with the least FLOPs per byte and step until their next use are dropped, with the FLOPs of all that has to run
again for them. Recomputed storages are dropped in the same way, so that chains shrink to a few tensors (Griewank 1992).
A sweep starts from a cut or from nothing. The cheapest results are improved: drops are removed where the plan still
fits; one drop after the other is forbidden, and another sweep replaces it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tmmu_core.fitting.recompute.live_curve import Choice, Run, run
from tmmu_core.fitting.recompute.recompute_model import I64, RecomputeModel
from tmmu_core.fitting.recompute.recompute_search import Point, Search

DISTANCES = (1, 0)
"""Exponents of the steps until the next use in the order of drops."""
TRIMMED, IMPROVED = 6, 3
"""Cheapest results whose unneeded drops are removed, and those of them that are improved."""
ROUNDS_OF = 32_000
"""Steps of a graph per round: a round drops at least the steps' part of it of the whole excess."""
MOST_REPLACED = 60
"""Most drops of a result that are forbidden in turn."""

Column = Literal["used", "again", "born"]
Flag = tuple[Column, int]
"""A gap: the column of a choice, and the index in it."""


@dataclass(frozen=True)
class Idle:
    """A storage that is idle at a step, and the gap in which it can be dropped."""

    storage: int
    flag: Flag
    distance: int
    """Steps until its next use."""


def search_sweeps(search: Search, starts: Sequence[Point]) -> list[Point]:
    """Return the cheapest fitting points of sweeps from ``starts``, without drops that are not needed."""
    found: dict[tuple[int, int, int], Point] = {}
    last = search.weighed + search.most // 4
    for distance in DISTANCES:
        for start in starts:
            if search.weighed > last or not search.go_on():
                break
            point = sweep(search, start.choice, distance)
            if point is not None:
                found.setdefault(point.key, point)
    return [remove_drops(search, found[key]) for key in sorted(found)[:TRIMMED]]


def cheapest_of(search: Search, points: Iterable[Point | None]) -> Point | None:
    """Return the cheapest point that fits; ``None`` if none does."""
    fitting = [point for point in points if point is not None and not search.excess(point.run)]
    return min(fitting, key=lambda point: point.key, default=None)


def improve(search: Search, points: Iterable[Point | None]) -> Point | None:
    """Return the cheapest fitting point after improving the cheapest ones; ``None`` if none fits."""
    known = {point.key: point for point in points if point is not None and not search.excess(point.run)}
    starts = [known[key] for key in sorted(known)[:IMPROVED]]
    return cheapest_of(search, [_improved(search, point, search.weighed + search.most // 8) for point in starts])


def sweep(search: Search, choice: Choice, distance: int, forbidden: frozenset[Flag] = frozenset()) -> Point | None:
    """Return the point after drops that make it fit the goal, besides ``forbidden`` ones; ``None`` if it does not fit.

    Each round ends with a later first step above the goal, or fewer bytes there, so that the sweep ends.
    """
    model, arena = search.model, search.arena
    level = int(search.nothing.run.peaks[arena]) - search.excess(search.nothing.run) - int(model.fixed[arena])
    point = search.weigh(choice)
    useless: set[Flag] = set()
    position = -1
    while point.run.valid and search.go_on():
        live = point.run.live[arena]
        over = np.flatnonzero(live > level)
        if not len(over):
            return None if search.excess(point.run) else point
        step = int(over[0])
        if int(point.run.at[step]) != position:
            position = int(point.run.at[step])
            useless = set(forbidden)
        idle = [each for each in idle_at(model, point.run, step, arena) if each.flag not in useless]
        if not idle:
            return None
        share = (int(live.max()) - level) * len(live) // ROUNDS_OF
        flags = _cheapest_drops(search, point.run, step, idle, max(int(live[step]) - level, share), distance)
        tried = search.weigh(with_drops_set(point.choice, flags, True))
        if tried.run.valid and _progresses(point.run, tried.run, arena, level):
            point = tried
        else:
            useless.update(flags)
    return None


def _progresses(before: Run, after: Run, arena: int, level: int) -> bool:
    """Return whether the first step above ``level`` is at a later position, or fewer bytes are live at its peak."""
    over = np.flatnonzero(after.live[arena] > level)
    if not len(over):
        return True
    position = int(before.at[np.flatnonzero(before.live[arena] > level)[0]])
    reached = int(after.at[over[0]])
    if reached != position:
        return reached > position
    peaks = [int(run.live[arena][run.at == position].max()) for run in (before, after)]
    return peaks[1] < peaks[0]


def _cheapest_drops(search: Search, run: Run, step: int, idle: list[Idle], missing: int, distance: int) -> list[Flag]:
    """Return the drops that free ``missing`` bytes at a step, least FLOPs per byte (and step of idleness) first."""
    lives = run.lives
    available = np.zeros(len(search.model.size), np.bool_)
    available[lives.of[(lives.birth <= step) & (lives.last >= step)]] = True
    there, size = available.tolist(), search.model.size
    worth = []
    for each in idle:
        cost = _flops_to_restore(search, there, each.storage) + 1
        worth.append((cost / int(size[each.storage]) / each.distance**distance, each.storage, each.flag))
    flags = []
    for _, storage, flag in sorted(worth):
        flags.append(flag)
        missing -= int(size[storage])
        if missing <= 0:
            break
    return flags


def _flops_to_restore(search: Search, available: list[bool], storage: int) -> int:
    """Return the FLOPs of the producer of a storage and of all that is not available for it."""
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


def idle_at(model: RecomputeModel, run: Run, step: int, arena: int) -> list[Idle]:
    """Return the idle recomputable storages of ``arena`` at ``step``."""
    lives = run.lives
    there = np.flatnonzero((lives.birth < step) & (lives.last > step))
    there = there[model.droppable[lives.of[there]] & (model.arena[lives.of[there]] == arena)]
    reading = np.repeat(np.arange(len(lives.node)), np.diff(lives.read_ptr))
    reads = lives.reads[: len(reading)]
    used, following = np.full(len(lives.of), -1, np.int64), np.full(len(lives.of), -1, np.int64)
    split = int(lives.read_ptr[step])
    used[reads[:split]] = np.arange(split)  # the last assignment wins: reads are in order
    after = int(lives.read_ptr[step + 1])
    following[reads[after:][::-1]] = reading[after:][::-1]
    at_it = set(reads[split:after].tolist())
    found = []
    for life in there.tolist():
        s = int(lives.of[life])
        if life in at_it:
            continue
        flag: Flag
        if used[life] >= 0:
            at = int(reading[used[life]])
            edge = int(model.in_ptr[lives.node[at]] + used[life] - lives.read_ptr[at])
            flag = ("again" if lives.further[at] else "used", edge)
        else:
            at = int(lives.birth[life])
            if lives.further[at]:
                continue  # computed by a recomputing run: no node to write the drop after
            n = int(lives.node[at])
            births = range(int(model.out_ptr[n]), int(model.out_ptr[n + 1]))
            flag = ("born", next(o for o in births if int(model.out_idx[o]) == s))
        found.append(Idle(s, flag, int(following[life]) - step))
    return found


def with_drops_set(choice: Choice, flags: Sequence[Flag], value: bool) -> Choice:
    """Return ``choice`` with the given gaps dropped or kept."""
    made = choice.copy()
    for name, place in flags:
        getattr(made, name)[place] = value
    return made


def drops(search: Search, point: Point) -> list[Flag]:
    """Return the drops of a point, most expensive first."""
    new, model = point.choice - search.begun, search.model
    columns: tuple[tuple[Column, I64], ...] = (
        ("used", model.in_idx),
        ("again", model.in_idx),
        ("born", model.out_idx),
    )
    found: list[tuple[int, Flag]] = []
    for name, storages in columns:
        places = np.flatnonzero(getattr(new, name))
        flops = model.node_flops[model.producer[storages[places]]]
        found += [(-cost, (name, place)) for cost, place in zip(flops.tolist(), places.tolist(), strict=True)]
    return [flag for _, flag in sorted(found)]


def remove_drops(search: Search, point: Point) -> Point:
    """Remove drops one by one, most expensive first, as long as the point fits and gets cheaper."""
    for flag in drops(search, point):
        tried = search.weigh(with_drops_set(point.choice, [flag], False))
        if tried.run.valid and not search.excess(tried.run) and tried.key < point.key:
            point = tried
        if not search.go_on():
            break
    return point


def _improved(search: Search, point: Point, last: int) -> Point:
    """Forbid one drop after the other, most expensive first, and sweep again; keep what is cheaper."""
    point = Point(point.make, run(search.model, point.choice))
    tried: set[Flag] = set()
    while len(tried) < MOST_REPLACED and search.weighed <= last and search.go_on():
        flag = next((flag for flag in drops(search, point) if flag not in tried), None)
        if flag is None or not point.run.flops:
            break
        tried.add(flag)
        other = sweep(search, with_drops_set(point.choice, [flag], False), 1, frozenset([flag]))
        if other is not None:
            point = min(point, remove_drops(search, other), key=lambda each: each.key)
    return point
