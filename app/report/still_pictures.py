"""SVG drawings of a plan: memory map, slots and lifetimes, like those of the canvas but without a script."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from markupsafe import Markup, escape
from numpy.typing import NDArray

from app.report.report_theme import Sheet
from app.texts import numbers
from app.texts.axis_ticks import ticks
from app.texts.palette import row_colours
from app.texts.short_names import shortener
from tmmu_core.plans.figures.plan_storages import arena_number, storages_of
from tmmu_core.plans.model import ArenaSummary, Plan

Kind = Literal["map", "slots", "lifetimes"]
STEP_LABEL = 140
"""Pixels that the longest label of a step takes."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 84, 12, 22, 34
MOST_BOXES = 4_000
NAMED = (46.0, 13.0)
"""Minimum width and height of a box with a name."""
LETTER = 6.6
OVER = "#D55E00"
"""Colour of bytes above the capacity."""


@dataclass(frozen=True)
class Drawn:
    """The boxes of a picture: plan rows with vertical range ``low`` to ``high`` and live range, and the scale."""

    rows: NDArray[np.int64]
    low: NDArray[np.int64]
    high: NDArray[np.int64]
    birth: NDArray[np.int64]
    death: NDArray[np.int64]
    top: int
    falling: bool
    of: int
    """Number of all boxes."""
    noun: str


def still(plan: Plan, arena: str, kind: Kind, sheet: Sheet, colour_of: Callable[[int], str] | None = None) -> Markup:
    """Return a drawing of one arena; bytes above its capacity are red. Raises ``KeyError`` for an unknown arena.

    ``colour_of`` maps a row to its colour; without it, or for "", the colour is that of the role. Beyond ``MOST_BOXES``
    the boxes with the most bytes × steps are drawn.
    """
    summary = plan.arena_of[arena]
    drawn = _drawn(plan, summary, kind)
    title = escape(_title(summary, kind, drawn))
    by_role = row_colours(plan, "role")
    colours = {row: (colour_of and colour_of(row)) or by_role(row) for row in drawn.rows.tolist()}
    parts = [*_boxes(plan, drawn, sheet, summary.capacity_bytes if kind == "map" else None, colours)]
    parts += _lines(summary, drawn, sheet) if kind == "map" else []
    parts += [*_marks(plan, drawn, kind, sheet)]
    parts.append(f'<text x="{_LEFT}" y="{_TOP - 7}">{title}</text>')
    return Markup(f"{sheet.opened(title)}{''.join(parts)}</svg>")


def _drawn(plan: Plan, summary: ArenaSummary, kind: Kind) -> Drawn:
    number = arena_number(plan, summary.name)
    if kind == "lifetimes":
        rows = np.flatnonzero(plan.arena == number)
        rows = rows[np.lexsort((rows, plan.birth[rows]))][:MOST_BOXES]
        low = np.arange(len(rows), dtype=np.int64)
        there = int(np.count_nonzero(plan.arena == number))
        birth, death = plan.birth[rows].astype(np.int64), plan.death[rows].astype(np.int64)
        return Drawn(rows, low, low + 1, birth, death, max(1, len(rows)), True, there, "tensor")
    s = storages_of(plan)
    mine = np.flatnonzero(s.arena == number)
    area = s.size[mine].astype(np.float64) * (s.death[mine] - s.birth[mine])
    kept = mine[np.lexsort((mine, -area))][:MOST_BOXES]
    rows = s.head[kept].astype(np.int64)
    birth, death = s.birth[kept].astype(np.int64), s.death[kept].astype(np.int64)
    if kind == "slots":
        low = plan.logical_slot[rows].astype(np.int64)
        return Drawn(rows, low, low + 1, birth, death, max(1, summary.slots), False, len(mine), "buffer")
    low = s.offset[kept].astype(np.int64)
    top = max(1, summary.extent_bytes)
    top = max(top, summary.capacity_bytes) if summary.capacity_bytes <= 2 * top else top
    return Drawn(rows, low, low + s.size[kept].astype(np.int64), birth, death, top, False, len(mine), "buffer")


def _title(summary: ArenaSummary, kind: Kind, drawn: Drawn) -> str:
    note = f"{numbers.of(len(drawn.rows), drawn.of, drawn.noun)} drawn"
    if kind == "lifetimes":
        return f"Lifetimes in {summary.name}: by first write, {note}"
    if kind == "slots":
        return f"Slots of {summary.name}: {numbers.count(summary.slots, 'slot')}, {note}"
    return f"Arena map of {summary.name}: arena size {numbers.short_bytes(summary.extent_bytes)}, {note}"


