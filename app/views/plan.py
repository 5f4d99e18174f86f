"""Plan: when does every tensor live, and where does it lie? One page, one selection."""

from __future__ import annotations

import streamlit as st

from app import glossary, markup, state
from app.canvas.component import PlanHandle
from app.parts import drawing, focus, frame, selected, tensors, verdict
from app.work import Shown


def page() -> None:
    """The page, top down."""
    shown = frame.shown()
    arena = focus.arena(shown)
    st.html(markup.claim(focus.claim(shown.opened.name, shown.plan, arena), verdict.chips(shown)))
    st.html(markup.strip(shown.plan.arenas, glossary.definitions()))
    verdict.findings(shown)
    body(shown, drawing.store(shown))


@st.fragment
def body(shown: Shown, handle: PlanHandle) -> None:
    """What follows the selection: it runs again alone when something is clicked."""
    left, right = st.columns([0.755, 0.245], gap="small")
    with left:
        drawing.canvas(handle, height=540)
    with right:
        selected.panel(shown)
    chosen = state.choice()
    tensors.table(shown.plan, shown.key, focus.drawn(shown.plan), search=chosen.search, selected=chosen.selected)
    state.write_link()


page()
