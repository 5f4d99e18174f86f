"""The page Plan: one plan in four views, which share the selected tensor, step and arena."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from app.canvas.plan_component import PlanHandle
from app.kit import arena_focus, tabs
from app.kit.frame import page_frame
from app.kit.tensor import plan_drawing, tensor_card, tensor_table, verdict, why_here
from app.pages.plan import device_view, fragmentation_view, layers, measured, peak_view, snapshot_view
from app.session import planning, state
from app.session.planning import Shown
from app.texts import glossary, markup
from tmmu_core.planners.problem import GIVEN

ROOM = 268
"""Pixels of a window that the map leaves to the lines above and below it."""


def page() -> None:
    """Draw the page."""
    shown = page_frame.shown()
    if not shown.plan.arenas or not shown.plan.steps:
        st.html(markup.empty("No tensors", "This plan has no tensors. Open another file."))
        return
    given_offsets(shown)
    titles = {"map": "Map", "peak": "Peak", "device": "Device", "fragmentation": "Fragmentation"}
    if len(shown.plan.arenas) < 2:
        del titles["device"]
    if snapshot_view.history_of(shown) is not None:
        titles["snapshot"] = "Snapshot"
    views: dict[str, Callable[[Shown], None]] = {
        "map": map_view,
        "peak": peak_view.draw,
        "device": device_view.draw,
        "fragmentation": fragmentation_view.draw,
        "snapshot": snapshot_view.draw,
    }
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="views"):
        view = tabs.pick(titles)
        if view in ("peak", "fragmentation", "snapshot"):
            arena_focus.step_controls(shown, arena_focus.arena(shown))
        if view == "map":
            layers.pick(shown)
    views[view](shown)
    with st.expander("Arenas"):
        st.html(markup.strip(shown.plan.arenas, glossary.definitions(), slots=shown.plan.has_slots))
        st.html(markup.chips(verdict.facts(shown)))
    verdict.findings(shown)
    measured.draw(shown)


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


def map_view(shown: Shown) -> None:
    """Draw the map of one arena, or of all on one scale."""
    _map(shown, plan_drawing.store(shown))


@st.fragment
def _map(shown: Shown, handle: PlanHandle) -> None:
    """Draw the map, the tables and the card; a click reruns only this fragment."""
    left, right = st.columns([0.755, 0.245], gap="small")
    arena = arena_focus.drawn(shown.plan)
    with left:
        marked = why_here.turns(shown) or layers.marked(shown)
        plan_drawing.canvas(handle, height=400, room=ROOM, title=False, marked=marked)
        with st.expander("Tensors"):
            tensor_table.table(shown, arena)
        if shown.solution is not None:
            with st.expander("Buffers by idle bytes"):
                tensor_table.storages(shown, arena)
    with right, st.container(key="beside"):
        tensor_card.panel(shown)
    state.write_link()


page()
