"""The toolbar: menu Open, memory limit, mode, planner and menu Advanced."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import streamlit as st

from app.kit import controls
from app.kit.frame import advanced, gallery
from app.session import planning, state
from app.session.opening import Opened
from app.session.view_state import Choice
from app.texts import numbers
from tmmu_core.base import strict
from tmmu_core.graph.quantities import parse_bytes
from tmmu_core.planners import PLANNERS
from tmmu_core.plans.making.request import ANY_ARENA
from tmmu_core.plans.making.request_options import OPTION_SPECS, capacity_texts

MODES = {
    "inference/inference": "inference",
    "forward/train_full": "training, forward pass",
    "backward/train_full": "training step",
    "backward/remat_enabled": "training step, recompute",
}
FIXED = "A plan file keeps its settings. Open its graph to plan it again."


def draw(chosen: Choice, opened: Opened) -> None:
    """Draw the toolbar."""
    full = planning.with_explicit_defaults(chosen, opened)
    fixed = FIXED if opened.plan is not None else ""
    with controls.row("toolbar"):
        # A new key closes the popover after a selection.
        with (
            st.container(key="open", width="content"),
            st.popover("Open…", icon=":material/folder_open:", key=f"gallery-{state.session().uploads}"),
            st.container(key="gallery"),
        ):
            gallery.draw()
        _memory_limit(full, opened, fixed)
        if opened.instance is None:  # a packing problem has no mode and no preset
            about = "Inference or training, and the activations that are kept for the backward pass (the preset)."
            mode = f"{full.mode}/{full.preset}"
            names = MODES if mode in MODES else {mode: f"{full.mode}, preset {full.preset}", **MODES}
            keys = ("mode", "preset")
            _menu("Mode", names, mode, lambda name: dict(zip(keys, name.split("/"), strict=True)), about, fixed)
        about = "\n\n".join(f"**{name}**: {entry.summary}" for name, entry in PLANNERS.items())
        planners = {name: name for name in planning.planners_for(opened)}
        _menu("Planner", planners, full.planner, partial(planning.planner_changes, full), about, fixed)
        settings = (full.arenas or None, full.alignment, full.page_size, full.budget)
        count = sum(value is not None for value in settings) + len(full.dims) + len(full.options)
        title = f"Advanced ({count})" if count else "Advanced"
        about = fixed or "Options of the planner, arenas, alignment and dimensions."
        with st.popover(title, icon=":material/tune:", key="advanced", disabled=bool(fixed), help=about):
            advanced.draw(full, opened)
        if full.shard_spec is not None:
            whole, options = {"shard_spec": None, "rank": 0}, {"kind": "secondary", "icon": ":material/close:"}
            about = "All pages show the plan of this rank. Click to show the whole graph."
            controls.button(f"rank {full.rank}", "whole-graph", whole, **options, help=about)


def _memory_limit(full: Choice, opened: Opened, fixed: str) -> None:
    text = ", ".join(map(_short, capacity_texts(full.capacities)))

    def read(text: str) -> Any:
        capacities = OPTION_SPECS["capacities"].read(text)
        known = planning.arenas_in_use(full.but(capacities=capacities), opened)
        for name in [] if full.planner in PLANNERS and PLANNERS[full.planner].defines_arenas else capacities:
            if known and name not in (ANY_ARENA, *known):
                raise ValueError(f"The plan has no arena {name!r}. {strict.closest_hint(name, known)}")
        return capacities

    about = "Size of the memory for all arenas, such as 8MiB. Limit of one arena: activations=8MiB. Empty: unlimited."
    options: dict[str, Any] = {"help": fixed or about, "disabled": bool(fixed), "width": 215}
    options |= controls.text_widget("limit", "capacities", read, text, "Memory limit not changed", empty={})
    st.text_input("Memory limit", placeholder="e.g. 512KiB, 8GiB", **options)


def _short(pair: str) -> str:
    """Return ``activations=8 MiB`` for ``activations=8388608``. A size that would be rounded is not changed."""
    name, _, size = pair.rpartition("=")
    short = numbers.round_bytes(int(size))
    return f"{name}{'=' * bool(name)}{short if parse_bytes(short) == int(size) else size}"


def _menu(
    title: str, names: Mapping[str, str], value: str | None, changes: Callable[[str], Any], about: str, fixed: str
) -> None:
    """Draw a menu of name → title. A selection sets ``changes(name)``. ``fixed``: why the menu is disabled, or ""."""
    key, value = title.lower(), value or ""
    names = names if value in names else {value: value or numbers.UNKNOWN, **names}
    options: dict[str, Any] = {"disabled": bool(fixed), "help": fixed or about, "width": 200}
    options["on_change"] = lambda: state.choose(**changes(state.widget_value(key)))
    st.selectbox(title, list(names), 0, names.__getitem__, key=state.set_widget(key, value), **options)
