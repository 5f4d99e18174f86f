"""The toolbar: menu Open, memory limit, mode, planner and menu Advanced."""

from collections.abc import Callable, Sequence

import streamlit as st

from app.kit import controls
from app.kit.frame import advanced, gallery
from app.session import planning, state
from app.session.opening import Opened
from app.session.view_state import Choice
from app.texts import numbers
from tmmu_core.graph.quantities import pair_texts, parse_bytes
from tmmu_core.planners import PLANNERS
from tmmu_core.plans.making.request import ANY_ARENA
from tmmu_core.plans.making.request_options import OPTION_SPECS

MODES = {
    "inference/inference": "inference",
    "forward/train_full": "training, forward pass",
    "backward/train_full": "training step",
    "backward/remat_enabled": "training step, recompute",
}
"""``mode/preset`` → label."""
FIXED = "A plan file keeps its settings. Open its graph to plan it again."


def draw(chosen: Choice, opened: Opened) -> None:
    """Draw the toolbar."""
    full = planning.spelled_out(chosen, opened)
    fixed = FIXED if opened.plan is not None else ""
    with controls.row("toolbar"):
        # A new key closes the popover after a selection.
        with (
            st.container(key="open", width="content"),
            st.popover("Open…", icon=":material/folder_open:", key=f"gallery-{state.session().uploads}"),
            st.container(key="gallery"),
        ):
            gallery.draw()
        _memory_limit(full, fixed)
        if opened.instance is None:  # a packing problem has no mode and no preset
            _mode(full, fixed)
        about = "\n\n".join(f"**{name}**: {entry.summary}" for name, entry in PLANNERS.items())
        planners = planning.planners_for(opened)
        _menu(
            "Planner",
            planners,
            full.planner,
            str,
            lambda name: state.choose(**planning.picking(full, name)),
            about,
            fixed,
        )
        count = advanced.number_set(full)
        with st.popover(
            f"Advanced ({count})" if count else "Advanced",
            icon=":material/tune:",
            key="advanced",
            disabled=bool(fixed),
            help=fixed or "Options of the planner, arenas, alignment and dimensions.",
        ):
            advanced.draw(full, opened)
        if full.shard_spec is not None:
            about = "All pages show the plan of this rank. Click to show the whole graph."
            whole = {"shard_spec": None, "rank": 0}
            controls.button(
                f"rank {full.rank}", "whole-graph", whole, kind="secondary", icon=":material/close:", help=about
            )


def _memory_limit(full: Choice, fixed: str) -> None:
    """Draw the field of the memory limit: one size for all arenas together, or ``activations=8MiB`` for one arena."""
    pairs = ((None if name == ANY_ARENA else name, size) for name, size in sorted(full.capacities.items()))
    listed = [_short(text) for text in pair_texts(pairs)]
    st.text_input(
        "Memory limit",
        key=state.set_widget("limit", state.draft("limit") or ", ".join(listed)),
        placeholder="e.g. 512KiB, 8GiB",
        help=fixed
        or "Size of the memory for all arenas, such as 8MiB. Limit of one arena: activations=8MiB. Empty: unlimited.",
        on_change=controls.apply_text,
        args=("limit", "capacities", OPTION_SPECS["capacities"].read, "Memory limit not changed"),
        kwargs={"empty": {}},
        disabled=bool(fixed),
        width=215,
    )


def _short(pair: str) -> str:
    """Return ``activations=8 MiB`` for ``activations=8388608``. A size that would be rounded is not changed."""
    name, _, size = pair.rpartition("=")
    short = numbers.round_bytes(int(size))
    return f"{name}{'=' * bool(name)}{short if parse_bytes(short) == int(size) else size}"


def _mode(full: Choice, fixed: str) -> None:
    def choose(value: str) -> None:
        mode, _, preset = value.partition("/")
        state.choose(mode=mode, preset=preset)

    _menu(
        "Mode",
        list(MODES),
        f"{full.mode}/{full.preset}",
        lambda value: MODES.get(value, value.replace("/", ", preset ")),
        choose,
        "Inference or training, and the activations that are kept for the backward pass (the preset).",
        fixed,
    )


def _menu(
    title: str,
    values: Sequence[str],
    value: str | None,
    name_of: Callable[[str], str],
    choose: Callable[[str], None],
    about: str,
    fixed: str,
) -> None:
    """Draw a menu. ``value``: current value. ``fixed``: reason why the menu is disabled; "" if it is enabled."""
    key = title.lower()
    st.selectbox(
        title,
        values if value in values else (value or "", *values),
        key=state.set_widget(key, value),
        format_func=lambda option: name_of(option) or numbers.UNKNOWN,
        on_change=lambda: choose(state.widget_value(key)),
        disabled=bool(fixed),
        help=fixed or about,
        width=200,
    )
