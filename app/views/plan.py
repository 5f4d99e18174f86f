"""Plan: when does every tensor live, and where does it lie? One page, one selection."""

from __future__ import annotations

import streamlit as st

from app import details, glossary, markup, state, words
from app.charts import base
from app.charts.live import live_curve
from app.parts import drawing, focus, frame, tensors, verdict
from app.work import Shown


def page() -> None:
    """The page, top down."""
    shown = frame.shown()
    plan = shown.plan
    arena = focus.arena(shown)
    st.html(markup.claim(focus.claim(plan, arena), verdict.chips(shown)))
    st.html(markup.strip(plan.arenas, glossary.definitions()))
    verdict.findings(shown)
    body(shown, arena)


@st.fragment
def body(shown: Shown, arena: str) -> None:
    """What follows the selection: it runs again alone when something is clicked."""
    left, right = st.columns([0.745, 0.255], gap="small")
    with left:
        curve(shown, arena)
        drawing.controls()
        drawing.canvas(shown)
    chosen = state.choice()
    with right:
        selected(shown)
    tensors.table(shown.plan, shown.key, search=chosen.search, selected=chosen.selected)
    state.write_link()


def curve(shown: Shown, arena: str) -> None:
    """Live bytes over the steps."""
    st.html(markup.heading(f"Live bytes of {arena}", "bytes alive at each step"))
    st.plotly_chart(_curve(shown.key, arena, shown), key=f"curve.{shown.key}.{arena}", config=base.CONFIG)


@st.cache_resource(show_spinner=False, max_entries=16)
def _curve(key: str, arena: str, _shown: Shown) -> object:
    return live_curve(_shown.plan, arena)


def selected(shown: Shown) -> None:
    """The details of the selected tensor, and the way along its slot."""
    plan, name = shown.plan, state.choice().selected
    if not name:
        st.html(details.nothing_selected(plan))
        return
    if name not in plan.row_of:
        st.html(markup.empty("Not in this plan", f"{words.shortened(name)} is no tensor of this plan."))
        return
    st.html(details.details(plan, shown.solution, name))
    near = details.neighbours(plan, name)
    with st.container(horizontal=True, gap="small"):
        for label, target, why in (
            ("‹ slot before", near.before, "The first tenant of its slot."),
            ("slot after ›", near.after, "The last tenant of its slot."),
        ):
            st.button(
                label,
                key=f"near.{label}",
                disabled=target is None,
                help=why if target is None else f"{target}",
                on_click=state.choose,
                kwargs={"selected": target or name},
            )
        st.button("Let go", key="let-go", type="tertiary", on_click=state.choose, kwargs={"selected": ""})


page()
