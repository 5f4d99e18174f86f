"""What the browser does about links: steps that Back undoes, a navigation that carries the query, names that select."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import Any, cast

import streamlit as st

from app.session import state

_KEY = "tmmu-address"
_mount: Any = None


def follow() -> None:
    """Mount it, once a page; it draws nothing."""
    global _mount
    if _mount is None:
        script = (files(__package__) / "address.js").read_text(encoding="utf-8")
        _mount = st.components.v2.component("tmmu_address", js=script)
    _mount(key=_KEY, height="content", on_select_change=_selected)


def _selected() -> None:
    happened = cast(Mapping[str, Any], state.raw(_KEY) or {}).get("select")
    if isinstance(happened, Mapping):
        state.choose(selected=str(happened["value"]))
