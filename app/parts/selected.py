"""The details of the selected tensor, and the way along its slot."""

from __future__ import annotations

import streamlit as st

from app.parts import address, certificate, focus, placing, tints
from app.say import details, markup, words
from app.session import placed, state, walked
from app.session.planning import Shown
from tmmu_core.names import for_markdown


def panel(shown: Shown, *, walking: bool = False) -> None:
    """The card of the selected tensor; how to select where none is, beside the graph where it is walked."""
    plan, name = shown.plan, state.choice().selected
    if not name:
        st.html(details.nothing_selected(walking=walking))
        arena = focus.arena(shown)
        if arena and plan.arena_of[arena].peak_live_bytes:
            step = focus.peak(plan, shown.key, arena)[0]
            alive = placed.storages_alive(shown, step, arena)
            st.html(address.linked(details.largest(plan, (arena, step), alive, tints.of_rows(shown))))
        certificate.panel(shown)
        placing.replay_button(shown)
        return
    if name not in plan.row_of:
        st.html(markup.empty("Not in this plan", f"{words.shortened(name)} is no tensor of this plan."))
        return
    st.html(
        address.linked(details.details(plan, shown.solution, name, placed.idle(shown), shown.opened.made.get(name)))
    )
    near, slots = details.neighbours(plan, name), plan.has_slots
    with st.container(horizontal=True, gap="small"):
        ends = (
            ("‹ slot before", near.before, "It is the first tenant of its slot."),
            ("slot after ›", near.after, "It is the last tenant of its slot."),
        )
        for label, target, end in ends if slots else ():
            st.button(
                label,
                key=f"near.{label}",
                disabled=target is None,
                help=for_markdown(target) if target else end,
                on_click=state.choose,
                kwargs={"selected": target or name},
            )
        st.button("Let go", key="let-go", type="tertiary", on_click=state.choose, kwargs={"selected": ""})
    _elsewhere(shown)
    placing.panel(shown, name)
    placing.replay_button(shown)
    certificate.panel(shown)


def _elsewhere(shown: Shown) -> None:
    """From a box on the plan to its node in the graph, and back."""
    with st.container(horizontal=True, gap="small", key="elsewhere"):
        if st.button("On the plan", key="to-plan", type="tertiary", icon=":material/grid_view:"):
            st.switch_page("views/plan.py")
        if shown.solution is not None and st.button(
            "In the graph", key="to-graph", type="tertiary", icon=":material/account_tree:"
        ):
            state.choose(walk=walked.AROUND)
            st.switch_page("views/graph.py")
