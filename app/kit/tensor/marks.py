"""Marked tensors: the witness of a lower bound, a layer, and the buffers freed late by their last reader."""

import streamlit as st

from app.kit import arena_focus
from app.session import plan_rows, state
from app.session.planning import Shown
from app.texts import certificate_text, numbers
from tmmu_core.base.escaping import for_markdown, natural
from tmmu_core.plans.model import Plan

WITNESS, LATE, LAYER = "witness", "late", "layer:"
"""Values of ``marked``; the name of a layer follows ``LAYER``."""
KNOWN_BY = {
    "origins": "The file names the module of each node.",
    "names": "Layers come from the node names.",
    "parameters": "Layers come from the parameter names; nodes without parameters belong to the surrounding layer.",
}


def layer_of(marked: str) -> str | None:
    """Return the marked layer, or ``None``."""
    return marked.removeprefix(LAYER) if marked.startswith(LAYER) else None


def rows(shown: Shown) -> list[int] | None:
    """Return the rows of the marked layer or of the buffers freed late; ``None`` without these marks."""
    marked = state.choice().marked
    if (layer := layer_of(marked)) is not None:
        known = plan_rows.origins(shown)
        return None if known is None else [row for row, name in enumerate(known.layer) if name == layer]
    return [row for row, _, _ in _late(shown)] or None


def of_witness(plan: Plan, arena: str | None) -> list[int] | None:
    """Return the rows of the witness of ``arena``, or of all arenas, if it is marked."""
    if state.choice().marked != WITNESS:
        return None
    return sorted(row for a in plan.arenas if arena in (None, a.name) for row in certificate_text.witness_rows(plan, a))


def flags(shown: Shown) -> list[tuple[int, str]]:
    """Return a flag per last reader of a marked buffer: ``(step, "conv_12 frees x")``."""
    plan = shown.plan
    freed: dict[int, list[str]] = {}
    for row, last, _ in _late(shown):
        freed.setdefault(last, []).append(numbers.shortened(plan.tensor_ids[row], 14))
    return [
        (
            step,
            f"{numbers.shortened(plan.node_at(step), 14)} frees {names[0]}" + f" +{len(names) - 1}" * (len(names) > 1),
        )
        for step, names in freed.items()
    ]


def _late(shown: Shown) -> list[tuple[int, int, int]]:
    return plan_rows.freed_late(shown, arena_focus.arena(shown)) if state.choice().marked == LATE else []


def certificate(shown: Shown) -> None:
    """Draw the card on the optimality of the selected arena, with a button that marks its witness."""
    name = arena_focus.arena(shown)
    if not name:
        return
    summary = shown.plan.arena_of[name]
    st.html(certificate_text.certificate(shown.plan, name))
    if not summary.witness:
        return
    if state.choice().marked == WITNESS:
        st.button("Clear the marks", key="witness", type="tertiary", icon=":material/close:", on_click=_mark)
    else:
        goal = {"arena": name} | ({"step": summary.witness_step} if summary.witness_step >= 0 else {})
        st.button(
            "Mark these tensors",
            key="witness",
            type="tertiary",
            icon=":material/highlight:",
            on_click=_mark,
            args=(WITNESS,),
            kwargs=goal,
        )


def _mark(marked: str = "", **goal: object) -> None:
    state.choose(marked=marked, search="", **goal)


def late_button(shown: Shown) -> None:
    """Draw the button that marks buffers freed late; nothing where no buffer waits for its last reader."""
    if not plan_rows.freed_late(shown, arena_focus.arena(shown)):
        return
    on = state.choice().marked == LATE
    st.button(
        "Clear the marks" if on else "Mark buffers freed late",
        key="late",
        type="tertiary",
        icon=":material/close:" if on else ":material/flag:",
        help="Marks the buffers with the most bytes × steps between their last two uses; a flag names the last reader.",
        on_click=_mark,
        args=("" if on else LATE,),
    )


def pick_layer(shown: Shown) -> None:
    """Draw the menu of layers if the plan has any: the chosen layer is marked in the map and filters the tables."""
    chosen = layer_of(state.choice().marked)
    if not plan_rows.have_origins(shown) or (len(shown.plan) > plan_rows.MOST_UNASKED and chosen is None):
        return
    known = plan_rows.origins(shown)
    names = sorted({layer for layer in known.layer if layer}, key=natural) if known is not None else []
    if known is None or not known.modules.known_by or len(names) < 2:
        return
    repeated = ", ".join(f"{n:,} × {for_markdown(name)}" for name, n in known.modules.repeated)
    st.selectbox(
        "Layer",
        names,
        index=None,
        key=state.set_widget("layer", chosen if chosen in names else None),
        placeholder="all layers",
        on_change=_picked,
        label_visibility="collapsed",
        width=300,
        help="Marks the layer in the map and lists only its tensors. "
        + KNOWN_BY[known.modules.known_by]
        + (f" Repeated: {repeated}." if repeated else ""),
    )


def _picked() -> None:
    layer = state.widget_value("layer")
    _mark(f"{LAYER}{layer}" if layer else "")
