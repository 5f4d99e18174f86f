"""Marked tensors: the buffers that prove a lower bound (witness), and the tensors of a layer."""

import streamlit as st

from app.kit import arena_focus, controls
from app.session import plan_rows, state
from app.session.planning import Shown
from app.texts import certificate_text
from tmmu_core.base.escaping import for_markdown, natural
from tmmu_core.plans.model import Plan

WITNESS, LAYER = "witness", "layer:"
"""Values of ``Choice.marked``; the name of a layer follows ``LAYER``."""
KNOWN_BY = {
    "origins": "The file names the module of each node.",
    "names": "Layers come from the node names.",
    "parameters": "Layers come from the parameter names; nodes without parameters belong to the surrounding layer.",
}


def layer_of(marked: str) -> str | None:
    """Return the name of the marked layer; ``None`` for another mark."""
    return marked.removeprefix(LAYER) if marked.startswith(LAYER) else None


def rows(shown: Shown) -> list[int] | None:
    """Return the rows of the marked layer; ``None`` if no layer is marked."""
    layer = layer_of(state.choice().marked)
    known = None if layer is None else plan_rows.origins(shown)
    return None if known is None else [row for row, name in enumerate(known.layer) if name == layer]


def of_witness(plan: Plan, arena: str | None) -> list[int] | None:
    """Return the rows of the witness of ``arena`` (``None``: all arenas); ``None`` if the witness is not marked."""
    if state.choice().marked != WITNESS:
        return None
    return sorted(row for a in plan.arenas if arena in (None, a.name) for row in certificate_text.witness_rows(plan, a))


def certificate(shown: Shown) -> None:
    """Draw the card about the optimality of the shown arena, with a button that marks its witness."""
    name = arena_focus.arena(shown)
    if not name:
        return
    summary = shown.plan.arena_of[name]
    st.html(certificate_text.certificate(shown.plan, name))
    if not summary.witness:
        return
    if state.choice().marked == WITNESS:
        controls.button("Clear the marks", "witness", {"marked": "", "search": ""}, icon=":material/close:")
    else:
        goal = {"arena": name} | ({"step": summary.witness_step} if summary.witness_step >= 0 else {})
        marked = {"marked": WITNESS, "search": "", **goal}
        controls.button("Mark the tensors of the bound", "witness", marked, icon=":material/highlight:")


def pick_layer(shown: Shown) -> None:
    """Draw the menu of layers, if the plan has layers. The map marks the chosen layer; the tables list only it."""
    chosen = layer_of(state.choice().marked)
    if not plan_rows.have_origins(shown) or (len(shown.plan) > plan_rows.MOST_EAGER and chosen is None):
        return
    known = plan_rows.origins(shown)
    names = sorted({layer for layer in known.layer if layer}, key=natural) if known is not None else []
    if known is None or not known.modules.known_by or len(names) < 2:
        return
    repeated = ", ".join(f"{n:,} × {for_markdown(name)}" for name, n in known.modules.repeated)

    def picked() -> None:
        layer = state.widget_value("layer")
        state.choose(marked=f"{LAYER}{layer}" if layer else "", search="")

    st.selectbox(
        "Layer",
        names,
        index=None,
        key=state.set_widget("layer", chosen if chosen in names else None),
        placeholder="all layers",
        on_change=picked,
        label_visibility="collapsed",
        width=300,
        help="Mark a layer in the map and list only its tensors. "
        + KNOWN_BY[known.modules.known_by]
        + (f" Repeated: {repeated}." if repeated else ""),
    )
