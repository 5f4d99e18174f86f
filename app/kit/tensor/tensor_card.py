"""The cards of the selected tensor beside the drawing."""

import streamlit as st

from app.kit import arena_focus, controls
from app.kit.tensor import marks, why_here
from app.session import graph_levels, plan_rows, state
from app.session.planning import Shown
from app.texts import markup, numbers, tensor_text
from tmmu_core.plans.figures.live_bytes import storages_alive


def panel(shown: Shown, *, walking: bool = False, device: bool = False) -> None:
    """Draw the selected tensor's cards, else the largest buffers. ``walking``: on page Graph; ``device``: on Device."""
    plan, name = shown.plan, state.choice().selected
    colours = plan_rows.row_colours(shown, state.choice().view, "arena" if device else "")
    if not name:
        st.html(markup.fragment("nothing_selected", walking=walking))
        arena = None if device else arena_focus.drawn(plan)
        step = arena_focus.peak_step(shown, arena)
        if live := storages_alive(plan, step, arena):
            controls.linked_html(tensor_text.largest(plan, (arena or "all arenas", step), live, colours))
        marks.certificate(shown)
        why_here.replay_button(shown)
        return
    if name not in plan.row_of:
        st.html(markup.empty("Not in this plan", f"This plan has no tensor {numbers.shortened(name)}."))
        return
    producer, idle, box_colour = shown.opened.producers.get(name), plan_rows.idle(shown), colours(plan.row_of[name])
    controls.linked_html(tensor_text.details(plan, shown.solution, name, idle, producer, box_colour))
    is_plan_page, has_graph = state.session().page == "plan", shown.solution is not None
    with st.container(horizontal=True, gap="small", key="elsewhere"):
        controls.button("Clear selection", "clear-selection", {"selected": ""})
        if not is_plan_page and st.button("Show in plan", key="to-plan", type="tertiary", icon=":material/grid_view:"):
            st.switch_page("pages/plan/page.py")
        if has_graph and st.button("Show in graph", key="to-graph", type="tertiary", icon=":material/account_tree:"):
            state.choose(walk=graph_levels.AROUND)
            st.switch_page("pages/graph/page.py")
    why_here.panel(shown, name)
    why_here.replay_button(shown)
    marks.certificate(shown)
