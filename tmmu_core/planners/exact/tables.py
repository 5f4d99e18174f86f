"""What the compiled search reads and what it writes: tables of whole numbers, a row each for units, sections, events.

Few wide tables and not many narrow ones: a compiled function is handed every array it may touch.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tmmu_core.compiled import is_there, njit, njit_leaf
from tmmu_core.loops import calls
from tmmu_core.loops.library import library
from tmmu_core.planners.exact.model import Model
from tmmu_core.planners.exact.plain import who_meets
from tmmu_core.planners.problem import I64

# Columns of ``Shape.unit``: where a unit's rows begin in the other tables (the last row is the end), and its traits.
ENTRIES, NEIGHBOURS, MATES, WALLS, GRID, TALL, FIXED, TWIN = range(8)
# Columns of ``Shape.entry``.
SECTION, HEIGHT, OWNER = range(3)
# Columns of ``Shape.neighbour``: the other one, what it must be above this one to clear it, and the other way round.
OTHER, OVER, UNDER = range(3)

# Columns of ``State.unit``.
LOW, PLACED, WHEN, LEVEL, HOLE, HOLE_LEVEL, HOLE_ROW, NEAREST, NEAREST_LOW, NEAREST_END, WAITS, OLD, NEED, THEN = range(
    14
)
# Columns of ``State.section``.
REST, LEFT, LOWEST, SECOND, STALE, FAILS = range(6)
# Columns of ``State.event``.
WHO, FROM, ASKED, WHY, ONE, TWO = range(6)
# Cells of ``State.tally``.
EVENTS, PUT, CHANGED, DIRTY, HOLES, MET, CONFLICT, FIRST_OF_IT, SECOND_OF_IT = range(9)


class Shape(NamedTuple):
    """n units in m sections; never written. Ragged tables: a unit's rows begin where its row in ``unit`` says."""

    unit: I64
    """(n + 1, 8): ``ENTRIES … TWIN``; ``FIXED`` is an offset or −1, ``TWIN`` the next identical unit or −1."""
    entry: I64
    """(r, 3): ``SECTION, HEIGHT, OWNER``, by unit, then section."""
    first: I64
    """(m + 1,): where a section's entries begin in ``State.order``."""
    neighbour: I64
    """(k, 3): ``OTHER, OVER, UNDER``; two units are neighbours when a section holds both."""
    mate: I64
    """Units with the very same sections, of one height each, that may be swapped freely when one is upon the other."""
    wall: I64
    """(w, 3): fixed units in the way: begin, end, and the unit's own height where it would meet them."""


class State(NamedTuple):
    """What a search changes."""

    unit: I64
    """(n, 14): the least offset proven (where it lies, once placed), then what the search keeps about it."""
    section: I64
    """(m, 6): bytes and units not yet placed, the two lowest of these, whether it waits, how often it failed."""
    order: I64
    """(r, 2): entries by section, those not yet placed in front; and where an entry stands among them."""
    event: I64
    """(e, 6): who was raised, from where, to what was asked for, and why."""
    changed: I64
    dirty: I64
    holes: I64
    """Units whose hole somebody must meet."""
    placed: I64
    """Units in the order they were placed."""
    met: I64
    """(·, 3): holes that were met: unit, offset, level."""
    blame: I64
    """Per level, whether the failure at hand hangs on it."""
    tally: I64


def shape_of(model: Model) -> Shape:
    """The tables of a model."""
    n, r = len(model), len(model.section)
    owner = model.owner
    by_section = _by_section(model)
    first = np.searchsorted(model.section[by_section], np.arange(model.sections + 1)).astype(np.int64)
    tall = model.greatest(model.height)
    unit = np.zeros((n + 1, 8), dtype=np.int64)
    unit[:, ENTRIES] = model.entry_of
    unit[:n, GRID], unit[:n, TALL], unit[:n, FIXED] = model.align, tall, model.fixed
    unit[:n, TWIN], mates = _alike(model, tall)
    unit[1:, MATES] = np.cumsum([len(row) for row in mates])
    walls = _walls(model)
    unit[1:, WALLS] = np.cumsum([len(row) for row in walls])
    entry = np.column_stack([model.section, model.height, owner]).astype(np.int64).reshape(r, 3)
    unit[:, NEIGHBOURS], neighbour = neighbours_of(model.entry_of, entry, first, by_section)
    return Shape(
        unit,
        entry,
        first,
        neighbour,
        np.asarray([u for row in mates for u in row], dtype=np.int64),
        np.asarray([wall for row in walls for wall in row], dtype=np.int64).reshape(-1, 3),
    )


def fresh(model: Model, shape: Shape, room: tuple[int, int]) -> State:
    """The state before anything is placed, with room for so many events and levels."""
    n, m, r = len(model), model.sections, len(model.section)
    loops = library()
    unit = np.zeros((n, 14), dtype=np.int64)
    unit[:, LOW] = np.maximum(model.fixed, 0)
    for u in np.flatnonzero((np.diff(shape.unit[:, WALLS]) > 0) & (model.fixed < 0)).tolist():
        unit[u, LOW] = (
            settle(shape.unit, shape.wall, u, 0) if loops is None else calls.settle(loops, shape.unit, shape.wall, u)
        )
    unit[:, LEVEL] = unit[:, HOLE] = unit[:, NEAREST] = -1
    section = np.zeros((m, 6), dtype=np.int64)
    np.add.at(section[:, REST], model.section, model.height)
    section[:, LEFT] = np.diff(shape.first)
    section[:, LOWEST] = section[:, SECOND] = -1
    order = np.empty((r, 2), dtype=np.int64)
    order[:, 0] = _by_section(model)
    order[order[:, 0], 1] = np.arange(r)
    events, levels = room
    return State(
        unit,
        section,
        order,
        np.zeros((events, 6), dtype=np.int64),
        np.zeros(n, dtype=np.int64),
        np.zeros(m, dtype=np.int64),
        np.zeros(n, dtype=np.int64),
        np.zeros(n, dtype=np.int64),
        np.zeros((levels, 3), dtype=np.int64),
        np.zeros(levels, dtype=np.int64),
        np.zeros(9, dtype=np.int64),
    )


