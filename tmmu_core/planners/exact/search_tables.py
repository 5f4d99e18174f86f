"""Integer tables of the branch and bound. They are few and wide, because each is one argument of the native library."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tmmu_core.planners.columns import align_up
from tmmu_core.planners.exact.search_model import Model
from tmmu_core.planners.native import library, native
from tmmu_core.planners.problem import I64

# Columns of ``Tables.unit``: the first row of the unit in four other tables, then its properties.
ENTRIES, NEIGHBOURS, MATES, WALLS, ALIGNMENT, MAX_HEIGHT, FIXED, TWIN = range(8)
# Columns of ``Tables.entry``.
SECTION, HEIGHT, OWNER = range(3)
# Columns of ``Tables.neighbour``: the neighbour, and the greatest heights of unit and neighbour in common sections.
OTHER, OWN_HEIGHT, OTHER_HEIGHT = range(3)

# Rows of ``State.unit`` and columns of ``State.section`` that Python sets before the search or reads after it.
# ``HOLE``: offset of a hole below the unit (``propagation.py``).
LOW, LEVEL, HOLE = 0, 3, 4
OPEN_BYTES, OPEN_UNITS, LOWEST, SECOND_LOWEST, FAILURES, CEILING = 0, 1, 2, 3, 5, 6
START_COLUMNS = [OPEN_BYTES, OPEN_UNITS, CEILING]


class Tables(NamedTuple):
    """Constant tables of n units in m sections."""

    unit: I64
    """(n + 1, 8): ``ENTRIES … TWIN``. ``FIXED``: offset or −1; ``TWIN``: next identical unit or −1. The last row has
    the ends of the other tables."""
    entry: I64
    """(r, 3): ``SECTION, HEIGHT, OWNER``, by unit, then section. Heights are padded to multiples of a power of two
    that divides all possible offsets in the section."""
    first: I64  # (m + 1,): first position of each section in row 0 of ``State.order``
    neighbour: I64  # (k, 3): ``OTHER, OWN_HEIGHT, OTHER_HEIGHT``, by unit; neighbours share a section
    mate: I64
    """Mates by unit: units of equal sections and alignment, each with one aligned height. None if any unit is fixed."""
    wall: I64
    """(w, 3), by unit u: begin and end of a fixed unit in a section of u, and the height of u in this section."""


class State(NamedTuple):
    """Tables that the native search changes. The plain search copies them, and writes back offsets and failures."""

    unit: I64  # (12, n): ``LOW``: lower bound of the offset; after the search, the offset in the packing that was found
    section: I64
    """(m, 7): unplaced bytes, unplaced units, the two lowest of these units, whether queued, number of failures,
    and ``CEILING``: the highest padded end of a unit within the capacity."""
    order: I64  # (3, r): row 0: entries by section, unplaced first; row 1: position per entry; row 2: units in row 0


def build_tables(model: Model) -> Tables:
    """Return the constant tables of a model."""
    n, r = len(model), len(model.section)
    owner = model.owner
    by_section = _by_section(model)
    first = np.searchsorted(model.section[by_section], np.arange(model.sections + 1)).astype(np.int64)
    unit = np.zeros((n + 1, 8), dtype=np.int64)
    unit[:, ENTRIES] = model.entry_of
    unit[:n, ALIGNMENT], unit[:n, MAX_HEIGHT], unit[:n, FIXED] = model.align, model.max_height, model.fixed
    unit[:n, TWIN], mates = _twins_and_mates(model)
    unit[1:, MATES] = np.cumsum([len(row) for row in mates])
    walls = _walls(model)
    unit[1:, WALLS] = np.cumsum([len(row) for row in walls])
    grid = np.full(model.sections, 1 << 62, dtype=np.int64)
    np.minimum.at(grid, model.section, np.gcd(model.align, np.maximum(model.fixed, 0))[owner])
    padding = -model.height % grid[model.section]
    entry = np.column_stack([model.section, model.height + padding, owner]).astype(np.int64).reshape(r, 3)
    unit[:, NEIGHBOURS], neighbour = neighbour_table(model.entry_of, entry, first, by_section)
    mate = np.asarray([u for row in mates for u in row], dtype=np.int64)
    wall = np.asarray([wall for row in walls for wall in row], dtype=np.int64).reshape(-1, 3)
    return Tables(unit, entry, first, neighbour, mate, wall)


def initial_state(model: Model, tables: Tables, capacity: int) -> State:
    """Return the state before any decision; all units must end at or below ``capacity``."""
    unit = np.zeros((12, len(model)), dtype=np.int64)
    unit[LOW] = np.maximum(model.fixed, 0)
    walls = tables.unit[:, WALLS]
    for u in np.flatnonzero((np.diff(walls) > 0) & (model.fixed < 0)).tolist():
        rows = tables.wall[walls[u] : walls[u + 1]].tolist()
        unit[LOW, u] = lowest_allowed_offset(int(model.align[u]), rows, 0)
    unit[[LEVEL, HOLE]] = -1
    section = np.zeros((model.sections, 7), dtype=np.int64)
    height = tables.entry[:, HEIGHT]
    np.add.at(section[:, OPEN_BYTES], model.section, height)
    highest = np.where(model.fixed < 0, (capacity - model.max_height) // model.align * model.align, model.fixed)
    np.maximum.at(section[:, CEILING], model.section, highest[model.owner] + height)
    section[:, OPEN_UNITS] = np.diff(tables.first)
    section[:, [LOWEST, SECOND_LOWEST]] = -1
    order = np.empty((3, len(model.section)), dtype=np.int64)
    order[0] = _by_section(model)
    order[1, order[0]] = np.arange(len(model.section))
    order[2] = model.owner[order[0]]
    return State(unit, section, order)


def _by_section(model: Model) -> I64:
    """Return the entries sorted by section (stable). Numpy sorts 16-bit keys by radix, six times faster."""
    section = model.section.astype(np.uint16) if model.sections <= 1 << 16 else model.section
    return np.argsort(section, kind="stable")


def _walls(model: Model) -> list[list[tuple[int, int, int]]]:
    """Return the rows of ``Tables.wall`` for each unit, sorted; a fixed unit has none."""
    if not (model.fixed >= 0).any():
        return [[]] * len(model)
    entries = list(zip(model.owner.tolist(), model.section.tolist(), model.height.tolist(), strict=True))
    fixed = model.fixed.tolist()
    fixed_ranges: dict[int, list[tuple[int, int]]] = {}  # by section
    for u, section, height in entries:
        if fixed[u] >= 0:
            fixed_ranges.setdefault(section, []).append((fixed[u], fixed[u] + height))
    walls: list[set[tuple[int, int, int]]] = [set() for _ in fixed]
    for u, section, height in entries:
        if fixed[u] < 0:
            walls[u].update((begin, end, height) for begin, end in fixed_ranges.get(section, ()))
    return [sorted(rows) for rows in walls]


def _twins_and_mates(model: Model) -> tuple[I64, list[list[int]]]:
    """Return the next identical unit of each unit (−1: none), and its mates (``Tables.mate``)."""
    last_twin: dict[object, int] = {}
    groups: dict[object, list[int]] = {}
    twin = np.full(len(model), -1, dtype=np.int64)
    mates: list[list[int]] = [[] for _ in twin]
    any_fixed = bool((model.fixed >= 0).any())
    for u in np.flatnonzero(model.fixed < 0).tolist():
        rows = slice(model.entry_of[u], model.entry_of[u + 1])
        sections, heights = model.section[rows].tobytes(), model.height[rows]
        alignment, high = int(model.align[u]), int(model.max_height[u])
        key = (sections, heights.tobytes(), alignment)
        if key in last_twin:
            twin[last_twin[key]] = u
        last_twin[key] = u
        if not any_fixed and bool((heights == high).all()) and high % alignment == 0:
            groups.setdefault((sections, alignment), []).append(u)
    for group in groups.values():
        for u in group:
            mates[u] = [w for w in group if w != u]
    return twin, mates


def lowest_allowed_offset(alignment: int, walls: Sequence[Sequence[int]], at: int) -> int:
    """Return the lowest aligned offset ≥ ``at`` at which a unit overlaps none of its walls (``Tables.wall``)."""
    at = align_up(at, alignment)
    while ends := [end for begin, end, height in walls if at < end and begin < at + height]:
        at = align_up(max(ends), alignment)
    return at


def neighbour_table(entry_of: I64, entry: I64, first: I64, by_section: I64) -> tuple[I64, I64]:
    """Return ``(begin, Tables.neighbour)``: rows ``begin[u]:begin[u + 1]`` are those of unit u."""
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
