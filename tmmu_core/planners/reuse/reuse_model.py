"""The placement problem with reuse costs as units and edges.

Colocated buffers (at the same offset) are one unit. Two units have a hard edge if members must not share a byte (live
together, or separated), and an edge for each reuse penalty between members. An edge has the sizes of both members: it
is active if ``[a, a + own_size)`` and ``[b, b + other_size)`` overlap; ``a`` and ``b`` are the offsets of the units.
All members of a unit begin at its offset, so one hard edge with the largest sizes is enough.
"""

from dataclasses import dataclass

import numpy as np

from tmmu_core.base.disjoint_sets import DisjointSets
from tmmu_core.base.errors import AllocationOverflow
from tmmu_core.planners.problem import I64, Problem, ReuseTerms, live_parts

Pair = tuple[int, int]
HARD = -1  # weight of an edge that must not be active
LARGEST = 2**61  # upper limit of the capacity and of sums of sizes and costs; the capacity of an unlimited arena


@dataclass(frozen=True, eq=False)
class ReuseModel:
    """Units and edges as columns; both units of an edge list it."""

    unit_of: I64  # unit of each storage of the problem
    capacity: int
    size: I64  # bytes of the largest member
    align: I64
    pin: I64  # fixed offset, or −1; −1 for a unit without bytes
    first: I64  # shape (n + 1,): first edge of each unit in the columns ``other`` to ``weight``
    other: I64
    own_size: I64
    other_size: I64
    weight: I64  # cost, or ``HARD``
    empty_at: I64  # final offset of a unit without bytes (its fixed offset, else 0), which may exceed the capacity
    reserved: I64  # shape (r, 2): byte ranges without storages
    unavoidable: int  # cost of penalties between colocated storages
    contradiction: str = ""  # the constraints that contradict each other, so that no placement exists; else empty

    def __len__(self) -> int:
        return len(self.size)

    def edges(self) -> list[tuple[int, int, int, int, int]]:
        """Return every edge once: ``(unit, other, own_size, other_size, weight)`` with ``unit < other``."""
        unit = np.repeat(np.arange(len(self)), np.diff(self.first))
        rows = np.stack([unit, self.other, self.own_size, self.other_size, self.weight], axis=1)
        return [(a, b, s, t, w) for a, b, s, t, w in rows.tolist() if a < b]


def live_together(problem: Problem) -> list[tuple[int, int]]:
    """Return the pairs of storages that are live at the same step (not in a gap), by index, sorted."""
    first, begins, ends = live_parts(problem)
    storage = np.repeat(np.arange(len(problem)), np.diff(first)).tolist()
    # This planner does not reuse in place: a storage that an output could reuse stays live at its last read.
    reusable = set() if problem.handoff_from is None else set(problem.handoff_from.tolist())
    death, rows = problem.death.tolist(), zip(begins.tolist(), ends.tolist(), storage, strict=True)
    parts = sorted([(lo, hi + (i in reusable and hi == death[i]), i) for lo, hi, i in rows])
    pairs: set[tuple[int, int]] = set()
    alive: list[tuple[int, int]] = []
    for lo, hi, i in parts:
        alive = [(end, j) for end, j in alive if end > lo]
        pairs.update((min(i, j), max(i, j)) for _, j in alive if i != j)
        alive.append((hi, i))
    return sorted(pairs)


def _hard_edges(problem: Problem, terms: ReuseTerms, unit: list[int], pin: list[int]) -> tuple[dict[Pair, Pair], str]:
    """Return the edge sizes of each pair of units that must not share a byte, and a contradiction (empty: none)."""
    sizes = problem.size.tolist()
    excluded = {(min(pair), max(pair)) for pair in terms.exclusions}
    separated = () if problem.must_not_alias is None else problem.must_not_alias.tolist()
    hard, contradiction = dict[Pair, Pair](), ""
    for a, b in [*(pair for pair in live_together(problem) if pair not in excluded), *map(sorted, separated)]:
        if not (sizes[a] and sizes[b]):
            continue
        if unit[a] == unit[b]:
            contradiction = (
                f'"{problem.ids[a]}" and "{problem.ids[b]}" are at the same offset and must not share a byte'
            )
            continue
        (i, s), (j, t) = sorted([(unit[a], sizes[a]), (unit[b], sizes[b])])
        if min(pin[i], pin[j]) >= 0 and pin[i] < pin[j] + t and pin[j] < pin[i] + s:
            fixed_a, fixed_b = pin[unit[a]], pin[unit[b]]
            contradiction = f'"{problem.ids[a]}" at {fixed_a} and "{problem.ids[b]}" at {fixed_b} must not share a byte'
        first, second = hard.get((i, j), (0, 0))
        hard[i, j] = max(s, first), max(t, second)
    return hard, contradiction


