"""Best-first search for an optimal order over sets of executed units, and beam search for a good order.

A path is units (``order_model.py``) that run one after the other. Best-first search takes the path with the lowest peak
from a queue, and adds each path that is one unit longer. So the first complete path that it takes is optimal (Ahn et
al., "Ordering chaos: memory-aware scheduling of irregularly wired neural networks for edge devices" (Serenity), MLSys
2020). If the search stops earlier, the lowest peak in the queue is a lower bound. Two paths of the same units end with
the same live bytes, so only the one with the lower peak is kept. With several arenas, the search minimises the sum of
their peaks, and keeps both paths unless one of them is at most as high in every arena.

A ready unit runs immediately if it neither raises the peak of the path nor adds live bytes: to run it first is never
worse. Exception: if an output can reuse one of several storages in place, and these differ in size, the order of the
units that touch them decides which one is reused. So these units do not run immediately.
"""

from collections.abc import Callable, Iterable
from functools import reduce
from heapq import heappop, heappush
from itertools import count
from operator import or_
from typing import Any, NamedTuple

import numpy as np

from tmmu_core.fitting.order.order_memory import Bytes, OrderLists
from tmmu_core.fitting.order.order_model import I64, OrderModel

BEAM_WIDTH = 24  # maximum number of sets that a round of the beam search keeps
BEAM_EXPANSIONS = 120_000  # planned expansions of the whole beam search, in equal parts for all units


class State(NamedTuple):
    """The set of units that a path has executed, with the memory of this path."""

    done: int  # executed units, as a bit mask
    ready: int  # units that can run next, as a bit mask
    peaks: Bytes  # peak of each arena along the path
    live: Bytes  # live bytes of each arena
    path: Any = ()  # the path, as (path before the last unit, last unit); empty at the start

    @property
    def order(self) -> I64:
        """The units along the path."""
        units, path = [], self.path
        while path:
            path, unit = path
            units.append(unit)
        return np.array(units[::-1], np.int64)

    @property
    def rank(self) -> tuple[int, int]:
        """Sort key: sum of peaks, then of live bytes."""
        return sum(self.peaks), sum(self.live)


class Proof(NamedTuple):
    """The result of the best-first search."""

    order: I64 | None  # the units in order, with a peak below the upper bound; ``None`` if none is found
    bound: int  # lower bound of the sum of the arenas' peaks, in bytes


