"""Lower bounds of the reuse cost: from cliques, and by exhaustive search of a few units.

In a clique, every two units conflict or have a penalty, so overlaps cost. Memory is divided into cells. If m units
cover a cell, m (m − 1) / 2 pairs overlap in it. Let the units have S cells in total, in B free cells. There are fewest
overlaps if the free cells are covered evenly: each by ``q = S // B`` units, and S − B q of them by one more. These are
``B q (q − 1) / 2 + (S − B q) q`` overlaps. Example: S = 5, B = 2: one cell has 2 units, the other 3: 1 + 3 overlaps. A
pair overlaps in at most as many cells as its smaller unit has, and pays its penalty once. The bound takes pairs, lowest
penalty per cell first, until the cells of their smaller units add up to the overlaps. It is the sum of their penalties;
of the last one, only the needed fraction counts. Bounds of cliques add up if no penalty counts in two cliques.

Unit sizes are rounded up to the least alignment. Let g be the greatest common divisor of the sizes, fixed offsets and
ends of reserved ranges. If all alignments divide g, a cell has g bytes: rounding all offsets down to whole cells
violates no constraint and adds no overlap. Else a cell has the least alignment if that divides these ends, else 1 byte.

The search is a Russian doll search (Verfaillie et al. 1996). Units without a fixed offset can be moved down one by one,
without a new costly overlap, until each is at 0, at the end of a reserved range or at the end of a neighbour, rounded
up to its alignment. Only these offsets are tried. The search solves the last unit, then the last two units, and so on.
Each least cost is a lower bound in the next, larger problems. The C form, ``native/reuse.c``, visits the same nodes.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import accumulate, combinations
from math import gcd
from typing import Any

import numpy as np

from tmmu_core.base.components import DisjointSets
from tmmu_core.planners.native import library, native
from tmmu_core.planners.problem import I64
from tmmu_core.planners.reuse.local_search import HARD, LARGEST, Pair, Placement, ReuseModel

MOST_UNITS = 1_000  # maximum number of units with penalties for which cliques are searched
FEWEST_SEEDS, SEED_PAIRS = 24, 1_500_000
"""Number of units from which cliques grow: ``SEED_PAIRS`` ÷ number of edges, but at least ``FEWEST_SEEDS``."""
SHIFT = 128  # fraction bits of a cost per byte; different costs differ by over 2^-128, because sizes are below 2^61
MAX_CANDIDATES = 1_000  # maximum number of offsets, over all units, for an exhaustive search
MOST_PLACEMENT_NODES = 10_000  # maximum number of nodes to find a placement of a proven least cost, in plain Python
FORBIDDEN = 2**40  # cost of two offsets that must not be together; above every sum of penalties that is searched
Edges = dict[tuple[int, int], list[tuple[int, int, int]]]
"""Two units → ``(bytes of the first, bytes of the second, cost)`` of every edge between them."""
CostGroups = tuple[tuple[int, list[int]], ...]
"""``(bound, units)`` per group: a lower bound of the penalties between its units. No penalty is in two groups."""


def bounding_cliques(model: ReuseModel) -> CostGroups:
    """Return cliques that bound the cost of any placement within the capacity.

    O(p n³ log n) for n units and p pairs with penalties.
    """
    rows = model.rows
    rows = rows[(rows[:, 2] == model.size[rows[:, 0]]) & (rows[:, 3] == model.size[rows[:, 1]])]
    units = np.unique(rows[rows[:, 4] != HARD, 0]).tolist()
    if model.capacity >= LARGEST or len(units) > MOST_UNITS:
        return ()
    soft: dict[Pair, int] = {}
    near: list[set[int]] = [set() for _ in range(len(model))]
    for a, b, _, _, weight in rows.tolist():
        near[a].add(b)
        if weight != HARD and a < b:
            soft[a, b] = soft.get((a, b), 0) + weight
    groups: CostGroups = ()
    found: dict[int, tuple[int, list[int]]] = {}
    count = max(FEWEST_SEEDS, SEED_PAIRS // max(sum(map(len, near)) // 2, 1))
    seeds = sorted(units, key=lambda unit: (-len(near[unit]), unit))[:count]
    while True:
        penalised = {unit for pair, weight in soft.items() if weight for unit in pair}
        found |= {seed: _clique_from(model, seed, near, soft) for seed in seeds if seed in penalised - found.keys()}
        best = max(found.values(), key=lambda one: (one[0], -len(one[1])), default=(0, []))
        if not best[0]:
            return groups
        groups += (best,)
        clique = set(best[1])
        found = {seed: one for seed, one in found.items() if len(clique.intersection(one[1])) < 2}
        soft = {pair: 0 if clique.issuperset(pair) else weight for pair, weight in soft.items()}


def with_search_bounds(model: ReuseModel, groups: CostGroups, offset: list[int], work: int) -> CostGroups:
    """Return ``groups``; if a search proves a higher bound for a component, one group replaces the component's groups.

    A first search covers the component's units with penalties, a second all its units. ``offset`` is a placement; its
    cost is the upper bound. A cheaper placement of the second search overwrites it. ``work``: see :func:`least_cost`.
    """
    place = Placement(model, offset)
    penalised = np.unique(model.rows[model.rows[:, 4] != HARD, 0]).tolist()
    for component in _components(model, penalised):
        upper = sum(place.price(u, offset[u]) for u in component) // 2
        replaced = tuple([group for group in groups if not component.isdisjoint(group[1])])
        bound = sum(cost for cost, _ in replaced)
        for units in ([u for u in penalised if u in component], sorted(component)):
            if bound < upper:
                found, work = least_cost(model, units, upper, work, offset if len(units) == len(component) else None)
                if found > bound:
                    bound, groups = found, (*(group for group in groups if group not in replaced), (found, units))
                    replaced = groups[-1:]
    return groups


def is_infeasible(model: ReuseModel, work: int) -> bool:
    """Return whether an exhaustive search of a component proves that no placement keeps all constraints."""
    above = 1 + int(np.maximum(model.rows[:, 4], 0).sum())
    for component in _components(model, range(len(model))):
        bound, work = least_cost(model, sorted(component), above, work)
        if bound == above:
            return True
    return False


def _components(model: ReuseModel, units: Iterable[int]) -> Iterator[set[int]]:
    """Yield each connected component, over all edges, that contains at least one of ``units``."""
    joined = DisjointSets(len(model))
    for u, v in model.rows[:, :2].tolist():
        joined.join(u, v)
    names = joined.names()
    for name in dict.fromkeys(names[u] for u in units):
        yield set(np.flatnonzero(names == name).tolist())


def _clique_from(model: ReuseModel, seed: int, near: list[set[int]], soft: dict[Pair, int]) -> tuple[int, list[int]]:
    """Return the largest bound of the cliques that grow from the unit ``seed``, and the clique with this bound."""
    size, align = model.size.tolist(), model.align.tolist()
    clique, open_units, best = [seed], set(near[seed]), (0, [seed])
    penalty_count, grid, pairs = dict.fromkeys(open_units, 0), align[seed], Counter[Pair]()
    while open_units:
        last = clique[-1]
        for unit in open_units:
            penalty_count[unit] += soft.get((min(unit, last), max(unit, last)), 0) > 0
        chosen = max(open_units, key=lambda unit: ((len(clique) + penalty_count[unit]) // 2, size[unit], -unit))
        new = [(min(unit, chosen), max(unit, chosen)) for unit in clique]
        clique.append(chosen)
        open_units = open_units & near[chosen]
        if align[chosen] < grid:
            grid, new = align[chosen], list(combinations(sorted(clique), 2))
            pairs.clear()
        pairs.update((soft[a, b], -(-min(size[a], size[b]) // grid) * grid) for a, b in new if (a, b) in soft)
        bound = clique_bound(model, clique, grid, pairs)
        if bound > best[0]:
            best = (bound, list(clique))
    return best


def clique_bound(model: ReuseModel, clique: list[int], grid: int, pairs: Counter[Pair]) -> int:
    """Return the lower bound of the penalties in a clique; ``grid`` is the least alignment of its units.

    ``pairs``: ``(penalty, size of the smaller unit rounded up to ``grid``)`` → number of such pairs.
    """
    sizes = [-(-int(model.size[unit]) // grid) * grid for unit in clique]
    reserved = model.reserved.tolist()
    ends = [end for _, end in reserved]
    cell = gcd(*sizes, *(int(model.pin[unit]) for unit in clique if model.pin[unit] >= 0), *ends)
    if any(cell % int(model.align[unit]) for unit in clique):
        cell = grid if all(end % grid == 0 for end in ends) else 1
    free = room = -(-model.capacity // grid) * grid // cell
    counted = 0
    for begin, end in sorted(reserved):  # no unit can cover a cell inside a reserved range
        low, high = max(-(-begin // grid) * grid // cell, counted), -(-end // cell)
        free -= max(0, min(high, room) - low)
        counted = max(counted, high)
    cells = sum(sizes) // cell
    if free <= 0:
        return 0
    q = cells // free
    overlaps = free * q * (q - 1) // 2 + (cells - free * q) * q  # not paid yet
    cost = 0
    for weight, smaller in sorted(pairs, key=lambda pair: ((pair[0] << SHIFT) // pair[1], pair)) if overlaps else ():
        per_pair = smaller // cell
        whole, rest = divmod(min(overlaps, per_pair * pairs[weight, smaller]), per_pair)
        cost += weight * whole + -(-weight * rest // per_pair)  # a fraction of the weight for the last pair only
        overlaps -= whole * per_pair + rest
    return cost


def support_offsets(model: ReuseModel, units: list[int]) -> list[list[int]]:
    """Return the offsets to try for each unit, ascending; empty if there are more than ``MAX_CANDIDATES``."""
    place, position = Placement(model), {unit: k for k, unit in enumerate(units)}
    found: list[set[int]] = [set() for _ in units]
    pending = [(k, end) for k in range(len(units)) for end in (0, *model.reserved[:, 1].tolist())]
    total = 0
    while pending and total <= MAX_CANDIDATES:
        k, end = pending.pop()
        u = units[k]
        at = place.pin[u] if place.pin[u] >= 0 else -(-end // place.align[u]) * place.align[u]
        if at in found[k] or at > model.capacity - place.size[u] or place.price(u, at) < 0:
            continue
        found[k].add(at)
        total += 1
        pending += [(position[v], at + own_size) for v, own_size, _, _ in place.edges(u) if v in position]
    return [sorted(candidates) for candidates in found] if total <= MAX_CANDIDATES else []


def least_cost(
    model: ReuseModel, chosen: list[int], upper: int, work: int, offset: list[int] | None = None
) -> tuple[int, int]:
    """Return a lower bound of the penalties between the chosen units, and the work that is left.

    The bound is the least cost, or ``upper`` if no placement costs less. It is 0 if the search is too large: more than
    ``MAX_CANDIDATES`` offsets, more than ``work`` comparisons of offsets, or ``upper`` of :data:`FORBIDDEN` or more. If
    the least cost is below ``upper`` and the search finds a placement, ``offset`` gets its offsets.
    """
    edges, rows = Edges(), model.rows
    for a, b, own_size, other_size, weight in rows[np.isin(rows[:, :2], chosen).all(axis=1)].tolist():
        edges.setdefault((a, b), []).append((own_size, other_size, FORBIDDEN if weight == HARD else weight))
    twin = {v: u for v in chosen for u in chosen if u < v and _are_twins(model, edges, chosen, u, v)}
    units = sorted(chosen, key=lambda u: (u not in twin and u not in twin.values(), -model.size[u], u))
    candidates = support_offsets(model, units)
    if not candidates or upper >= FORBIDDEN:
        return 0, work
    if not all(candidates):
        return upper, work
    search = Search(model, edges, units, candidates, [units.index(twin[u]) if u in twin else -1 for u in units])
    nodes = work // search.total
    for first in reversed(range(len(units))):
        if nodes >= 0:
            nodes = search.solve(first, upper, nodes)
    if offset is not None and nodes >= 0 and search.least[0] < upper:
        offsets = [at for row in candidates for at in row]
        search.find(0, search.least[0] + 1, MOST_PLACEMENT_NODES)
        for u, x in zip(units, search.found, strict=False):
            offset[u] = offsets[x]
    return search.least[0] if nodes >= 0 else 0, max(nodes, 0) * search.total


def _are_twins(model: ReuseModel, edges: Edges, units: list[int], u: int, v: int) -> bool:
    """Return whether two units are interchangeable: swapping their offsets does not change the cost."""
    same = all(column[u] == column[v] for column in (model.size, model.align)) and model.pin[u] == model.pin[v] == -1
    same &= edges.get((u, v)) == edges.get((v, u))
    return same and all(edges.get((u, w)) == edges.get((v, w)) for w in units if w not in (u, v))


class Search:
    """Depth-first search over the offsets of the units, in order; twins have ascending offsets."""

    def __init__(
        self, model: ReuseModel, edges: Edges, units: list[int], candidates: list[list[int]], twin: list[int]
    ) -> None:
        self.unit_count, self.twin = len(units), twin
        self.start = [0, *accumulate(map(len, candidates))]
        self.total = self.start[-1]
        self.table = np.zeros((self.total, self.total), np.int64)  # shape (total, total): cost of every two offsets
        for (a, b), between in edges.items():
            k, j = units.index(a), units.index(b)
            low, high = (np.array(candidates[i], np.int64) for i in (k, j))
            part = self.table[self.start[k] : self.start[k + 1], self.start[j] : self.start[j + 1]]
            for own_size, other_size, cost in between:
                part += cost * ((low[:, None] < high + other_size) & (high < low[:, None] + own_size))
        ends = [model.capacity - int(model.size[u]) for u in units]
        has_whole_edges = all(
            (own, other) == (model.size[a], model.size[b]) for (a, b), rows in edges.items() for own, other, _ in rows
        )
        mirrored = [[end - x for x in reversed(at)] for at, end in zip(candidates, ends, strict=True)]
        self.is_mirrored = has_whole_edges and candidates == mirrored
        """Whether each placement has a mirror image of equal cost, so that half of the first unit's offsets suffice."""
        self.least = [0] * (self.unit_count + 1)  # least cost of the units from each position on

    def solve(self, first: int, upper: int, nodes: int) -> int:
        """Set ``least[first]`` to the least cost, at most ``upper``; return the nodes left (−1: too few)."""
        loops = library()
        if loops is None:
            self.find(first, upper, nodes)
            self.least[first], nodes = self.best, self.nodes
        else:
            columns = ("start", "twin", "least")
            fields: dict[str, Any] = {name: np.array(getattr(self, name), np.int64) for name in columns}
            scratch = {"cost": self.total * (self.unit_count + 1), "order": self.total, "trail": self.unit_count}
            fields |= {name: np.zeros(count, np.int64) for name, count in scratch.items()}
            fields |= {"n": self.unit_count, "total": self.total, "first": first, "limit": self._limit(first)}
            fields |= {"nodes": nodes, "best": upper, "table": self.table}
            call = native.call_of("least_cost", **fields)
            native.run(loops, call)
            self.least[first], nodes = call.best, call.nodes
        return nodes

    def _limit(self, first: int) -> int:
        begin, end = self.start[first : first + 2]
        return begin + (end - begin + 1) // 2 if self.is_mirrored else end

    def find(self, first: int, upper: int, nodes: int) -> None:
        """Set ``best``, and ``found``: the row of ``table`` of each unit; empty if no cost is below ``upper``."""
        self.nodes, self.best, self.trail, self.found = nodes, upper, [0] * self.unit_count, list[int]()
        self._place(first, 0, np.zeros(self.total, np.int64), first, self._limit(first))

    def _place(self, k: int, paid: int, costs: I64, first: int, limit: int) -> None:
        """Try the offsets of unit ``k``, cheapest first; ``costs``: cost of each offset with the units before."""
        if k == self.unit_count:
            self.best, self.found = paid, list(self.trail)
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
