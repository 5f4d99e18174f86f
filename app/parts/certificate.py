"""What the plan claims of its arena: how low any plan could be, who makes it so, and what the planner says."""

from __future__ import annotations

import streamlit as st

from app.parts import focus
from app.say import claims
from app.session import state
from app.session.planning import Shown
from tmmu_core.plan.model import Plan

WITNESS = "witness"
"""Chosen where the drawing marks the tensors that make the lower bound."""


def panel(shown: Shown) -> None:
    """The certificate of the arena looked at, with the way to its witness."""
    name = focus.arena(shown)
    if not name:
        return
    summary = shown.plan.arena_of[name]
    st.html(claims.certificate(shown.plan, name))
    if not summary.witness:
        return
    on = state.choice().marked == WITNESS
    st.button(
        "Let the witness go" if on else "Mark them in the drawing",
        key="witness",
        type="tertiary",
        icon=":material/close:" if on else ":material/highlight:",
        on_click=_mark,
        args=(name, summary.witness_step, not on),
    )


def _mark(arena: str, step: int, on: bool) -> None:
    """Mark them, in their arena, at the step where they are held together."""
    chosen = state.choice()
    state.choose(
        marked=WITNESS if on else "",
        search="",
        arena=arena if on else chosen.arena,
        step=step if on and step >= 0 else chosen.step,
    )


LAYER = "layer:"
"""Chosen, with a layer's name behind it, where the drawing marks that layer."""


def layer_of(marked: str) -> str | None:
    """The layer that is marked; ``None`` where none is."""
    return marked.removeprefix(LAYER) if marked.startswith(LAYER) else None


def marked(plan: Plan, arena: str | None) -> list[int] | None:
    """The rows to mark, where marking is on: the witness of ``arena``, or of every arena."""
    if state.choice().marked != WITNESS:
        return None
    rows = [row for a in plan.arenas if arena in (None, a.name) for row in claims.witness_rows(plan, a)]
    return sorted(rows)
