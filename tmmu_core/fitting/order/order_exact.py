"""Optimal order by dynamic programming over node sets: the path with the least peak.

Best-first search over sets of executed units (Ahn et al., "Ordering chaos: memory-aware scheduling of irregularly wired
neural networks for edge devices" (Serenity), MLSys 2020): the first complete path is optimal. If the search is stopped
earlier, the peak of the next set is a lower bound. With several arenas, each path has a vector of peaks: all
non-dominated vectors of a set are kept, and their sum is minimised.

A ready unit that does not exceed the peak and does not increase the live bytes runs immediately: it frees at least as
much now as later. Exception: a unit that touches a storage which a larger output could reuse in place.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from heapq import heappop, heappush
from operator import or_

import numpy as np

from tmmu_core.fitting.order.order_loops import I64, OrderLists
from tmmu_core.fitting.order.order_model import OrderModel

Peaks = tuple[int, ...]
WIDTH = 24
"""Maximum number of sets of one size that the beam search keeps."""
TRIED = 120_000
"""Expansions of the beam search, shared equally by the set sizes; the beam is halved if the sets so far exceed their
share."""


@dataclass(frozen=True)
class Proof:
    """The result of the best-first search."""

    order: tuple[int, ...] | None
    """The units in order, with a peak below the upper bound; ``None`` if none is found."""
    bound: int
    """Lower bound of the sum of the arenas' peaks, in bytes."""
    tried: int
    """Number of expansions."""


class OrderStates(OrderLists):
    """Sets of units as bit masks, and the memory change of running a unit at a set."""

    def __init__(self, model: OrderModel) -> None:
        super().__init__(model)
        count = len(model)
        self.all = (1 << count) - 1
        self.tried = 0
        """Number of expansions so far."""
        arenas = model.variable_arenas
        self.arena_of = [arenas.index(a) if a in arenas else 0 for a in model.arena.tolist()]
        self.width = max(1, len(arenas))
        self.constant = int(model.constant.sum())
        self.storages_of = [{s for node in nodes for s in self.touches[node]} for nodes in model.units]
        """Unit → storages that it touches."""
        self.touchers = [0] * len(self.size)
        """Storage → units that touch it."""
        for unit, storages in enumerate(self.storages_of):
            for s in storages:
                self.touchers[s] |= 1 << unit
        self.neighbours = [reduce(or_, (self.touchers[s] for s in storages), 0) for storages in self.storages_of]
        """Unit → units that touch the same storages, on which its memory change depends."""
        self.before = [sum(1 << other for other in row) for row in model.predecessors]
        self.later = model.successors
        self.runs_anytime = self._runs_anytime()
        self._known: list[dict[int, tuple[Peaks, Peaks]]] = [{} for _ in range(count)]

    def _runs_anytime(self) -> list[bool]:
        """Return per unit whether it may run immediately (not the exception in the module docstring)."""
        reusable: set[int] = set()
        for candidates in self.candidates:
            if len({self.size[s] for s in candidates}) > 1:
                reusable |= set(candidates)
        return [reusable.isdisjoint(storages) for storages in self.storages_of]

    @property
    def ready(self) -> int:
        """The units that wait for no other unit, as a bit mask."""
        return sum(1 << unit for unit, before in enumerate(self.before) if not before)

    def start(self) -> tuple[Peaks, Peaks]:
        """Return (peaks, live bytes) before the first unit."""
        peaks, live = [0] * self.width, [0] * self.width
        for s in np.flatnonzero(self.starts_live).tolist():
            peaks[self.arena_of[s]] += self.size[s]
            if self.stays_live[s] or self.touched_by[s]:
                live[self.arena_of[s]] += self.size[s]
        return tuple(peaks), tuple(live)

    def adds(self, unit: int, done: int) -> tuple[Peaks, Peaks]:
        """Return the live bytes that ``unit`` adds, by arena: the maximum while it runs, and after it.

        ``done`` are the units that ran before, as a bit mask.
        """
        self.tried += 1
        known = self._known[unit]
        key = done & self.neighbours[unit]
        if key not in known:
            known[key] = self._adds(unit, done)
        return known[key]

    def _adds(self, unit: int, done: int) -> tuple[Peaks, Peaks]:
        storages, waiting = self.storages_of[unit], ~done & ~(1 << unit)
        born = {s: self.starts_live[s] or self.touchers[s] & done for s in storages}
        left = {s: 1 if self.touchers[s] & waiting else 0 for s in storages}  # one for all later units
        for node in self.model.units[unit]:
            for s in self.touches[node]:
                left[s] += 1
        most, live = [-(1 << 62)] * self.width, [0] * self.width
        for allocated, reused, freed in self.steps(unit, born, left):
            for s in allocated:
                live[self.arena_of[s]] += self.size[s]
            for a in range(self.width):
                less = self.size[reused] if reused >= 0 and self.arena_of[reused] == a else 0
                most[a] = max(most[a], live[a] - less)
            for s in freed:
                live[self.arena_of[s]] -= self.size[s]
        return tuple(most), tuple(live)

    def lower_bound(self) -> Peaks:
        """Return by arena a lower bound of the peak: the most bytes that a unit needs in every order."""
        count, storages = len(self.model), len(self.size)
        above = np.zeros((count, count), np.bool_)
        for unit in range(count):  # units come in a valid order
            for p in bits(self.before[unit]):
                above[unit] |= above[p]
                above[unit, p] = True
        below, same_or_above = np.ascontiguousarray(above.T), above | np.eye(count, dtype=np.bool_)
        begun, after, mine, all_before = np.zeros((4, storages, count), np.bool_)
        for s, touchers in enumerate(map(bits, self.touchers)):
            begun[s], after[s] = below[touchers].any(0), above[touchers].any(0)
            mine[s, touchers], all_before[s] = True, same_or_above[touchers].all(0)
        begun |= np.array(self.starts_live, np.bool_)[:, None]
        needed = mine | np.array(self.stays_live, np.bool_)[:, None] | after
        # A unit of one node creates a storage that all other units touch after it.
        single = np.array([len(nodes) == 1 for nodes in self.model.units], np.bool_)
        first = mine & single & all_before
        is_live = (begun & needed) | first
        found = [0] * self.width
        sizes, arenas = np.array(self.size, np.int64), np.array(self.arena_of, np.int64)
        for a in range(self.width):
            least = np.where(arenas == a, sizes, 0) @ is_live
            for unit, nodes in enumerate(self.model.units):
                reusable = [self.size[s] for node in nodes for s in self.candidates[node] if self.arena_of[s] == a]
                least[unit] -= max(reusable, default=0)
            found[a] = int(least.max(initial=0))
        return tuple(found)


