"""Nested recomputation: drop recomputed storages again, wherever they are idle at the peak.

A cut across the peak (``min_cut.py``) recomputes a whole stretch at once: a chain of n equal tensors needs 2·√n of
them. Here every storage that is idle at a step above the goal, recomputed ones included, can be dropped after its
last use and recomputed from what is kept: a chain shrinks to a few tensors, at more FLOPs (Griewank 1992). Greedy:
take the drop with the best ratio of excess bytes to FLOPs, repeat, and keep unnecessary drops again at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tmmu_core.fitting.recompute.live_curve import Choice, Run
from tmmu_core.fitting.recompute.recompute_model import I64, RecomputeModel
from tmmu_core.fitting.recompute.recompute_search import Point, Search

MOST_STEPS = 40
"""Most steps above the goal whose idle storages are tried, from the peak down."""
GOALS = ((100, 1), (100, 4), (104, 1), (110, 1), (120, 1), (150, 1))
"""(percent, part): the goal as a percentage of the excess, and the part of the peak that one drop considers."""
TRIMMED = 3
STRIDES = (1, 2, 3, 4, 6)
"""Subsets that are tried together: all idle storages, all but every second, all but every third, …."""
MOST_SINGLE = 24
"""Idle storages tried alone, largest first."""

Flag = tuple[Literal["used", "again", "born"], int]
"""A gap: the column of a choice, and the index in it."""


@dataclass(frozen=True)
class Idle:
    """A storage that is idle at a step, and the gap in which it can be dropped."""

    storage: int
    flag: Flag
    maker: int
    """Position of the node that computes it."""


def search_nested(search: Search, starts: Sequence[Point]) -> list[Point]:
    """Return points on paths from ``starts`` towards the goal; those that fit are trimmed.

    Each path is walked towards the goal and towards tighter goals, whose drops are often better placed. A path ends
    when no drop helps, or the search budget is spent.
    """
    found: list[Point] = []
    for start in starts:
        last = search.weighed + search.most
        for way in GOALS:
            found += _way(search, Point(start.make, search.weigh(start.choice).run), way, last)
            if not search.go_on():
                return found
            if search.weighed > last:
                break
    fitting = [point for point in found if not search.excess(point.run)]
    trimmed = [_remove_drops(search, point) for point in sorted(fitting, key=lambda point: point.key)[:TRIMMED]]
    return [*found, *trimmed]


def _way(search: Search, point: Point, way: tuple[int, int], last: int) -> Iterator[Point]:
    beyond, part = way
    goal = search.excess(point.run) * beyond // 100
    begun, fixed = int(point.run.peaks[search.arena]), int(search.model.fixed[search.arena])
    while search.weighed <= last and search.go_on():
        peak = int(point.run.peaks[search.arena])
        top, over = peak - fixed, goal - (begun - peak)
        better = _step(search, point, top - min(over, top // part))
        if better is None:
            return
        point = better
        yield point


def _step(search: Search, point: Point, level: int) -> Point | None:
    """Return the point after the best further drop, or several together, that reduces the bytes above ``level``."""
    model, run = search.model, point.run
    live = run.live[search.arena]
    above = _above(live, level)
    full = np.flatnonzero(live > level)
    looked: set[int] = set()
    for step in full[np.lexsort((full, -live[full]))].tolist():
        position = int(run.at[step])
        if position in looked:
            continue
        if len(looked) == MOST_STEPS:
            return None
        looked.add(position)
        best: tuple[float, Point] | None = None
        for flags in _offers(idle_at(model, run, step, search.arena), model):
            tried = search.weigh(_with(point.choice, flags, True))
            if not tried.run.valid:
                continue
            less = above - _above(tried.run.live[search.arena], level)
            if less <= 0:
                continue
            worth = less / (1 + max(0, tried.run.flops - run.flops))
            if best is None or worth > best[0]:
                best = worth, tried
        if best is not None:
            return best[1]
    return None


def _above(live: I64, level: int) -> int:
    """Return the bytes above ``level``, summed over the steps."""
    return int((live[live > level] - level).sum())


def idle_at(model: RecomputeModel, run: Run, step: int, arena: int) -> list[Idle]:
    """Return the idle recomputable storages of ``arena`` at ``step``, by the position of their maker."""
    lives = run.lives
    there = np.flatnonzero((lives.birth < step) & (lives.last > step))
    there = there[model.droppable[lives.of[there]] & (model.arena[lives.of[there]] == arena)]
    reading = np.repeat(np.arange(len(lives.node)), np.diff(lives.read_ptr))
    reads = lives.reads[: len(reading)]
    used = np.full(len(lives.of), -1, np.int64)
    before = np.flatnonzero(reading < step)
    used[reads[before]] = before  # the last assignment wins: reads are in order
    at_it = set(reads[lives.read_ptr[step] : lives.read_ptr[step + 1]].tolist())
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
        found.append(Idle(s, flag, int(model.producer[s])))
    return sorted(found, key=lambda each: (each.maker, each.storage, each.flag))


def _offers(idle: list[Idle], model: RecomputeModel) -> Iterator[list[Flag]]:
    """Yield sets of drops: all together, all but every k-th, and the largest alone."""
    seen = set()
    for stride in STRIDES:
        flags = tuple(each.flag for k, each in enumerate(idle) if stride == 1 or k % stride)
        if len(flags) > 1 and flags not in seen:
            seen.add(flags)
            yield list(flags)
    alone = sorted(
        idle, key=lambda each: (-int(model.size[each.storage]), int(model.node_flops[each.maker]), each.flag)
    )
    for each in alone[:MOST_SINGLE]:
        yield [each.flag]


def _with(choice: Choice, flags: list[Flag], value: bool) -> Choice:
    made = choice.copy()
    for name, place in flags:
        getattr(made, name)[place] = value
    return made


def _remove_drops(search: Search, point: Point) -> Point:
    """Remove drops one by one, most expensive first, as long as the point fits and gets cheaper."""
    new = point.choice - search.begun
    model = search.model
    drops: list[tuple[int, Flag]] = []
    for name, storages in (("used", model.in_idx), ("again", model.in_idx), ("born", model.out_idx)):
        for place in np.flatnonzero(getattr(new, name)).tolist():
            maker = int(model.producer[storages[place]])
            drops.append((int(model.node_flops[maker]), (name, place)))  # type: ignore[arg-type]
    for _, flag in sorted(drops, key=lambda pair: (-pair[0], pair[1])):
        tried = search.weigh(_with(point.choice, [flag], False))
        if tried.run.valid and not search.excess(tried.run) and tried.key < point.key:
            point = tried
        if not search.go_on():
            break
    return point
