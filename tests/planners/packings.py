"""Problems by hand and by Hypothesis, and a checker that shares no code with the planners."""

from collections.abc import Sequence
from dataclasses import replace as problem_with
from itertools import combinations, permutations
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tmmu_core.planners.problem import Packing, Problem


def problem(*rows: tuple[int, int, int], alignment: int | Sequence[int] = 1, **more: Any) -> Problem:
    """Return the problem of rows (birth, death, size) in normative order; ``t0`` is the first row as given."""
    n = len(rows)
    grids = [alignment] * n if isinstance(alignment, int) else list(alignment)
    order = sorted(range(n), key=lambda i: (rows[i][0], -rows[i][2], f"t{i}".encode()))
    return Problem(
        "arena",
        tuple(f"t{i}" for i in order),
        np.array([rows[i][0] for i in order], dtype=np.int64),
        np.array([rows[i][1] for i in order], dtype=np.int64),
        np.array([rows[i][2] for i in order], dtype=np.uint64),
        np.array([grids[i] for i in order], dtype=np.uint64),
        **more,
    )


@st.composite
def problems(draw: st.DrawFn, most: int = 12, steps: int = 10, largest: int = 20, odd: bool = True) -> Problem:
    """Draw small problems with zero sizes, alignments, gaps, in-place reuse and pairs that must not alias."""
    n = draw(st.integers(0, most))
    rows = []
    for _ in range(n):
        birth = draw(st.integers(0, steps - 1))
        rows.append((birth, draw(st.integers(birth + 1, steps)), draw(st.integers(0, largest))))
    grids = draw(st.lists(st.sampled_from([1, 1, 2, 4, 8]), min_size=n, max_size=n))
    plain = problem(*rows, alignment=grids)
    if not odd or not n:
        return plain
    gaps = tuple(draw(_gaps(int(birth), int(death))) for birth, death in zip(plain.birth, plain.death, strict=True))
    handoff = np.full(n, -1, dtype=np.int64)
    for j in range(n):
        makers = [i for i in range(n) if plain.death[i] == plain.birth[j] and i not in handoff]
        if makers and draw(st.booleans()):
            handoff[j] = draw(st.sampled_from(makers))
    pairs = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=3))
    pairs = [(i, j) for i, j in pairs if i < j]
    return problem_with(
        plain,
        gaps=gaps if draw(st.booleans()) else None,
        handoff_from=handoff if (handoff >= 0).any() else None,
        must_not_alias=np.array(pairs, dtype=np.int64) if pairs else None,
    )


@st.composite
def _gaps(draw: st.DrawFn, birth: int, death: int) -> tuple[tuple[int, int], ...]:
    if not draw(st.booleans()):
        return ()
    begin = draw(st.integers(birth, death - 1))
    return ((begin, draw(st.integers(begin + 1, death))),)


def live_steps(p: Problem, i: int) -> set[int]:
    """Return every step at which a storage holds bytes."""
    steps = set(range(int(p.birth[i]), int(p.death[i])))
    for begin, stop in p.gaps[i] if p.gaps is not None else ():
        steps -= set(range(begin, stop))
    return steps


def live_moments(p: Problem) -> list[set[int]]:
    """Return, per storage, the steps at which it holds bytes, among the steps at which any storage begins to."""
    starts = {int(birth) for birth in p.birth} | {stop for gaps in p.gaps or () for _, stop in gaps}
    return [
        {
            t
            for t in starts
            if p.birth[i] <= t < p.death[i] and not any(a <= t < b for a, b in (p.gaps[i] if p.gaps else ()))
        }
        for i in range(len(p))
    ]


def faults(p: Problem, offset: Sequence[int]) -> list[str]:
    """Return every fault of a packing, found pair by pair and step by step; empty if it is valid."""
    at = [int(x) for x in offset]
    size = [max(int(x), 1) for x in p.size]
    found = [f"{p.ids[i]} off its grid" for i in range(len(p)) if at[i] % int(p.alignment[i])]
    if len(at) != len(p):
        return ["not one offset per storage"]
    if p.fixed is not None:
        found += [f"{p.ids[i]} not where it is fixed" for i in range(len(p)) if p.fixed[i] not in (-1, at[i])]
    never = {frozenset(map(int, pair)) for pair in (p.must_not_alias if p.must_not_alias is not None else ())}
    alive = live_moments(p)
    for i, j in combinations(range(len(p)), 2):
        if at[i] + size[i] <= at[j] or at[j] + size[j] <= at[i]:
            continue
        if alive[i] & alive[j] or frozenset((i, j)) in never:
            found.append(f"{p.ids[i]} and {p.ids[j]} share bytes")
        elif p.handoff_from is not None:
            for source, target in ((i, j), (j, i)):
                if p.handoff_from[target] == source and at[source] != at[target]:
                    found.append(f"{p.ids[target]} overlaps {p.ids[source]}, which it may reuse only at its offset")
    return found