def bits(mask: int) -> list[int]:
    """Return the positions of the ones, ascending."""
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found


def best_first_search(
    walk: OrderStates,
    upper: int,
    *,
    floor: Peaks | None = None,
    budget: int = 200_000,
    go_on: Callable[[int], bool] | None = None,
) -> Proof:
    """Return the best order below ``upper`` (a sum of peaks with constants), or a proof that there is none.

    ``floor`` is a lower bound of each arena's peak. ``budget`` limits the expansions.
    """
    peaks, live = walk.start()
    if floor is not None:
        peaks = tuple(map(max, peaks, floor))
    ready = walk.ready
    rows: dict[int, list[Peaks]] = {0: [peaks]}
    paths: list[tuple[int, tuple[int, ...]]] = [(-1, ())]
    heap: list[tuple[int, int, int, int, int, Peaks, Peaks]] = [(sum(peaks), 0, 0, 0, ready, peaks, live)]
    tried_before = walk.tried
    while heap:
        value, _, path_index, done, ready, peaks, live = heappop(heap)
        if value + walk.constant >= upper:
            return Proof(None, upper, walk.tried - tried_before)
        if peaks not in rows.get(done, ()):
            continue
        done, ready, live, ran = run_free_units(walk, done, ready, peaks, live)
        if ran:
            reached = rows.setdefault(done, [])
            if any(all(map(int.__le__, row, peaks)) for row in reached):
                continue
            reached.append(peaks)
            paths.append((path_index, ran))
            path_index = len(paths) - 1
        if done == walk.all:
            return Proof(order_of(paths, path_index), value + walk.constant, walk.tried - tried_before)
        tried = walk.tried - tried_before
        if tried > budget or (go_on is not None and not go_on(tried)):
            return Proof(None, value + walk.constant, walk.tried - tried_before)
        for unit in bits(ready):
            during, after = walk.adds(unit, done)
            top = tuple(max(p, b + d) for p, b, d in zip(peaks, live, during, strict=True))
            total = sum(top)
            if total + walk.constant >= upper:
                continue
            then = done | 1 << unit
            known = rows.get(then)
            if known is None:
                rows[then] = [top]
            else:
                if any(all(map(int.__le__, row, top)) for row in known):
                    continue
                rows[then] = [row for row in known if not all(map(int.__le__, top, row))] + [top]
            paths.append((path_index, (unit,)))
            live_after = tuple(map(int.__add__, live, after))
            heappush(
                heap,
                (total, -then.bit_count(), len(paths) - 1, then, ready_after(walk, unit, then, ready), top, live_after),
            )
    return Proof(None, upper, walk.tried - tried_before)