class OrderStates(OrderLists):
    """Sets of units as bit masks, and the memory change of a unit that runs after a set."""

    def __init__(self, model: OrderModel) -> None:
        arenas = model.variable_arenas
        super().__init__(model, [arenas.index(a) if a in arenas else 0 for a in model.arena.tolist()])
        self.all = (1 << len(model)) - 1
        self.expansions = 0  # number of calls of ``memory_change``
        self.constant = int(model.constant.sum())  # bytes that are live at every step
        self.accessors = [0] * len(self.size)  # storage → units that touch it, as a bit mask
        for unit, storages in enumerate(self.storages_of):
            for s in storages:
                self.accessors[s] |= 1 << unit
        self.neighbours = [reduce(or_, (self.accessors[s] for s in storages), 0) for storages in self.storages_of]
        """Unit → units that touch one of its storages. Which of these have run decides the unit's memory change."""
        self.before = [sum(1 << other for other in row) for row in model.predecessors]
        reusable = {s for row in self.candidates if len({self.size[s] for s in row}) > 1 for s in row}
        self.may_run_immediately = [reusable.isdisjoint(storages) for storages in self.storages_of]
        """Unit → whether it may run immediately (module docstring)."""
        self._change_at: list[dict[int, tuple[Bytes, Bytes]]] = [{} for _ in model.units]
        """Unit → neighbours that ran before it, as a bit mask → result of ``memory_change``."""

    def start(self) -> State:
        """Return the state before the first unit."""
        peaks, live = [0] * self.arena_count, [0] * self.arena_count
        for s in np.flatnonzero(self.starts_live).tolist():
            peaks[self.arena_of[s]] += self.size[s]
            if self.stays_live[s] or self.touched_by[s]:
                live[self.arena_of[s]] += self.size[s]
        ready = sum(1 << unit for unit, before in enumerate(self.before) if not before)
        return State(0, ready, tuple(peaks), tuple(live))

    def run(self, state: State, unit: int, limit: int) -> State | None:
        """Return the state after a unit; ``None`` if the sum of peaks, with constants, exceeds ``limit``."""
        during, after = self.memory_change(unit, state.done)
        peaks = tuple(max(peak, live + most) for peak, live, most in zip(state.peaks, state.live, during, strict=True))
        return None if sum(peaks) + self.constant > limit else self._after(state, unit, peaks, after)

    def run_immediate_units(self, state: State) -> State:
        """Return the state after all units that run immediately (module docstring)."""
        again = True
        while again:
            again = False
            for unit in bits(state.ready):
                if not self.may_run_immediately[unit]:
                    continue
                during, after = self.memory_change(unit, state.done)
                rows = zip(state.peaks, state.live, during, strict=True)
                if max(after) <= 0 and all(live + most <= peak for peak, live, most in rows):
                    state, again = self._after(state, unit, state.peaks, after), True
        return state

    def _after(self, state: State, unit: int, peaks: Bytes, added: Bytes) -> State:
        done, ready = state.done | 1 << unit, state.ready & ~(1 << unit)
        for later in self.model.successors[unit]:
            if not self.before[later] & ~done:
                ready |= 1 << later
        return State(done, ready, peaks, tuple(map(int.__add__, state.live, added)), (state.path, unit))

    def memory_change(self, unit: int, done: int) -> tuple[Bytes, Bytes]:
        """Return, by arena, the most bytes that ``unit`` adds while it runs after ``done``, and the change after it."""
        self.expansions += 1
        key = done & self.neighbours[unit]
        if key not in self._change_at[unit]:
            storages, waiting = self.storages_of[unit], ~done & ~(1 << unit)
            born = {s: self.starts_live[s] or self.accessors[s] & done for s in storages}
            left = {s: 1 if self.accessors[s] & waiting else 0 for s in storages}  # all later touches count as one
            for node in self.model.units[unit]:
                for s in self.touches[node]:
                    left[s] += 1
            self._change_at[unit][key] = self.run_nodes(unit, born, left)
        return self._change_at[unit][key]

    def lower_bound(self) -> Bytes:
        """Return a lower bound of each arena's peak: the most bytes at a unit, of storages live there in every order.

        Example: if a must run before b, and b before c, then what a writes and c reads is live at b.
        """
        units, storages = len(self.model), len(self.size)
        must_follow = np.zeros((units, units), np.bool_)  # [unit, p]: whether the unit must run after p
        for unit in range(units):  # units are sorted in a valid order
            for p in bits(self.before[unit]):
                must_follow[unit] |= must_follow[p]
                must_follow[unit, p] = True
        must_precede, same_or_follow = np.ascontiguousarray(must_follow.T), must_follow | np.eye(units, dtype=np.bool_)
        # [storage, unit]: whether the unit touches the storage; must run before a unit that does; must run after one;
        # must run before all others that do.
        touched, before_one, after_one, before_all = np.zeros((4, storages, units), np.bool_)
        for s, accessors in enumerate(map(bits, self.accessors)):
            after_one[s], before_one[s] = must_precede[accessors].any(0), must_follow[accessors].any(0)
            touched[s, accessors], before_all[s] = True, same_or_follow[accessors].all(0)
        is_born = after_one | np.array(self.starts_live, np.bool_)[:, None]
        is_needed = touched | before_one | np.array(self.stays_live, np.bool_)[:, None]
        # The first unit that touches a storage creates it. If this unit has several nodes, it can free one storage
        # before it creates another, so storages that it creates are not counted.
        single = np.array([len(nodes) == 1 for nodes in self.model.units], np.bool_)
        is_live = (is_born & is_needed) | (touched & single & before_all)
        found = [0] * self.arena_count
        sizes, arenas = np.array(self.size, np.int64), np.array(self.arena_of, np.int64)
        for a in range(self.arena_count):
            least = np.where(arenas == a, sizes, 0) @ is_live
            for unit, nodes in enumerate(self.model.units):
                reusable = [self.size[s] for node in nodes for s in self.candidates[node] if self.arena_of[s] == a]
                least[unit] -= max(reusable, default=0)  # an output may reuse one of them in place
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


