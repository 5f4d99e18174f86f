"""The canvas as a Streamlit component. The bytes of a plan are sent to the browser once; a drawing is a JSON object."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import streamlit as st

from app.canvas.pack import Packed
from app.canvas.script import PLAN, canvas_script
from app.session import state
from tmmu_core.plans.model import Plan


@dataclass(frozen=True)
class PlanHandle:
    """A plan, and a baseline if given, that was sent to the browser under ``token``."""

    token: str
    plan: Plan
    baseline: Plan | None = None


Events = Mapping[str, Callable[[Any], None]]
"""Event → function that is called with the value of the event, before the next run of the page.

Values: ``select``: ``{id, row, how}`` of the tensor, ``id`` ``None`` and ``row`` -1 for a cleared selection;
``compare``: ``{id, row}``; ``step``: the step or ``None``; ``span``: ``[first, end]`` or ``None``; ``search``: the
text; ``view``: the name; ``colour`` and ``arena``: the name or ``None``; ``zoom``: the visible range or ``None``;
``ghost``: ``{id, offset, birth}`` of the box that the user drags.
"""


def plan_store(packed: Packed, plan: Plan, baseline: Plan | None = None, *, key: str = "plan_store") -> PlanHandle:
    """Send the packed plans to the browser, outside of fragments; return the handle for :func:`plan_canvas`."""
    component(PLAN)(key=key, data=packed.data, height="content")
    return PlanHandle(packed.token, plan, baseline)


def plan_canvas(plan: PlanHandle, on: Events, *, key: str, **settings: Any) -> None:
    """Draw a plan with ``settings`` (``DEFAULTS`` in ``chart.js``), and call ``on`` for its events."""
    description = {"plan": plan.token, "events": sorted(on), **settings}
    changes = {f"on_{event}_change": state.listener(key, event, callback) for event, callback in on.items()}
    component(PLAN)(key=key, data=description, height="content", **changes)


@cache
def component(variable: str) -> Any:
    """Return the Streamlit component of a main module of :mod:`app.canvas.script`."""
    script = f"{canvas_script(variable)}export default globalThis.{variable}.streamlit;\n"
    return st.components.v2.component(variable, js=script)
