"""Plan: when does every tensor live, and where does it lie? One page, one selection."""

from __future__ import annotations

import streamlit as st

from app.parts import drawing, focus, frame, layers, placing, reality, selected, tensors, verdict
from app.parts.plan_canvas import PlanHandle
from app.say import glossary, markup
from app.session import planning, state
from app.session.planning import Shown
from tmmu_core.planners.problem import GIVEN


def page() -> None:
    """The page, top down."""
    shown = frame.shown()
    arena = focus.arena(shown)
    st.html(markup.claim(focus.claim(frame.name_of(shown), shown.plan, arena), verdict.chips(shown)))
    st.html(markup.strip(shown.plan.arenas, glossary.definitions(), slots=shown.plan.has_slots))
    verdict.findings(shown)
    came_with_the_file(shown)
    reality.draw(shown)
    body(shown, drawing.store(shown))


def came_with_the_file(shown: Shown) -> None:
    """What a file with offsets of its own can be used for."""
    if shown.opened.packing is None:
        return
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="given"):
        if shown.choice.planner == GIVEN:
            said = "These offsets came with the file."
            again = st.button("Plan it again and compare", key="again", type="primary")
            target = planning.BEST
        else:
            said = "The file has offsets of its own."
            again = st.button(f"Compare given → {shown.choice.planner}", key="again")
            target = shown.choice.planner or shown.plan.planner
        notes = markup.esc("; ".join(shown.opened.notes))
        st.html(f'<div class="tm">{said} <span class="soft">{notes}</span></div>')
    if again:
        if target != shown.choice.planner:
            state.choose(**planning.best(shown.choice))
        state.choose(baseline=f"planner:{GIVEN}", swapped=False)
        st.switch_page("views/compare.py")


@st.fragment
def body(shown: Shown, handle: PlanHandle) -> None:
    """What follows the selection: it runs again alone when something is clicked."""
    left, right = st.columns([0.755, 0.245], gap="small")
    arena = focus.drawn(shown.plan)
    with left:
        drawing.canvas(handle, height=540, marked=placing.turns(shown) or layers.marked(shown))
        kinds = ["Tensors", "Storages by idle bytes"] if shown.solution is not None else ["Tensors"]
        with st.container(horizontal=True, vertical_alignment="center", gap="small", key="listed"):
            listed = kinds[0]
            if len(kinds) > 1:
                listed = st.segmented_control(
                    "List", kinds, default=kinds[0], key="w.listed", label_visibility="collapsed", required=True
                )
            layers.pick(shown)
        if listed == "Tensors":
            tensors.table(shown, arena)
        else:
            tensors.storages(shown, arena)
    with right, st.container(key="beside"):
        selected.panel(shown)
    state.write_link()


page()
