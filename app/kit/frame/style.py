"""The style sheet, put on every page."""

from pathlib import Path

import streamlit as st

ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><rect width="16" height="16" rx="2" fill="#12161c"/>'
    '<rect x="2" y="9" width="7" height="5" fill="#0072B2"/><rect x="10" y="9" width="4" height="5" fill="#56B4E9"/>'
    '<rect x="2" y="5" width="3" height="3" fill="#E69F00"/><rect x="6" y="2" width="5" height="6" fill="#009E73"/>'
    '<rect x="12" y="4" width="2" height="4" fill="#CC79A7"/></svg>'
)
"""The page icon, inline because the explorer loads nothing from a network."""

CSS = Path(__file__).with_name("style.css")


def apply() -> None:
    """Add the style sheet to the page."""
    st.html(CSS)