def orders_within(walk: OrderStates, limit: int, most: int, tries: int = 20_000) -> Iterator[tuple[int, ...]]:
    """Yield up to ``most`` orders with a sum of peaks of at most ``limit``, constants included.

    ``tries`` limits the expansions. A set without a result is not visited again with equal or higher peaks.
    """
    peaks, live = walk.start()
    ready = walk.ready
    dead: dict[int, list[Peaks]] = {}
    # A frame: a set, its ready units and peaks, the units left to try, the orders yielded before it was entered.
    stack = [(0, ready, peaks, live, bits(ready), 0)]
    path: list[int] = []
    found = tried = 0
    while stack:
        done, ready, peaks, live, untried, before = stack[-1]
        if done == walk.all:
            found += 1
            yield tuple(path)
        if done == walk.all or not untried or found >= most or tried >= tries:
            stack.pop()
            if path:
                path.pop()
            if found == before:
                dead.setdefault(done, []).append(peaks)
            continue
        unit = untried.pop(0)
        tried += 1
        during, after = walk.adds(unit, done)
        top = tuple(max(p, b + d) for p, b, d in zip(peaks, live, during, strict=True))
        then = done | 1 << unit
        worse = any(all(map(int.__le__, row, top)) for row in dead.get(then, ()))
        if sum(top) + walk.constant > limit or worse:
            continue
        now = ready_after(walk, unit, then, ready)
        path.append(unit)
        stack.append((then, now, top, tuple(map(int.__add__, live, after)), bits(now), found))


def beam(walk: OrderStates, upper: int, go_on: Callable[[], bool], width: int = WIDTH) -> tuple[int, ...] | None:
    """Return an order whose sum of peaks, with constants, is below ``upper``; ``None`` if none is found.

    A beam search over sets of executed units, which keeps the best few sets of each size, ranked by the peak so
    far, then by live bytes, then by the executed units, so that the result is deterministic. O(units · width · ready).
    """
    count = len(walk.before)
    peaks, live = walk.start()
    ready = walk.ready
    paths: list[tuple[int, tuple[int, ...]]] = [(-1, ())]
    front: dict[int, tuple[Peaks, Peaks, int, int]] = {0: (peaks, live, ready, 0)}
    tried_before = walk.tried
    while front and go_on():
        # Narrow the beam when the budget per set size is exceeded.
        level = next(iter(front)).bit_count()
        if walk.tried - tried_before > TRIED * (level + 1) // count + TRIED // 8:
            width = max(1, width // 2)
        following: dict[int, tuple[Peaks, Peaks, int, int]] = {}
        for done, (peaks, live, ready, path_index) in front.items():
            done, ready, live, ran = run_free_units(walk, done, ready, peaks, live)
            if ran:
                paths.append((path_index, ran))
                path_index = len(paths) - 1
            if done == walk.all:
                return order_of(paths, path_index)
            for unit in bits(ready):
                during, after = walk.adds(unit, done)
                top = tuple(max(p, b + d) for p, b, d in zip(peaks, live, during, strict=True))
                if sum(top) + walk.constant >= upper:
                    continue
                then = done | 1 << unit
                live_after = tuple(map(int.__add__, live, after))
                known = following.get(then)
                if known is None or (sum(top), sum(live_after)) < (sum(known[0]), sum(known[1])):
                    paths.append((path_index, (unit,)))
                    following[then] = (top, live_after, ready_after(walk, unit, then, ready), len(paths) - 1)
        ranked = sorted(following.items(), key=lambda item: (sum(item[1][0]), sum(item[1][1]), item[0]))
        front = dict(ranked[:width])
    return None


def ready_after(walk: OrderStates, unit: int, done: int, ready: int) -> int:
    """Return the ready units as a bit mask after ``unit``, the last of ``done``."""
    ready &= ~(1 << unit)
    for later in walk.later[unit]:
        if not walk.before[later] & ~done:
            ready |= 1 << later
    return ready


def run_free_units(
    walk: OrderStates, done: int, ready: int, peaks: Peaks, live: Peaks
) -> tuple[int, int, Peaks, tuple[int, ...]]:
    """Run all ready units that do not raise the peak or the live bytes.

    Return the sets of executed and ready units, the live bytes, and the units that ran.
    """
    ran: list[int] = []
    again = True
    while again:
        again = False
        for unit in bits(ready):
            if not walk.runs_anytime[unit]:
                continue
            during, after = walk.adds(unit, done)
            if max(after) <= 0 and all(b + d <= p for p, b, d in zip(peaks, live, during, strict=True)):
                ran.append(unit)
                done |= 1 << unit
                ready = ready_after(walk, unit, done, ready)
                live = tuple(map(int.__add__, live, after))
                again = True
    return done, ready, live, tuple(ran)


def order_of(paths: list[tuple[int, tuple[int, ...]]], path_index: int) -> tuple[int, ...]:
    """Return the units along a path; ``paths`` has ``(index of the parent, units)`` per step of the search tree."""
    parts = []
    while path_index >= 0:
        path_index, units = paths[path_index]
        parts.append(units)
    return tuple(unit for units in reversed(parts) for unit in units)


def order_array(order: tuple[int, ...]) -> I64:
    """Return an order as an array."""
    return np.array(order, np.int64)
