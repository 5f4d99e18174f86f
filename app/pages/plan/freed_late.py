"""Marks for buffers that only their last reader keeps in memory."""

from __future__ import annotations

import streamlit as st

from app.kit import arena_focus
from app.session import plan_rows, state
from app.session.planning import Shown
from app.texts import numbers

LATE = "late"
"""Value of ``marked`` that marks them."""


def button(shown: Shown) -> None:
    """Draw the button that sets or clears the marks; nothing where no buffer waits for its last reader."""
    if not plan_rows.freed_late(shown, arena_focus.arena(shown)):
        return
    on = state.choice().marked == LATE
    st.button(
        "Clear the marks" if on else "Mark buffers freed late",
        key="late",
        type="tertiary",
        icon=":material/close:" if on else ":material/flag:",
        help="Marks the buffers with most bytes × steps between the last read and the use before it; a flag names the "
        "last reader.",
        on_click=state.choose,
        kwargs={"marked": "" if on else LATE, "search": ""},
    )


def marked(shown: Shown) -> list[int] | None:
    """Return the marked rows; ``None`` without marks."""
    return [row for row, _, _ in _found(shown)] or None


def flags(shown: Shown) -> list[tuple[int, str]]:
    """Return a flag per last reader: ``(step, "conv_12 frees x")``."""
    plan = shown.plan
    freed: dict[int, list[str]] = {}
    for row, last, _ in _found(shown):
        freed.setdefault(last, []).append(numbers.shortened(plan.tensor_ids[row], 14))
    return [
        (
            step,
            f"{numbers.shortened(plan.node_at(step), 14)} frees {names[0]}" + f" +{len(names) - 1}" * (len(names) > 1),
        )
        for step, names in freed.items()
    ]


def _found(shown: Shown) -> list[tuple[int, int, int]]:
    return plan_rows.freed_late(shown, arena_focus.arena(shown)) if state.choice().marked == LATE else []
