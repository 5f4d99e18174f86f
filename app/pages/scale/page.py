"""The page Scale: memory for the sizes of a dimension, and for each rank of a mesh."""

import streamlit as st

from app.kit import controls
from app.kit.frame import page_frame
from app.pages.scale import scale_views
from app.session import page_jobs, state
from app.texts import markup

SAMPLE = "sample:dynamic_batch"


def page() -> None:
    """Draw the view Shapes or the view Ranks, or a hint for a file that has neither view."""
    shown = page_frame.draw()
    graph = shown.opened.graph
    views = page_jobs.scales(shown.opened, state.choice())
    if not views or graph is None:
        title = "Scale needs a graph with a named dimension, or with parameters to shard"
        hint = 'Declare the range of a dimension in the graph: "dims": {"B": {"min": 1, "max": 32}}.'
        st.html(markup.empty(title, hint))
        st.button("Open a sample with a dynamic batch", on_click=state.choose, kwargs={"source": SAMPLE})
        return
    if controls.pick_view(views) == "shapes":
        scale_views.draw(shown, graph)
    else:
        scale_views.draw_ranks(graph)


page()
