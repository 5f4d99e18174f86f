"""The canvas as a Streamlit component. The bytes of a plan are sent to the browser once; each drawing is a JSON object.

::

    handle = plan_store(pack_plan(plan, baseline=other), plan, other, key="plan")  # once per page, outside of fragments
    plan_canvas(handle, Picture(selected=tensor_id), {"select": ...}, key="map")  # once per drawing
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, Literal

import streamlit as st

from app.canvas.pack import Packed
from app.canvas.script import PLAN, component_script
from app.session import state
from tmmu_core.plans.model import Plan

View = Literal["lifetimes", "slots", "map"]
Colour = Literal["role", "category", "slot", "arena", "operator", "module", "phase", "size", "change"]


@dataclass(frozen=True)
class PlanHandle:
    """A plan, and a baseline if given, whose bytes are in the browser; ``plan_canvas`` draws them."""

    token: str
    plan: Plan
    baseline: Plan | None = None


@dataclass(frozen=True)
class Memory:
    """One memory that contains several arenas end to end, the first arena at the bottom."""

    arenas: Sequence[str]
    capacity: int | None = None  # size of the memory in bytes; ``None`` if unknown


@dataclass(frozen=True, kw_only=True)
class Picture:
    """Settings of a canvas. A setting is applied only when its value changes; until then a change by the user stays."""

    view: View = "map"
    colour: Colour | None = None  # colour scheme; ``None``: the default of the view
    arena: str | None = None  # the shown arena; ``None``: all arenas with the same scale
    selected: str | None = None  # id of the selected tensor
    search: str = ""
    marked: Sequence[int] | None = None  # rows to highlight while ``search`` is empty
    step: int | None = None  # the selected step
    span: tuple[int, int] | None = None  # the selected range of steps, half-open
    flags: Sequence[tuple[int, str]] = ()  # ``(step, text)`` of each flag
    zoom: Sequence[float] | None = None
    """Visible range ``(t0, t1, v0, v1)`` in steps, and in bytes, slots or rows; ``None``: the whole drawing."""
    show_baseline: bool = True  # whether to outline the tensors that differ from the baseline of the handle
    draw_baseline_itself: bool = False
    """Whether to draw the baseline instead of the plan, for two canvases side by side."""
    height: int = 520  # height of the drawing in pixels
    room: int = 0
    """If not 0: the drawing is as high as the window minus ``room`` pixels, and at least ``height`` pixels."""
    toolbar: bool = True
    strip: bool = True  # whether the curve of live bytes is shown above the drawing
    title: bool = True
    reach: int = 0  # minimum number of bytes on the axis of the map, so that several maps have the same scale
    memory: Memory | None = None  # the memory whose arenas the map shows end to end
    ghost: Mapping[str, Any] | None = None
    """A storage at a tried place: ``{id, offset, birth, conflicts, legal, extent}``."""
    link: str = "page"
    """Name of a group of canvases that share selection, step, range of steps and visible steps; empty: no group."""


Listeners = Mapping[str, Callable[[Any], None]]
"""Event → function that is called with the value of the event, before the next run of the page.

Values: ``select``: ``{id, row, how}`` of the tensor, ``id`` ``None`` and ``row`` -1 for a cleared selection;
``compare``: ``{id, row}``; ``step``: the step or ``None``; ``span``: ``[first, end]`` or ``None``; ``search``: the
text; ``view``: the name; ``colour`` and ``arena``: the name or ``None``; ``zoom``: the visible range or ``None``;
``ghost``: ``{id, offset, birth}`` of a box that was dragged: the tried place, or the selected box with Alt.
"""


def plan_store(packed: Packed, plan: Plan, baseline: Plan | None = None, *, key: str = "plan_store") -> PlanHandle:
    """Send the packed plan, and its baseline if given, to the browser once; return the handle for :func:`plan_canvas`.

    Call this function outside of fragments.
    """
    _component()(key=key, data=packed.data, height="content")
    return PlanHandle(packed.token, plan, baseline)


def plan_canvas(plan: PlanHandle, picture: Picture, on: Listeners | None = None, *, key: str) -> None:
    """Draw a plan and call ``on`` for its events. A canvas with the same ``key`` keeps its zoom and focus."""
    description = asdict(picture) | {"plan": plan.token, "events": sorted(on or {})}
    description["plan_index"] = int(description.pop("draw_baseline_itself") and plan.baseline is not None)
    changes = {f"on_{event}_change": state.listener(key, event, callback) for event, callback in (on or {}).items()}
    _component()(key=key, data=description, height="content", **changes)


@cache
def _component() -> Any:
    return st.components.v2.component("tmmu_plan_canvas", js=component_script(PLAN))
