"""The views of a page: one is chosen, and a link names it."""

from collections.abc import Mapping

import streamlit as st

from app.session import state


def chosen(names: Mapping[str, str]) -> str:
    """Return the chosen view, else the first. ``names``: view → title."""
    tab = state.choice().tab
    return tab if tab in names else next(iter(names))


def pick(names: Mapping[str, str]) -> str:
    """Draw the switch between views and return the chosen one."""
    now = chosen(names)
    if len(names) > 1:
        st.segmented_control(
            "View",
            list(names),
            format_func=names.__getitem__,
            key=state.set_widget("tab", now),
            on_change=lambda: state.choose(tab=state.widget_value("tab") or now),
            label_visibility="collapsed",
            required=True,
        )
    return now
