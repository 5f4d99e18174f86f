"""The canvas of a plan: memory map, slots and lifetimes. It shows the session's choice, and changes it on events."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.canvas.pack import Origin, Packed, pack_plan, picture_of
from app.canvas.plan_component import PlanHandle, plan_canvas, plan_store
from app.kit import arena_focus
from app.kit.tensor import marks, why_here
from app.session import state
from app.session.plan_rows import operators, origins, phases
from app.session.planning import Shown
from app.session.view_state import COLOURS, VIEWS
from app.session.work.jobs import remembered
from tmmu_core.plans.model import Plan


def store(shown: Shown, baseline: Shown | None = None, key: str = "plan-bytes") -> PlanHandle:
    """Send the plan, and a baseline if given, to the browser. Call this function outside of fragments."""
    packed = _packed(shown, baseline)
    return plan_store(packed, shown.plan, None if baseline is None else baseline.plan, key=key)


@remembered
def _packed(shown: Shown, baseline: Shown | None) -> Packed:
    if baseline is None:
        return pack_plan(shown.plan, _origin(shown))
    return pack_plan(shown.plan, _origin(shown), baseline=baseline.plan, baseline_origin=_origin(baseline))


def _origin(shown: Shown) -> Origin:
    found = origins(shown)
    has_layers = found is not None and found.modules.known_by and any(found.layer)
    return Origin(operators(shown), found.layer if found is not None and has_layers else None, phases(shown))


def end_to_end(plan: Plan) -> tuple[str, ...]:
    """Return the names of the arenas from the bottom to the top of a common memory: those without reuse come first."""
    return tuple(arena.name for arena in sorted(plan.arenas, key=lambda a: a.max_live < a.storages))


def canvas(handle: PlanHandle, *, key: str = "map", height: int = 560, **more: Any) -> None:
    """Draw a canvas of the choice. ``more``: settings of the drawing that replace the values of the choice."""
    chosen, arena = state.choice(), more.get("arena", arena_focus.drawn(handle.plan))
    _, steps = picture_of(handle.plan, handle.baseline)  # first plan step of each drawn step; None: all are drawn
    step = chosen.step if chosen.step is not None and chosen.step < handle.plan.steps else None
    if step is not None and steps is not None:
        step = _drawn_range(steps, (step, step + 1))[0]
    is_hashed = handle.plan.places == "sparse"  # offsets are hashes, so a map would show nothing
    if steps is not None:
        more["flags"] = [(_drawn_range(steps, (t, t + 1))[0], text) for t, text in more.pop("flags", ())]

    def plan_step(drawn_step: int) -> int:
        return int(drawn_step if steps is None else steps[drawn_step])

    settings: dict[str, Any] = {
        "view": "slots" if is_hashed and chosen.view == "map" else chosen.view,
        "colour": chosen.colour or None,
        "arena": arena,
        "selected": chosen.selected if chosen.selected in handle.plan.row_of else None,
        "search": chosen.search,
        "marked": more.pop("marked", None) or marks.of_witness(handle.plan, arena),
        "step": step,
        "span": chosen.span if chosen.span is None or steps is None else _drawn_range(steps, chosen.span),
        "ghost": why_here.ghost_settings(handle.plan) if steps is None else None,
        "zoom": chosen.zoom,
        "height": height,
        "link": "page",
    }
    callbacks: dict[str, Any] = {
        "select": select,
        "step": lambda drawn: state.choose(step=None if drawn is None else plan_step(drawn)),
        "span": lambda drawn: state.choose(span=drawn and tuple(map(plan_step, drawn))),
        "search": lambda text: state.choose(search=(text or "").strip(), marked=""),
        "view": lambda view: state.choose(view=view) if view in VIEWS else None,
        "colour": lambda colour: state.choose(colour=colour if colour in COLOURS else ""),
        "arena": lambda arena: state.choose(arena=arena or arena_focus.ALL),
        "zoom": lambda edges: state.choose(zoom=edges and tuple(round(max(0.0, edge), 3) for edge in edges)),
    }
    if steps is None:
        callbacks["ghost"] = lambda place: why_here.put(handle.plan, place)
    plan_canvas(handle, callbacks, key=key, **settings | more)


def _drawn_range(steps: NDArray[np.int64], span: tuple[int, int]) -> tuple[int, int]:
    """Return the range of drawn steps that contains a range of plan steps. See :func:`picture_of`."""
    first = int(steps.searchsorted(span[0], side="right")) - 1
    return first, max(first + 1, int(steps.searchsorted(span[1])))


def select(event: Mapping[str, Any]) -> None:
    """Select the tensor that was clicked in a canvas, or none after Esc."""
    state.choose(selected=event["id"] or "")
