"""Marked rows of the drawing: the buffers that prove a lower bound (witness), or a layer."""

from typing import Any

import streamlit as st

from app.kit import arena_focus, controls
from app.session import plan_rows, state
from app.session.planning import Shown
from app.texts import certificate_text
from tmmu_core.base.escaping import for_markdown, natural
from tmmu_core.plans.model import Plan, rows_of_parts

WITNESS, LAYER = "witness", "layer:"  # values of Choice.marked; the name of a layer follows LAYER
LAYERS_FROM = {
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
    origins = None if layer is None else plan_rows.origins(shown)
    return None if origins is None else [row for row, name in enumerate(origins.layer) if name == layer]


def of_witness(plan: Plan, arena: str | None) -> list[int] | None:
    """Return the rows of the witness of an arena (default: all arenas) with its views; ``None`` if it is not marked."""
    if state.choice().marked != WITNESS:
        return None
    names = [name for a in plan.arenas if arena in (None, a.name) for name in a.witness]
    storages = {plan.storage[row] for name in names for row in rows_of_parts(plan, name)}
    return [row for row, storage in enumerate(plan.storage.tolist()) if storage in storages]


def certificate(shown: Shown) -> None:
    """Draw the card about the optimality of the shown arena, with a button that marks its witness."""
    name = arena_focus.arena(shown)
    if not name:
        return
    summary = shown.plan.arena_of[name]
    st.html(certificate_text.certificate(shown.plan, name))
    if summary.witness:
        changes: dict[str, Any] = {"arena": name}
        if summary.witness_step >= 0:
            changes["step"] = summary.witness_step
        label, changes, icon = "Mark the buffers of the lower bound", {**changes, "marked": WITNESS}, "highlight"
        if state.choice().marked == WITNESS:
            label, changes, icon = "Clear the marks", {"marked": ""}, "close"
        controls.button(label, WITNESS, {"search": "", **changes}, icon=f":material/{icon}:")


def pick_layer(shown: Shown) -> None:
    """Draw the menu that marks a layer, if the plan has several. The table of tensors lists only the marked layer."""
    chosen = layer_of(state.choice().marked)
    origins = plan_rows.origins(shown)
    if origins is None or not origins.modules.known_by:
        return
    names = sorted({layer for layer in origins.layer if layer}, key=natural)
    if len(names) < 2:
        return
    repeated = ", ".join(f"{count:,} × {for_markdown(name)}" for name, count in origins.modules.repeated)
    about = f"Mark a layer in the map and list only its tensors. {LAYERS_FROM[origins.modules.known_by]}"
    about += f" Repeated: {repeated}." if repeated else ""

    def mark_layer() -> None:
        layer = state.widget_value("layer")
        state.choose(marked=f"{LAYER}{layer}" if layer else "", search="")

    key = state.set_widget("layer", chosen if chosen in names else None)
    st.selectbox("Layer", names, None, key=key, placeholder="all", on_change=mark_layer, width=300, help=about)
