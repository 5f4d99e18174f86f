"""Plan: when does every tensor live, and where does it lie? One page, one selection."""

from __future__ import annotations

import streamlit as st

from app import details, glossary, markup, state, words
from app.canvas.component import PlanHandle
from app.parts import drawing, focus, frame, tensors, verdict
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
        selected(shown)
    chosen = state.choice()
    tensors.table(shown.plan, shown.key, focus.drawn(shown.plan), search=chosen.search, selected=chosen.selected)
    state.write_link()


def selected(shown: Shown) -> None:
    """The details of the selected tensor, and the way along its slot."""
    plan, name = shown.plan, state.choice().selected
    if not name:
        st.html(details.nothing_selected())
        return
    if name not in plan.row_of:
        st.html(markup.empty("Not in this plan", f"{words.shortened(name)} is no tensor of this plan."))
        return
    st.html(details.details(plan, shown.solution, name))
    near = details.neighbours(plan, name)
    with st.container(horizontal=True, gap="small"):
        for label, target, end in (
            ("‹ slot before", near.before, "It is the first tenant of its slot."),
            ("slot after ›", near.after, "It is the last tenant of its slot."),
        ):
            st.button(
                label,
                key=f"near.{label}",
                disabled=target is None,
                help=target or end,
                on_click=state.choose,
                kwargs={"selected": target or name},
            )
        st.button("Let go", key="let-go", type="tertiary", on_click=state.choose, kwargs={"selected": ""})


page()
