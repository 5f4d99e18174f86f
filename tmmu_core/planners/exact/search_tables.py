"""Integer tables of the branch and bound. They are few and wide, because each is one argument of the native library."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tmmu_core.planners.columns import align_up
from tmmu_core.planners.exact.search_model import Model
from tmmu_core.planners.native import library, native
from tmmu_core.planners.problem import I64

# Columns of ``Tables.unit``: the unit's first row in ``entry``, ``neighbour``, ``mate`` and ``wall``; its alignment;
# its greatest height; its fixed offset, or −1; the next identical unit, or −1.
ENTRIES, NEIGHBOURS, MATES, WALLS, ALIGNMENT, MAX_HEIGHT, FIXED, TWIN = range(8)
# Columns of ``Tables.entry``: a section of a unit; the unit's padded height there; the unit.
SECTION, HEIGHT, OWNER = range(3)
# Columns of ``Tables.neighbour``: the neighbour; greatest heights of unit and neighbour in common sections.
OTHER, OWN_HEIGHT, OTHER_HEIGHT = range(3)

# Rows of ``State.unit``, except those that only the native search uses: lower bound of the offset (after a search that
# succeeds: the offset); level at which the unit was placed, or −1; offset of its hole (``propagation.py``), or −1.
LOW, LEVEL, HOLE = 0, 3, 4
# Columns of ``State.section``, except column 4: bytes and number of the unplaced units; the two lowest of them, or −1;
# number of failures; highest padded end that a unit can have within the capacity.
OPEN_BYTES, OPEN_UNITS, LOWEST, SECOND_LOWEST, FAILURES, CEILING = 0, 1, 2, 3, 5, 6
FIRST_ROWS = 64  # initial number of rows per unit in the native table of neighbours
START_COLUMNS = [OPEN_BYTES, OPEN_UNITS, CEILING]  # columns of ``State.section`` that the plain search reads


class Tables(NamedTuple):
    """Constant tables of n units in m sections."""

    unit: I64  # (n + 1, 8): ``ENTRIES … TWIN``; the last row has the ends of the other tables
    entry: I64
    """(r, 3): ``SECTION, HEIGHT, OWNER``, by unit, then section. Heights are padded to multiples of a power of two
    that divides all possible offsets in the section."""
    first: I64  # (m + 1,): first position of each section in row 0 of ``State.order``
    neighbour: I64  # (k, 3): ``OTHER, OWN_HEIGHT, OTHER_HEIGHT``, by unit; neighbours share a section
    mate: I64
    """Mates by unit: other units with the same sections and alignment. Each of them has one height in all sections, a
    multiple of the alignment. Empty if any unit of the model is fixed."""
    wall: I64
    """(w, 3), by unit u: begin and end of a fixed unit in a section of u, and the height of u in this section."""


class State(NamedTuple):
    """Tables that the native search changes. The plain search copies them; offsets and failures are copied back."""

    unit: I64  # (12, n): rows ``LOW``, ``LEVEL``, ``HOLE`` and others
    section: I64  # (m, 7): columns ``OPEN_BYTES … CEILING``; column 4 is 1 for a queued section
    order: I64  # (3, r): row 0: entries by section, unplaced first; row 1: position per entry; row 2: units in row 0


def build_tables(model: Model) -> Tables:
    """Return the constant tables of a model."""
    n, r, owner = len(model), len(model.section), model.owner
    by_section = _by_section(model)
    first = np.searchsorted(model.section[by_section], np.arange(model.sections + 1)).astype(np.int64)
    unit = np.zeros((n + 1, 8), dtype=np.int64)
    unit[:, ENTRIES] = model.entry_of
    unit[:n, ALIGNMENT], unit[:n, MAX_HEIGHT], unit[:n, FIXED] = model.align, model.max_height, model.fixed
    unit[:n, TWIN] = -1
    last_twin: dict[object, int] = {}
    groups: dict[object, list[int]] = {}
    mates: list[list[int]] = [[] for _ in range(n)]
    any_fixed = bool((model.fixed >= 0).any())
    for u in np.flatnonzero(model.fixed < 0).tolist():
        rows = slice(model.entry_of[u], model.entry_of[u + 1])
        sections, heights = model.section[rows].tobytes(), model.height[rows]
        alignment, high = int(model.align[u]), int(model.max_height[u])
        key = (sections, heights.tobytes(), alignment)
        if key in last_twin:
            unit[last_twin[key], TWIN] = u
        last_twin[key] = u
        if not any_fixed and bool((heights == high).all()) and high % alignment == 0:
            groups.setdefault((sections, alignment), []).append(u)
    for group in groups.values():
        for u in group:
            mates[u] = [w for w in group if w != u]
    unit[1:, MATES] = np.cumsum([len(row) for row in mates])
    walls = [set[tuple[int, int, int]]() for _ in range(n)]
    for e in np.flatnonzero(model.fixed[owner] >= 0).tolist():
        s, at = model.section[e], int(model.fixed[owner[e]])
        for other in by_section[first[s] : first[s + 1]]:
            if model.fixed[owner[other]] < 0:
                walls[owner[other]].add((at, at + int(model.height[e]), int(model.height[other])))
    unit[1:, WALLS] = np.cumsum([len(row) for row in walls])
    grid = np.full(model.sections, 1 << 62, dtype=np.int64)
    np.minimum.at(grid, model.section, np.gcd(model.align, np.maximum(model.fixed, 0))[owner])
    padding = -model.height % grid[model.section]
    entry = np.column_stack([model.section, model.height + padding, owner]).astype(np.int64).reshape(r, 3)
    unit[:, NEIGHBOURS], neighbour = neighbour_table(model.entry_of, entry, first, by_section)
    mate = np.asarray([u for row in mates for u in row], dtype=np.int64)
    wall = np.asarray([wall for row in walls for wall in sorted(row)], dtype=np.int64).reshape(-1, 3)
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
    return np.argsort(model.section.astype(np.uint16) if model.sections <= 1 << 16 else model.section, kind="stable")


def lowest_allowed_offset(alignment: int, walls: Sequence[Sequence[int]], at: int) -> int:
    """Return the lowest aligned offset ≥ ``at`` at which a unit overlaps none of its walls (``Tables.wall``)."""
    at = align_up(at, alignment)
    while ends := [end for begin, end, height in walls if at < end and begin < at + height]:
        at = align_up(max(ends), alignment)
    return at


def neighbour_table(entry_of: I64, entry: I64, first: I64, by_section: I64) -> tuple[I64, I64]:
    """Return ``(begin, Tables.neighbour)``: rows ``begin[u]:begin[u + 1]`` are those of unit u."""
    n = len(entry_of) - 1
    if (loops := library()) is not None:
        begin, seen, count, room = np.empty(n + 1, np.int64), np.empty(n, np.int64), FIRST_ROWS * n, -1
        inputs = {"n": n, "entry_of": entry_of, "entry": entry, "first": first, "by_section": by_section}
        while count > room:
            table, room = np.empty((count, 3), np.int64), count
            call = native.call_of("neighbours", max_rows=room, begin=begin, seen=seen, table=table, **inputs)
            count = native.run(loops, call)
        return begin, table[:count]
    ends, rows = [0], list[tuple[int, int, int]]()
    for u in range(n):
        found: dict[int, tuple[int, int]] = {}
        for section, height, _ in entry[entry_of[u] : entry_of[u + 1]].tolist():
            for _, other_height, w in entry[by_section[first[section] : first[section + 1]]].tolist():
                if w != u:
                    own, other = found.get(w, (0, 0))
                    found[w] = max(own, height), max(other, other_height)
        rows += [(w, *heights) for w, heights in found.items()]
        ends.append(len(rows))
    return np.array(ends, np.int64), np.array(rows, np.int64).reshape(-1, 3)
