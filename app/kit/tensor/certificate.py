"""Card on the optimality of an arena: lower bound, its witness, the planner's remark."""

from __future__ import annotations

import streamlit as st

from app.kit import arena_focus
from app.session import state
from app.session.planning import Shown
from app.texts import certificate_text
from tmmu_core.plans.model import Plan

WITNESS = "witness"
"""Value of ``marked`` that marks the tensors of the lower bound."""


def panel(shown: Shown) -> None:
    """Draw the card of the selected arena, with a button that marks its witness."""
    name = arena_focus.arena(shown)
    if not name:
        return
    summary = shown.plan.arena_of[name]
    st.html(certificate_text.certificate(shown.plan, name))
    if not summary.witness:
        return
    on = state.choice().marked == WITNESS
    st.button(
        "Clear the marks" if on else "Mark these tensors",
        key="witness",
        type="tertiary",
        icon=":material/close:" if on else ":material/highlight:",
        on_click=_mark,
        args=(name, summary.witness_step, not on),
    )


def _mark(arena: str, step: int, on: bool) -> None:
    """Mark the witness in its arena and select its step, or clear the marks."""
    chosen = state.choice()
    state.choose(
        marked=WITNESS if on else "",
        search="",
        arena=arena if on else chosen.arena,
        step=step if on and step >= 0 else chosen.step,
    )


LAYER = "layer:"
"""Prefix of ``marked`` for the tensors of a layer."""


def layer_of(marked: str) -> str | None:
    """Return the marked layer, or ``None``."""
    return marked.removeprefix(LAYER) if marked.startswith(LAYER) else None


def marked(plan: Plan, arena: str | None) -> list[int] | None:
    """Return the rows of the witness of ``arena``, or of all arenas, if it is marked."""
    if state.choice().marked != WITNESS:
        return None
    rows = [row for a in plan.arenas if arena in (None, a.name) for row in certificate_text.witness_rows(plan, a)]
    return sorted(rows)