def is_dominated(peaks: Bytes, rows: Iterable[Bytes]) -> bool:
    """Return whether one of ``rows`` is at most ``peaks`` in every arena."""
    return any(all(map(int.__le__, row, peaks)) for row in rows)


def best_first_search(
    states: OrderStates,
    upper: int,
    *,
    floor: Bytes | None = None,
    budget: int = 200_000,
    should_continue: Callable[[int], bool] | None = None,
) -> Proof:
    """Return the order with the least sum of peaks, with constants, if it is below ``upper``; else only a lower bound.

    ``floor``: lower bound of each arena's peak. ``budget``: maximum expansions; ``should_continue`` gets their number.
    """
    state = states.start()
    if floor is not None:
        state = state._replace(peaks=tuple(map(max, state.peaks, floor)))
    peaks_of: dict[int, list[Bytes]] = {0: [state.peaks]}  # set of units → peaks of the undominated paths to it
    numbers = count()
    heap = [(sum(state.peaks), 0, next(numbers), state)]  # of equal peaks, the path with the most units comes first
    expansions_before = states.expansions
    while heap:
        value, _, _, state = heappop(heap)
        bound = value + states.constant
        if bound >= upper:
            break
        if state.peaks not in peaks_of.get(state.done, ()):  # a better path to the same set was found later
            continue
        done = state.done
        state = states.run_immediate_units(state)
        if state.done != done:
            known = peaks_of.setdefault(state.done, [])
            if is_dominated(state.peaks, known):
                continue
            known.append(state.peaks)
        if state.done == states.all:
            return Proof(state.order, bound)
        expansions = states.expansions - expansions_before
        if expansions > budget or (should_continue is not None and not should_continue(expansions)):
            return Proof(None, bound)
        for unit in bits(state.ready):
            after = states.run(state, unit, upper - 1)
            known = peaks_of.get(after.done, []) if after is not None else []
            if after is None or is_dominated(after.peaks, known):
                continue
            peaks_of[after.done] = [row for row in known if not is_dominated(row, [after.peaks])] + [after.peaks]
            heappush(heap, (sum(after.peaks), -after.done.bit_count(), next(numbers), after))
    return Proof(None, upper)


def beam_search(states: OrderStates, upper: int, should_continue: Callable[[], bool]) -> I64 | None:
    """Return an order whose sum of peaks, with constants, is below ``upper``; ``None`` if none is found.

    Each round extends every set of executed units by its immediate units and one ready unit. Of the new sets, it keeps
    the first ``BEAM_WIDTH``, sorted by sum of peaks, then live bytes, then bit mask. O(units · ready units).
    """
    front, width = {0: states.start()}, BEAM_WIDTH
    expansions_before = states.expansions
    while front and should_continue():
        executed = next(iter(front)).bit_count()
        planned = BEAM_EXPANSIONS * (executed + 1) // len(states.model)
        if states.expansions - expansions_before > planned + BEAM_EXPANSIONS // 8:  # keep fewer sets from now on
            width = max(1, width // 2)
        next_states: dict[int, State] = {}
        for state in map(states.run_immediate_units, front.values()):
            if state.done == states.all:
                return state.order
            for unit in bits(state.ready):
                after = states.run(state, unit, upper - 1)
                if after is not None and (after.done not in next_states or after.rank < next_states[after.done].rank):
                    next_states[after.done] = after
        ranked = sorted(next_states.values(), key=lambda state: (*state.rank, state.done))
        front = {state.done: state for state in ranked[:width]}
    return None
