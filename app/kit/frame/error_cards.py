"""Error cards at the top of every page."""

from __future__ import annotations

from typing import Any

import streamlit as st

from app.kit.frame import column_picker
from app.session import state
from app.texts import markup


def draw(more: list[dict[str, Any]]) -> None:
    """Draw the error cards as one group. Cards in ``more`` cannot be dismissed."""
    kept = state.refusals()
    if not kept and not more:
        column_picker.draw()
        return
    many = len(kept) + len(more) > 1
    with st.container(key="refusals"):
        if many:
            with st.container(horizontal=True, vertical_alignment="center", gap="small"):
                st.html(markup.heading(f"{len(kept) + len(more):,} errors"))
                if kept:
                    st.button("Dismiss all", on_click=state.dismiss, key="dismiss", type="tertiary", width="content")
        with st.container(key="refused-list"):
            for n, card in enumerate([*kept, *more]):
                with st.container(key=f"refused-{n}"):
                    st.html(markup.error_card(card))
                    if n < len(kept):
                        st.button(
                            "✕",
                            key=f"dismiss.{n}" if many else "dismiss",
                            help="Dismiss",
                            type="tertiary",
                            on_click=state.dismiss,
                            args=(n,),
                        )
    column_picker.draw()
