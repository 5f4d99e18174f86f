"""Marked rows of the drawing: the buffers that prove a lower bound (witness), a layer, or long idle buffers."""

from typing import Any

import streamlit as st

from app.kit import arena_focus, controls
from app.session import plan_rows, state
from app.session.planning import Shown
from app.texts import numbers, totals_text
from tmmu_core.base.escaping import for_markdown, natural_key
from tmmu_core.plans.model import Plan, rows_of_parts

WITNESS, LONG_IDLE, LAYER = "witness", "late", "layer:"  # values of Choice.marked; the name of a layer follows LAYER
LAYERS_FROM = {
    "origins": "The model file contains the module of each node.",
    "names": "Layers come from the node names.",
    "parameters": "Layers come from the parameter names; nodes without parameters belong to the surrounding layer.",
}


def layer_of(marked: str) -> str | None:
    """Return the name of the marked layer; ``None`` for another mark."""
    return marked.removeprefix(LAYER) if marked.startswith(LAYER) else None


def marked_rows(shown: Shown) -> list[int] | None:
    """Return the rows of the marked layer or of the marked long idle buffers; ``None`` if neither is marked."""
    if (layer := layer_of(state.choice().marked)) is not None:
        origins = plan_rows.origins(shown)
        return None if origins is None else [row for row, name in enumerate(origins.layer) if name == layer]
    return [row for row, _, _ in _long_idle(shown)] or None


def witness_rows(plan: Plan, arena: str | None) -> list[int] | None:
    """Return the rows, with views, of the witness of ``arena`` or of all arenas; ``None`` if it is not marked."""
    if state.choice().marked != WITNESS:
        return None
    names = [name for a in plan.arenas if arena in (None, a.name) for name in a.witness]
    storages = {plan.storage[row] for name in names for row in rows_of_parts(plan, name)}
    return [row for row, storage in enumerate(plan.storage.tolist()) if storage in storages]


def flags(shown: Shown) -> list[tuple[int, str]]:
    """Return ``(step, text)`` of each last use of marked buffers; ``"a frees x +1"``: node a frees x and one more."""
    plan = shown.plan
    freed_at: dict[int, list[str]] = {}
    for row, last_use, _ in _long_idle(shown):
        freed_at.setdefault(last_use, []).append(numbers.shortened(plan.tensor_ids[row], 14))
    texts = []
    for step, (first, *others) in freed_at.items():
        more = f" +{len(others)}" if others else ""
        texts.append((step, f"{numbers.shortened(plan.node_at(step), 14)} frees {first}{more}"))
    return texts


def _long_idle(shown: Shown) -> list[tuple[int, int, int]]:
    """Return ``(row, last use, second-last use)`` of the marked long idle buffers; [] if they are not marked."""
    return plan_rows.idle_before_last_use(shown, arena_focus.arena(shown)) if state.choice().marked == LONG_IDLE else []


def certificate(shown: Shown) -> None:
    """Draw the card about the optimality of the shown arena, with a button that marks its witness in a map."""
    name = arena_focus.arena(shown)
    if not name:
        return
    summary = shown.plan.arena_of[name]
    st.html(totals_text.certificate(shown.plan, name))
    if summary.witness and state.session().page != "graph":  # the graph shows no marks
        changes: dict[str, Any] = {"arena": name}
        if summary.witness_step >= 0:
            changes["step"] = summary.witness_step
        _mark_button(WITNESS, "Mark the buffers of the lower bound", "highlight", **changes)


def _mark_button(mark: str, label: str, icon: str, hint: str | None = None, **changes: Any) -> None:
    if state.choice().marked == mark:
        controls.button("Clear the marks", mark, {"marked": "", "search": ""}, icon=":material/close:")
    else:
        changes |= {"marked": mark, "search": ""}
        controls.button(label, mark, changes, icon=f":material/{icon}:", help=hint)


def long_idle_button(shown: Shown) -> None:
    """Draw the button that marks long idle buffers, if the arena has such buffers."""
    if plan_rows.idle_before_last_use(shown, arena_focus.arena(shown)):
        hint = "Mark buffers with the most idle bytes × steps before the last use. A flag names the freeing node."
        _mark_button(LONG_IDLE, "Mark long idle buffers", "flag", hint)


def pick_layer(shown: Shown) -> None:
    """Draw the menu that marks a layer, if the plan has several. The table of tensors lists only the marked layer."""
    chosen = layer_of(state.choice().marked)
    origins = plan_rows.origins(shown)
    if origins is None or not origins.modules.known_by:
        return
    names = sorted({layer for layer in origins.layer if layer}, key=natural_key)
    if len(names) < 2:
        return
    repeated = ", ".join(f"{count:,} × {for_markdown(name)}" for name, count in origins.modules.repeated)
    hint = f"Mark a layer in the map and list only its tensors. {LAYERS_FROM[origins.modules.known_by]}"
    hint += f" Repeated: {repeated}." if repeated else ""

    def mark_layer(layer: str | None) -> None:
        state.choose(marked=f"{LAYER}{layer}" if layer else "", search="")

    widget = state.bind("layer", chosen if chosen in names else None, mark_layer)
    st.selectbox("Layer", names, None, placeholder="all", width=300, help=hint, **widget)
