"""The canvas as a Streamlit component: the plan's bytes are sent once, views are small JSON objects.

::

    handle = plan_store(plan, baseline=other, key="plan")  # once a page, outside any fragment
    plan_canvas(handle, Picture(selected=tensor_id), {"select": ...}, key="map")  # as often as wanted
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, Literal

import streamlit as st

from app.canvas.pack import NO_ORIGIN, Origin, packed_once
from app.canvas.script import ENTRY, canvas_script
from app.session import state
from tmmu_core.plans.model import Plan

View = Literal["lifetimes", "slots", "map"]
Colour = Literal["role", "category", "slot", "arena", "operator", "module", "phase", "size", "change"]


@dataclass(frozen=True)
class PlanHandle:
    """A plan whose bytes are in the page: ``plan_store`` makes it, ``plan_canvas`` draws it."""

    token: str
    plan: Plan
    baseline: Plan | None = None


@dataclass(frozen=True)
class Memory:
    """Arenas laid end to end, the first at the bottom."""

    arenas: Sequence[str]
    capacity: int | None = None
    """Bytes of the memory; ``None`` if unknown."""


@dataclass(frozen=True, kw_only=True)
class Picture:
    """View of a canvas. A passed value applies when it changes; changes by the user stay until then."""

    view: View = "map"
    colour: Colour | None = None
    """``None``: by slot in the slot view, by role in the others."""
    arena: str | None = None
    """The one shown; ``None``: all on one byte scale."""
    selected: str | None = None
    """Id of the selected tensor."""
    search: str = ""
    marked: Sequence[int] | None = None
    """Rows that are highlighted without a search."""
    step: int | None = None
    """The chosen step."""
    span: tuple[int, int] | None = None
    """The chosen range of steps, half-open."""
    flags: Sequence[tuple[int, str]] = ()
    """Marked steps with their texts."""
    zoom: Sequence[float] | None = None
    """Visible range ``(t0, t1, v0, v1)`` in steps and in bytes, slots or rows; ``None``: all."""
    show_baseline: bool = True
    """Outline the tensors that differ in the handle's baseline."""
    draw_baseline_itself: bool = False
    """The baseline instead of the plan, for two canvases side by side."""
    height: int = 520
    """Pixels of the drawing."""
    room: int = 0
    """Pixels of the window beside the drawing: it fills the rest of the window's height, if that is more than
    ``height``; 0: it does not."""
    toolbar: bool = True
    strip: bool = True
    """The curve of live bytes above."""
    heading: bool = True
    """The title above and the legend below."""
    title: bool = True
    """Whether the heading has a title."""
    reach: int = 0
    """Minimum bytes that the map shows, so that several maps have one scale."""
    memory: Memory | None = None
    """Arenas that the map shows end to end, under one capacity."""
    saved: tuple[int, int] | None = None
    """Width and height of the saved PNG in pixels; ``None``: twice the drawn size."""
    ghost: Mapping[str, Any] | None = None
    """A storage tried at another place of the map, ``{id, offset, birth, conflicts, legal, extent}``."""
    link: str = "page"
    """Canvases of the same group share selection, step and window without a server request. Empty: no group."""


Listeners = Mapping[str, Callable[[Any], None]]
"""Event → callback for its value, called before the next run.

``select`` and ``compare``: ``{id, row, how}`` of the tensor, ``id`` is ``None`` for a cleared selection; ``step``: the
step or ``None``; ``span``: ``[first, end]`` or ``None``; ``search``: the text; ``view``, ``colour``, ``arena``: the
name or ``None``; ``zoom``: the window or ``None``; ``ghost``: ``{id, offset, birth}`` of the box dragged with Alt.
"""


def plan_store(
    plan: Plan,
    origin: Origin = NO_ORIGIN,
    *,
    baseline: Plan | None = None,
    baseline_origin: Origin = NO_ORIGIN,
    key: str = "plan_store",
) -> PlanHandle:
    """Send a plan's bytes (:func:`app.canvas.pack.pack_plan`) to the page once for all views.

    Call it outside any fragment. A ``baseline``, packed along, can be laid under the plan.
    """
    packed = packed_once(plan, origin, baseline, baseline_origin)
    _component()(key=key, data=packed.data, height="content")
    return PlanHandle(packed.token, plan, baseline)


def plan_canvas(plan: PlanHandle, picture: Picture, on: Listeners | None = None, *, key: str) -> None:
    """Draw a plan. ``key`` keeps the canvas (its zoom, its focus) from run to run.

    Nothing is returned: pass the page's own state, and let the listeners write into it.
    """
    description = asdict(picture) | {"plan": plan.token, "events": sorted(on or {})}
    description["plan_index"] = 1 if description.pop("draw_baseline_itself") and plan.baseline is not None else 0
    for name, field in {"baseline": "show_baseline", "picture": "saved"}.items():
        description[name] = description.pop(field)
    changes = {f"on_{event}_change": state.listener(key, event, callback) for event, callback in (on or {}).items()}
    _component()(key=key, data=description, height="content", **changes)


@cache  # the returned command registers the component again for a new runtime
def _component() -> Any:
    script = f"{canvas_script()}export default globalThis.{ENTRY}.streamlit;\n"
    return st.components.v2.component("tmmu_plan_canvas", js=script)
