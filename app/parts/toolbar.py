"""The toolbar: what is open and how it is planned, in one row of buttons and popovers."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import streamlit as st

from app.parts import arenas, gallery, more, options
from app.say import words
from app.session import planning, state
from app.session.choice import Choice
from app.session.opening import Opened
from tmmu_core.graph.model import MODES, PRESETS
from tmmu_core.names import for_markdown
from tmmu_core.planners import PLANNERS


def draw(chosen: Choice, opened: Opened) -> None:
    """What is open and how it is planned, in one row."""
    full = planning.spelled_out(chosen, opened)
    fixed = opened.plan is not None
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="toolbar"):
        # Whatever is chosen in it closes it: a popover of another key is another one.
        label = f"**{for_markdown(words.shortened(opened.name, 34))}**"
        with (
            st.container(key="open", width="content"),
            st.popover(label, icon=":material/folder_open:", key=f"gallery-{state.upload_epoch()}"),
        ):
            if opened.problem is not None:
                st.caption("A packing problem has lives and sizes only: mode, preset and dimensions need a graph.")
            gallery.draw()
        why_not = "A finished plan keeps its mode, preset and planner. Open its graph to plan it anew."
        if opened.problem is None:  # a plain problem has neither
            _pick(_Menu("mode", MODES, full.mode), disabled=fixed, help=why_not if fixed else None)
            _pick(_Menu("preset", PRESETS, full.preset), disabled=fixed, help=why_not if fixed else None)
        planners = planning.planners_for(opened)
        about = "\n\n".join(f"**{name}**: {entry.summary}" for name, entry in PLANNERS.items())
        _pick(
            _Menu("planner", tuple(planners), full.planner),
            disabled=fixed,
            help=why_not if fixed else about,
            then=lambda: state.choose(**planning.picking(full, state.value_of("planner"))),
        )
        options.popover(full, fixed=why_not if fixed else "")
        _best(full, fixed)
        arenas.popover(full, opened, fixed=why_not if fixed else "")
        more.popover(full, of_graph=opened.graph is not None, fixed=why_not if fixed else "")
        if full.shard_spec is not None:
            st.button(
                f"rank {full.rank}",
                icon=":material/close:",
                key="whole-graph",
                help="All pages show this rank's share of the graph. Click for the whole graph.",
                on_click=state.choose,
                kwargs={"shard_spec": None, "rank": 0},
            )


def _best(full: Choice, fixed: bool) -> None:
    best = planning.best(full)
    there = full.planner == best["planner"] and full.options == best["options"]
    why_not = (
        "A finished plan keeps its planner." if fixed else "This is the plan of auto, which picks by size." * there
    )
    st.button(
        "Best plan",
        icon=":material/star:",
        key="best",
        disabled=bool(why_not),
        help=why_not
        or "Plan with auto, which picks the planner that suits the size and says which, down to the least.",
        on_click=lambda: state.choose(**best),
    )


class _Menu(NamedTuple):
    """A part of the choice, what it can be, and what it is."""

    name: str
    values: tuple[str, ...]
    value: str | None


def _pick(menu: _Menu, *, disabled: bool, help: str | None, then: Callable[[], None] | None = None) -> None:
    name, values, value = menu
    shown_options = values if value in values else (value or "", *values)
    st.selectbox(
        name,
        shown_options,
        key=state.seat(name, value),
        format_func=lambda option: f"{name}: {option or words.UNKNOWN}",
        on_change=then or (lambda: state.choose(**{name: state.value_of(name)})),
        label_visibility="collapsed",
        disabled=disabled,
        help=help,
        width=170,
    )
