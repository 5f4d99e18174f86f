"""Check the constraints of a plan, its reuse cost, and the lower bound of this cost (contract §12, "Reuse costs")."""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain, combinations, product
from math import ceil, gcd, inf, lcm

from tmmu_core.judge.finding import Finding, error
from tmmu_core.judge.reference.liveness import Groups
from tmmu_core.plans.model import PART, Constraints, Plan

MOST_OFFSETS = 300  # maximum number of offsets that a search tries, over all units of a group
MOST_NODES = 40_000  # maximum number of nodes of a search
MOST_CELLS = 10**6  # maximum number of cells in an arena with reserved bytes
HARD = inf  # cost of a pair that must not share a byte

Edges = dict[tuple[int, int], list[tuple[int, int, float]]]
"""(unit i, unit j) → ``(bytes of x, bytes of y, cost)`` of each tensor pair with a cost: x in unit i, y in unit j."""


def rows_by_name(plan: Plan) -> dict[str, list[int]]:
    """Return the rows of each tensor: one, or one per live part if its live range has gaps."""
    found: dict[str, list[int]] = {}
    for row, tensor in enumerate(plan.tensor_ids):
        name, mark, number = tensor.rpartition(PART)
        is_part = mark and number.isdigit() and name in plan.row_of
        found.setdefault(name if is_part else tensor, []).append(row)
    return found


def excluded_storages(plan: Plan) -> frozenset[frozenset[int]]:
    """Return the pairs of storages that may share bytes although their live ranges overlap."""
    if plan.constraints is None or not plan.constraints.exclusions:
        return frozenset()
    rows, storage = rows_by_name(plan), plan.storage.tolist()
    return frozenset(
        frozenset((storage[i], storage[j]))
        for first, second in plan.constraints.exclusions
        for i, j in product(rows.get(first, ()), rows.get(second, ()))
    )


def check_constraints(plan: Plan) -> Iterator[Finding]:
    """Check rule ``constraint``."""
    terms = plan.constraints
    if terms is None:
        return
    rows, begin, size = rows_by_name(plan), plan.offset.tolist(), plan.size.tolist()
    pairs = [*terms.separations, *terms.colocations, *terms.exclusions, *(term[:2] for term in terms.reuse_penalties)]
    for first, second in pairs:
        if first == second:
            yield error("constraint", f"a constraint pairs {first!r} with itself.", tensor=first)
    for name in sorted({name for pair in pairs for name in pair} | terms.pinned.keys()):
        if name not in rows:
            yield error("constraint", f"a constraint names {name!r}, which is not a tensor of the plan.", tensor=name)
    for name in sorted(terms.reserved.keys() - plan.arena_of.keys()):
        yield error("constraint", f"bytes are reserved in {name!r}, which is not an arena of the plan.", arena=name)
    for first, second in terms.separations:
        if _share_bytes(plan, rows, first, second):
            message = f"{first!r} and {second!r} are separated but share bytes."
            yield error("constraint", message, tensor=first, other=second)
    for first, second in terms.colocations:
        places = {(int(plan.arena[i]), begin[i]) for name in (first, second) for i in rows.get(name, ())}
        if len(places) > 1:
            message = f"{first!r} and {second!r} are colocated but not at one offset."
            yield error("constraint", message, tensor=first, other=second)
    for name, offset in terms.pinned.items():
        for i in rows.get(name, ()):
            if begin[i] != offset:
                yield error("constraint", f"{name!r} is pinned to {offset} but is at {begin[i]}.", tensor=name)
    for i, number in enumerate(plan.arena.tolist()):
        for low, high in terms.reserved.get(plan.arenas[number].name, ()):
            if max(begin[i], low) < min(begin[i] + size[i], high):
                name = plan.tensor_ids[i]
                yield error("constraint", f"{name!r} uses the reserved bytes [{low}, {high}).", tensor=name)


def check_reuse_cost(plan: Plan) -> Iterator[Finding]:
    """Check rule ``reuse_cost``."""
    terms, rows = plan.constraints, rows_by_name(plan)
    cost_of_arena = dict.fromkeys(plan.arena_of, 0 if terms is not None else None)
    for first, second, cost in terms.reuse_penalties if terms is not None else ():
        if cost < 0:
            yield error("reuse_cost", f"the penalty of {first!r} and {second!r} is negative.", tensor=first)
        if _share_bytes(plan, rows, first, second):
            name = plan.arenas[plan.arena[rows[first][0]]].name
            cost_of_arena[name] = (cost_of_arena[name] or 0) + cost
    for arena in plan.arenas:
        if arena.reuse_cost != cost_of_arena[arena.name]:
            message = f"{arena.name} has the reuse cost {arena.reuse_cost}; the rows give {cost_of_arena[arena.name]}."
            yield error("reuse_cost", message, arena=arena.name)
        if (arena.reuse_cost_lower_bound or 0) > (arena.reuse_cost or 0):
            message = f"{arena.name}: the bound of the reuse cost, {arena.reuse_cost_lower_bound}, is above the cost."
            yield error("reuse_cost", message, arena=arena.name)


