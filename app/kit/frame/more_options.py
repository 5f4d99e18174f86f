"""The form of planning options that have no other widget: order, replay token, addressing."""

from __future__ import annotations

import streamlit as st

from app.session import state
from app.session.view_state import Choice
from app.texts import markup
from tmmu_core.base.errors import UnreadableInput
from tmmu_core.plans.making.request import PlanRequest
from tmmu_core.plans.making.request_options import OPTION_SPECS, written

ELSEWHERE = frozenset(
    [
        *("mode", "preset", "planner", "options"),  # the toolbar and the planner's own options
        *("arenas", "alignment", "capacities", "page_size", "budget", "dims"),  # the arenas
        *("rank", "world_size", "shard_spec"),  # the page Ranks
    ]
)
HERE = tuple(name for name in OPTION_SPECS if name not in ELSEWHERE)


def active(full: Choice, *, of_graph: bool) -> int:
    """Return the number of these options that are set."""
    return len([name for name in written(full) if name in _names(of_graph)])


def draw(full: Choice, *, of_graph: bool) -> None:
    """Draw the form."""
    st.html(markup.heading("Order and addresses"))
    for name in _names(of_graph):
        _widget(name, full)


def _names(of_graph: bool) -> list[str]:
    return [name for name in HERE if of_graph or not OPTION_SPECS[name].of_graphs]


def _widget(name: str, full: Choice) -> None:
    spec, text = OPTION_SPECS[name], written(full).get(name, "")
    title = name.replace("_", " ").capitalize()
    if spec.choices:
        st.selectbox(
            title,
            spec.choices,
            key=state.set_widget(f"more.{name}", getattr(full, name)),
            on_change=lambda: state.choose(**{name: state.widget_value(f"more.{name}")}),
            help=spec.about,
        )
        return
    draw = st.text_area if spec.file else st.text_input
    draw(
        title,
        key=state.set_widget(f"more.{name}", state.draft(name) or text),
        placeholder=spec.metavar if not spec.file else "one node per line, or a JSON list",
        on_change=lambda: _take(name),
        help=spec.about,
    )


def _take(name: str) -> None:
    text = str(state.widget_value(f"more.{name}") or "").strip()
    try:
        value = OPTION_SPECS[name].read(text) if text else getattr(PlanRequest(), name)
    except (ValueError, UnreadableInput) as error:
        state.draft(name, text)
        message = error.message if isinstance(error, UnreadableInput) else str(error)
        state.refuse({"title": f"{name.replace('_', ' ').capitalize()} not changed", "message": message})
        return
    state.draft(name, "")
    other = {"token": "seed", "seed": "token"}.get(name)  # both set the token; the last one counts
    state.choose(**{name: value, **({other: None} if other and text else {})})
