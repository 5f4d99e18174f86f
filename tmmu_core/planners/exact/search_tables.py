"""Integer tables of the branch and bound: one row per unit, section or event.

Tables are few and wide, because each is one argument of the native library.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tmmu_core.planners.exact.search_model import Model
from tmmu_core.planners.native import native
from tmmu_core.planners.native.load import library
from tmmu_core.planners.problem import I64

# Columns of ``Tables.unit``: first row of the unit in other tables (the last row is the end), then its properties.
ENTRIES, NEIGHBOURS, MATES, WALLS, ALIGNMENT, MAX_HEIGHT, FIXED, TWIN = range(8)
# Columns of ``Tables.entry``.
SECTION, HEIGHT, OWNER = range(3)
# Columns of ``Tables.neighbour``: the neighbour, and the greatest height of each of the two where they share a
# section.
OTHER, OWN_HEIGHT, OTHER_HEIGHT = range(3)

# Columns of ``State.unit`` and ``State.section`` that are set before the search or read after it.
LOW, LEVEL, HOLE, FILLER = 0, 3, 4, 7
OPEN_BYTES, OPEN_UNITS, LOWEST, SECOND_LOWEST, FAILURES = 0, 1, 2, 3, 5


class Tables(NamedTuple):
    """Constant tables of n units in m sections; ``unit`` has the first row of each unit in the other tables."""

    unit: I64
    """(n + 1, 8): ``ENTRIES … TWIN``; ``FIXED``: offset or −1; ``TWIN``: next identical unit or −1."""
    entry: I64
    """(r, 3): ``SECTION, HEIGHT, OWNER``, by unit, then section."""
    first: I64
    """(m + 1,): first row of each section in ``State.order``."""
    neighbour: I64
    """(k, 3): ``OTHER, OWN_HEIGHT, OTHER_HEIGHT``; neighbours share a section."""
    mate: I64
    """Units of the same sections and a single height each: two of them, one directly on the other, can be swapped."""
    wall: I64
    """(w, 3): fixed units that a unit must not overlap: begin, end, and its own height there."""


class State(NamedTuple):
    """Tables that the native search changes, and from which the plain one begins."""

    unit: I64
    """(n, 14): ``LOW``: lower bound of the offset, and the offset of a packing that was found."""
    section: I64
    """(m, 6): unplaced bytes and units, the two lowest of these, number of conflicts."""
    order: I64
    """(r, 2): entries by section, unplaced ones first; and the row of each entry."""


def build_tables(model: Model) -> Tables:
    """Return the constant tables of a model."""
    n, r = len(model), len(model.section)
    owner = model.owner
    by_section = _by_section(model)
    first = np.searchsorted(model.section[by_section], np.arange(model.sections + 1)).astype(np.int64)
    max_height = model.greatest(model.height)
    unit = np.zeros((n + 1, 8), dtype=np.int64)
    unit[:, ENTRIES] = model.entry_of
    unit[:n, ALIGNMENT], unit[:n, MAX_HEIGHT], unit[:n, FIXED] = model.align, max_height, model.fixed
    unit[:n, TWIN], mates = _twins_and_mates(model, max_height)
    unit[1:, MATES] = np.cumsum([len(row) for row in mates])
    walls = _walls(model)
    unit[1:, WALLS] = np.cumsum([len(row) for row in walls])
    entry = np.column_stack([model.section, model.height, owner]).astype(np.int64).reshape(r, 3)
    unit[:, NEIGHBOURS], neighbour = neighbour_table(model.entry_of, entry, first, by_section)
    return Tables(
        unit,
        entry,
        first,
        neighbour,
        np.asarray([u for row in mates for u in row], dtype=np.int64),
        np.asarray([wall for row in walls for wall in row], dtype=np.int64).reshape(-1, 3),
    )


def initial_state(model: Model, tables: Tables) -> State:
    """Return the state before any decision."""
    unit = np.zeros((len(model), 14), dtype=np.int64)
    unit[:, LOW] = np.maximum(model.fixed, 0)
    walls = tables.unit[:, WALLS]
    for u in np.flatnonzero((np.diff(walls) > 0) & (model.fixed < 0)).tolist():
        rows = tables.wall[walls[u] : walls[u + 1]].tolist()
        unit[u, LOW] = lowest_allowed_offset(int(model.align[u]), rows, 0)
    unit[:, [LEVEL, HOLE, FILLER]] = -1
    section = np.zeros((model.sections, 6), dtype=np.int64)
    np.add.at(section[:, OPEN_BYTES], model.section, model.height)
    section[:, OPEN_UNITS] = np.diff(tables.first)
    section[:, [LOWEST, SECOND_LOWEST]] = -1
    order = np.empty((len(model.section), 2), dtype=np.int64)
    order[:, 0] = _by_section(model)
    order[order[:, 0], 1] = np.arange(len(order))
    return State(unit, section, order)


def _by_section(model: Model) -> I64:
    """Return the entries sorted by section (stable). Numpy sorts 16-bit keys by radix, six times faster."""
    section = model.section.astype(np.uint16) if model.sections <= 1 << 16 else model.section
    return np.argsort(section, kind="stable")


def _walls(model: Model) -> list[list[tuple[int, int, int]]]:
    """Return, for each movable unit, the fixed units that share a section with it."""
    if not (model.fixed >= 0).any():
        return [[]] * len(model)
    standing: dict[int, list[tuple[int, int]]] = {}
    for u in np.flatnonzero(model.fixed >= 0).tolist():
        at = int(model.fixed[u])
        for e in range(model.entry_of[u], model.entry_of[u + 1]):
            standing.setdefault(int(model.section[e]), []).append((at, at + int(model.height[e])))
    rows = []
    for u in range(len(model)):
        mine: set[tuple[int, int, int]] = set()
        if model.fixed[u] < 0:
            for e in range(model.entry_of[u], model.entry_of[u + 1]):
                for lo, hi in standing.get(int(model.section[e]), ()):
                    mine.add((lo, hi, int(model.height[e])))
        rows.append(sorted(mine))
    return rows


def _twins_and_mates(model: Model, max_height: I64) -> tuple[I64, list[list[int]]]:
    """Return the next identical unit of each unit, and the units that it can be swapped with."""
    n = len(model)
    twins: dict[object, int] = {}
    spans: dict[object, list[int]] = {}
    twin = np.full(n, -1, dtype=np.int64)
    mates: list[list[int]] = [[] for _ in range(n)]
    any_fixed = bool((model.fixed >= 0).any())
    for u in _twin_candidates(model):
        if model.fixed[u] >= 0:
            continue
        rows = slice(model.entry_of[u], model.entry_of[u + 1])
        where, heights = model.section[rows].tobytes(), model.height[rows]
        grid, high = int(model.align[u]), int(max_height[u])
        name = (where, heights.tobytes(), grid)
        if name in twins:
            twin[twins[name]] = u
        twins[name] = u
        if not any_fixed and bool((heights == high).all()) and high % grid == 0:
            spans.setdefault((where, grid), []).append(u)
    for group in spans.values():
        for u in group:
            mates[u] = [w for w in group if w != u]
    return twin, mates


def _twin_candidates(model: Model) -> list[int]:
    """Return the units with the first section, last section and number of sections of another unit, ascending."""
    begin, end = model.entry_of[:-1], model.entry_of[1:]
    span = (model.section[begin] * model.sections + model.section[end - 1]) * (model.sections + 1) + (end - begin)
    order = np.argsort(span, kind="stable")
    same = span[order[1:]] == span[order[:-1]]
    several = np.zeros(len(model), np.bool_)
    several[order[1:][same]] = several[order[:-1][same]] = True
    alike: list[int] = np.flatnonzero(several).tolist()
    return alike


def lowest_allowed_offset(grid: int, walls: Sequence[Sequence[int]], at: int) -> int:
    """Return the lowest multiple of ``grid`` ≥ ``at`` at which a unit overlaps none of its walls (``Tables.wall``)."""
    at = (at + grid - 1) & -grid
    moved = True
    while moved:
        moved = False
        for begin, end, height in walls:
            if at < end and begin < at + height:
                at = (end + grid - 1) & -grid
                moved = True
    return at


def neighbour_table(entry_of: I64, entry: I64, first: I64, by_section: I64) -> tuple[I64, I64]:
    """Return the neighbours of each unit (units that share a section): the first row per unit, and the rows
    ``OTHER, OWN_HEIGHT, OTHER_HEIGHT``.
    """
    loops = library()
    if loops is not None:
        return native.neighbours(loops, entry_of, entry, first, by_section)
    begin, rows = [0], list[tuple[int, int, int]]()
    for u in range(len(entry_of) - 1):
        found: dict[int, tuple[int, int]] = {}
        for section, height, _ in entry[entry_of[u] : entry_of[u + 1]].tolist():
            for _, other_height, w in entry[by_section[first[section] : first[section + 1]]].tolist():
                if w != u:
                    own, other = found.get(w, (0, 0))
                    found[w] = max(own, height), max(other, other_height)
        rows += [(w, *heights) for w, heights in found.items()]
        begin.append(len(rows))
    return np.array(begin, np.int64), np.array(rows, np.int64).reshape(-1, 3)
