"""What else is asked of the planner: the fields of a request that have no widget of their own, written as in a link."""

from __future__ import annotations

import streamlit as st

from app.session import state
from app.session.choice import Choice
from tmmu_core.errors import UnreadableInput
from tmmu_core.plan.making.request import PlanRequest
from tmmu_core.plan.making.wording import SAID, written

ELSEWHERE = frozenset(
    [
        *("mode", "preset", "planner", "options"),  # the toolbar and the planner's own options
        *("arenas", "alignment", "capacities", "page_size", "budget", "dims"),  # the arenas
        *("rank", "world_size", "shard_spec"),  # the page Ranks
    ]
)
HERE = tuple(name for name in SAID if name not in ELSEWHERE)


def popover(full: Choice, *, of_graph: bool, fixed: str = "") -> None:
    """A button that says what is asked for and opens the widgets; ``fixed`` says why nothing can be changed."""
    names = [name for name in HERE if of_graph or not SAID[name].of_graphs]
    said = [name.replace("_", " ") for name in written(full) if name in names]
    with st.popover(
        f"More: {', '.join(said)}" if said else "More",
        icon=":material/more_horiz:",
        key="more",
        disabled=bool(fixed),
        help=fixed or "Order, replay token and addresses.",
    ):
        for name in names:
            _widget(name, full)


def _widget(name: str, full: Choice) -> None:
    said, text = SAID[name], written(full).get(name, "")
    title = name.replace("_", " ").capitalize()
    if said.choices:
        st.selectbox(
            title,
            said.choices,
            key=state.seat(f"more.{name}", getattr(full, name)),
            on_change=lambda: state.choose(**{name: state.value_of(f"more.{name}")}),
            help=said.about,
        )
        return
    draw = st.text_area if said.file else st.text_input
    draw(
        title,
        key=state.seat(f"more.{name}", state.draft(name) or text),
        placeholder=said.metavar if not said.file else "one node a line, or a JSON list",
        on_change=lambda: _take(name),
        help=said.about,
    )


def _take(name: str) -> None:
    text = str(state.value_of(f"more.{name}") or "").strip()
    try:
        value = SAID[name].read(text) if text else getattr(PlanRequest(), name)
    except (ValueError, UnreadableInput) as error:
        state.draft(name, text)
        message = error.message if isinstance(error, UnreadableInput) else str(error)
        state.refuse({"title": f"The {name.replace('_', ' ')} was not changed", "message": message})
        return
    state.draft(name, "")
    other = {"token": "seed", "seed": "token"}.get(name)  # each makes the token: the last one given holds
    state.choose(**{name: value, **({other: None} if other and text else {})})