def _share_bytes(plan: Plan, rows: dict[str, list[int]], first: str, second: str) -> bool:
    """Return whether the byte ranges of the two tensors overlap, live or not."""
    return any(
        plan.arena[i] == plan.arena[j]
        and max(plan.offset[i], plan.offset[j]) < min(plan.offset[i] + plan.size[i], plan.offset[j] + plan.size[j])
        for i, j in product(rows.get(first, ()), rows.get(second, ()))
    )


@dataclass(frozen=True)
class Unit:
    """Tensors that are colocated: they have one offset."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    alignment: int
    pin: int  # fixed offset, or −1
    offset: int  # its offset in the plan
    size: int  # bytes of the largest tensor


class CostBounds:
    """Lower bounds of the reuse cost, one per arena. A witness has groups of tensors; a penalty counts in one group."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.terms, self.rows = plan, plan.constraints or Constraints(), rows_by_name(plan)
        self.separated = {frozenset(pair) for pair in self.terms.separations}
        self.excluded = {frozenset(pair) for pair in self.terms.exclusions}
        self.penalties: dict[frozenset[str], int] = {}
        for first, second, cost in self.terms.reuse_penalties:
            pair = frozenset((first, second))
            if first != second:
                self.penalties[pair] = self.penalties.get(pair, 0) + cost
        self.colocated = Groups({*self.rows, *chain.from_iterable((*self.terms.colocations, *self.penalties))})
        for first, second in self.terms.colocations:
            self.colocated.join(first, second)

    def bound_of(self, number: int) -> int:
        """Return the bound of arena ``number``: by its witness, plus the penalties of colocated pairs (always paid)."""
        arena, bound, penalties = self.plan.arenas[number], 0, dict(self.penalties)
        reserved = self.terms.reserved.get(arena.name, ())
        for names in arena.reuse_cost_witness or ():
            units = list({unit.names: unit for name in names if (unit := self._unit(name, number))}.values())
            edges: Edges = {}
            for i, j in combinations(range(len(units)), 2):
                if costs := self._pair_costs(units[i], units[j], penalties):
                    edges[i, j], edges[j, i] = costs, [(size_b, size_a, cost) for size_a, size_b, cost in costs]
            limits = arena.capacity_bytes, reserved
            bound += max(bound_by_counting(units, edges, *limits), bound_by_search(units, edges, *limits))
        for first, second in map(sorted, self.penalties):
            rows = [row for name in (first, second) for row in self.rows.get(name, ())]
            is_in_arena = all(self.plan.arena[row] == number and self.plan.size[row] for row in rows)
            if is_in_arena and self.colocated.leader(first) == self.colocated.leader(second):
                bound += penalties[frozenset((first, second))]
        return bound

    def _unit(self, name: str, number: int) -> Unit | None:
        """Return a tensor and its colocated tensors as a unit; ``None`` if all are empty or one is not in the arena."""
        members = sorted(self.colocated.members(name)) if name in self.rows else [name]
        if any(other not in self.rows or self.plan.arena[self.rows[other][0]] != number for other in members):
            return None
        rows = [self.rows[other][0] for other in members]
        sizes = tuple(self.plan.size[rows].tolist())
        if not (size := max(sizes)):
            return None
        pin = max(self.terms.pinned.get(other, -1) for other in members)
        align = lcm(*self.plan.alignment[rows].tolist())
        return Unit(tuple(members), sizes, align, pin, int(self.plan.offset[rows[0]]), size)

    def _pair_costs(self, a: Unit, b: Unit, penalties: dict[frozenset[str], int]) -> list[tuple[int, int, float]]:
        """Return the value of :data:`Edges` for two units. Set the used penalties to 0: each counts only once."""
        found: list[tuple[int, int, float]] = []
        birth, death = self.plan.birth, self.plan.death
        for (x, size_a), (y, size_b) in product(zip(a.names, a.sizes, strict=True), zip(b.names, b.sizes, strict=True)):
            pair = frozenset((x, y))
            if not (size_a and size_b):
                continue
            rows = product(self.rows[x], self.rows[y])
            together = any(birth[i] < death[j] and birth[j] < death[i] for i, j in rows)
            if pair in self.separated or (together and pair not in self.excluded):
                found.append((size_a, size_b, HARD))
            elif pair in penalties:
                found.append((size_a, size_b, penalties[pair]))
                penalties[pair] = 0
        return found


