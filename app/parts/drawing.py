"""The rectangles: lifetimes, slots and the arena map, by the canvas; what it reports becomes the choice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from app.canvas.pack import Origin, picture_of
from app.parts import certificate, focus, pictures, placing
from app.parts.plan_canvas import Listeners, Picture, PlanHandle, Selection, plan_canvas, plan_store
from app.session import state
from app.session.choice import COLOURS, VIEWS, zoom_of, zoom_text
from app.session.jobs import remembered
from app.session.placed import MOST_UNASKED, are_told, bands, operators, origins
from app.session.planning import Shown


def store(shown: Shown, baseline: Shown | None = None, key: str = "plan-bytes") -> PlanHandle:
    """Bring the plan to the page; outside any fragment."""
    return plan_store(
        shown.plan,
        baseline=baseline.plan if baseline is not None else None,
        operators=operators(shown.key, shown),
        origin=_origin(shown.key, _by_layers(shown), shown),
        key=key,
    )


def _by_layers(shown: Shown) -> bool:
    chosen = state.choice()
    asked = chosen.colour in ("module", "phase") or certificate.layer_of(chosen.marked) is not None
    return are_told(shown) and (asked or len(shown.plan) <= MOST_UNASKED)


@remembered
def _origin(key: str, by_layers: bool, _shown: Shown) -> Origin:
    """The same object for the same plan, so that its packing is remembered."""
    del key
    stretches = bands(_shown)
    known = origins(_shown) if by_layers else None
    if known is None:
        return Origin(stretches=stretches)
    layer = known.layer if known.modules.known_by else None
    return Origin(layer, known.phase if stretches else None, stretches)


def canvas(handle: PlanHandle, *, key: str = "map", height: int = 560, **more: Any) -> None:
    """One canvas that shows the choice and changes it; its zoom is part of the choice."""
    chosen = state.choice()
    known = handle.plan.row_of
    _, steps = picture_of(handle.plan, handle.baseline)
    step = chosen.step if chosen.step is not None and chosen.step < handle.plan.steps else None
    if step is not None and steps is not None:
        step = int(steps.searchsorted(step, side="right")) - 1
    picture = Picture(
        view=cast(Any, chosen.view),
        colour=cast(Any, chosen.colour or None),
        arena=focus.drawn(handle.plan),
        selected=chosen.selected if chosen.selected in known else None,
        search=chosen.search,
        marked=more.pop("marked", None) or certificate.marked(handle.plan, focus.drawn(handle.plan)),
        step=step,
        ghost=placing.ghost_drawn(handle.plan) if steps is None else None,
        zoom=zoom_of(chosen.zoom),
        saved=pictures.saved_as(),
        height=height,
    )
    listeners = Listeners(
        select=_selected,
        step=lambda at: state.choose(step=at if at is None or steps is None else int(steps[at])),
        search=lambda text: state.choose(search=text.strip(), marked=""),
        view=lambda view: state.choose(view=view) if view in VIEWS else None,
        colour=lambda colour: state.choose(colour=colour if colour in COLOURS else ""),
        arena=lambda arena: state.choose(arena=arena or focus.ALL),
        zoom=lambda edges: state.choose(zoom=zoom_text(edges)),
        ghost=(lambda where: placing.put(handle.plan, where)) if steps is None else None,
    )
    plan_canvas(handle, replace(picture, **more), listeners, key=key)


def _selected(event: Selection) -> None:
    if event.how != "compare":
        state.choose(selected=event.tensor_id or "")
