"""The layer menu: the chosen layer is marked in the map and filters the tables."""

from __future__ import annotations

import streamlit as st

from app.kit.tensor import certificate
from app.session import plan_rows, state
from app.session.planning import Shown
from tmmu_core.base.escaping import natural

KNOWN_BY = {
    "origins": "The file names the module of each node.",
    "names": "Layers come from the node names.",
    "parameters": "Layers come from the parameter names; nodes without parameters belong to the layer around them.",
}


def pick(shown: Shown) -> None:
    """Draw the menu if the plan has layers."""
    if not plan_rows.have_origins(shown) or (
        len(shown.plan) > plan_rows.MOST_UNASKED and certificate.layer_of(_marked()) is None
    ):
        return
    known = plan_rows.origins(shown)
    if known is None or not known.modules.known_by:
        return
    repeated = ", ".join(f"{n:,} × {name}" for name, n in known.modules.repeated)
    names = sorted({layer for layer in known.layer if layer}, key=natural)
    now = certificate.layer_of(_marked())
    st.selectbox(
        "Layer",
        names,
        index=None,
        key=state.set_widget("layer", now if now in names else None),
        placeholder=f"all layers ({repeated})" if repeated else "all layers",
        on_change=_picked,
        label_visibility="collapsed",
        width=300,
        help="Marks the layer in the map and lists only its tensors. " + KNOWN_BY[known.modules.known_by],
    )


def _picked() -> None:
    layer = state.widget_value("layer")
    state.choose(marked=f"{certificate.LAYER}{layer}" if layer else "", search="")


def marked(shown: Shown) -> list[int] | None:
    """Return the rows of the chosen layer; ``None`` without a choice."""
    layer = certificate.layer_of(_marked())
    known = plan_rows.origins(shown) if layer is not None else None
    if known is None:
        return None
    return [row for row, name in enumerate(known.layer) if name == layer]


def _marked() -> str:
    return state.choice().marked
