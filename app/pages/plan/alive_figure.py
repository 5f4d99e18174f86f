"""Treemap of the buffers live at one step, in groups. Boxes can be clicked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from app.kit.charts.chart_base import PHASE_COLOURS, ROLE_COLOURS, figure
from app.texts import numbers
from app.texts.markup import PERSISTENT_COLOUR
from app.texts.palette import CATEGORIES, OTHER
from tmmu_core.plans.model import Plan

MOST_BOXES = 600
WIDTH, HEIGHT = 1000.0, 620.0
"""Size of the treemap in drawing units."""
HEAD = 26.0
"""Height of a group's title."""
GAP = 2.0
LETTER = 10.5
"""Width of a letter in drawing units."""

Rect = tuple[float, float, float, float]
"""``(x, y, width, height)``, y upwards."""


@dataclass(frozen=True)
class Group:
    """A grouping of buffers."""

    of: Callable[[int], str]
    """Row → name of its group."""
    colours: Mapping[str, str] | None = None
    """Group → colour, ``OTHER`` for the rest; ``None``: assign colours by size."""


def areas(
    plan: Plan, storages: Sequence[tuple[int, int]], group: Group, *, title: str, height: int = 380
) -> tuple[go.Figure, int]:
    """``(figure, boxes drawn)``: storages, as (row of the head, bytes), in their groups.

    Beyond ``MOST_BOXES`` the smallest ones are drawn as one box that says how many it stands for. A box's
    ``customdata[0]`` is its tensor, for clicks.
    """
    drawn, rest = storages[:MOST_BOXES], storages[MOST_BOXES:]
    groups: dict[str, list[tuple[int, int]]] = {}
    for row, size in drawn:
        groups.setdefault(group.of(row), []).append((row, size))
    totals = {name: sum(size for _, size in members) for name, members in groups.items()}
    names = sorted(groups, key=lambda name: (-totals[name], name))
    known = group.colours
    colours = colours_of(names) if known is None else {name: known.get(name, OTHER) for name in names}
    left = sum(size for _, size in rest)
    fig = figure(height)
    boxes: list[Box] = []
    outer = squarified([*(totals[name] for name in names), *([left] if rest else [])], (0.0, 0.0, WIDTH, HEIGHT))
    for name, rect in zip(names, outer, strict=False):
        _head(fig, name, totals[name], rect)
        x, y, w, h = rect
        room = (x, y, w, max(0.0, h - (HEAD if h > 2 * HEAD else 0.0)))
        members = groups[name]
        look = (colours[name], common([plan.tensor_ids[row] for row, _ in members]))
        boxes += [
            _box(plan, (row, size), inner, look)
            for (row, size), inner in zip(members, squarified([s for _, s in members], room), strict=True)
        ]
    if rest:
        label = f"{len(rest):,} smaller buffers"
        boxes.append(Box(outer[-1], PERSISTENT_COLOUR, label, ("", label, numbers.full_bytes(left), "")))
    draw(fig, boxes)
    fig.update_layout(title=None, meta=title, margin={"l": 0, "r": 0, "t": 0, "b": 0}, clickmode="event+select")
    fig.update_layout(bargap=0, hovermode="closest", dragmode=False, uniformtext={"minsize": 9, "mode": "hide"})
    fig.update_xaxes(range=[0, WIDTH], visible=False, fixedrange=True)
    fig.update_yaxes(range=[0, HEIGHT], visible=False, fixedrange=True)
    return fig, len(drawn)


def squarified(sizes: Sequence[int], rect: Rect) -> list[Rect]:
    """Return a squarified treemap of ``sizes`` (descending) in ``rect`` (Bruls, Huizing and van Wijk, 2000). O(n)."""
    x, y, w, h = rect
    total = sum(sizes)
    if not total:
        return [(x, y, 0.0, 0.0) for _ in sizes]
    scale, right = w * h / total, x + w
    placed: list[Rect] = []
    k, rest = 0, total
    while k < len(sizes):
        side, row, area = min(w, h), 1, sizes[k] * scale
        while k + row < len(sizes):
            more = area + sizes[k + row] * scale
            if _worst(sizes[k] * scale, sizes[k + row] * scale, more, side) > _worst(
                sizes[k] * scale, sizes[k + row - 1] * scale, area, side
            ):
                break
            area, row = more, row + 1
        thick = area / side if side else 0.0
        at = 0.0
        for size in sizes[k : k + row]:
            long = size * scale / thick if thick else 0.0
            # The first row starts at the upper left.
            placed.append((x, y + h - at - long, thick, long) if w >= h else (x + at, y + h - thick, long, thick))
            at += long
        # Computed from the remaining bytes: subtracting two sides loses a tiny remainder.
        rest -= sum(sizes[k : k + row])
        if w >= h:
            w = rest * scale / h if h else 0.0
            x = right - w
        else:
            h = rest * scale / w
        k += row
    return placed


