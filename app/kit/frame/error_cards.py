"""Error cards: of the current settings above the plan, of rejected files over its corner."""

from typing import Any

import streamlit as st

from app.kit.frame import column_picker
from app.session import state
from app.texts import markup


def draw(more: list[dict[str, Any]]) -> None:
    """Draw the cards ``more`` in the page, and the refusals, which can be dismissed, over its lower right corner."""
    for card in more:
        st.html(markup.error_card(card))
    if kept := state.session().refusals:
        with st.container(key="refusals"):
            _refused(kept)
    column_picker.draw()


def _refused(cards: list[dict[str, Any]]) -> None:
    many = len(cards) > 1
    if many:
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.html(markup.heading(f"{len(cards):,} errors"))
            st.button("Dismiss all", on_click=state.dismiss, key="dismiss", type="tertiary", width="content")
    with st.container(key="refused-list"):
        for n, card in enumerate(cards):
            with st.container(key=f"refused-{n}"):
                st.html(markup.error_card(card))
                st.button(
                    "Dismiss",
                    key=f"dismiss.{n}" if many else "dismiss",
                    type="tertiary",
                    on_click=state.dismiss,
                    args=(n,),
                )
