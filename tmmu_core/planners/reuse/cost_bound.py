"""Lower bound of the reuse cost from cliques: units of which every two either conflict or have a penalty.

Offsets, sizes and limits of a clique are counted in cells of ``g`` bytes, their greatest common divisor: rounding
every offset down to whole cells keeps all constraints of the clique and makes no further pair overlap. Let ``m`` units
cover a cell; then ``m (m − 1) / 2`` pairs overlap in it. That is convex in ``m``, so S cells of units in B free cells
overlap in at least ``B q (q − 1) / 2 + (S − B q) q`` cells, ``q = S // B``. A pair overlaps in at most as many cells as
its smaller unit has, and pays its penalty once: the cheapest pairs that reach the sum bound the cost. Cliques add up
where each penalty counts in one of them and is free in the others. Small components are searched exhaustively.
"""

from math import gcd

from tmmu_core.planners.reuse.exact_cost import least_cost
from tmmu_core.planners.reuse.local_search import Placement
from tmmu_core.planners.reuse.reuse_model import HARD, LARGEST, Pair, ReuseModel

MOST_UNITS = 1_000
"""Maximum number of units with penalties for which cliques are searched."""
MOST_SEEDS = 24
"""Maximum number of units from which a clique grows."""
SHIFT = 128
"""Binary places that order costs per cell: two of them differ by more than 2^-128, since offsets are below 2^61."""


Parts = tuple[tuple[int, list[int]], ...]
"""Groups of units, each with a lower bound of penalties between them that no other group counts."""


def cost_bound(model: ReuseModel) -> Parts:
    """Return cliques that bound the cost of any placement within the capacity. O(n⁴) for n units with penalties."""
    size = model.size.tolist()
    soft: dict[Pair, int] = {}
    near: list[set[int]] = [set() for _ in size]
    for a, b, mine, theirs, weight in model.edges():
        if (mine, theirs) == (size[a], size[b]):
            near[a].add(b)
            near[b].add(a)
            if weight != HARD:
                soft[a, b] = soft.get((a, b), 0) + weight
    units = sorted({unit for pair in soft for unit in pair})
    if model.capacity >= LARGEST or len(units) > MOST_UNITS:
        return ()
    parts: Parts = ()
    seeds = sorted(units, key=lambda unit: (-len(near[unit]), unit))[:MOST_SEEDS]
    while True:
        paying = {unit for pair, weight in soft.items() if weight for unit in pair}
        found = [_from(model, seed, near, soft) for seed in seeds if seed in paying]
        best = max(found, key=lambda one: (one[0], -len(one[1])), default=(0, []))
        if not best[0]:
            return parts
        parts += (best,)
        inside = set(best[1])
        soft = {pair: 0 if inside.issuperset(pair) else weight for pair, weight in soft.items()}


def searched(model: ReuseModel, parts: Parts, offset: list[int], work: int) -> Parts:
    """Return the groups, those of a component replaced by it where an exhaustive search proves more.

    The search takes the units of the component that have penalties, then all of them. ``offset`` is a placement,
    whose cost is the upper bound. ``work``: see :func:`.exact_cost.least_cost`.
    """
    place = Placement(model, offset)
    paying = [u for u, edges in enumerate(place.edges) if any(weight != HARD for *_, weight in edges)]
    seen: set[int] = set()
    for first in paying:
        component = _component(place, first)
        if first in seen:
            continue
        seen |= component
        upper = sum(place.price(u, offset[u]) for u in component) // 2
        inside = tuple([part for part in parts if not component.isdisjoint(part[1])])
        bound = sum(cost for cost, _ in inside)
        for units in ([u for u in paying if u in component], sorted(component)):
            if bound < upper:
                found, work = least_cost(model, units, upper, work)
                if found > bound:
                    bound, parts = found, (*(part for part in parts if part not in inside), (found, units))
                    inside = parts[-1:]
    return parts


def is_infeasible(model: ReuseModel, work: int) -> bool:
    """Return whether an exhaustive search of a component proves that no placement keeps all constraints."""
    place, seen = Placement(model), set[int]()
    above = 1 + int(model.weight[model.weight != HARD].sum())
    for first in range(len(model)):
        if first not in seen:
            component = _component(place, first)
            seen |= component
            found, work = least_cost(model, sorted(component), above, work)
            if found == above:
                return True
    return False


def _component(place: Placement, first: int) -> set[int]:
    """Return the units that edges connect with ``first``."""
    found, pending = {first}, [first]
    while pending:
        new = {edge[0] for edge in place.edges[pending.pop()]} - found
        found |= new
        pending += sorted(new)
    return found


def _from(model: ReuseModel, seed: int, near: list[set[int]], soft: dict[Pair, int]) -> tuple[int, list[int]]:
    """Return the largest bound of the cliques that grow from ``seed``, and its clique."""
    size = model.size.tolist()
    clique, open_units, best = [seed], set(near[seed]), (0, [seed])
    paid = dict.fromkeys(open_units, 0)
    while open_units:
        last = clique[-1]
        for unit in open_units:
            paid[unit] += soft.get((min(unit, last), max(unit, last)), 0) > 0
        chosen = max(open_units, key=lambda unit: (paid[unit] + (len(clique) - paid[unit]) // 2, size[unit], -unit))
        clique.append(chosen)
        open_units = open_units & near[chosen]
        bound = clique_bound(model, clique, soft)
        if bound > best[0]:
            best = (bound, list(clique))
    return best


def clique_bound(model: ReuseModel, clique: list[int], soft: dict[Pair, int]) -> int:
    """Return the lower bound of the penalties ``soft`` between the units of a clique."""
    grid = min(int(model.align[unit]) for unit in clique)
    size = {unit: -(-int(model.size[unit]) // grid) * grid for unit in clique}
    reserved = model.reserved.tolist()
    ends = [end for _, end in reserved]
    cell = gcd(*size.values(), *(int(model.pin[unit]) for unit in clique if model.pin[unit] >= 0), *ends)
    if any(cell % int(model.align[unit]) for unit in clique):
        cell = grid if all(end % grid == 0 for end in ends) else 1
    room = -(-model.capacity // grid) * grid // cell
    free = room - sum(max(0, min(-(-end // cell), room) - begin // cell) for begin, end in merged(reserved, grid, cell))
    cells = sum(size.values()) // cell
    if free <= 0:
        return 0
    full = cells // free
    need = free * full * (full - 1) // 2 + (cells - free * full) * full
    pairs = [(a, b) for k, a in enumerate(clique) for b in clique[:k]]
    offers = [(soft[pair], min(size[a], size[b]) // cell) for a, b in pairs if (pair := (min(a, b), max(a, b))) in soft]
    cost = 0
    for weight, reach in sorted(offers, key=lambda one: ((one[0] << SHIFT) // one[1], one)):
        part = min(need, reach)
        cost += -(-weight * part // reach)  # only the last pair counts in part
        need -= part
    return cost


def merged(ranges: list[list[int]], grid: int, cell: int) -> list[tuple[int, int]]:
    """Return the cells that no unit covers, sizes being rounded up to ``grid``, as ranges in order."""
    found: list[tuple[int, int]] = []
    for begin, end in sorted(ranges):
        low, high = -(-begin // grid) * grid // cell * cell, -(-end // cell) * cell
        low = max(low, found[-1][1]) if found else low
        if low < high:
            found.append((low, high))
    return found
