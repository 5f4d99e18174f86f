"""One model, made ready for the compiled search, asked again and again with other ranks and capacities."""

from __future__ import annotations

import numpy as np

from tmmu_core.planners.columns import align_up
from tmmu_core.planners.exact.kernel import FOUND, Shape, State, search
from tmmu_core.planners.exact.model import Model
from tmmu_core.planners.problem import I64


class Searcher:
    """Holds a model's flat tables and asks :func:`search`."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.shape = _shape(model)
        self.tall: list[int] = self.shape.tall.tolist()
        self.fails: I64 = np.zeros(model.sections, dtype=np.int64)
        """How often each section failed in the last search."""

    def ask(self, capacity: int, rank: I64, budget: int) -> tuple[int, int, list[int] | None]:
        """FOUND, INFEASIBLE or SPENT; the nodes it took; the offset per unit if found."""
        state = _fresh(self.model, self.shape)
        nodes = np.zeros(1, dtype=np.int64)
        verdict = search(self.shape, state, rank, capacity, budget, nodes)
        self.fails = state.fails
        return int(verdict), int(nodes[0]), state.natural.tolist() if verdict == FOUND else None


def _shape(model: Model) -> Shape:
    n, r = len(model), len(model.section)
    unit = np.repeat(np.arange(n, dtype=np.int64), np.diff(model.entry_of))
    entry = np.argsort(model.section, kind="stable").astype(np.int64)
    place = np.empty(r, dtype=np.int64)
    place[entry] = np.arange(r)
    tall = np.zeros(n, dtype=np.int64)
    np.maximum.at(tall, unit, model.height)
    first, last = model.entry_of[:-1], model.entry_of[1:] - 1
    walls = _walls(model)
    twin, span = _alike(model, tall, bool((model.fixed >= 0).any()))
    return Shape(
        model.entry_of,
        model.section,
        model.height,
        unit,
        np.searchsorted(model.section[entry], np.arange(model.sections + 1)).astype(np.int64),
        entry,
        place,
        model.align,
        tall,
        np.ascontiguousarray(model.section[first]),
        np.ascontiguousarray(model.section[last]),
        model.fixed,
        twin,
        span,
        *walls,
    )


def _walls(model: Model) -> tuple[I64, I64, I64, I64]:
    """For each free unit, the fixed ones it shares a section with, by section."""
    standing: dict[int, list[tuple[int, int]]] = {}
    for u in np.flatnonzero(model.fixed >= 0).tolist():
        at = int(model.fixed[u])
        for e in range(model.entry_of[u], model.entry_of[u + 1]):
            standing.setdefault(int(model.section[e]), []).append((at, at + int(model.height[e])))
    first, rows = [0], []
    for u in range(len(model)):
        mine: set[tuple[int, int, int]] = set()
        if standing and model.fixed[u] < 0:
            for e in range(model.entry_of[u], model.entry_of[u + 1]):
                for lo, hi in standing.get(int(model.section[e]), ()):
                    mine.add((lo, hi, int(model.height[e])))
        rows += sorted(mine)
        first.append(len(rows))
    table = np.asarray(rows, dtype=np.int64).reshape(-1, 3)
    begin, end, height = (np.ascontiguousarray(table[:, k]) for k in range(3))
    return np.asarray(first, dtype=np.int64), begin, end, height


def _alike(model: Model, tall: I64, any_fixed: bool) -> tuple[I64, I64]:
    """Numbers that identical units share, and numbers that units share which may be swapped when one is on another."""
    n = len(model)
    twins: dict[object, int] = {}
    spans: dict[object, int] = {}
    twin, span = np.arange(n, dtype=np.int64), np.full(n, -1, dtype=np.int64)
    for u in range(n):
        rows = slice(model.entry_of[u], model.entry_of[u + 1])
        where, heights = model.section[rows].tobytes(), model.height[rows]
        grid, high = int(model.align[u]), int(tall[u])
        if model.fixed[u] < 0:
            twin[u] = twins.setdefault((where, heights.tobytes(), grid), u)
            if not any_fixed and bool((heights == high).all()) and high % grid == 0:
                span[u] = spans.setdefault((where, grid), u)
    return twin, span


def _fresh(model: Model, shape: Shape) -> State:
    n, m, r = len(model), model.sections, len(model.section)
    natural = np.where(model.fixed >= 0, model.fixed, 0)
    for u in range(n):
        if shape.wall_of[u] < shape.wall_of[u + 1]:
            natural[u] = _first_free(shape, u)
    rest, count = np.zeros(m, dtype=np.int64), np.diff(shape.list_of)
    np.add.at(rest, model.section, model.height)
    lowest = shape.unit[shape.entry[shape.list_of[:-1]]]
    crossing = np.zeros(m + 1, dtype=np.int64)
    np.add.at(crossing, shape.lo, 1)
    np.subtract.at(crossing, shape.hi, 1)
    heights = max(
        (len(set(model.height[a:b].tolist())) for a, b in zip(model.entry_of, model.entry_of[1:], strict=False)),
        default=1,
    )
    blank = np.zeros
    return State(
        blank(m, np.int64),
        rest,
        count.astype(np.int64),
        shape.entry.copy(),
        shape.place.copy(),
        natural.astype(np.int64),
        blank(n, np.int64),
        np.full(m, -1, dtype=np.int64),
        np.full(m, -1, dtype=np.int64),  # below every natural offset: each section's minimum is found at once
        np.ascontiguousarray(lowest),
        np.cumsum(crossing)[:m].astype(np.int64),
        blank(n, np.int64),
        blank(m, np.int64),
        blank(m, np.int64),
        blank(m, np.int64),
        np.empty(3 * (r + 1), np.int64),
        np.empty(2 * (n * n * heights + 1), np.int64),
        np.empty(3 * (n * m + 1), np.int64),
        blank(3, np.int64),
        blank(m, np.int64),
    )


def _first_free(shape: Shape, u: int) -> int:
    """The lowest offset on the grid off all fixed units in the way."""
    grid, at, moved = int(shape.align[u]), 0, True
    while moved:
        moved = False
        for w in range(shape.wall_of[u], shape.wall_of[u + 1]):
            if at < shape.wall_hi[w] and shape.wall_lo[w] < at + shape.wall_height[w]:
                at, moved = align_up(int(shape.wall_hi[w]), grid), True
    return at
