"""Rematerialisation on this graph: the bytes that it saves against the steps that it adds."""

from __future__ import annotations

import streamlit as st

from app.parts import focus
from app.say import glossary, markup, words
from app.session import planning, state
from app.session.planning import Shown
from tmmu_core.plan.model import Plan


def section(shown: Shown) -> None:
    """``train_full`` → ``remat_enabled`` in mode ``backward``, where the graph marks tensors."""
    graph = shown.opened.graph
    marked = sum(tensor.remat for tensor in graph.tensors) if graph is not None else 0
    if not marked:
        return
    chosen = state.choice().but(mode="backward")
    kept, again = (planning.plan_job(chosen.but(preset=preset)) for preset in ("train_full", "remat_enabled"))
    if not (kept.wait(planning.PATIENCE) and again.wait(planning.PATIENCE)):
        st.caption("Rematerialisation is being compared; open the page again in a moment.")
        return
    if not (kept.worked and again.worked):
        st.caption("Rematerialisation cannot be compared: one of the two presets cannot be planned as chosen.")
        return
    before, after = kept.answer().plan, again.answer().plan
    note = f"{words.count(marked, 'tensor')} marked; train_full → remat_enabled in mode backward"
    definition = markup.esc(glossary.define("rematerialisation"))
    st.html(f'<div title="{definition}">{markup.heading(claim(before, after), note)}</div>')
    st.html(table(before, after))
    current = shown.choice.mode == "backward" and shown.choice.preset == "remat_enabled"
    st.button(
        "Plan with rematerialisation",
        key="use-remat",
        disabled=current,
        help="The plan shown is made so." if current else "Let all pages show mode backward, preset remat_enabled.",
        on_click=state.choose,
        kwargs={"mode": "backward", "preset": "remat_enabled"},
    )


def claim(before: Plan, after: Plan) -> str:
    """``Rematerialisation saves 256 KiB of activations (28.6 %) for 3 more steps``."""
    arena = "activations" if "activations" in before.arena_of else focus.largest(before)
    old = before.arena_of[arena].extent_bytes
    new = after.arena_of[arena].extent_bytes if arena in after.arena_of else 0
    cost = words.count(after.steps - before.steps, "more step")
    if new >= old:
        return f"Rematerialisation saves nothing of {arena} ({words.delta_bytes(new - old)}) for {cost}"
    saved = f"{words.short_bytes(old - new)} of {arena} ({words.percent(old - new, old)})"
    return f"Rematerialisation saves {saved} for {cost}"


def table(before: Plan, after: Plan) -> str:
    """Steps, and every arena's peak and extent, baseline → candidate."""
    steps = words.change(f"{before.steps:,}", f"{after.steps:,}")
    rows = [["<b>steps</b>", "", steps, f"{after.steps - before.steps:+,}"]]
    for name in sorted({*before.arena_of, *after.arena_of}):
        a, b = before.arena_of.get(name), after.arena_of.get(name)
        old, new = (x.extent_bytes if x else 0 for x in (a, b))
        peaks = (x.peak_live_bytes if x else 0 for x in (a, b))
        css = "better" if new < old else "worse" if new > old else ""
        rows.append(
            [
                f"<b>{markup.esc(name)}</b>",
                markup.esc(words.change(*map(words.short_bytes, peaks))),
                markup.esc(words.change(words.short_bytes(old), words.short_bytes(new))),
                f'<span class="{css}" title="{words.exact_bytes(new - old)}">{words.delta_bytes(new - old)}</span>',
            ]
        )
    return markup.table(["", "peak live bytes", "extent", "change"], rows, numbers=(1, 2, 3))