def extent(p: Problem, offset: Sequence[int]) -> int:
    """Return the end of the highest storage."""
    return max((int(at) + max(int(size), 1) for at, size in zip(offset, p.size, strict=True)), default=0)


def smallest_extent(p: Problem) -> int:
    """Return the least extent, by trying every placement order from below and every choice of in-place reuses.

    In a packing of least extent, storages joined by in-place reuse are one unit. Each unit, in the order of offsets,
    can be moved down to the end of an earlier unit that it conflicts with, or of a fixed one.
    """
    n = len(p)
    sizes = [max(int(x), 1) for x in p.size]
    alive = [live_steps(p, i) for i in range(n)]
    never = {frozenset(map(int, pair)) for pair in (p.must_not_alias if p.must_not_alias is not None else ())}
    handoffs = [(int(i), j) for j, i in enumerate(p.handoff_from) if i >= 0] if p.handoff_from is not None else []
    apart = never | {frozenset(pair) for pair in handoffs}
    clash = [[bool(alive[i] & alive[j]) or frozenset((i, j)) in apart for j in range(n)] for i in range(n)]
    best = sum(sizes) + sum(int(a) for a in p.alignment) + max([0, *(p.fixed if p.fixed is not None else ())])
    for count in range(len(handoffs) + 1):
        for taken in combinations(handoffs, count):
            units = _units(p, taken, clash, never)
            if units is not None:
                for order in permutations(units):
                    best = min(best, _from_below(p, order, sizes, clash, best))
    return int(best)


Unit = tuple[tuple[int, ...], int, int]
"""Storages at one offset, their coarsest grid, and the offset if it is fixed, else −1."""


def _units(
    p: Problem, taken: Sequence[tuple[int, int]], clash: list[list[bool]], never: set[frozenset[int]]
) -> list[Unit] | None:
    """Return the storages grouped by the in-place reuses taken; ``None`` if these exclude each other."""
    group = list(range(len(p)))
    for i, j in taken:
        if frozenset((i, j)) in never:
            return None
        group = [group[i] if g == group[j] else g for g in group]
    units = []
    for g in sorted(set(group)):
        members = tuple(i for i in range(len(p)) if group[i] == g)
        fixed = {int(p.fixed[i]) for i in members if p.fixed is not None and p.fixed[i] >= 0}
        grid = max(int(p.alignment[i]) for i in members)
        wrong = [1 for i, j in combinations(members, 2) if clash[i][j] and (i, j) not in taken and (j, i) not in taken]
        if wrong or len(fixed) > 1 or any(at % grid for at in fixed):
            return None
        units.append((members, grid, min(fixed, default=-1)))
    return units


def _from_below(p: Problem, order: Sequence[Unit], sizes: list[int], clash: list[list[bool]], best: int) -> int:
    at: dict[int, int] = {}
    pinned = {i: fixed for members, _, fixed in order if fixed >= 0 for i in members}
    unit = {i: k for k, (members, _, _) in enumerate(order) for i in members}
    for i, j in combinations(pinned, 2):
        overlap = pinned[i] < pinned[j] + sizes[j] and pinned[j] < pinned[i] + sizes[i]
        if overlap and clash[i][j] and unit[i] != unit[j]:
            return best
    for members, grid, fixed in order:
        if fixed >= 0:
            continue
        low = max([0, *(at[j] + sizes[j] for j in at for i in members if clash[i][j])])
        low = -(-low // grid) * grid
        while any(
            clash[i][j] and low < pinned[j] + sizes[j] and pinned[j] < low + sizes[i] for i in members for j in pinned
        ):
            low += grid
        if low >= best:
            return best
        at |= dict.fromkeys(members, low)
    return max((where + sizes[i] for i, where in {**at, **pinned}.items()), default=0)


def offsets(packing: Packing) -> list[int]:
    """Return the offsets as Python integers."""
    return [int(x) for x in packing.offset]
