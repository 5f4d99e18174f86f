"""SVG drawings of an arena: memory map, slots, lifetimes, and the chart of live and unused bytes over the steps."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
from markupsafe import Markup, escape
from numpy.typing import NDArray

from app.texts import numbers
from app.texts.palette import ink_on, row_colours
from tmmu_core.plans.analysis.waste_ledger import ACCOUNTS, WasteLedger
from tmmu_core.plans.figures.live_bytes import arena_number, peak_of, storages_of
from tmmu_core.plans.making.sparse_addresses import in_memory
from tmmu_core.plans.model import ArenaSummary, Plan

Kind = Literal["map", "slots", "lifetimes"]
Theme = Literal["light", "dark"]
WIDTH, HEIGHT = 1100, 460
LEDGER_HEIGHT = 230
MIN_SIDE, MAX_SIDE = 200, 8_000  # width and height of a picture in pixels
_LEFT, _RIGHT, _TOP, _BOTTOM = 84, 12, 22, 34  # pixels around the drawing area
STEP_LABEL_WIDTH, LETTER_WIDTH = 140, 6.6  # pixels for the longest step label and for a letter
MOST_BOXES, MOST_COLUMNS = 4_000, 1_000
MIN_NAMED_WIDTH, MIN_NAMED_HEIGHT = 46, 13  # pixels; a smaller box has no name
OVER = "#D55E00"  # colour of bytes above the capacity


THEMES: dict[Theme, dict[str, str]] = {  # colours: ground around the drawing area, panel inside, ink of lines and marks
    "light": {"ground": "#ffffff", "panel": "#f4f6f8", "ink": "#111111", "text": "#333c45"},
    "dark": {"ground": "#0e1117", "panel": "#1a2029", "ink": "#f2f4f6", "text": "#d7dde3"},
}
ACCOUNT_STYLES = {  # account → (name, colour, SVG path of its pattern in a tile of 6 × 6 pixels)
    "live": ("live", "#0072B2", ""),
    "slot_rounding": ("slot rounding", "#E69F00", "M0 0L6 6"),
    "alignment_gaps": ("alignment gaps", "#56B4E9", "M3 0V6"),
    "holes": ("holes", "#CC79A7", "M0 6L6 0"),
    "tail": ("tail", "#DADFE4", ""),
}


@dataclass(frozen=True)
class Sheet:
    """Size in pixels and theme of a picture. A position is a fraction of the drawing area; (0, 0) is its lower left."""

    width: int = WIDTH
    height: int = HEIGHT
    theme: Theme = "light"
    is_file: bool = False  # whether the picture is a separate file, with background, size and patterns

    @property
    def area(self) -> tuple[int, int]:
        """Return width and height of the drawing area."""
        return self.width - _LEFT - _RIGHT, self.height - _TOP - _BOTTOM

    def x(self, position: float) -> float:
        """Return the x coordinate in pixels of a horizontal position."""
        return _LEFT + self.area[0] * position

    def y(self, position: float) -> float:
        """Return the y coordinate in pixels of a vertical position."""
        return _TOP + self.area[1] * (1 - position)

    def horizontal_line(self, position: float, dash: str) -> str:
        """Return a horizontal line at a vertical position, as SVG; ``dash``: pattern of a dashed line, or ""."""
        stroke = f'stroke="{THEMES[self.theme]["ink"]}" stroke-width="1.6"' + (
            f' stroke-dasharray="{dash}"' if dash else ""
        )
        return f'<path d="M{_LEFT} {self.y(position):.1f}H{self.width - _RIGHT}" {stroke} fill="none"/>'

    def y_label(self, position: float, label: str) -> str:
        """Return a label left of the drawing area at a vertical position, as SVG."""
        return f'<text x="{_LEFT - 7}" y="{self.y(position) + 4:.1f}" text-anchor="end">{escape(label)}</text>'

    def step_labels(self, plan: Plan, steps: Sequence[int]) -> Iterator[str]:
        """Yield the step labels below the drawing area, as many as fit. Each element of ``steps`` has one column."""
        columns_per_label = max(1, -(-len(steps) // max(2, self.area[0] // STEP_LABEL_WIDTH)))  # rounded up
        for column in range(0, len(steps), columns_per_label):
            x = self.x(column / len(steps))
            if column and x + STEP_LABEL_WIDTH > self.width:
                break
            node = numbers.step(steps[column], numbers.shortened(plan.node_at(steps[column]), 14))
            yield f'<text x="{x:.1f}" y="{self.height - 16}">{escape(node)}</text>'

    def picture(self, title: str, parts: Sequence[str]) -> Markup:
        """Return the SVG picture of ``parts`` with a title. A picture in a separate file has a background."""
        colours, size = THEMES[self.theme], f' width="{self.width}" height="{self.height}"'
        size, ground = (size, f'<rect{size} fill="{colours["ground"]}"/>') if self.is_file else ("", "")
        return Markup(
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}"{size} role="img" '
            f'aria-label="{escape(title)}" font-family="sans-serif" font-size="12" fill="{colours["text"]}">{ground}'
            f"{''.join(parts)}</svg>"
        )


def arena_picture(
    plan: Plan, arena: str, kind: Kind, sheet: Sheet, colour_of: Callable[[int], str] | None = None
) -> Markup:
    """Return an SVG picture of one arena with a box per buffer, or per tensor for ``lifetimes``.

    In a map, bytes above the capacity are orange. ``colour_of``: row → colour (default: by role).
    At most ``MOST_BOXES`` boxes are drawn: those with the most bytes × steps, or for ``lifetimes`` the first written.
    Slots at hashed addresses are far apart, so they are drawn one above another. Raises ``KeyError`` (unknown arena).
    """
    plan = in_memory(plan)
    summary = plan.arena_of[arena]
    boxes, top, count = _boxes(plan, summary, kind)
    note = f"{numbers.of(len(boxes), count, 'tensor' if kind == 'lifetimes' else 'buffer')} drawn"
    size, bound, limit = map(numbers.short_bytes, (summary.extent_bytes, summary.bound_bytes, summary.capacity_bytes))
    limit_note = f"limit {limit} (dashed), " if summary.capacity_bytes <= top else ""
    title = {
        "map": f"Arena map of {arena}: arena size {size}, lower bound {bound} (dotted), {limit_note}{note}",
        "slots": f"Slots of {arena}: {numbers.count(summary.slots, 'slot')}, {note}",
        "lifetimes": f"Lifetimes in {arena}: by first write, {note}",
    }[kind]
    width, height = sheet.area
    parts = [f'<rect x="{_LEFT}" y="{_TOP}" width="{width}" height="{height}" fill="{THEMES[sheet.theme]["panel"]}"/>']
    colour_of = colour_of or row_colours(plan, "role")
    colours = {row: colour_of(row) for row, *_ in boxes}
    capacity = summary.capacity_bytes if kind == "map" else numbers.UNLIMITED
    parts += _drawn_boxes(plan, boxes, top, sheet, capacity, colours)
    if kind == "map":
        levels = [(summary.extent_bytes, ""), (summary.bound_bytes, "2 3"), (summary.capacity_bytes, "7 5")]
        parts += [sheet.horizontal_line(value / top, dash) for value, dash in levels if value <= top]
        parts += [sheet.y_label(tick / top, numbers.short_bytes(tick)) for tick in numbers.ticks(top, 8)]
    else:
        lines_per_label = max(1, -(-top // max(1, height // 16)))  # rounded up
        for line in range(0, top, lines_per_label):  # number of a slot, or of a tensor in order of first write
            middle = (line if kind == "slots" else top - 1 - line) + 0.5
            parts.append(sheet.y_label(middle / top, f"{line:,}"))
    parts += sheet.step_labels(plan, range(plan.steps))
    return sheet.picture(title, [*parts, f'<text x="{_LEFT}" y="{_TOP - 7}">{escape(title)}</text>'])


def _boxes(plan: Plan, summary: ArenaSummary, kind: Kind) -> tuple[list[tuple[int, ...]], int, int]:
    """Return ``(boxes to draw, upper end of the vertical axis, number of all boxes)``.

    A box is ``(row of the plan, lower end, upper end, first write, step at which it is freed)``.
    """
    number = arena_number(plan, summary.name)
    if kind == "lifetimes":
        in_arena = np.flatnonzero(plan.arena == number)
        rows = in_arena[np.argsort(plan.birth[in_arena], kind="stable")][:MOST_BOXES]
        birth, death, top = plan.birth[rows], plan.death[rows], max(1, len(rows))
        low = len(rows) - 1 - np.arange(len(rows))
        high = low + 1
    else:
        buffers = storages_of(plan)
        in_arena = np.flatnonzero(buffers.arena == number)
        byte_steps = buffers.size[in_arena].astype(np.float64) * (buffers.death[in_arena] - buffers.birth[in_arena])
        drawn = in_arena[np.argsort(-byte_steps, kind="stable")][:MOST_BOXES]
        rows, birth, death = buffers.head[drawn], buffers.birth[drawn], buffers.death[drawn]
        low, top = plan.logical_slot[rows], max(1, summary.slots)
        high = low + 1
        if kind == "map":
            low, top = buffers.offset[drawn].astype(np.int64), _top(summary.extent_bytes, summary.capacity_bytes)
            high = low + buffers.size[drawn].astype(np.int64)
    return list(zip(*(column.tolist() for column in (rows, low, high, birth, death)), strict=True)), top, len(in_arena)


def _top(extent: int, capacity: int) -> int:
    """Return the upper end of a byte axis: the capacity if it is 1 to 2 times the arena size, else the arena size."""
    return max(1, extent, capacity if capacity <= 2 * max(1, extent) else 0)


def _drawn_boxes(
    plan: Plan, boxes: Sequence[tuple[int, ...]], top: int, sheet: Sheet, capacity: int, colours: Mapping[int, str]
) -> Iterator[str]:
    """Yield the SVG elements of boxes on an axis up to ``top``. The part above ``capacity`` is a separate box."""
    short = numbers.shortener(plan.tensor_ids[row] for row in colours)
    for row, low, high, birth, death in boxes:
        left, right = (sheet.x(t / max(1, plan.steps)) for t in (birth, death))
        colour, name = colours[row], plan.tensor_ids[row]
        size = numbers.short_bytes(int(plan.size[row]))
        tip = f"<title>{escape(f'{name}, {size}, {numbers.live_range(birth, death)}')}</title>"
        parts = [(low, high, colour)]
        if high > capacity:
            parts = [(low, capacity, colour)] if low < capacity else []
            parts.append((max(low, capacity), high, OVER))
        for part_low, part_high, fill in parts:
            y, bottom = sheet.y(part_high / top), sheet.y(part_low / top)
            w, h = max(0.3, right - left - 0.5), max(0.3, bottom - y - 0.5)
            place = f'x="{left:.2f}" y="{y:.2f}" width="{w:.2f}" height="{h:.2f}"'
            yield f'<rect {place} fill="{fill}">{tip}</rect>'
        y = sheet.y(high / top)
        height = sheet.y(low / top) - y
        if right - left >= MIN_NAMED_WIDTH and height >= MIN_NAMED_HEIGHT:
            label = short(name, int((right - left - 8) / LETTER_WIDTH))
            place = f'x="{left + 4:.1f}" y="{y + min(height / 2, 30) + 4:.1f}"'
            yield f'<text {place} style="fill:{ink_on(parts[-1][2])}">{escape(label)}</text>'


def patterns() -> Markup:
    """Return the SVG patterns that all charts of a page use."""
    tiles = "".join(
        f'<pattern id="p-{account}" width="6" height="6" patternUnits="userSpaceOnUse">'
        f'<path d="{path}" stroke="#0006" stroke-width="1.2" fill="none"/></pattern>'
        for account, (_, _, path) in ACCOUNT_STYLES.items()
        if path
    )
    return Markup(f'<svg width="0" height="0" aria-hidden="true" class="defs"><defs>{tiles}</defs></svg>')


def drawn_rows(ledger: WasteLedger) -> NDArray[np.int64]:
    """Return the ledger's rows to draw: all, or the one with the most live bytes in each of ``MOST_COLUMNS`` bins."""
    count = len(ledger.live)
    if count <= MOST_COLUMNS:
        return np.arange(count, dtype=np.int64)
    edges = np.arange(MOST_COLUMNS + 1, dtype=np.int64) * count // MOST_COLUMNS
    return np.array([start + np.argmax(ledger.live[start:end]) for start, end in pairwise(edges.tolist())], np.int64)