def _x(sheet: Sheet, steps: int, t: int) -> float:
    return _LEFT + (sheet.width - _LEFT - _RIGHT) * t / max(1, steps)


def _y(sheet: Sheet, drawn: Drawn, v: int) -> float:
    high = sheet.height - _TOP - _BOTTOM
    return _TOP + (high * v / drawn.top if drawn.falling else high - high * v / drawn.top)


def _boxes(plan: Plan, drawn: Drawn, sheet: Sheet, capacity: int | None, colours: Mapping[int, str]) -> Iterator[str]:
    short = shortener(plan.tensor_ids[row] for row in colours)
    wide, high = sheet.width - _LEFT - _RIGHT, sheet.height - _TOP - _BOTTOM
    yield f'<rect x="{_LEFT}" y="{_TOP}" width="{wide}" height="{high}" fill="{sheet.look.panel}"/>'
    for k, row in enumerate(drawn.rows.tolist()):
        birth, death, low, up = (int(each[k]) for each in (drawn.birth, drawn.death, drawn.low, drawn.high))
        left, right = _x(sheet, plan.steps, birth), _x(sheet, plan.steps, death)
        colour, name = colours[row], plan.tensor_ids[row]
        size = numbers.short_bytes(int(plan.size[row]))
        tip = f"<title>{escape(f'{name}, {size}, {numbers.live_range(birth, death)}')}</title>"
        parts = [(low, up, colour)]
        if capacity is not None and up > capacity:
            parts = [(low, capacity, colour)] if low < capacity else []
            parts.append((max(low, capacity), up, OVER))
        for a, b, ink in parts:
            upper, lower = sorted((_y(sheet, drawn, a), _y(sheet, drawn, b)))
            w, h = max(0.3, right - left - 0.5), max(0.3, lower - upper - 0.5)
            at = f'x="{left:.2f}" y="{upper:.2f}" width="{w:.2f}" height="{h:.2f}"'
            yield f'<rect {at} fill="{ink}">{tip}</rect>'
        upper, lower = sorted((_y(sheet, drawn, low), _y(sheet, drawn, up)))
        if right - left >= NAMED[0] and lower - upper >= NAMED[1]:
            label = short(name, int((right - left - 8) / LETTER))
            at = f'x="{left + 4:.1f}" y="{upper + min((lower - upper) / 2, 30) + 4:.1f}"'
            ink = _ink(parts[-1][2] if parts[-1][2] == OVER else colour)
            yield f'<text {at} style="fill:{ink}">{escape(label)}</text>'


def _lines(summary: ArenaSummary, drawn: Drawn, sheet: Sheet) -> list[str]:
    levels = [(summary.extent_bytes, ""), (summary.bound_bytes, "2 3")]
    levels += [(summary.capacity_bytes, "7 5")] if summary.capacity_bytes <= drawn.top else []
    return [sheet.level(_y(sheet, drawn, value), _LEFT, _RIGHT, dash) for value, dash in levels]


def _marks(plan: Plan, drawn: Drawn, kind: Kind, sheet: Sheet) -> Iterator[str]:
    if kind == "map":
        levels = [(mark, numbers.short_bytes(mark)) for mark in ticks(drawn.top, 8)]
    else:
        every = max(1, -(-drawn.top // max(1, (sheet.height - _TOP - _BOTTOM) // 16)))
        levels = [(mark, f"{mark:,}") for mark in range(0, drawn.top, every)]
    for value, text in levels:
        y = _y(sheet, drawn, value)
        if kind != "map":
            y = (y + _y(sheet, drawn, value + 1)) / 2
        yield f'<text x="{_LEFT - 7}" y="{y + 4:.1f}" text-anchor="end">{text}</text>'
    every = max(1, -(-plan.steps // max(2, (sheet.width - _LEFT - _RIGHT) // STEP_LABEL)))
    for t in range(0, plan.steps, every):
        x = _x(sheet, plan.steps, t)
        if t and x + STEP_LABEL > sheet.width:
            break
        node = escape(numbers.step(t, numbers.shortened(plan.node_at(t), 14)))
        yield f'<text x="{x:.1f}" y="{sheet.height - 16}">{node}</text>'


def _ink(colour: str) -> str:
    red, green, blue = (int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5))
    return "#000" if 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2 > 0.22 else "#fff"
