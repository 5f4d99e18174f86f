"""Flame graph of the bytes per module, root on top, buffers as leaves. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import plotly.graph_objects as go

from app.kit.charts.chart_base import figure
from app.pages.plan.alive_figure import LETTER, WIDTH, Box, colours_of, draw
from app.texts import numbers
from app.texts.markup import PERSISTENT_COLOUR
from tmmu_core.base.escaping import natural

ROOT = "the model"
ROW = 26.0
"""Height of a row in pixels, equal to drawing units."""
DEEPEST = 12
"""Rows drawn below the opened module."""
NARROWEST = WIDTH / 1000

Path = tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Flames:
    """The figure and its boxes; ``customdata[3]`` of a box is its index in ``modules`` and ``tensors``."""

    figure: go.Figure
    modules: tuple[Path, ...]
    """Path of the module, or of the module that holds the tensor."""
    tensors: tuple[str, ...]
    """Tensor id; ``""`` for a module."""
    left_out: int
    """Number of boxes not drawn: narrower than 0.1 % of the width or too deep."""


@dataclass
class _Module:
    size: int = 0
    parts: dict[str, _Module] = field(default_factory=dict)
    own: list[tuple[int, int]] = field(default_factory=list)
    """Buffers of the module itself, as (row of the first tensor, bytes)."""


def flames(
    storages: Sequence[tuple[int, int]], path: Callable[[int], Path], names: Sequence[str], into: Path = ()
) -> Flames:
    """Return the flame graph of buffers, given as (row of the first tensor, bytes).

    ``path`` maps a row to its module, ``names`` are the tensor ids. Modules above ``into`` fill the width.
    """
    root = _Module()
    for row, size in storages:
        here, parts = root, path(row)
        here.size += size
        for part in parts:
            here = here.parts.setdefault(part, _Module())
            here.size += size
        here.own.append((row, size))
    drawing = _Drawing(names, len(into) + DEEPEST)
    here = root
    for k in range(len(into) + 1):
        if k and into[k - 1] not in here.parts:
            into = into[: k - 1]  # no live bytes at this step
            break
        here = here.parts[into[k - 1]] if k else root
        drawing.add((0.0, float(k), WIDTH), PERSISTENT_COLOUR, into[:k], here.size)
    colours = colours_of(sorted(here.parts, key=lambda name: (-here.parts[name].size, name)))
    drawing.below(here, into, (0.0, len(into) + 1.0, WIDTH), colours)
    rows = 1 + max(int(box.rect[1] / ROW) for box in drawing.boxes)
    fig = figure(int(rows * ROW) + 8)
    for box in drawing.boxes:  # rows count downwards, y upwards
        x, y, w, h = box.rect
        box.rect = (x, rows * ROW - y - ROW, w, h)
    draw(fig, drawing.boxes)
    fig.update_layout(margin={"l": 0, "r": 0, "t": 4, "b": 4}, clickmode="event+select", bargap=0, dragmode=False)
    fig.update_layout(hovermode="closest", uniformtext={"minsize": 9, "mode": "hide"})
    fig.update_xaxes(range=[0, WIDTH], visible=False, fixedrange=True)
    fig.update_yaxes(range=[0, rows * ROW], visible=False, fixedrange=True)
    return Flames(fig, tuple(drawing.modules), tuple(drawing.tensors), drawing.left_out)


@dataclass
class _Drawing:
    names: Sequence[str]
    last: int
    """Number of the lowest row."""
    boxes: list[Box] = field(default_factory=list)
    modules: list[Path] = field(default_factory=list)
    tensors: list[str] = field(default_factory=list)
    left_out: int = 0

    def add(self, place: tuple[float, float, float], colour: str, module: Path, size: int, row: int = -1) -> None:
        """Add a box at ``(x, row, width)`` for a module, or for the buffer of ``row`` in it."""
        x, level, width = place
        name = self.names[row] if row >= 0 else module[-1] if module else ROOT
        letters = int((width - 8) / LETTER)
        label = numbers.shortened(name, letters) if letters >= 3 else ""
        self.tensors.append(self.names[row] if row >= 0 else "")
        data = (self.tensors[-1], name, numbers.full_bytes(size), str(len(self.modules)))
        self.boxes.append(Box((x, level * ROW, width, ROW), colour, label, data))
        self.modules.append(module)

    def below(self, here: _Module, path: Path, place: tuple[float, float, float], colours: Mapping[str, str]) -> None:
        """Add the boxes below a module: its children in natural order, then its own buffers by size."""
        x, level, width = place
        if level > self.last:
            self.left_out += len(here.parts) + len(here.own)
            return
        inner = width / here.size if here.size else 0.0
        ordered = sorted(here.parts, key=natural)
        colour = colours.get("", PERSISTENT_COLOUR)
        for name in ordered:
            part, wide = here.parts[name], here.parts[name].size * inner
            if wide < NARROWEST:
                self.left_out += 1
            else:
                shade = colours.get(name, colour)
                self.add((x, level, wide), shade, (*path, name), part.size)
                self.below(part, (*path, name), (x, level + 1, wide), {"": shade})
            x += wide
        for row, size in here.own:
            wide = size * inner
            if wide < NARROWEST:
                self.left_out += 1
            else:
                self.add((x, level, wide), colour, path, size, row)
            x += wide
