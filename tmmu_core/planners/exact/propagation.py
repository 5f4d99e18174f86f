"""Propagation: raise the lower bounds of the offsets until none changes or a conflict is found.

A unit is *open* until it is placed. Every raise is an *event*, with a reason:

* ``BY_UNIT``: u is placed at ``a``. A neighbour that cannot end at ``a`` or below starts at or above the end of u.
* ``BY_HOLE``: another unit must fill (overlap) a place of u, its *hole*. So u lies above the lowest end of such a unit.
* ``BY_SECTION``: only one open unit of a section can be the lowest. The others lie above it.
* ``BY_TWIN``: two units are identical. The one with the higher number lies above the other (symmetry).

Each raise is rounded up to the next aligned offset at which the unit overlaps no fixed unit.

A conflict is a unit that ends above the capacity or lies above its fixed offset, a section whose lowest offset plus
open bytes exceeds its ceiling (section bound), or a hole that no unit can fill. :mod:`.branch_and_bound` has two more.

*Conflict analysis* computes the decision levels that a conflict depends on (its nogood). It reads the events backwards
and collects claims of the form "this unit lies at n or above", one per unit. If an event made a claim true, the claims
that caused the event replace the claim; if a decision caused the event, its level joins the nogood. A claim that was
true before the event stays. Example: the capacity is 10. At level 2, u is placed at 0 and ends at 5. This raises w, a
unit of 6 bytes, to 5: a conflict. Claim: "w lies at 5 or above". The raise made it true, so level 2 joins the nogood.

The search needs one packing, not all. So the raises need only hold in one of least Σ height · offset:

* first branch: no other unit overlaps the place of u at ``a``. So u is at ``a`` or below (otherwise it could be moved
  down), and a neighbour that ends above ``a`` starts at or above the end of u;
* second branch: some unit overlaps this place (a hole).
"""

from itertools import pairwise
from typing import NamedTuple

from tmmu_core.planners.exact.search_tables import LOW, START_COLUMNS, State, Tables, lowest_allowed_offset

FAR = 2**62  # an offset above all others
BY_UNIT, BY_HOLE, BY_SECTION, BY_TWIN = range(4)
OFFSET_TOO_HIGH, SECTION_TOO_FULL, HOLE_UNFILLED, DOMINATED, NO_CANDIDATE = range(5)


class Event(NamedTuple):
    """A raise of a lower bound."""

    unit: int
    old_low: int
    requested: int  # requested lower bound; alignment and fixed units may raise it further
    reason: tuple[int, int, int]
    """Kind, cause and detail: ``BY_UNIT``, the placed unit and the raised unit's height there; ``BY_HOLE``, the offset
    of the hole and its level; ``BY_SECTION``, the section and its lowest unit; or ``BY_TWIN``, the twin and 0."""


