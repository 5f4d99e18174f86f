"""The selected arena and step of a page, and the title about it."""

from __future__ import annotations

import streamlit as st

from app.session import state
from app.session.planning import Shown
from app.session.work.jobs import remembered
from app.texts import numbers
from tmmu_core.base.escaping import for_markdown
from tmmu_core.plans.figures.plan_storages import peak_step_of
from tmmu_core.plans.model import ArenaSummary, Plan

ALL = "*"
"""Chosen where the drawing shall show all arenas on one byte scale."""


def default_arena(plan: Plan) -> ArenaSummary | None:
    """The arena in which most is planned: the largest one where bytes are used again, else the largest."""
    return max(plan.arenas, key=lambda a: (a.max_live < a.storages, a.extent_bytes, a.name), default=None)


def largest(plan: Plan) -> str:
    """The default arena's name, whatever is chosen."""
    best = default_arena(plan)
    return best.name if best else ""


def of_plan(plan: Plan) -> str | None:
    """The chosen arena where the plan has it, else the default one; ``None`` for a plan without arenas."""
    chosen = state.choice().arena
    if chosen in plan.arena_of:
        return chosen
    return largest(plan) or None


def drawn(plan: Plan) -> str | None:
    """The arena that drawings and tables show; ``None`` where all are wanted at once."""
    return None if state.choice().arena == ALL else of_plan(plan)


def arena(shown: Shown) -> str:
    """The same, ``""`` for a plan without arenas."""
    return of_plan(shown.plan) or ""


def pick(shown: Shown) -> str:
    """Let the arena be chosen; its name."""
    name = arena(shown)
    names = [a.name for a in shown.plan.arenas]
    if len(names) > 1:
        st.segmented_control(
            "Arena",
            names,
            format_func=for_markdown,
            key=state.set_widget("arena", name),
            on_change=lambda: state.choose(arena=state.widget_value("arena") or name, step=None),
            label_visibility="collapsed",
        )
    return name


@remembered
def peak(_plan: Plan, plan_key: str, arena_name: str) -> tuple[int, int]:
    """Return ``(step, bytes)`` of an arena's peak."""
    del plan_key
    return peak_step_of(_plan, arena_name)


def claim(name: str, plan: Plan, arena_name: str) -> str:
    """``resnet50: activations take 9.19 MiB, 33.3 % over the lower bound``, for one arena."""
    if not arena_name:
        return f"{name}: no tensors to plan"
    summary = plan.arena_of[arena_name]
    bound, extent = summary.bound_bytes, summary.extent_bytes
    text = f"{name}: {numbers.takes(arena_name)} {numbers.short_bytes(extent)}"
    if extent == bound:
        return f"{text}, the minimum"
    return f"{text}, {numbers.over_bound(*summary.gap)} over the lower bound"


def step_and_arena(shown: Shown, arena_name: str) -> int:
    """The chosen step where the plan has it, else the arena's peak."""
    chosen = state.choice().step
    if chosen is not None and 0 <= chosen < shown.plan.steps:
        return chosen
    return peak(shown.plan, shown.key, arena_name)[0]


def step_controls(shown: Shown, arena_name: str) -> int:
    """Let the step be chosen; the step."""
    plan, now = shown.plan, step_and_arena(shown, arena_name)
    at_peak = peak(plan, shown.key, arena_name)[0]
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="step-controls"):
        st.number_input(
            "Step",
            min_value=0,
            max_value=max(0, plan.steps - 1),
            key=state.set_widget("step", now),
            on_change=lambda: state.choose(step=state.widget_value("step")),
            label_visibility="collapsed",
            width=140,
            help=f"Step 0 … {plan.steps - 1}",
        )
        st.button(
            "Go to the peak",
            on_click=state.choose,
            kwargs={"step": at_peak},
            disabled=now == at_peak,
            help="This is the peak."
            if now == at_peak
            else f"The peak is at {numbers.step(at_peak, plan.node_at(at_peak))}.",
        )
        pick(shown)
    return now
