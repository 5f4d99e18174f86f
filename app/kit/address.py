"""The script for the browser history, for navigation links with the query, and for links that select a tensor."""

from functools import cache
from importlib.resources import files
from typing import Any

import streamlit as st

from app.session import state
from app.session.view_state import to_query
from app.texts.markup import complete_links

KEY = "tmmu-address"


@cache
def _component() -> Any:
    script = (files(__package__) / "address.js").read_text(encoding="utf-8")
    return st.components.v2.component("tmmu_address", js=script)


def follow() -> None:
    """Load the script ``address.js`` on the page. It draws nothing; its links select tensors."""
    on_select = state.listener(KEY, "select", lambda name: state.choose(selected=str(name)))
    _component()(key=KEY, height="content", on_select_change=on_select)


def linked(html: str) -> str:
    """Return HTML in which the tensor links have the query of the current view, so that they work in a new tab."""
    return complete_links(html, to_query(state.choice()))