class Propagation:
    """Units and sections during a search, with propagation and conflict analysis."""

    def __init__(self, tables: Tables, state: State, capacity: int) -> None:
        self.capacity = capacity
        entries, neighbours, mates, walls, self.align, self.max_height, self.fixed, self.twin = tables.unit.T.tolist()
        self.count = len(entries) - 1
        self.entries = [range(a, b) for a, b in pairwise(entries)]
        """Rows of each unit in ``section_of``, ``height`` and ``owner``."""
        self.section_of, self.height, self.owner = tables.entry.T.tolist()
        rows = [tuple(row) for row in tables.neighbour.tolist()]
        self.neighbours: list[list[tuple[int, int, int]]] = [rows[a:b] for a, b in pairwise(neighbours)]
        """Unit → ``(neighbour, height of the unit, height of the neighbour)`` of each neighbour."""
        mate, wall = tables.mate.tolist(), tables.wall.tolist()
        self.mates = [mate[a:b] for a, b in pairwise(mates)]
        self.walls = [wall[a:b] for a, b in pairwise(walls)]
        self.first = tables.first.tolist()  # first row of each section in ``order``
        self.low: list[int] = state.unit[LOW].tolist()
        self.placed_since: list[int | None] = [None] * self.count
        """Number of events when the unit was placed; ``None`` before."""
        self.level_of = [-1] * self.count  # level at which the unit was placed; −1 for a unit with a fixed offset
        self.placed: list[int] = []
        self.open_bytes, self.open_units, self.ceiling = state.section[:, START_COLUMNS].T.tolist()
        self.failures = [0] * len(self.open_bytes)
        self.two_lowest = [(-1, -1)] * len(self.open_bytes)
        """The two lowest open units of each section at its last propagation; −1: none."""
        self.order, self.row_of, _ = state.order.tolist()
        """Entries by section, open ones first; and the row of each entry."""
        self.events: list[Event] = []
        self.changed: dict[int, int] = {}  # raised unit to propagate → its lower bound before
        self.dirty: dict[int, None] = {}  # sections to propagate
        self.holes: list[int] = []  # units with a hole that must be filled
        self.hole: dict[int, tuple[int, int]] = {}  # unit in ``holes`` → offset and level of its hole
        self.filled: list[tuple[int, tuple[int, int]]] = []  # filled holes, as ``(unit, hole)``
        self.conflict = (NO_CANDIDATE, -1, -1)
        """Kind, cause, detail: ``OFFSET_TOO_HIGH``, the unit and its least impossible offset; ``SECTION_TOO_FULL``, the
        section; ``HOLE_UNFILLED``, the unit; ``DOMINATED``, the unit and the smaller one below it; ``NO_CANDIDATE``."""
        self.nogood: set[int] = set()  # levels that the current conflict depends on

    def place_unit(self, u: int, level: int) -> bool:
        """Place ``u`` at its lowest offset and raise the neighbours that overlap it; return ``False`` at a conflict."""
        at, order, row_of = self.low[u], self.order, self.row_of
        self.placed_since[u], self.level_of[u] = len(self.events), level
        self.placed.append(u)
        for e in self.entries[u]:
            s = self.section_of[e]
            self.open_bytes[s] -= self.height[e]
            self.open_units[s] -= 1
            last = self.first[s] + self.open_units[s]
            here, other = row_of[e], order[last]
            order[here], order[last] = other, e
            row_of[other], row_of[e] = here, last
            self.dirty.setdefault(s)
        for w, own_height, other_height in self.neighbours[u]:
            if self.placed_since[w] is not None:
                continue
            end = at + own_height
            hole = self.hole.get(w)
            if hole is not None and end > hole[0] and at < hole[0] + other_height:
                self.filled.append((w, hole))
                self.close_hole(w)
            rises = self.low[w] < end and self.low[w] + other_height > at
            if rises and not self.raise_low(w, end, (BY_UNIT, u, other_height)):
                return False
        return True

    def open_hole(self, u: int, hole: tuple[int, int]) -> None:
        """Require that another unit overlaps the place of ``u`` at ``hole`` (offset, level)."""
        self.hole[u] = hole
        self.holes.append(u)

    def close_hole(self, u: int) -> None:
        """Remove the requirement that the hole of ``u`` must be filled."""
        row, last = self.holes.index(u), self.holes.pop()
        if last != u:
            self.holes[row] = last
        del self.hole[u]

    def undo(self, events: int, placed: int, filled: int) -> None:
        """Undo the latest events, placements and filled holes; the arguments are the numbers that remain."""
        while len(self.filled) > filled:
            self.open_hole(*self.filled.pop())
        while len(self.events) > events:
            event = self.events.pop()
            self.low[event.unit] = event.old_low
        while len(self.placed) > placed:
            u = self.placed.pop()
            self.placed_since[u], self.level_of[u] = None, -1
            for e in self.entries[u]:
                self.open_units[self.section_of[e]] += 1
                self.open_bytes[self.section_of[e]] += self.height[e]

    def raise_low(self, u: int, at_least: int, reason: tuple[int, int, int]) -> bool:
        """Raise the lower bound of ``u``; return ``False`` and record the conflict if ``u`` has no offset left."""
        old = self.low[u]
        self.events.append(Event(u, old, at_least, reason))
        at = self.low[u] = lowest_allowed_offset(self.align[u], self.walls[u], at_least)
        if at + self.max_height[u] > self.capacity:
            return self.fail(OFFSET_TOO_HIGH, u, self.capacity - self.max_height[u] + 1)
        if at > self.fixed[u] >= 0:
            return self.fail(OFFSET_TOO_HIGH, u, self.fixed[u] + 1)
        self.changed.setdefault(u, old)
        return True

    def fail(self, kind: int, cause: int, detail: int) -> bool:
        """Record a conflict and return ``False``."""
        self.conflict = kind, cause, detail
        return False

    def propagate(self) -> bool:
        """Propagate to a fixed point; return ``False`` and record the conflict if one is found."""
        while True:
            while self.changed:
                u, old = self.changed.popitem()
                for s in (self.section_of[e] for e in self.entries[u]):
                    lowest, second = self.two_lowest[s]
                    is_stale = second < 0 or old <= self.low[second]  # the raise may change the two lowest units
                    if is_stale or any(self.placed_since[w] is not None for w in (lowest, second)):
                        self.dirty.setdefault(s)
                twin = self.twin[u]
                if twin >= 0 and self.placed_since[twin] is None:
                    end = self.low[u] + self.max_height[u]
                    if self.low[twin] < end and not self.raise_low(twin, end, (BY_TWIN, u, 0)):
                        return False
            while self.dirty:
                if not self._propagate_section(self.dirty.popitem()[0]):
                    return False
            if not self.changed and not self._propagate_holes():
                return False
            if not self.changed:
                return True

    def _propagate_section(self, s: int) -> bool:
        """Check the section bound. If only one unit can be the lowest, raise the others above its end."""
        begin, rest = self.first[s], self.open_bytes[s]
        entries = self.order[begin : begin + self.open_units[s]]
        by_low = sorted(entries, key=lambda e: self.low[self.owner[e]])
        lowest, second = (self.owner[by_low[k]] if k < len(by_low) else -1 for k in range(2))
        self.two_lowest[s] = lowest, second
        if not entries:
            return True
        low, end = self.low[lowest], self.low[lowest] + self.height[by_low[0]]
        if low + rest > self.ceiling[s]:
            return self.fail(SECTION_TOO_FULL, s, -1)
        if second >= 0 and self.low[second] + rest > self.ceiling[s] and self.low[second] < end:
            for e in entries:
                u = self.owner[e]
                rises = u != lowest and self.low[u] < end
                if rises and not self.raise_low(u, end, (BY_SECTION, s, lowest)):
                    return False
        return True

    def _propagate_holes(self) -> bool:
        """Raise every unit with a hole to the lowest end of the units that can still fill the hole."""
        for u in self.holes:
            hole, end = self.hole[u][0], FAR
            for w, own_height, other_height in self.neighbours[u]:
                if self.placed_since[w] is None and self.fixed[w] < 0 and self.low[w] < hole + own_height:
                    end = min(end, max(self.low[w] + other_height, hole + 1))
            if end == FAR:
                return self.fail(HOLE_UNFILLED, u, 0)
            if end > self.low[u] and not self.raise_low(u, end, (BY_HOLE, *self.hole[u])):
                return False
        return True

    def analyse_conflict(self) -> None:
        """Add the levels that the conflict depends on to ``nogood``."""
        self.claims = [0] * self.count  # per unit, the claimed lower bound of its offset; 0: no claim
        self.low_then = list(self.low)  # per unit, its lower bound before the event that is being read
        kind, cause, detail = self.conflict
        if kind == OFFSET_TOO_HIGH:
            self._claim(cause, detail)
        elif kind == SECTION_TOO_FULL:
            for e in self.order[self.first[cause] : self.first[cause] + self.open_units[cause]]:
                self._claim(self.owner[e], self.ceiling[cause] - self.open_bytes[cause] + 1)
        elif kind == HOLE_UNFILLED:
            self._explain_hole(cause, self.hole[cause], FAR, len(self.events))
        elif kind == DOMINATED:
            self.nogood.add(self.level_of[detail])
            self._claim(cause, self.low[cause])
            self._claim(detail, self.low[detail])
        for now, (u, old_low, requested, (kind, cause, detail)) in reversed([*enumerate(self.events)]):
            need = self.claims[u]
            self.low_then[u] = old_low
            if need <= old_low:
                continue
            self.claims[u] = 0
            need = min(need, requested)
            if kind == BY_UNIT:
                self.nogood.add(self.level_of[cause])
                self._claim(u, self.low[cause] - detail + 1)
            elif kind == BY_HOLE:
                self._explain_hole(u, (cause, detail), need, now)
            elif kind == BY_TWIN:
                self._claim(cause, need - self.max_height[cause])
            else:  # the unit ``detail`` is the lowest open unit of the section, and ends at ``need`` or above
                entries = self.order[self.first[cause] : self.first[cause + 1]]
                entries = [e for e in entries if not self._was_placed(self.owner[e], now)]
                least = self.ceiling[cause] - sum(self.height[e] for e in entries) + 1
                for e in entries:
                    is_lowest = self.owner[e] == detail
                    self._claim(self.owner[e], need - self.height[e] if is_lowest else least)
        self.nogood.discard(-1)  # the level of units with a fixed offset

    def _claim(self, u: int, at: int) -> None:
        self.claims[u] = max(self.claims[u], at)

    def _explain_hole(self, u: int, hole: tuple[int, int], need: int, now: int) -> None:
        """Add claims that prove: every unit that can fill the hole (offset, level) ends at ``need`` or above.

        If ``need`` is FAR, the claims prove that no unit can fill it. ``now``: number of the explained event.
        """
        at, level = hole
        self.nogood.add(level)
        self._claim(u, at)
        if need <= at + 1:
            return
        for w, own_height, other_height in self.neighbours[u]:
            if self.fixed[w] >= 0:
                continue
            low, hole_end = self.low_then[w], at + own_height
            if self._was_placed(w, now):
                if low >= hole_end:
                    self._claim(w, hole_end)
                else:  # w ends below the hole
                    self.nogood.add(self.level_of[w])
            elif need - other_height <= min(low, hole_end):
                self._claim(w, need - other_height)
            else:
                self._claim(w, hole_end)

    def _was_placed(self, u: int, now: int) -> bool:
        """Return whether ``u`` was placed before event ``now``."""
        since = self.placed_since[u]
        return since is not None and since <= now
