"""Rematerialization of the graph: bytes saved against steps added."""

from __future__ import annotations

import streamlit as st

from app.kit import arena_focus
from app.session import planning, state
from app.session.planning import Shown
from app.texts import glossary, markup, numbers
from tmmu_core.plans.model import Plan


def section(shown: Shown) -> None:
    """Compare presets ``train_full`` and ``remat_enabled`` if the graph marks tensors for recomputation."""
    graph = shown.opened.graph
    marked = sum(tensor.remat for tensor in graph.tensors) if graph is not None else 0
    if not marked:
        return
    chosen = state.choice().but(mode="backward")
    kept, again = (planning.plan_job(chosen.but(preset=preset)) for preset in ("train_full", "remat_enabled"))
    if not (kept.wait(planning.PATIENCE) and again.wait(planning.PATIENCE)):
        st.caption("Comparing rematerialization; reload the page in a moment.")
        return
    if not (kept.worked and again.worked):
        st.caption("Rematerialization cannot be compared: a preset cannot be planned with these settings.")
        return
    before, after = kept.answer().plan, again.answer().plan
    note = f"{numbers.count(marked, 'tensor')} marked; train_full → remat_enabled in mode backward"
    definition = markup.esc(glossary.define("rematerialisation"))
    st.html(f'<div title="{definition}">{markup.heading(claim(before, after), note)}</div>')
    st.html(table(before, after))
    current = shown.choice.mode == "backward" and shown.choice.preset == "remat_enabled"
    st.button(
        "Plan with rematerialization",
        key="use-remat",
        disabled=current,
        help="The current plan uses it." if current else "Set mode backward and preset remat_enabled.",
        on_click=state.choose,
        kwargs={"mode": "backward", "preset": "remat_enabled"},
    )


def claim(before: Plan, after: Plan) -> str:
    """Return the heading: ``Rematerialization saves 256 KiB of activations (28.6 %) for 3 more steps``."""
    arena = "activations" if "activations" in before.arena_of else arena_focus.largest(before)
    old = before.arena_of[arena].extent_bytes
    new = after.arena_of[arena].extent_bytes if arena in after.arena_of else 0
    cost = numbers.count(after.steps - before.steps, "more step")
    if new >= old:
        return f"Rematerialization saves nothing of {arena} ({numbers.delta_bytes(new - old)}) for {cost}"
    saved = f"{numbers.short_bytes(old - new)} of {arena} ({numbers.percent(old - new, old)})"
    return f"Rematerialization saves {saved} for {cost}"


def table(before: Plan, after: Plan) -> str:
    """Return a table of steps, peaks and arena sizes, baseline → candidate."""
    steps = numbers.change(f"{before.steps:,}", f"{after.steps:,}")
    rows = [["<b>steps</b>", "", steps, f"{after.steps - before.steps:+,}"]]
    for name in sorted({*before.arena_of, *after.arena_of}):
        a, b = before.arena_of.get(name), after.arena_of.get(name)
        old, new = (x.extent_bytes if x else 0 for x in (a, b))
        peaks = (x.peak_live_bytes if x else 0 for x in (a, b))
        css = "better" if new < old else "worse" if new > old else ""
        rows.append(
            [
                f"<b>{markup.esc(name)}</b>",
                markup.esc(numbers.change(*map(numbers.short_bytes, peaks))),
                markup.esc(numbers.change(numbers.short_bytes(old), numbers.short_bytes(new))),
                f'<span class="{css}" title="{numbers.exact_bytes(new - old)}">{numbers.delta_bytes(new - old)}</span>',
            ]
        )
    return markup.table(["", "peak live bytes", "arena size", "change"], rows, numbers=(1, 2, 3))
