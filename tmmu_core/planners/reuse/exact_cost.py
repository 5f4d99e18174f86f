"""Least reuse cost of a few units by exhaustive search (Russian doll search, Verfaillie et al. 1996).

Every placement can be moved down, unit by unit, without a further active edge, until each unit is at 0, at the end of a
reserved range or at the end of a neighbour, rounded up to its alignment. Only these offsets are tried. The units are
solved from the last one backwards: the least cost of the units after a position bounds every larger problem.
The C form is ``native/reuse.c``; both visit the same nodes.
"""

from itertools import accumulate

import numpy as np

from tmmu_core.planners.native import native
from tmmu_core.planners.native.load import library
from tmmu_core.planners.problem import I64
from tmmu_core.planners.reuse.local_search import Placement
from tmmu_core.planners.reuse.reuse_model import HARD, ReuseModel

MOST_OFFERS = 1_000
"""The most offsets, over all units, that are searched."""
FORBIDDEN = 2**40
"""Cost of two offsets that must not be together; above every sum of penalties that is searched."""
Edges = dict[tuple[int, int], list[tuple[int, int, int]]]
"""Of two units: (bytes of the first, bytes of the second, cost) of every edge between them."""


def support_offsets(model: ReuseModel, units: list[int]) -> list[list[int]]:
    """Return the offsets to try for each unit, ascending; empty if there are more than ``MOST_OFFERS``."""
    place, inside = Placement(model), {unit: k for k, unit in enumerate(units)}
    found: list[set[int]] = [set() for _ in units]
    pending = [(k, end) for k in range(len(units)) for end in (0, *model.reserved[:, 1].tolist())]
    total = 0
    while pending and total <= MOST_OFFERS:
        k, end = pending.pop()
        u = units[k]
        at = place.pin[u] if place.pin[u] >= 0 else -(-end // place.align[u]) * place.align[u]
        if at in found[k] or at > model.capacity - place.size[u] or place.price(u, at) < 0:
            continue
        found[k].add(at)
        total += 1
        pending += [(inside[v], at + mine) for v, mine, _, _ in place.edges[u] if v in inside]
    return [sorted(offers) for offers in found] if total <= MOST_OFFERS else []


def edges_between(model: ReuseModel, units: list[int]) -> Edges:
    """Return the edges between the units, in both directions."""
    inside, found = set(units), Edges()
    for a, b, mine, theirs, weight in model.edges():
        if a in inside and b in inside:
            cost = FORBIDDEN if weight == HARD else weight
            found.setdefault((a, b), []).append((mine, theirs, cost))
            found.setdefault((b, a), []).append((theirs, mine, cost))
    return found


def least_cost(model: ReuseModel, chosen: list[int], upper: int, work: int) -> tuple[int, int]:
    """Return a lower bound of the penalties between the chosen units, and the work that is left.

    The bound is the least cost; ``upper`` where no placement costs less, or none exists; 0 where the search needs more
    than ``work``, counted in offsets that are compared.
    """
    edges = edges_between(model, chosen)
    twin = {v: u for v in chosen for u in chosen if u < v and _are_twins(model, edges, chosen, u, v)}
    units = sorted(chosen, key=lambda u: (u not in twin and u not in twin.values(), -model.size[u], u))
    offers = support_offsets(model, units)
    if not offers or upper >= FORBIDDEN:
        return 0, work
    if not all(offers):
        return upper, work
    search = Search(model, edges, units, offers, [units.index(twin[u]) if u in twin else -1 for u in units])
    nodes = work // search.total
    for first in reversed(range(len(units))):
        if nodes >= 0:
            nodes = search.solve(first, upper, nodes)
    return search.least[0] if nodes >= 0 else 0, max(nodes, 0) * search.total


def _are_twins(model: ReuseModel, edges: Edges, units: list[int], u: int, v: int) -> bool:
    """Return whether two units are interchangeable: swapping their offsets has the same cost."""
    same = all(column[u] == column[v] for column in (model.size, model.align)) and model.pin[u] == model.pin[v] == -1
    others = (w for w in units if w not in (u, v))
    return (
        same and edges.get((u, v)) == edges.get((v, u)) and all(edges.get((u, w)) == edges.get((v, w)) for w in others)
    )


class Search:
    """Depth-first search over the offsets of the units, in order; twins have ascending offsets."""

    def __init__(
        self, model: ReuseModel, edges: Edges, units: list[int], offers: list[list[int]], twin: list[int]
    ) -> None:
        self.units, self.twin = len(units), twin
        self.start = [0, *accumulate(map(len, offers))]
        self.total = self.start[-1]
        self.table = np.zeros((self.total, self.total), np.int64)
        """Cost of every two offsets."""
        for (a, b), between in edges.items():
            k, j = units.index(a), units.index(b)
            low, high = (np.array(offers[i], np.int64) for i in (k, j))
            part = self.table[self.start[k] : self.start[k + 1], self.start[j] : self.start[j + 1]]
            for mine, theirs, cost in between:
                part += cost * ((low[:, None] < high + theirs) & (high < low[:, None] + mine))
        ends = [model.capacity - int(model.size[u]) for u in units]
        self.mirrored = all(
            at == [end - x for x in reversed(at)] for at, end in zip(offers, ends, strict=True)
        ) and all(
            (mine, theirs) == (model.size[a], model.size[b])
            for (a, b), between in edges.items()
            for mine, theirs, _ in between
        )
        """Whether the mirror image of a placement is one too: the first unit then needs half of its offsets."""
        self.least = [0] * (self.units + 1)
        """Least cost of the units from each position on."""

    def solve(self, first: int, upper: int, nodes: int) -> int:
        """Set the least cost of the units from ``first`` on, at most ``upper``; return the nodes left, or −1."""
        begin, end = self.start[first : first + 2]
        limit = begin + (end - begin + 1) // 2 if self.mirrored else end
        loops = library()
        if loops is None:
            self.nodes, self.best, self.trail = nodes, upper, [0] * self.units
            self._place(first, 0, np.zeros(self.total, np.int64), first, limit)
            self.least[first], nodes = self.best, self.nodes
        else:
            columns = {"start": self.start, "twin": self.twin, "least": self.least}
            room = {"cost": self.total * (self.units + 1), "order": self.total, "trail": self.units}
            arrays = {name: np.array(value, np.int64) for name, value in columns.items()}
            arrays |= {name: np.zeros(count, np.int64) for name, count in room.items()}
            integers = {
                "n": self.units,
                "total": self.total,
                "first": first,
                "limit": limit,
                "nodes": nodes,
                "best": upper,
            }
            self.least[first], nodes = native.least_cost(loops, **integers, **arrays, table=self.table)
        return nodes

    def _place(self, k: int, paid: int, costs: I64, first: int, limit: int) -> None:
        if k == self.units:
            self.best = paid
            return
        self.nodes -= 1
        begin, end = (self.start[k], limit) if k == first else (self.start[k], self.start[k + 1])
        if self.twin[k] >= first:
            begin += self.trail[self.twin[k]] - self.start[self.twin[k]]
        rest = self.start[k + 1 : -1]
        for x in begin + np.argsort(costs[begin:end], kind="stable"):
            now = paid + int(costs[x])
            if self.nodes < 0 or now + self.least[k + 1] >= self.best:
                break
            ahead = costs + self.table[x]
            if now + self.least[k + 1] + (int(np.minimum.reduceat(ahead, rest).sum()) if rest else 0) < self.best:
                self.trail[k] = int(x)
                self._place(k + 1, now, ahead, first, limit)
