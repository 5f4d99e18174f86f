"""What the browser does about the address bar: steps that Back undoes, and navigation links that carry the query."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import streamlit as st

_mount: Any = None


def follow() -> None:
    """Mount it, once a page; it draws nothing."""
    global _mount
    if _mount is None:
        script = (files("app.parts") / "address.js").read_text(encoding="utf-8")
        _mount = st.components.v2.component("tmmu_address", js=script)
    _mount(key="tmmu-address", height="content")