def _by_section(model: Model) -> I64:
    """Entries by section, those of one as they come; numbers of 16 bits are sorted digit by digit, six times sooner."""
    section = model.section.astype(np.uint16) if model.sections <= 1 << 16 else model.section
    return np.argsort(section, kind="stable")


def _walls(model: Model) -> list[list[tuple[int, int, int]]]:
    """For each free unit, the fixed ones it shares a section with."""
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


def _alike(model: Model, tall: I64) -> tuple[I64, list[list[int]]]:
    """The next identical unit of each; and the units that it may be swapped with when one is on another."""
    n = len(model)
    twins: dict[object, int] = {}
    spans: dict[object, list[int]] = {}
    twin = np.full(n, -1, dtype=np.int64)
    mates: list[list[int]] = [[] for _ in range(n)]
    any_fixed = bool((model.fixed >= 0).any())
    for u in _perhaps_alike(model):
        if model.fixed[u] >= 0:
            continue
        rows = slice(model.entry_of[u], model.entry_of[u + 1])
        where, heights = model.section[rows].tobytes(), model.height[rows]
        grid, high = int(model.align[u]), int(tall[u])
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


def _perhaps_alike(model: Model) -> list[int]:
    """The units, ascending, that share with another one the first section, the last and how many there are."""
    begin, end = model.entry_of[:-1], model.entry_of[1:]
    span = (model.section[begin] * model.sections + model.section[end - 1]) * (model.sections + 1) + (end - begin)
    order = np.argsort(span, kind="stable")
    same = span[order[1:]] == span[order[:-1]]
    several = np.zeros(len(model), np.bool_)
    several[order[1:][same]] = several[order[:-1][same]] = True
    alike: list[int] = np.flatnonzero(several).tolist()
    return alike


@njit_leaf
def settle(unit: I64, wall: I64, u: int, at: int) -> int:
    """The lowest offset ≥ ``at`` on the unit's grid and off the fixed units in its way."""
    grid = unit[u, GRID]
    at = (at + grid - 1) & -grid
    moved = True
    while moved:
        moved = False
        for w in range(unit[u, WALLS], unit[u + 1, WALLS]):
            if at < wall[w, 1] and wall[w, 0] < at + wall[w, 2]:
                at = (wall[w, 1] + grid - 1) & -grid
                moved = True
    return at


def _neighbours_plainly(entry_of: I64, entry: I64, first: I64, by_section: I64) -> tuple[I64, I64]:
    begin, other = who_meets(entry[:, SECTION], entry_of, entry[by_section, OWNER], first)
    tall, least = np.zeros((2, len(entry_of) - 1), np.int64)
    np.maximum.at(tall, entry[:, OWNER], entry[:, HEIGHT])
    least[:] = tall
    np.minimum.at(least, entry[:, OWNER], entry[:, HEIGHT])
    if (least < tall).any():  # chains, of one height here and another there
        return _neighbours(entry_of, entry, first, by_section)
    return begin, np.column_stack([other, np.repeat(tall, np.diff(begin)), tall[other]])


def neighbours_of(entry_of: I64, entry: I64, first: I64, by_section: I64) -> tuple[I64, I64]:
    """Who shares a section with whom: first row per unit, and rows (other, own height over it, its height under)."""
    loops = library()
    if loops is not None:
        return calls.neighbours(loops, entry_of, entry, first, by_section)
    find = _neighbours if is_there() else _neighbours_plainly
    found: tuple[I64, I64] = find(entry_of, entry, first, by_section)
    return found


@njit
def _neighbours(entry_of: I64, entry: I64, first: I64, by_section: I64) -> tuple[I64, I64]:
    n = len(entry_of) - 1
    begin = np.zeros(n + 1, np.int64)
    seen = np.full(n, -1, np.int64)
    for u in range(n):
        begin[u + 1] = begin[u]
        for e in range(entry_of[u], entry_of[u + 1]):
            for row in range(first[entry[e, SECTION]], first[entry[e, SECTION] + 1]):
                w = entry[by_section[row], OWNER]
                if w != u and seen[w] != u:
                    seen[w] = u
                    begin[u + 1] += 1
    table = np.zeros((begin[n], 3), np.int64)
    row_of = np.full(n, -1, np.int64)
    for u in range(n):
        used = begin[u]
        for e in range(entry_of[u], entry_of[u + 1]):
            for row in range(first[entry[e, SECTION]], first[entry[e, SECTION] + 1]):
                other = by_section[row]
                w = entry[other, OWNER]
                if w == u:
                    continue
                if row_of[w] < begin[u]:
                    row_of[w] = used
                    table[used, OTHER] = w
                    used += 1
                at = row_of[w]
                table[at, OVER] = max(table[at, OVER], entry[e, HEIGHT])
                table[at, UNDER] = max(table[at, UNDER], entry[other, HEIGHT])
    return begin, table
