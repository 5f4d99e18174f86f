"""Below what one cut reaches: what is made again is let go of again, wherever it lies idle at the fullest step.

A cut across the peak (``search.py``) holds some storages and makes the others again in one go, so that all of a stretch
is there together: a chain of n equal tensors comes to 2·√n of them. Here whatever is idle at a step that is too full,
further runs included, may be dropped after its use before, to be made again from what is held: a chain goes on down to
a handful of tensors, at ever more FLOPs (Griewank 1992 counts them). Greedy: the drop that takes most off the bytes
above the goal for its FLOPs, then the next; at the end what turned out not to be needed is held again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tmmu_core.fit.recompute.model import I64, RecomputeModel
from tmmu_core.fit.recompute.search import Point, Search
from tmmu_core.fit.recompute.simulate import Choice, Run

STEPS_LOOKED_AT = 40
"""Steps above the goal whose idle storages are tried, from the fullest down, where the one before offers nothing."""
WAYS = ((100, 1), (100, 4), (104, 1), (110, 1), (120, 1), (150, 1))
"""Percent of what is over the goal that a way is walked for, and the part of the fullest step's bytes that one drop
looks at: all that is above the goal, or no more than a quarter of them, where the goal is far away."""
TRIMMED = 3
STRIDES = (1, 2, 3, 4, 6)
"""Together are tried: all that is idle there, all but every second, every third … of them."""
SINGLY = 24
"""Idle storages tried alone, the largest first."""

Flag = tuple[Literal["used", "again", "born"], int]
"""A gap: which of a choice's columns, and the place in it."""


@dataclass(frozen=True)
class Idle:
    """A storage that lies at a step and is read before and behind it, and the gap in which it could be dropped."""

    storage: int
    flag: Flag
    maker: int
    """Position of the node that makes it."""


def deepened(search: Search, starts: Sequence[Point]) -> list[Point]:
    """Points on the ways from ``starts``, which are over the goal, ever closer to it; those that fit are trimmed.

    Each way is walked towards the goal and towards ones beyond it: what is dropped on the way to less is often dropped
    in better places. Every point is weighed as it would be written. A way ends where no further drop helps, or the
    search has weighed enough from its start.
    """
    found: list[Point] = []
    for start in starts:
        last = search.weighed + search.most
        for way in WAYS:
            found += _way(search, Point(start.make, search.weigh(start.choice).run), way, last)
            if not search.go_on():
                return found
            if search.weighed > last:
                break
    fitting = [point for point in found if not search.excess(point.run)]
    trimmed = [_held_again(search, point) for point in sorted(fitting, key=lambda point: point.key)[:TRIMMED]]
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
    """One more drop, or several together, so that less is above ``level``."""
    model, run = search.model, point.run
    live = run.live[search.arena]
    above = _above(live, level)
    full = np.flatnonzero(live > level)
    looked: set[int] = set()
    for step in full[np.lexsort((full, -live[full]))].tolist():
        position = int(run.at[step])
        if position in looked:
            continue
        if len(looked) == STEPS_LOOKED_AT:
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
    """Bytes above ``level``, summed over the steps."""
    return int((live[live > level] - level).sum())


def idle_at(model: RecomputeModel, run: Run, step: int, arena: int) -> list[Idle]:
    """What lies idle in ``arena`` at ``step`` of ``run`` and can be made again, by the position of its maker."""
    lives = run.lives
    there = np.flatnonzero((lives.birth < step) & (lives.last > step))
    there = there[model.droppable[lives.of[there]] & (model.arena[lives.of[there]] == arena)]
    reading = np.repeat(np.arange(len(lives.node)), np.diff(lives.read_ptr))
    reads = lives.reads[: len(reading)]
    used = np.full(len(lives.of), -1, np.int64)
    before = np.flatnonzero(reading < step)
    used[reads[before]] = before  # the last assignment stays: reads come in order
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
                continue  # made on the way: nothing to write the drop after
            n = int(lives.node[at])
            births = range(int(model.out_ptr[n]), int(model.out_ptr[n + 1]))
            flag = ("born", next(o for o in births if int(model.out_idx[o]) == s))
        found.append(Idle(s, flag, int(model.producer[s])))
    return sorted(found, key=lambda each: (each.maker, each.storage, each.flag))


def _offers(idle: list[Idle], model: RecomputeModel) -> Iterator[list[Flag]]:
    """All together, all but every so-manieth, and the largest alone."""
    seen = set()
    for stride in STRIDES:
        flags = tuple(each.flag for k, each in enumerate(idle) if stride == 1 or k % stride)
        if len(flags) > 1 and flags not in seen:
            seen.add(flags)
            yield list(flags)
    alone = sorted(idle, key=lambda each: (-int(model.size[each.storage]), int(model.made_of[each.maker]), each.flag))
    for each in alone[:SINGLY]:
        yield [each.flag]


def _with(choice: Choice, flags: list[Flag], value: bool) -> Choice:
    made = choice.copy()
    for name, place in flags:
        getattr(made, name)[place] = value
    return made


def _held_again(search: Search, point: Point) -> Point:
    """Drops taken back one by one, the dearest first, as long as all fits and gets cheaper."""
    new = point.choice - search.begun
    model = search.model
    drops: list[tuple[int, Flag]] = []
    for name, storages in (("used", model.in_idx), ("again", model.in_idx), ("born", model.out_idx)):
        for place in np.flatnonzero(getattr(new, name)).tolist():
            maker = int(model.producer[storages[place]])
            drops.append((int(model.made_of[maker]), (name, place)))  # type: ignore[arg-type]
    for _, flag in sorted(drops, key=lambda pair: (-pair[0], pair[1])):
        tried = search.weigh(_with(point.choice, [flag], False))
        if tried.run.valid and not search.excess(tried.run) and tried.key < point.key:
            point = tried
        if not search.go_on():
            break
    return point