def ledger_figure(plan: Plan, ledger: WasteLedger, sheet: Sheet) -> Markup:
    """Return the stacked chart of live bytes and of four kinds of unused bytes over the steps."""
    rows, capacity = drawn_rows(ledger), plan.arena_of[ledger.arena].capacity_bytes
    top = _top(ledger.extent, capacity)
    peak_row, peak = peak_of(ledger.live)
    step = int(ledger.steps[peak_row])
    title = f"peak {numbers.short_bytes(peak)} at {numbers.step(step, numbers.shortened(plan.node_at(step), 36))}"
    peak_x, peak_y = sheet.x((int(np.searchsorted(rows, peak_row)) + 0.5) / max(1, len(rows))), sheet.y(peak / top)
    anchor, shift = ("end", -8) if peak_x > sheet.width * 0.7 else ("start", 8)
    levels = [(ledger.extent, ""), (peak, "2 3"), (capacity, "7 5")]
    labelled = [0, ledger.extent]
    if min(ledger.extent - peak, peak) / top * sheet.area[1] > 14:  # else the label of the peak overlaps another label
        labelled.append(peak)
    axis = "steps at which a live range begins or ends" if len(ledger.live) < plan.steps else "step"
    if len(rows) < len(ledger.live):
        axis += f", {len(rows):,} of {numbers.count(len(ledger.live), 'step')} drawn"
    axis_place = f'x="{sheet.width - _RIGHT}" y="{sheet.height - 2}" text-anchor="end" class="soft"'
    areas, base = [], np.zeros(len(rows), np.uint64)  # the accounts, stacked
    for account in ACCOUNTS:
        account_bytes = np.asarray(getattr(ledger, account))[rows]
        if not account_bytes.any():
            continue
        ceiling = base + account_bytes
        outline = [*_outline(ceiling, sheet, top), *reversed(_outline(base, sheet, top))]
        name, colour, pattern = ACCOUNT_STYLES[account]
        path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in outline) + "Z"
        areas.append(f'<path d="{path}" fill="{colour}"><title>{name}</title></path>')
        if pattern:
            areas.append(f'<path d="{path}" fill="url(#p-{account})"/>')
        base = ceiling
    parts = [
        str(patterns()) if sheet.is_file else "",
        *areas,
        *(sheet.horizontal_line(value / top, dash) for value, dash in levels if value <= top),
        f'<path d="M{peak_x:.1f} {peak_y:.1f}l-5 -9h10z" fill="{THEMES[sheet.theme]["ink"]}"/>',
        f'<text x="{peak_x + shift:.1f}" y="{_TOP - 6}" text-anchor="{anchor}">{escape(title)}</text>',
        *(sheet.y_label(value / top, numbers.short_bytes(value)) for value in labelled),
        *sheet.step_labels(plan, ledger.steps[rows].tolist()),
        f"<text {axis_place}>{escape(axis)}</text>",
    ]
    return sheet.picture(f"{ledger.arena}: {title}; arena size {numbers.short_bytes(ledger.extent)}", parts)


def _outline(values: NDArray[np.uint64], sheet: Sheet, top: int) -> list[tuple[float, float]]:
    """Return the corners of a piecewise constant curve in pixels; ``values`` has one value per column."""
    edges = [0, *(np.flatnonzero(np.diff(values)) + 1).tolist(), len(values)]
    corners = []
    for start, end in pairwise(edges):  # a range of columns with equal values
        y = sheet.y(int(values[start]) / top)
        corners += [(sheet.x(start / len(values)), y), (sheet.x(end / len(values)), y)]
    return corners
