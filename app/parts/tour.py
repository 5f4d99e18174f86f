"""The tour: shown once to who comes to a bare address, and again by its button; one key leaves it."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import streamlit as st

from app.say.tour import stops
from app.session import state
from app.session.pages import FIRST

_mount: Any = None


def guide() -> None:
    """Mount it, once a page, with the button that shows it again."""
    global _mount
    if _mount is None:
        script = (files(__package__) / "tour.js").read_text(encoding="utf-8")
        _mount = st.components.v2.component("tmmu_tour", js=script)
    new, asked = state.tour()
    _mount(key="tmmu-tour", height="content", data={"stops": stops(), "first": new, "asked": asked})
    with st.container(key="tour"):
        st.button(
            "Tour",
            key="tour-again",
            icon=":material/explore:",
            type="tertiary",
            help="Five things to look at. Escape leaves.",
            on_click=_again,
        )


def _again() -> None:
    state.tour(again=True)
    if state.at() != FIRST:
        state.go(FIRST)
