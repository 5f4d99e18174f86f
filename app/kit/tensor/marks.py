"""Marked tensors: the buffers that prove a lower bound (witness), the tensors of a layer, and buffers freed late."""

import streamlit as st

from app.kit import arena_focus, controls
from app.session import plan_rows, state
from app.session.planning import Shown
from app.texts import certificate_text, numbers
from tmmu_core.base.escaping import for_markdown, natural
from tmmu_core.plans.model import Plan

WITNESS, LATE, LAYER = "witness", "late", "layer:"
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
    """Return the rows of the marked layer or of the buffers freed late; ``None`` without these marks."""
    marked = state.choice().marked
    if (layer := layer_of(marked)) is not None:
        origins = plan_rows.origins(shown)
        return None if origins is None else [row for row, name in enumerate(origins.layer) if name == layer]
    return [row for row, _, _ in _late(shown)] or None


def of_witness(plan: Plan, arena: str | None) -> list[int] | None:
    """Return the rows of the witness of ``arena`` (``None``: all arenas); ``None`` if the witness is not marked."""
    if state.choice().marked != WITNESS:
        return None
    return sorted(row for a in plan.arenas if arena in (None, a.name) for row in certificate_text.witness_rows(plan, a))


def flags(shown: Shown) -> list[tuple[int, str]]:
    """Return a flag for each node that frees a buffer of the mark "freed late": ``(step, "conv_12 frees x")``."""
    plan = shown.plan
    freed: dict[int, list[str]] = {}
    for row, last, _ in _late(shown):
        freed.setdefault(last, []).append(numbers.shortened(plan.tensor_ids[row], 14))
    found = []
    for step, names in freed.items():
        more = f" +{len(names) - 1}" if len(names) > 1 else ""
        found.append((step, f"{numbers.shortened(plan.node_at(step), 14)} frees {names[0]}{more}"))
    return found


def _late(shown: Shown) -> list[tuple[int, int, int]]:
    return plan_rows.freed_late(shown, arena_focus.arena(shown)) if state.choice().marked == LATE else []


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
        _clear_button("witness")
    else:
        goal = {"arena": name} | ({"step": summary.witness_step} if summary.witness_step >= 0 else {})
        marked = {"marked": WITNESS, "search": "", **goal}
        controls.button("Mark the buffers of the lower bound", "witness", marked, icon=":material/highlight:")


def _clear_button(key: str) -> None:
    controls.button("Clear the marks", key, {"marked": "", "search": ""}, icon=":material/close:")


def late_button(shown: Shown) -> None:
    """Draw the button that marks buffers freed late, if the arena has such buffers."""
    if not plan_rows.freed_late(shown, arena_focus.arena(shown)):
        return
    if state.choice().marked == LATE:
        _clear_button("late")
        return
    about = "Mark the buffers that wait longest for their last use, by bytes × steps. A flag shows the last reader."
    marked = {"marked": LATE, "search": ""}
    controls.button("Mark buffers freed late", "late", marked, icon=":material/flag:", help=about)


def pick_layer(shown: Shown) -> None:
    """Draw the menu of layers, if the plan has layers. The map marks the chosen layer; the tables list only it."""
    chosen = layer_of(state.choice().marked)
    if len(shown.plan) > plan_rows.MOST_EAGER and chosen is None:
        return
    origins = plan_rows.origins(shown)
    if origins is None or not origins.modules.known_by:
        return
    names = sorted({layer for layer in origins.layer if layer}, key=natural)
    if len(names) < 2:
        return
    repeated = ", ".join(f"{count:,} × {for_markdown(name)}" for name, count in origins.modules.repeated)

    def picked() -> None:
        layer = state.widget_value("layer")
        state.choose(marked=f"{LAYER}{layer}" if layer else "", search="")

    st.selectbox(
        "Layer",
        names,
        index=None,
        key=state.set_widget("layer", chosen if chosen in names else None),
        placeholder="all",
        on_change=picked,
        width=300,
        help=f"Mark a layer in the map and list only its tensors. {KNOWN_BY[origins.modules.known_by]}"
        + (f" Repeated: {repeated}." if repeated else ""),
    )
