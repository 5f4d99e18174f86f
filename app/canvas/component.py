"""The canvas as a Streamlit component: the plan's bytes go to the browser once, views say in small JSON what to draw.

::

    handle = plan_store(plan, baseline=other, operators=..., key="plan")      # once a page, outside any fragment
    plan_canvas(handle, view="map", selected=tensor_id, key="map", on_select=lambda event: ...)   # as often as wanted

A view that is given a :class:`Plan` itself brings its own store; that is fine for one view, and wasteful for several.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import streamlit as st

from app.canvas.pack import Origin, Packed, packed_once
from app.canvas.script import ENTRY, canvas_script
from app.session import state
from tmmu_core.plan.model import Plan

View = Literal["lifetimes", "slots", "map"]
Colour = Literal["role", "slot", "arena", "operator", "module", "phase", "size", "change"]


@dataclass(frozen=True)
class PlanHandle:
    """A plan whose bytes are in the page: ``plan_store`` makes it, ``plan_canvas`` draws it."""

    token: str
    plan: Plan
    baseline: Plan | None = None


@dataclass(frozen=True)
class Selection:
    """What a person pinned: ``tensor_id`` and its row in the plan, both ``None`` when the selection was cleared."""

    tensor_id: str | None
    row: int | None
    how: str
    """``click``, ``arrow``, ``slot`` (the brackets), ``search`` (Enter), ``compare`` (shift-click) or ``clear``."""


@dataclass(frozen=True)
class Memory:
    """Arenas laid end to end, the first at the bottom."""

    arenas: Sequence[str]
    capacity: int | None = None
    """Bytes of the memory; ``None`` where nobody says how large it is."""


def plan_store(
    plan: Plan,
    *,
    baseline: Plan | None = None,
    operators: Sequence[str] | None = None,
    extra: Mapping[str, Sequence[str]] | None = None,
    origin: Origin | None = None,
    key: str = "plan_store",
) -> PlanHandle:
    """Bring a plan's bytes to the page, once for all views; call it outside any fragment.

    ``baseline`` is packed along for overlays, baseline → candidate. ``operators``, ``extra`` and ``origin`` as in
    :func:`app.canvas.pack.pack_plan`; pass the same objects on every run, so that the packing is remembered.
    """
    packed = packed_once(plan, baseline=baseline, operators=operators, extra=extra, origin=origin)
    _component()(key=key, data=packed.data, height="content")
    return _handle(packed)


def plan_canvas(
    plan: PlanHandle | Plan,
    *,
    key: str,
    view: View = "map",
    selected: str | None = None,
    compared: str | None = None,
    search: str = "",
    marked: Sequence[int] | None = None,
    colour: Colour | None = None,
    step: int | None = None,
    arena: str | None = None,
    baseline: Plan | None = None,
    show_baseline: bool = True,
    draw_baseline_itself: bool = False,
    transposed: bool = False,
    height: int = 520,
    toolbar: bool = True,
    strip: bool = True,
    heading: bool = True,
    reach: int = 0,
    memory: Memory | None = None,
    zoom: Sequence[float] | None = None,
    ghost: Mapping[str, Any] | None = None,
    link: str = "page",
    on_select: Callable[[Selection], None] | None = None,
    on_step: Callable[[int | None], None] | None = None,
    on_search: Callable[[str], None] | None = None,
    on_window: Callable[[tuple[int, int]], None] | None = None,
    on_view: Callable[[str], None] | None = None,
    on_colour: Callable[[str | None], None] | None = None,
    on_arena: Callable[[str | None], None] | None = None,
    on_zoom: Callable[[Sequence[float] | None], None] | None = None,
    on_ghost: Callable[[Mapping[str, Any]], None] | None = None,
) -> None:
    """Draw a plan. Nothing is returned: what a person does comes in the callbacks, before the next run.

    What is passed is taken by the canvas when it changes here; what a person changes there stays until then. So pass
    the page's own state, and write the callbacks' values into it. ``key`` keeps the canvas (its zoom, its focus) from
    run to run.

    ``view``: lifetimes, slots or map. ``colour``: ``None`` means slot in the slot view and role in the others.
    ``selected`` and ``compared``: tensor ids. ``marked``: rows that stand out while nothing is searched.
    ``step``: the chosen step. ``arena``: the one shown, ``None`` for all
    on one byte scale. ``show_baseline``: outline what differs in the handle's baseline; ``draw_baseline_itself``: draw
    the baseline instead of the plan (for two canvases side by side). ``strip``: the curve of live bytes above.
    ``heading``: the claim above and the legend below. ``reach``: bytes that the map shows at least, so that several
    small ones stand on one scale. ``memory``: arenas that the map shows end to end, under one capacity.
    ``zoom``: the part that is looked at, ``(t0, t1, v0, v1)`` in steps and in bytes, slots or rows; ``None`` for all.
    ``ghost``: a storage tried at another place of the map, ``{id, offset, birth, conflicts, legal, extent}``; with
    ``on_ghost`` the selected box is dragged with Alt, and where it is put is told as ``{id, offset, birth}``.
    ``link``: canvases with the same word share selection, chosen step and window of steps at once, without a server
    trip; an empty one stands alone.
    ``on_window`` asks the canvas to report its half-open window of steps (debounced); ``on_search`` likewise.
    """
    if isinstance(plan, Plan):
        plan = plan_store(plan, baseline=baseline, key=f"{key}__store")
    listeners: dict[str, Callable[[Any], None]] = {}

    def listen(event: str, tell: Callable[[Any], None] | None, read: Callable[[Any], Any]) -> None:
        if tell is not None:
            listeners[event] = lambda value: tell(read(value))

    listen("select", on_select, lambda v: Selection(v["id"], v["row"] if v["id"] is not None else None, v["how"]))
    listen("compare", on_select, lambda v: Selection(v["id"], v["row"], "compare"))
    listen("step", on_step, lambda v: None if v is None else int(v))
    listen("search", on_search, lambda v: str(v or ""))
    listen("window", on_window, lambda v: (int(v[0]), int(v[1])))
    listen("view", on_view, str)
    listen("colour", on_colour, lambda v: v or None)
    listen("arena", on_arena, lambda v: v or None)
    listen("zoom", on_zoom, lambda v: v)
    listen("ghost", on_ghost, lambda v: v)
    description = {
        "plan": plan.token,
        "plan_index": 1 if draw_baseline_itself and plan.baseline is not None else 0,
        "view": view,
        "colour": colour,
        "selected": selected,
        "compared": compared,
        "search": search,
        "marked": None if marked is None else list(marked),
        "step": step,
        "arena": arena,
        "baseline": show_baseline,
        "transposed": transposed,
        "height": height,
        "toolbar": toolbar,
        "strip": strip,
        "heading": heading,
        "reach": reach,
        "memory": None if memory is None else {"capacity": memory.capacity, "arenas": list(memory.arenas)},
        "zoom": None if zoom is None else list(zoom),
        "ghost": None if ghost is None else dict(ghost),
        "link": link,
        "report_window": on_window is not None,
        "events": sorted(listeners),
    }
    callbacks = {f"on_{event}_change": _callback(key, event, tell) for event, tell in listeners.items()}
    _component()(key=key, data=description, height="content", **callbacks)


def _callback(key: str, event: str, tell: Callable[[Any], None]) -> Callable[[], None]:
    """A Streamlit callback is told nothing; what happened is looked up under the component's key, and only there."""

    def called() -> None:
        happened = cast(Mapping[str, Any], state.raw(key) or {}).get(event)
        if isinstance(happened, Mapping):  # a trigger comes wrapped, so that "cleared" differs from "did not happen"
            happened = happened["value"]
        elif event != "window" or happened is None:
            return
        tell(happened)

    return called


_NAME = "tmmu_plan_canvas"


def _component() -> Any:
    # Registered anew only for a new runtime: the mounting command itself looks after that.
    global _mount
    if _mount is None:
        _mount = st.components.v2.component(
            _NAME, js=f"{canvas_script()}export default globalThis.{ENTRY}.streamlit;\n"
        )
    return _mount


_mount: Any = None


def _handle(packed: Packed) -> PlanHandle:
    return PlanHandle(packed.token, packed.plans[0], packed.plans[1] if len(packed.plans) > 1 else None)
