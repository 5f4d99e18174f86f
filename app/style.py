"""The style sheet, put on every page."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

CSS = Path(__file__).with_name("style.css")


def apply() -> None:
    """Put the house's look on the page."""
    st.html(CSS)
