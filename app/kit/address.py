"""Browser history, navigation links with the query, and links that select a tensor."""

from collections.abc import Mapping
from importlib.resources import files
from typing import Any, cast

import streamlit as st

from app.session import state
from app.session.view_state import to_query
from app.texts.markup import complete_links

_KEY = "tmmu-address"
_mount: Any = None


def follow() -> None:
    """Mount the script on a page; it draws nothing."""
    global _mount
    if _mount is None:
        script = (files(__package__) / "address.js").read_text(encoding="utf-8")
        _mount = st.components.v2.component("tmmu_address", js=script)
    _mount(key=_KEY, height="content", on_select_change=_selected)


def linked(html: str) -> str:
    """Return HTML with complete tensor links.

    The script handles clicks. Without it (not yet loaded, or a new tab), the link opens the same view.
    """
    return complete_links(html, to_query(state.choice()))


def _selected() -> None:
    happened = cast(Mapping[str, Any], state.raw(_KEY) or {}).get("select")
    if isinstance(happened, Mapping):
        state.choose(selected=str(happened["value"]))