def _worst(largest: float, smallest: float, area: float, side: float) -> float:
    """Return the largest aspect ratio in a row of this area along ``side``."""
    if not smallest or not area or not side:
        return float("inf")
    return max(side * side * largest / (area * area), area * area / (side * side * smallest))


class Box:
    """A rectangle with its colour, label and hover data."""

    def __init__(self, rect: Rect, colour: str, label: str, data: tuple[str, str, str, str]) -> None:
        x, y, w, h = rect
        self.rect = (x, y, max(0.0, w - GAP), max(0.0, h - GAP))
        self.colour, self.label, self.data = colour, label, data


def colours_of(names: Sequence[str]) -> dict[str, str]:
    """Return a colour per group: the fixed one of a role or phase, else the next of the palette."""
    known = ROLE_COLOURS | PHASE_COLOURS
    others = [name for name in names if name not in known]
    palette = dict(zip(others, CATEGORIES, strict=False))
    return {name: known.get(name) or palette.get(name, PERSISTENT_COLOUR) for name in names}


def common(names: Sequence[str]) -> str:
    """Return the common prefix of the names, without a cut number."""
    if len(names) < 2:
        return ""
    first, last = min(names), max(names)
    alike = next((k for k, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    return first[:alike].rstrip("0123456789")


def brief(name: str, shared: str, letters: int) -> str:
    """Return a name within ``letters``; cuts the prefix shared with its neighbours first."""
    rest = name[len(shared) :]
    if len(name) <= letters or len(shared) < 3 or not rest:
        return numbers.shortened(name, letters)
    return numbers.shortened(f"…{rest}", letters)


def _box(plan: Plan, storage: tuple[int, int], rect: Rect, look: tuple[str, str]) -> Box:
    (row, size), (colour, shared) = storage, look
    name = plan.tensor_ids[row]
    lives = numbers.live_range(int(plan.birth[row]), int(plan.death[row]))
    letters = int((rect[2] - 14) / LETTER)
    lines = int(rect[3] / 22)
    label = "" if letters < 4 or lines < 1 else brief(name, shared, letters)
    if label and lines > 1:
        label += f"<br>{numbers.short_bytes(size)}"
    return Box(rect, colour, label, (name, name, numbers.full_bytes(size), lives))


def _head(fig: go.Figure, name: str, total: int, rect: Rect) -> None:
    x, y, w, h = rect
    letters = int((w - 8) / LETTER)
    if h <= 2 * HEAD or letters < 4:
        return
    fig.add_annotation(
        text=numbers.shortened(f"{name} {numbers.short_bytes(total)}", letters),
        x=x + 2,
        y=y + h,
        xanchor="left",
        yanchor="top",
        showarrow=False,
        font={"size": 12},
        borderpad=1,
    )


def draw(fig: go.Figure, boxes: Sequence[Box]) -> None:
    """Draw boxes as bars: Plotly reports clicks on bars to Python, but not clicks on its own treemap."""
    full = {"marker": {"opacity": 1}}
    fig.add_trace(
        go.Bar(
            x=[box.rect[0] + box.rect[2] / 2 for box in boxes],
            width=[box.rect[2] for box in boxes],
            base=[box.rect[1] for box in boxes],
            y=[box.rect[3] for box in boxes],
            marker={"color": [box.colour for box in boxes], "line": {"width": 0}},
            text=[box.label for box in boxes],
            textposition="inside",
            insidetextanchor="middle",
            textangle=0,
            textfont={"color": [_ink(box.colour) for box in boxes], "size": 12},
            customdata=[box.data for box in boxes],
            hovertemplate="<b>%{customdata[1]}</b><br>%{customdata[2]}<br>%{customdata[3]}<extra></extra>",
            selected=full,
            unselected=full,
        )
    )


def _ink(colour: str) -> str:
    """Return black or white text for a background, by the same threshold as the canvas."""
    red, green, blue = (int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5))
    return "#000000" if 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2 > 0.22 else "#ffffff"
