"""The layers of the model: one is picked, marked in the drawing, and filters the tables."""

from __future__ import annotations

import streamlit as st

from app.parts import certificate
from app.session import placed, state
from app.session.planning import Shown
from tmmu_core.names import natural

KNOWN_BY = {
    "origins": "The file says in which module each node stands.",
    "names": "Layers are read off the names of nodes.",
    "parameters": "Layers are read off the names of parameters; a node that reads none lies between.",
}


def pick(shown: Shown) -> None:
    """Let a layer be picked, where names tell any."""
    if not placed.are_told(shown) or (
        len(shown.plan) > placed.MOST_UNASKED and certificate.layer_of(_marked()) is None
    ):
        return
    known = placed.origins(shown)
    if known is None or not known.modules.known_by:
        return
    repeated = ", ".join(f"{n:,} × {name}" for name, n in known.modules.repeated)
    names = sorted({layer for layer in known.layer if layer}, key=natural)
    now = certificate.layer_of(_marked())
    st.selectbox(
        "Layer",
        names,
        index=None,
        key=state.seat("layer", now if now in names else None),
        placeholder=f"all layers ({repeated})" if repeated else "all layers",
        on_change=_picked,
        label_visibility="collapsed",
        width=300,
        help="Marks a layer in the drawing and lists its tensors alone. " + KNOWN_BY[known.modules.known_by],
    )


def _picked() -> None:
    layer = state.value_of("layer")
    state.choose(marked=f"{certificate.LAYER}{layer}" if layer else "", search="")


def marked(shown: Shown) -> list[int] | None:
    """The rows of the layer that is picked; ``None`` for none."""
    layer = certificate.layer_of(_marked())
    known = placed.origins(shown) if layer is not None else None
    if known is None:
        return None
    return [row for row, name in enumerate(known.layer) if name == layer]


def _marked() -> str:
    return state.choice().marked
