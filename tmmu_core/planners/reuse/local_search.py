"""Local search for placements of least reuse cost, on units and the edges between them.

Colocated buffers (at the same offset) are one unit. Two units have a hard edge if members must not share a byte (live
together, or must not alias), and an edge for each reuse penalty between members. An edge has the sizes of both members:
it is active if ``[a, a + own_size)`` and ``[b, b + other_size)`` overlap; ``a`` and ``b`` are the offsets of the units.
All members begin at the offset of their unit, so one hard edge with the largest sizes is enough for two units.

The search is ruin and recreate (Schrimpf et al. 2000). A round removes a few units, mostly connected ones. The first
one is unplaced or has an active penalty, if six random draws find such a unit. Each unit is then placed at the lowest
of its cheapest offsets. The result is accepted if it places more units. If it places equally many, its cost may rise by
a random number, up to a threshold that falls to 0. The C form, ``native/reuse.c``, returns the same result.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tmmu_core.base.components import DisjointSets
from tmmu_core.base.errors import AllocationOverflow
from tmmu_core.planners.native import library, native
from tmmu_core.planners.problem import I64, Problem, ReuseTerms, live_parts

Pair = tuple[int, int]
HARD = -1  # weight of an edge that must not be active
LARGEST = 2**61  # upper limit of the capacity and of sums of sizes and costs; the capacity of an unlimited arena
MOST_IN_MATRIX = 2_000  # maximum number of units for the weight matrix
MAX_REMOVED = 12  # maximum number of units that a round selects; all unplaced units are added


@dataclass(frozen=True, eq=False)
class ReuseModel:
    """Units, with an array for each property, and their edges: ``rows`` has two rows per edge, one for each unit."""

    unit_of: I64  # unit of each storage of the problem
    capacity: int
    size: I64  # bytes of the largest member
    align: I64
    pin: I64  # fixed offset, or −1; −1 for a unit without bytes
    first: I64  # shape (n + 1,): first edge of each unit in ``rows``
    rows: I64  # shape (m, 5), sorted: unit, other unit, ``own_size``, ``other_size``, cost (or ``HARD``)
    empty_at: I64  # offset of a unit without bytes: its fixed offset, else 0; may exceed the capacity
    reserved: I64  # shape (r, 2): byte ranges without storages
    unavoidable: int  # cost of penalties between colocated storages
    contradiction: str = ""  # the constraints that contradict each other, so that no placement exists; else empty

    def __len__(self) -> int:
        return len(self.size)


def _hard_edges(problem: Problem, terms: ReuseTerms, unit: I64, pin: I64) -> tuple[I64, str]:
    """Return an edge per pair of units that must not share a byte, and a contradiction (empty: none).

    The edges have the columns of ``ReuseModel.rows``, the lower unit first, sorted.
    """
    n, size = len(problem), problem.size.astype(np.int64)
    excluded = np.sort(np.array(terms.exclusions, np.int64).reshape(-1, 2), axis=1) @ [n, 1]
    # Pairs of storages that are live at the same step (not in a gap): the lower index · n + the other, sorted.
    first, begins, ends = live_parts(problem)
    storage = np.repeat(np.arange(n), np.diff(first))
    order = np.lexsort((storage, ends, begins))
    begins, ends, storage = begins[order], ends[order], storage[order]
    count = np.maximum(np.searchsorted(begins, ends) - np.arange(1, len(order) + 1), 0)  # later parts that overlap
    one = np.repeat(np.arange(len(order)), count)
    two = one + 1 + np.arange(len(one)) - np.repeat(np.cumsum(count) - count, count)
    pairs = np.sort(np.stack([storage[one], storage[two]], axis=1), axis=1)
    keys = np.unique(pairs[pairs[:, 0] != pairs[:, 1]] @ [n, 1])
    pairs = np.stack(np.divmod(keys[~np.isin(keys, excluded)], max(n, 1)), axis=1)
    if problem.handoff_from is not None:  # the model has no in-place reuse: input and output conflict
        reusing = np.flatnonzero(problem.handoff_from >= 0)
        handoffs = np.stack([problem.handoff_from[reusing], reusing], axis=1)
        pairs = np.concatenate([pairs, np.sort(handoffs, axis=1)])
    if problem.must_not_alias is not None:
        pairs = np.concatenate([pairs, np.sort(problem.must_not_alias.reshape(-1, 2), axis=1)])
    pairs = pairs[(size[pairs] > 0).all(axis=1)]
    is_one, fixed = unit[pairs[:, 0]] == unit[pairs[:, 1]], pin[unit[pairs]]
    distance = (fixed[:, 1] - fixed[:, 0])[:, None] * [1, -1]
    collides = ~is_one & (fixed >= 0).all(axis=1) & (distance < size[pairs]).all(axis=1)
    contradiction = ""
    for k in np.flatnonzero(is_one | collides)[-1:].tolist():
        a, b = (f"{problem.ids[i]!r}" for i in pairs[k].tolist())
        contradiction = f"{a} and {b} are at the same offset and must not share a byte"
        if collides[k]:
            contradiction = f"{a} at {fixed[k, 0]} and {b} at {fixed[k, 1]} must not share a byte"
    rows = _edge_rows(unit, size, pairs[~is_one], HARD)
    rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
    starts = np.flatnonzero(np.diff(rows[:, :2], axis=0, prepend=-1).any(axis=1))
    for column in (2, 3) if len(rows) else ():
        rows[starts, column] = np.maximum.reduceat(rows[:, column], starts)
    return rows[starts], contradiction


def _edge_rows(unit: I64, size: I64, pairs: I64, weight: I64 | int) -> I64:
    """Return the edges of pairs of storages in different units, the lower unit first."""
    ordered = np.where((unit[pairs[:, 0]] > unit[pairs[:, 1]])[:, None], pairs[:, ::-1], pairs)
    return np.column_stack([unit[ordered], size[ordered], np.broadcast_to(weight, len(pairs))])


def _check_sums(problem: Problem, terms: ReuseTerms, fixed: list[int]) -> None:
    sizes, grid = problem.size.tolist(), int(problem.alignment.max(initial=0))
    reach = sum(sizes) + grid
    if problem.capacity > LARGEST:  # the model then has the capacity LARGEST, and every placement must fit
        ends = [at for at, nbytes in zip(fixed, sizes, strict=True) if nbytes] + [end for _, end in terms.reserved]
        reach = sum(sizes) + len(sizes) * grid + max([0, *ends])
    for total, what in (
        (reach, "the sizes, alignments, fixed offsets and reserved ranges"),
        (sum(cost for *_, cost in terms.penalties), "the reuse penalties"),
    ):
        if total > LARGEST:
            message = f"{what} of arena {problem.arena!r} add up to {total:,}, over 2^61."
            hint = "Lower the largest value."
            raise AllocationOverflow(message, arena=problem.arena, offset=0, size=total, hint=hint)


def reuse_model(problem: Problem) -> ReuseModel:
    """Return the model of a problem. Storages without bytes have no edges; their alignments and fixed offsets apply.

    Raises ``AllocationOverflow`` if a sum of byte counts or of costs exceeds 2^61.
    """
    terms, n = problem.reuse or ReuseTerms(), len(problem)
    colocated = DisjointSets(n)
    for a, b in terms.colocations:
        colocated.join(a, b)
    unit: I64 = np.unique(colocated.names(), return_inverse=True)[1].astype(np.int64)
    nbytes, units = problem.size.astype(np.int64), int(unit.max(initial=-1)) + 1
    fixed = np.full(n, -1, np.int64) if problem.fixed is None else problem.fixed
    _check_sums(problem, terms, fixed.tolist())
    size, align, pin, pin_error = np.zeros(units, np.int64), np.ones(units, np.int64), np.full(units, -1), ""
    np.maximum.at(size, unit, nbytes)
    np.maximum.at(align, unit, problem.alignment.astype(np.int64))
    for i in np.flatnonzero(fixed >= 0).tolist():
        if pin[unit[i]] not in (-1, fixed[i]):
            pin_error = f"{problem.ids[i]!r} at {fixed[i]} and a buffer at {pin[unit[i]]} must be at the same offset"
        pin[unit[i]] = fixed[i]
    for i in np.flatnonzero(pin[unit] >= 0).tolist():
        at, grid = int(pin[unit[i]]), int(problem.alignment[i])
        if at % grid:
            pin_error = f"{problem.ids[i]!r} is at {at}, which is not a multiple of its alignment {grid}"
        for begin, end in terms.reserved:
            if max(at, begin) < min(at + int(nbytes[i]), end):
                pin_error = f"{problem.ids[i]!r} at {at} overlaps the reserved range from {begin} to {end}"
    hard, edge_error = _hard_edges(problem, terms, unit, pin)
    penalties = np.array(terms.penalties, np.int64).reshape(-1, 3)
    penalties = penalties[(nbytes[penalties[:, :2]] > 0).all(axis=1)]
    is_one = unit[penalties[:, 0]] == unit[penalties[:, 1]]
    apart = penalties[~is_one & (penalties[:, 2] > 0)]
    soft = _edge_rows(unit, nbytes, apart[:, :2], apart[:, 2])
    hard_keys, keys = (rows[:, :2] @ [units, 1] for rows in (hard, soft))
    if len(hard):  # a penalty's edge has no effect if a hard edge of the same units is at least as large
        same = np.minimum(np.searchsorted(hard_keys, keys), len(hard) - 1)
        soft = soft[(hard_keys[same] != keys) | (hard[same, 2:4] < soft[:, 2:4]).any(axis=1)]
    rows = np.concatenate([hard, soft])
    rows = np.concatenate([rows, rows[:, [1, 0, 3, 2, 4]]])
    rows = rows[np.lexsort(rows.T[::-1])]
    first = np.searchsorted(rows[:, 0], np.arange(units + 1)).astype(np.int64)
    empty_at, pin = np.maximum(pin, 0), np.where(size > 0, pin, -1)
    reserved = np.array(terms.reserved, np.int64).reshape(-1, 2)
    cost, capacity = int(penalties[is_one, 2].sum()), min(problem.capacity, LARGEST)
    return ReuseModel(unit, capacity, size, align, pin, first, rows, empty_at, reserved, cost, edge_error or pin_error)


class Placement:
    """Offsets of a model's units (−1: not placed). ``price`` returns the cost of an offset."""

    def __init__(self, model: ReuseModel, offset: list[int] | None = None) -> None:
        self.model = model
        self.offset = [-1] * len(model) if offset is None else list(offset)
        self.size, self.align, self.pin = model.size.tolist(), model.align.tolist(), model.pin.tolist()
        self.reserved, self.first, self.rows = model.reserved.tolist(), model.first.tolist(), model.rows[:, 1:]

    def edges(self, u: int) -> list[list[int]]:
        """Return ``[other, own_size, other_size, weight]`` of each edge of a unit."""
        return self.rows[self.first[u] : self.first[u + 1]].tolist()

    def price(self, u: int, at: int) -> int:
        """Return the cost of unit ``u`` at offset ``at``, or −1 if a hard edge or a reserved range forbids it."""
        if any(at < end and begin < at + self.size[u] for begin, end in self.reserved):
            return -1
        cost, offset = 0, self.offset
        for v, own_size, other_size, weight in self.edges(u):
            other_at = offset[v]
            if other_at >= 0 and at < other_at + other_size and other_at < at + own_size:
                if weight == HARD:
                    return -1
                cost += weight
        return cost

    def costs(self, u: int) -> Iterator[tuple[int, int]]:
        """Yield ``(offset, cost)`` for the allowed offsets of unit ``u`` within the capacity, ascending.

        The only offset of a pinned unit is its pin. Other units try 0 and the aligned ends of occupied ranges.
        """
        size, offset, grid = self.size[u], self.offset, self.align[u]
        spans = [(begin - size, end, HARD) for begin, end in self.reserved]
        spans += [(offset[v] - own, offset[v] + other, w) for v, own, other, w in self.edges(u) if offset[v] >= 0]
        begins, ends = sorted((begin, w) for begin, _, w in spans), sorted((end, w) for _, end, w in spans)
        entered = left = hard = cost = 0
        for at in [self.pin[u]] if self.pin[u] >= 0 else sorted({-(-end // grid) * grid for end, _ in [(0, 0), *ends]}):
            if at > self.model.capacity - size:
                return
            while entered < len(begins) and begins[entered][0] < at:
                hard, cost = hard + (begins[entered][1] == HARD), cost + max(begins[entered][1], 0)
                entered += 1
            while left < len(ends) and ends[left][0] <= at:
                hard, cost = hard - (ends[left][1] == HARD), cost - max(ends[left][1], 0)
                left += 1
            if not hard:
                yield at, cost

    def place_cheapest(self, u: int) -> int:
        """Place unit ``u`` at the lowest of its cheapest offsets; return the cost, or −1 if none fits."""
        self.offset[u], cost = min(self.costs(u), key=lambda found: (found[1], found[0]), default=(-1, -1))
        return cost

    def cost(self) -> int:
        """Return the cost of all active penalties."""
        placed = [(u, self.offset[u]) for u in range(len(self.offset)) if self.offset[u] >= 0]
        return sum(max(self.price(u, at), 0) for u, at in placed) // 2


def repair(
    model: ReuseModel, start: list[int], rounds: int, threshold: int, seed: int, bound: int = 0
) -> tuple[int, int, list[int]]:
    """Return the best (number of unplaced units, cost, offsets); stop if all are placed for at most ``bound``."""
    place, n = Placement(model, start), len(model)
    loops = library()
    if loops is None:
        return _repair(place, rounds, threshold, seed, bound)
    unit, other, own_size, other_size, weight = model.rows.T.copy()
    is_whole = (own_size == model.size[unit]) & (other_size == model.size[other])
    has_matrix = is_whole.all() and not len(model.reserved) and n <= MOST_IN_MATRIX
    matrix, is_hard = np.zeros((n, n) if has_matrix else (0, 0), np.int64), weight == HARD
    if has_matrix:  # the weight of each pair of units, 0 without an edge
        np.add.at(matrix, (unit[~is_hard], other[~is_hard]), weight[~is_hard])
        matrix[unit[is_hard], other[is_hard]] = HARD
    columns = ("size", "align", "pin", "first", "reserved")
    fields: dict[str, Any] = {name: getattr(model, name) for name in columns}
    fields |= {"other": other, "own_size": own_size, "other_size": other_size, "weight": weight, "matrix": matrix}
    fields |= {name: np.zeros(n, np.int64) for name in ("best", "removed", "old", "is_removed")}
    fields |= {name: np.zeros(4 * n, np.int64) for name in ("by_start", "by_end")}
    fields |= {"n": n, "capacity": model.capacity, "reserved_count": len(model.reserved), "cost": place.cost()}
    fields |= {"rounds": rounds, "threshold": threshold, "most_removed": MAX_REMOVED, "bound": bound, "random": seed}
    call = native.call_of("reuse", offset=np.array(start, np.int64), has_matrix=has_matrix, **fields)
    native.run(loops, call)
    return call.missing, call.cost, fields["best"].tolist()


def _repair(place: Placement, rounds: int, threshold: int, seed: int, bound: int) -> tuple[int, int, list[int]]:
    """Return the result of :func:`repair` in plain Python."""
    offset, state = place.offset, seed

    def draw() -> int:
        nonlocal state
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        return state >> 33

    missing, cost = offset.count(-1), place.cost()
    best = (missing, cost, list(offset))
    for turn in range(rounds):
        if not best[0] and best[1] <= bound:
            break
        slack = threshold * (rounds - turn) // rounds
        removed = _ruin(place, 1 + draw() % MAX_REMOVED, draw)
        old = {u: at for u, at in removed.items() if at >= 0}
        old_cost = 0
        for u, at in old.items():  # the price ignores units that are already removed, so each penalty counts once
            old_cost += place.price(u, at)
            offset[u] = -1
        units = list(removed)
        by_size = draw() % 2
        for k in range(len(units) - 1, 0, -1):
            j = draw() % (k + 1)
            units[k], units[j] = units[j], units[k]
        if by_size:
            units.sort(key=lambda u: -place.size[u])
        prices = [place.place_cheapest(u) for u in units]
        more_unplaced = prices.count(-1) - (len(removed) - len(old))
        new_cost = cost - old_cost + sum(price for price in prices if price > 0)
        if more_unplaced < 0 or (not more_unplaced and new_cost <= cost + (draw() % (slack + 1) if slack else 0)):
            cost, missing = new_cost, missing + more_unplaced
            if (missing, cost) < best[:2]:
                best = (missing, cost, list(offset))
        else:
            for u in units:
                offset[u] = old.get(u, -1)
    return best


def _ruin(place: Placement, count: int, draw: Any) -> dict[int, int]:
    """Return the units to remove, in order, with their offsets: mostly connected units, then all unplaced units."""
    n, offset = len(place.offset), place.offset
    for _ in range(6):
        first = draw() % n
        if offset[first] < 0 or place.price(first, offset[first]) > 0:
            break
    removed: dict[int, int] = {}
    for _ in range(4 * count):
        if len(removed) >= count:
            break
        u = first
        if removed:
            edges = place.edges(list(removed)[draw() % len(removed)])
            u = edges[draw() % len(edges)][0] if edges and draw() % 8 else draw() % n
        removed[u] = offset[u]
    removed.update((u, -1) for u in range(n) if offset[u] < 0)
    return removed
