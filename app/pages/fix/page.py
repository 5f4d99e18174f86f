"""The page Fix: changes that lower the memory or make it fit, and all planners."""

import streamlit as st

from app.kit import tabs
from app.kit.frame import page_frame
from app.pages.fix import changes_view, planners_view
from app.texts import markup


def page() -> None:
    """Draw the page."""
    shown = page_frame.shown()
    if shown.opened.plan is not None:
        st.html(markup.empty("A finished plan cannot change", "Open the graph or the CSV instance of this plan."))
        return
    views = {"changes": "Changes", "planners": "All planners"}
    if shown.opened.graph is None:
        del views["changes"]
    draws = {"changes": changes_view.draw, "planners": planners_view.draw}
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="views"):
        view = tabs.pick(views)
        if view == "changes":
            changes_view.controls()
    draws[view](shown)


page()
