"""Theirs, ours and the bound: of a plan that came with its file at once, of a model when its runtime was asked."""

from __future__ import annotations

import streamlit as st

from app.charts.reality import bars
from app.parts import frame, pictures
from app.say import markup, words
from app.session import measuring, state
from app.session.opening import card_of
from app.session.planning import Shown
from tmmu_core.errors import TmmuError
from tmmu_core.planners.problem import GIVEN
from tmmu_core.runtime.measure import Measured


def draw(shown: Shown) -> None:
    """The bars, or what asks for them; nothing where nobody else has a figure."""
    if shown.opened.packing is not None:
        if shown.choice.planner == GIVEN:
            _given(shown)
        return
    runtime = measuring.runtime_of(shown.opened)
    if not runtime:
        return
    choice = state.choice()
    with st.expander(f"What {runtime} really takes", expanded=measuring.known(choice) is not None):
        if measuring.known(choice) is None:
            st.caption("The model is run in a process of its own, and its memory is held against this plan.")
            if not st.button(f"Run it with {runtime}", key="measure"):
                return
        job = measuring.measured(choice, shown.opened)
        if not job.finished:
            frame.progress(job, f"Running it with {runtime}", follow=True)
            return
        try:
            _measured(job.answer(), shown.key)
        except TmmuError as error:
            st.html(markup.error_card(card_of(error, f"{runtime} did not run it", shown.opened.name)))


def _given(shown: Shown) -> None:
    (arena,) = shown.plan.arenas
    job = measuring.ours(state.choice(), shown.opened)
    if job is None:
        return
    with st.expander("Theirs, ours and the bound"):
        if not job.wait(2):
            frame.progress(job, "Planning its lives anew", follow=True)
            return
        ours = job.answer()
        st.plotly_chart(
            bars(arena.extent_bytes, ours, arena.bound_bytes), key=f"reality.{shown.key}", config=pictures.camera()
        )
        st.caption(_sentence("The file's plan", arena.extent_bytes, ours, arena.bound_bytes))


def _measured(found: Measured, key: str) -> None:
    figures = found.planned
    st.plotly_chart(
        bars(found.theirs, figures.ours, figures.bound, found.runtime), key=f"reality.{key}", config=pictures.camera()
    )
    st.caption(_sentence(found.runtime, found.theirs, figures.ours, figures.bound))
    rows = "".join(
        f"<li><b>{words.full_bytes(abs(size))}{' less' if size < 0 else ''}</b> {markup.esc(what)}</li>"
        for what, size in found.difference()
    )
    st.html(f'<div class="tm">Where the difference to the bound sits:<ul>{rows}</ul></div>')


def _sentence(who: str, theirs: int, ours: int, bound: int) -> str:
    return (
        f"{who}: {words.full_bytes(theirs)}; ours {words.full_bytes(ours)}; "
        f"nothing can be below {words.full_bytes(bound)}."
    )