def bound_by_counting(units: list[Unit], edges: Edges, capacity: int, reserved: tuple[tuple[int, int], ...]) -> int:
    """Return a lower bound of the cost: if the units have more cells than are free, pairs of units share cells.

    A cell has the size of the greatest common divisor of rounded sizes, pins and ends of reserved ranges. A pair pays
    for each shared cell at least its penalty divided by the cells of its smaller unit. The bound is 0 without units or
    free cells, over ``MOST_CELLS``, or if two units have no cost for their largest tensors.
    """
    costs: dict[tuple[int, int], float] = {}
    for (i, j), pairs in edges.items():
        sizes = units[i].size, units[j].size
        of_largest = [cost for size_a, size_b, cost in pairs if (size_a, size_b) == sizes]
        if i < j and of_largest:
            costs[i, j] = sum(of_largest)
    if 2 * len(costs) < len(units) * (len(units) - 1) or not units:
        return 0
    grid = min(unit.alignment for unit in units)
    size = [-(-unit.size // grid) * grid for unit in units]
    cell = gcd(*size, *(unit.pin for unit in units if unit.pin >= 0), *(end for _, end in reserved))
    cell_count = -(-capacity // grid) * grid // cell
    blocked: set[int] = set()
    if reserved and cell_count > MOST_CELLS:
        return 0
    for begin, end in reserved:
        blocked |= set(range(-(-begin // grid) * grid // cell, min(end // cell, cell_count)))
    free, total = cell_count - len(blocked), sum(size) // cell
    if free <= 0:
        return 0
    units_per_cell = total // free  # an even distribution has the fewest pairs that share a cell
    shared = free * units_per_cell * (units_per_cell - 1) // 2 + (total - free * units_per_cell) * units_per_cell
    cost = Fraction(0)
    penalties = [(Fraction(int(c)), min(size[i], size[j]) // cell) for (i, j), c in costs.items() if c != HARD]
    for penalty, most in sorted(penalties, key=lambda pair: pair[0] / pair[1]):
        cost += penalty * min(shared, most) / most
        shared -= min(shared, most)
    return ceil(cost)


def bound_by_search(units: list[Unit], edges: Edges, capacity: int, reserved: tuple[tuple[int, int], ...]) -> int:
    """Return the least cost of any placement; 0 above ``MOST_OFFSETS`` or ``MOST_NODES``, or for an invalid plan."""
    offsets = _offsets(units, edges, capacity, reserved)
    least = sum(_cost_at(edges, i, j, units[i].offset, units[j].offset) for i, j in edges if i < j)
    if not offsets or least == HARD:
        return 0
    best, nodes, total = least, 0, len(units)
    bound_from = [0.0] * (total + 1)  # unit → least cost of the pairs among this unit and the later units

    def place(k: int, paid: float, cost_at: list[dict[int, float]]) -> None:
        nonlocal best, nodes
        if k == total:
            best = min(best, paid)
            return
        nodes += 1
        for at, cost in sorted(cost_at[k].items(), key=lambda option: option[1]):
            if paid + cost + bound_from[k + 1] >= best or nodes > MOST_NODES:
                return
            later = list(cost_at)
            for j in range(k + 1, total):
                if (k, j) in edges:
                    later[j] = {x: old + _cost_at(edges, k, j, at, x) for x, old in cost_at[j].items()}
            later_cost = sum(min(later[j].values(), default=HARD) for j in range(k + 1, total))
            if paid + cost + bound_from[k + 1] + later_cost < best:
                place(k + 1, paid + cost, later)

    for first in reversed(range(total)):
        best = least
        place(first, 0, [dict.fromkeys(allowed, 0.0) for allowed in offsets])
        bound_from[first] = best
    return int(bound_from[0]) if nodes <= MOST_NODES else 0


def _cost_at(edges: Edges, i: int, j: int, a: int, b: int) -> float:
    return sum(cost for size_a, size_b, cost in edges[i, j] if a < b + size_b and b < a + size_a)


def _offsets(units: list[Unit], edges: Edges, capacity: int, reserved: tuple[tuple[int, int], ...]) -> list[set[int]]:
    """Return offsets to try per unit: its pin, else 0 and the ends of units and reserved bytes; ``[]`` if too many."""
    # A unit at any other offset can move down to the next of these offsets without a higher cost.
    found: list[set[int]] = [set() for _ in units]
    pending = [(i, end) for i in range(len(units)) for end in (0, *(end for _, end in reserved))]
    while pending:
        i, end = pending.pop()
        unit = units[i]
        at = unit.pin if unit.pin >= 0 else -(-end // unit.alignment) * unit.alignment
        is_free = at + unit.size <= capacity and not any(at < high and low < at + unit.size for low, high in reserved)
        if is_free and at not in found[i]:
            found[i].add(at)
            pending += [(j, at + size_a) for (k, j), between in edges.items() if k == i for size_a, _, _ in between]
        if sum(map(len, found)) > MOST_OFFSETS:
            return []
    return found
