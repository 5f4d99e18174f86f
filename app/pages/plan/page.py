"""The page Plan: live range and place of every tensor."""

from __future__ import annotations

import streamlit as st

from app.canvas.plan_component import PlanHandle
from app.kit import arena_focus
from app.kit.frame import page_frame
from app.kit.tensor import plan_drawing, tensor_card, tensor_table, verdict, why_here
from app.pages.plan import layers, measured
from app.session import planning, state
from app.session.planning import Shown
from app.texts import glossary, markup
from tmmu_core.planners.problem import GIVEN


def page() -> None:
    """Draw the page."""
    shown = page_frame.shown()
    arena = arena_focus.arena(shown)
    st.html(markup.claim(arena_focus.claim(page_frame.name_of(shown), shown.plan, arena), verdict.chips(shown)))
    st.html(markup.strip(shown.plan.arenas, glossary.definitions(), slots=shown.plan.has_slots))
    verdict.findings(shown)
    given_offsets(shown)
    measured.draw(shown)
    body(shown, plan_drawing.store(shown))


def given_offsets(shown: Shown) -> None:
    """Offer to compare the offsets of the file with a computed plan."""
    if shown.opened.packing is None:
        return
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="given"):
        if shown.choice.planner == GIVEN:
            text = "These offsets are from the file."
            again = st.button("Plan again and compare", key="again", type="primary")
            target = planning.BEST
        else:
            text = "The file also has offsets."
            again = st.button(f"Compare given → {shown.choice.planner}", key="again")
            target = shown.choice.planner or shown.plan.planner
        notes = markup.esc("; ".join(shown.opened.notes))
        st.html(f'<div class="tm">{text} <span class="soft">{notes}</span></div>')
    if again:
        if target != shown.choice.planner:
            state.choose(**planning.best(shown.choice))
        state.choose(baseline=f"planner:{GIVEN}", swapped=False)
        st.switch_page("pages/compare/page.py")


@st.fragment
def body(shown: Shown, handle: PlanHandle) -> None:
    """Draw the map, the tables and the card; a click reruns only this fragment."""
    left, right = st.columns([0.755, 0.245], gap="small")
    arena = arena_focus.drawn(shown.plan)
    with left:
        plan_drawing.canvas(handle, height=540, marked=why_here.turns(shown) or layers.marked(shown))
        kinds = ["Tensors", "Buffers by idle bytes"] if shown.solution is not None else ["Tensors"]
        with st.container(horizontal=True, vertical_alignment="center", gap="small", key="listed"):
            listed = kinds[0]
            if len(kinds) > 1:
                listed = st.segmented_control(
                    "List", kinds, default=kinds[0], key="w.listed", label_visibility="collapsed", required=True
                )
            layers.pick(shown)
        if listed == "Tensors":
            tensor_table.table(shown, arena)
        else:
            tensor_table.storages(shown, arena)
    with right, st.container(key="beside"):
        tensor_card.panel(shown)
    state.write_link()


page()
