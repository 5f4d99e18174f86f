"""The error cards of what was refused, above every page."""

from __future__ import annotations

from typing import Any

import streamlit as st

from app.parts import columns
from app.say import markup
from app.session import state


def draw(more: list[dict[str, Any]]) -> None:
    """What was refused, as one group with its count where there are several; what is ``more`` is true until mended."""
    kept = state.refusals()
    if not kept and not more:
        columns.draw()
        return
    many = len(kept) + len(more) > 1
    with st.container(key="refusals"):
        if many:
            with st.container(horizontal=True, vertical_alignment="center", gap="small"):
                st.html(markup.heading(f"{len(kept) + len(more):,} refused, and what was shown before stays"))
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
    columns.draw()
