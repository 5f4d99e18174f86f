"""The graph as a Streamlit component: sends boxes and edges to the browser and returns user events."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import streamlit as st

from app.canvas.script import WALK_ENTRY, walk_script
from app.session import state
from tmmu_core.base.escaping import visible


@dataclass(frozen=True)
class Box:
    """A vertex of the drawing."""

    key: str
    """The same for the same thing in every drawing of a graph."""
    name: str
    under: str
    """The second row; may be empty."""
    kind: str
    level: int
    path: str | None
    """Level that a click opens; ``None`` if the box is not a closed level."""
    pick: str
    """The tensor that a click selects; may be empty."""
    tip: Sequence[tuple[str, str]]
    hidden: int = 0
    held: float = 0.0
    """Bytes live at the peak that it wrote, relative to the largest box (0 … 1)."""


@dataclass(frozen=True)
class Arrow:
    """An edge of the drawing."""

    source: int
    target: int
    pick: str
    tip: Sequence[tuple[str, str]]
    width: float


@dataclass(frozen=True)
class Frame:
    """One open level."""

    number: int
    parent: int
    name: str
    path: str
    """Level that a click on its title closes."""
    count: str


@dataclass(frozen=True)
class Drawing:
    """Everything to draw, with marks."""

    title: str
    status: str
    """A line below the drawing."""
    boxes: Sequence[Box]
    arrows: Sequence[Arrow]
    frames: Sequence[Frame]
    selected: int = -1
    peak: int = -1
    carrying: Sequence[int] = ()


def walk_canvas(drawing: Drawing, *, key: str, height: int, on: Mapping[str, Callable[[str], None]]) -> None:
    """Draw the graph. ``on`` maps ``select`` (a tensor's id), ``open`` and ``close`` (a level's path) to callbacks."""
    frames = [[frame.number, frame.parent, visible(frame.name), frame.path, frame.count] for frame in drawing.frames]
    edges = [[a.source, a.target, a.pick, _tip(a.tip), a.width] for a in drawing.arrows]
    shape = [[(box.key, box.name, box.under, box.level) for box in drawing.boxes], frames, [e[:2] for e in edges]]
    data = {
        "shape": hashlib.sha256(json.dumps(shape).encode()).hexdigest()[:16],
        "title": drawing.title,
        "status": drawing.status,
        "vertices": [
            asdict(box) | {"name": visible(box.name), "under": visible(box.under), "tip": _tip(box.tip)}
            for box in drawing.boxes
        ],
        "edges": edges,
        "levels": frames,
        "marks": {"selected": drawing.selected, "peak": drawing.peak, "carrying": list(drawing.carrying)},
        "height": height,
    }
    callbacks = {f"on_{event}_change": state.listener(key, event, callback) for event, callback in on.items()}
    _component()(key=key, data=data, height="content", **callbacks)


def _tip(tip: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(head, visible(text)) for head, text in tip]


@cache
def _component() -> Any:
    script = f"{walk_script()}export default globalThis.{WALK_ENTRY}.streamlit;\n"
    return st.components.v2.component("tmmu_walk", js=script)
