"""The rectangles: lifetimes, slots and the arena map, by the canvas; what it reports becomes the choice."""

from __future__ import annotations

import streamlit as st

from app import state
from app.choice import COLOURS, VIEW_NAMES, VIEWS
from app.work import Shown


def controls() -> None:
    """Which view, which colours, what is searched for."""
    chosen = state.choice()
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="drawing-controls"):
        st.segmented_control(
            "View",
            VIEWS,
            key=state.seat("view", chosen.view),
            format_func=VIEW_NAMES.__getitem__,
            on_change=lambda: state.choose(view=state.value_of("view") or chosen.view),
            label_visibility="collapsed",
        )
        st.selectbox(
            "Colour",
            COLOURS,
            key=state.seat("colour", chosen.colour),
            format_func=lambda name: f"colour: {name}",
            on_change=lambda: state.choose(colour=state.value_of("colour")),
            label_visibility="collapsed",
            width=170,
        )
        st.text_input(
            "Search",
            key=state.seat("search", chosen.search),
            placeholder="search tensors",
            icon=":material/search:",
            on_change=lambda: state.choose(search=state.value_of("search").strip()),
            label_visibility="collapsed",
            width=260,
        )


def canvas(shown: Shown) -> None:
    """The drawing itself."""
    del shown
    st.html('<div class="tm tm-empty" style="height:380px">canvas</div>')
