"""The tour: shown once per browser at an address without a query, and again by its button."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import streamlit as st

from app.session import state
from app.session.pages import FIRST
from app.texts.tour_text import stops

_mount: Any = None


def guide() -> None:
    """Mount the tour on a page, with its button."""
    global _mount
    if _mount is None:
        script = (files(__package__) / "tour.js").read_text(encoding="utf-8")
        _mount = st.components.v2.component("tmmu_tour", js=script)
    is_new, request = state.tour()
    _mount(key="tmmu-tour", height="content", data={"stops": stops(), "first": is_new, "request": request})
    with st.container(key="tour"):
        st.button(
            "Tour",
            key="tour-again",
            icon=":material/explore:",
            type="tertiary",
            help="Show five parts of this page. Escape closes.",
            on_click=_again,
        )


def _again() -> None:
    state.tour(again=True)
    if state.at() != FIRST:
        state.redirect(FIRST)
