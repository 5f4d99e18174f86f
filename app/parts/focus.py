"""Which arena a page looks at, and what is claimed of it."""

from __future__ import annotations

import streamlit as st

from app import markup, state, words
from app.work import Shown
from tmmu_core.plan.metrics import live_bytes, peak_of
from tmmu_core.plan.model import ArenaSummary, Plan


def default_arena(plan: Plan) -> ArenaSummary | None:
    """The arena in which most is planned: the largest one where bytes are used again, else the largest."""
    return max(plan.arenas, key=lambda a: (a.max_live < a.storages, a.extent_bytes, a.name), default=None)


def arena(shown: Shown) -> str:
    """The name of the chosen arena, or of the default one; ``""`` for a plan without arenas."""
    chosen = state.choice().arena
    if chosen in shown.plan.arena_of:
        return chosen
    best = default_arena(shown.plan)
    return best.name if best else ""


def pick(shown: Shown) -> str:
    """Let the arena be chosen; its name."""
    name = arena(shown)
    names = [a.name for a in shown.plan.arenas]
    if len(names) > 1:
        st.segmented_control(
            "Arena",
            names,
            key=state.seat("arena", name),
            on_change=lambda: state.choose(arena=state.value_of("arena") or name, step=None),
            label_visibility="collapsed",
        )
    return name


@st.cache_data(show_spinner=False, max_entries=64)
def peak(_plan: Plan, plan_key: str, arena_name: str) -> tuple[int, int]:
    """``(step, bytes)`` of an arena's peak, as the core says."""
    del plan_key
    return peak_of(live_bytes(_plan, arena_name))


def claim(plan: Plan, arena_name: str) -> str:
    """``Peak 9.19 MiB at #17 conv; extent 11.4 MiB; gap 24 %``, said of one arena."""
    if not arena_name:
        return "Nothing is planned: the graph holds no tensors."
    summary = plan.arena_of[arena_name]
    step, most = peak_of(live_bytes(plan, arena_name))
    bound = markup.bound_of(summary)
    where = words.step(step, words.shortened(plan.node_at(step), 24))
    return (
        f"Peak {words.short_bytes(most)} at {where}; extent {words.short_bytes(summary.extent_bytes)}; "
        f"gap {words.gap(summary.extent_bytes, bound)}"
    )
