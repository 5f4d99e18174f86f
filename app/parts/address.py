"""What the browser does about links: steps that Back undoes, a navigation that carries the query, names that select."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import Any, cast

import streamlit as st

from app.say.markup import complete_links
from app.session import state
from app.session.choice import to_query

_KEY = "tmmu-address"
_mount: Any = None


def follow() -> None:
    """Mount it, once a page; it draws nothing."""
    global _mount
    if _mount is None:
        script = (files(__package__) / "address.js").read_text(encoding="utf-8")
        _mount = st.components.v2.component("tmmu_address", js=script)
    _mount(key=_KEY, height="content", on_select_change=_selected)


def linked(html: str) -> str:
    """HTML whose names of tensors are links, with the rest of the address in each of them.

    A click is caught and selects in place; one that comes before that, or opens another tab, must show the same graph.
    """
    return complete_links(html, to_query(state.choice()))


def _selected() -> None:
    happened = cast(Mapping[str, Any], state.raw(_KEY) or {}).get("select")
    if isinstance(happened, Mapping):
        state.choose(selected=str(happened["value"]))