def _check_sums(problem: Problem, terms: ReuseTerms, fixed: list[int]) -> None:
    """Raise ``AllocationOverflow`` if offsets or costs could exceed :data:`LARGEST`."""
    sizes, grid = problem.size.tolist(), int(problem.alignment.max(initial=0))
    reach = sum(sizes) + grid
    if problem.capacity > LARGEST:  # the capacity of the model is LARGEST, which must not exclude a placement
        ends = [at for at, nbytes in zip(fixed, sizes, strict=True) if nbytes] + [end for _, end in terms.reserved]
        reach = sum(sizes) + len(sizes) * grid + max([0, *ends])
    for total, what in (
        (reach, "the sizes, alignments, fixed offsets and reserved ranges"),
        (sum(cost for *_, cost in terms.penalties), "the reuse penalties"),
    ):
        if total > LARGEST:
            raise AllocationOverflow(
                f"{what} of arena {problem.arena!r} add up to {total:,}, over 2^61.",
                arena=problem.arena,
                offset=0,
                size=total,
                hint="Lower the largest value.",
            )


def reuse_model(problem: Problem) -> ReuseModel:
    """Return the model of a problem. A storage without bytes has no edges; its alignment and fixed offset apply.

    Raises ``AllocationOverflow`` for sums over 2^61.
    """
    terms, n = problem.reuse or ReuseTerms(), len(problem)
    colocated = DisjointSets(n)
    for a, b in terms.colocations:
        colocated.join(a, b)
    unit = np.unique(colocated.names(), return_inverse=True)[1].tolist()
    units = max(unit, default=-1) + 1
    sizes, alignments = problem.size.tolist(), problem.alignment.tolist()
    fixed = [-1] * n if problem.fixed is None else problem.fixed.tolist()
    _check_sums(problem, terms, fixed)
    size, align, pin, pin_error = [0] * units, [1] * units, [-1] * units, ""
    for i, u in enumerate(unit):
        size[u], align[u] = max(size[u], sizes[i]), max(align[u], alignments[i])
        if fixed[i] >= 0:
            if pin[u] not in (-1, fixed[i]):
                pin_error = f'"{problem.ids[i]}" at {fixed[i]} and a buffer at {pin[u]} must be at the same offset'
            pin[u] = fixed[i]
    for i, at in enumerate(pin[u] for u in unit):
        if at >= 0 and at % alignments[i]:
            pin_error = f'"{problem.ids[i]}" is at {at}, which is not a multiple of its alignment {alignments[i]}'
        for begin, end in terms.reserved:
            if at >= 0 and max(at, begin) < min(at + sizes[i], end):
                pin_error = f'"{problem.ids[i]}" at {at} overlaps the reserved range from {begin} to {end}'
    hard, edge_error = _hard_edges(problem, terms, unit, pin)
    rows = [(i, j, s, t, HARD) for (i, j), (s, t) in hard.items()]
    unavoidable = 0
    for a, b, weight in terms.penalties:
        if not (sizes[a] and sizes[b]):
            continue
        (i, s), (j, t) = sorted([(unit[a], sizes[a]), (unit[b], sizes[b])])
        first, second = hard.get((i, j), (0, 0))
        if i == j:
            unavoidable += weight
        elif weight and not (first >= s and second >= t):
            rows.append((i, j, s, t, weight))
    table = np.array(sorted([*rows, *((j, i, t, s, w) for i, j, s, t, w in rows)]), np.int64).reshape(-1, 5)
    other, own_size, other_size, weight_of = (np.ascontiguousarray(column) for column in table[:, 1:].T)
    return ReuseModel(
        unit_of=np.array(unit, np.int64),
        capacity=min(problem.capacity, LARGEST),
        size=np.array(size, np.int64),
        align=np.array(align, np.int64),
        pin=np.where(np.array(size) > 0, np.array(pin, np.int64), -1),
        empty_at=np.maximum(pin, 0),
        first=np.searchsorted(table[:, 0], np.arange(units + 1)).astype(np.int64),
        other=other,
        own_size=own_size,
        other_size=other_size,
        weight=weight_of,
        reserved=np.array(terms.reserved, np.int64).reshape(-1, 2),
        unavoidable=unavoidable,
        contradiction=edge_error or pin_error,
    )
