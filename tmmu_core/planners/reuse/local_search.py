"""Local search for placements of least reuse cost: ruin and recreate (Schrimpf et al. 2000).

A round removes a few units (:mod:`.reuse_model`), mostly connected ones. The first one is unplaced or has an active
penalty, if six random draws find such a unit. Each unit is placed at the lowest of its cheapest offsets. A costlier
result is accepted up to a threshold that falls to 0. The C form, ``native/reuse.c``, returns the same result.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from tmmu_core.planners.native import native
from tmmu_core.planners.native.load import library
from tmmu_core.planners.problem import I64
from tmmu_core.planners.reuse.reuse_model import HARD, ReuseModel

MOST_IN_MATRIX = 2_000  # maximum number of units for the weight matrix
MAX_REMOVED = 12  # maximum number of units that a round selects; all unplaced units are added


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
        self.offset[u], cost = min(self.costs(u), key=lambda found: found[::-1], default=(-1, -1))
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
    columns = ("size", "align", "pin", "first", "reserved")
    fields: dict[str, Any] = {name: getattr(model, name) for name in columns} | {"matrix": weight_matrix(model)}
    fields |= dict(zip(("other", "own_size", "other_size", "weight"), model.rows.T[1:].copy(), strict=True))
    fields |= {name: np.zeros(n, np.int64) for name in ("best", "removed", "old", "is_removed")}
    fields |= {name: np.zeros(4 * n, np.int64) for name in ("by_start", "by_end")}
    fields |= {"n": n, "capacity": model.capacity, "reserved_count": len(model.reserved), "cost": place.cost()}
    fields |= {"rounds": rounds, "threshold": threshold, "most_out": MAX_REMOVED, "bound": bound, "random": seed}
    fields |= {"has_matrix": len(fields["matrix"]) > 0}
    missing, cost = native.run_for(loops, "reuse", ("missing", "cost"), offset=np.array(start, np.int64), **fields)
    return missing, cost, fields["best"].tolist()


def weight_matrix(model: ReuseModel) -> I64:
    """Return the weight of each pair of units, shape (n, n), 0 without an edge; empty if the C form cannot use it."""
    unit, other, own_size, other_size, weight = model.rows.T
    is_whole = (own_size == model.size[unit]) & (other_size == model.size[other])
    if not is_whole.all() or len(model.reserved) or len(model) > MOST_IN_MATRIX:
        return np.zeros((0, 0), np.int64)
    matrix, hard = np.zeros((len(model), len(model)), np.int64), weight == HARD
    np.add.at(matrix, (unit[~hard], other[~hard]), weight[~hard])
    matrix[unit[hard], other[hard]] = HARD
    return matrix


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
