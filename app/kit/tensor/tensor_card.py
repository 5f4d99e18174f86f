"""The panel with the details of the selected tensor."""

import streamlit as st

from app.kit import address, arena_focus, controls, row_colours
from app.kit.tensor import marks, why_here
from app.session import graph_levels, plan_rows, state
from app.session.planning import Shown
from app.texts import markup, numbers, tensor_text
from tmmu_core.base.escaping import for_markdown


def panel(shown: Shown, *, walking: bool = False, colour: str = "") -> None:
    """Draw the cards of the selected tensor; without a selected tensor, the largest buffers at the peak.

    ``walking``: whether the panel is on the page Graph. ``colour``: default colour scheme of the drawing.
    """
    plan, name = shown.plan, state.choice().selected
    colours = row_colours.of_rows(shown, state.choice().view, colour)
    if not name:
        st.html(markup.fragment("nothing_selected", walking=walking))
        arena = arena_focus.arena(shown)
        if arena and plan.arena_of[arena].peak_live_bytes:
            step = arena_focus.peak_step(shown, arena)
            alive = plan_rows.storages_alive(shown, step, arena)
            st.html(address.linked(tensor_text.largest(plan, (arena, step), alive, colours)))
        marks.certificate(shown)
        why_here.replay_button(shown)
        return
    if name not in plan.row_of:
        st.html(markup.empty("Not in this plan", f"This plan has no tensor {numbers.shortened(name)}."))
        return
    made, idle = shown.opened.made.get(name), plan_rows.idle(shown)
    box_colour = colours(plan.row_of[name])
    st.html(address.linked(tensor_text.details(plan, shown.solution, name, idle, made, box_colour)))
    near = tensor_text.neighbours(plan, name)
    with st.container(horizontal=True, gap="small"):
        ends = (
            ("‹ previous in slot", near.before, "This is the first tensor of its slot."),
            ("next in slot ›", near.after, "This is the last tensor of its slot."),
        )
        for label, target, end in ends if plan.has_slots else ():
            how = {"disabled": target is None, "help": for_markdown(target) if target else end}
            controls.button(label, f"near.{label}", {"selected": target or name}, kind="secondary", **how)
        controls.button("Clear selection", "clear-selection", {"selected": ""})
    _elsewhere(shown)
    why_here.panel(shown, name)
    why_here.replay_button(shown)
    marks.certificate(shown)


def _elsewhere(shown: Shown) -> None:
    """Draw the buttons that show the tensor on the page Plan and on the page Graph."""
    with st.container(horizontal=True, gap="small", key="elsewhere"):
        if state.session().page != "plan" and st.button(
            "Show in plan", key="to-plan", type="tertiary", icon=":material/grid_view:"
        ):
            st.switch_page("pages/plan/page.py")
        if shown.solution is not None and st.button(
            "Show in graph", key="to-graph", type="tertiary", icon=":material/account_tree:"
        ):
            state.choose(walk=graph_levels.AROUND)
            st.switch_page("pages/graph/page.py")
