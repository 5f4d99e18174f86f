"""The toolbar: source and planning settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import streamlit as st

from app.kit.frame import arena_form, gallery, more_options, planner_options
from app.session import planning, state
from app.session.opening import Opened
from app.session.view_state import Choice
from app.texts import numbers
from tmmu_core.base.escaping import for_markdown
from tmmu_core.graph.model import MODES, PRESETS
from tmmu_core.planners import PLANNERS


def draw(chosen: Choice, opened: Opened) -> None:
    """Draw the toolbar."""
    full = planning.spelled_out(chosen, opened)
    fixed = opened.plan is not None
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="toolbar"):
        # A new key closes the popover after a selection.
        label = f"**{for_markdown(numbers.shortened(opened.name, 34))}**"
        with (
            st.container(key="open", width="content"),
            st.popover(label, icon=":material/folder_open:", key=f"gallery-{state.upload_epoch()}"),
        ):
            if opened.problem is not None:
                st.caption(
                    "A packing problem has live ranges and sizes only; mode, preset and dimensions need a graph."
                )
            gallery.draw()
        why_not = "A finished plan cannot change. Open its graph to plan it again."
        if opened.problem is None:  # a plain problem has neither
            _pick(_Menu("mode", MODES, full.mode), disabled=fixed, help=why_not if fixed else None)
            _pick(_Menu("preset", PRESETS, full.preset), disabled=fixed, help=why_not if fixed else None)
        planners = planning.planners_for(opened)
        about = "\n\n".join(f"**{name}**: {entry.summary}" for name, entry in PLANNERS.items())
        _pick(
            _Menu("planner", tuple(planners), full.planner),
            disabled=fixed,
            help=why_not if fixed else about,
            then=lambda: state.choose(**planning.picking(full, state.widget_value("planner"))),
        )
        planner_options.popover(full, fixed=why_not if fixed else "")
        arena_form.popover(full, opened, fixed=why_not if fixed else "")
        more_options.popover(full, of_graph=opened.graph is not None, fixed=why_not if fixed else "")
        if full.shard_spec is not None:
            st.button(
                f"rank {full.rank}",
                icon=":material/close:",
                key="whole-graph",
                help="All pages show the share of this rank. Click to show the whole graph.",
                on_click=state.choose,
                kwargs={"shard_spec": None, "rank": 0},
            )


class _Menu(NamedTuple):
    """A setting with its possible values and its value."""

    name: str
    values: tuple[str, ...]
    value: str | None


def _pick(menu: _Menu, *, disabled: bool, help: str | None, then: Callable[[], None] | None = None) -> None:
    name, values, value = menu
    shown_options = values if value in values else (value or "", *values)
    st.selectbox(
        name,
        shown_options,
        key=state.set_widget(name, value),
        format_func=lambda option: f"{name}: {option or numbers.UNKNOWN}",
        on_change=then or (lambda: state.choose(**{name: state.widget_value(name)})),
        label_visibility="collapsed",
        disabled=disabled,
        help=help,
        width=170,
    )
