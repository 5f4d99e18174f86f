"""Bars that compare the memory of a runtime, or a plan in a file, with a plan by ``auto`` and the lower bound."""

import plotly.graph_objects as go
import streamlit as st

from app.kit.charts.chart_base import CONFIG, FAINT, LINE, LIVE, bytes_axis, figure
from app.kit.frame import long_work
from app.session import page_jobs, state
from app.session.planning import Shown
from app.texts import markup, numbers
from tmmu_core.planners.problem import GIVEN
from tmmu_core.runtime.measure.measure_model import PLANNER, Measured


def draw(shown: Shown) -> None:
    """Draw the bars, or the button that starts the measurement; draw nothing for a file without a runtime."""
    if shown.opened.packing is not None:
        if shown.choice.planner == GIVEN:
            _given(shown)
        return
    runtime = page_jobs.runtime_of(shown.opened)
    if not runtime:
        return
    choice = state.choice()
    with st.expander(f"Measured by {runtime}", expanded=page_jobs.known_run(choice) is not None):
        if page_jobs.known_run(choice) is None:
            st.caption("The button runs the model in a separate process and compares its memory with a plan by auto.")
            if not st.button(f"Measure with {runtime}", key="measure"):
                return
        job = page_jobs.model_run(choice, shown.opened)
        found = long_work.result(
            job, f"Measuring with {runtime}", f"{runtime} could not run the model", source=shown.opened.name, patience=0
        )
        if found is not None:
            _measured(found, shown.key)


def _given(shown: Shown) -> None:
    theirs = sum(arena.extent_bytes for arena in shown.plan.arenas)
    bound = sum(arena.bound_bytes for arena in shown.plan.arenas)
    job = page_jobs.planned_arena(state.choice(), shown.opened)
    if job is None:
        return
    with st.expander("Compare with the file's offsets"):
        ours = long_work.result(job, "Planning", "The live ranges could not be planned")
        if ours is None:
            return
        st.plotly_chart(bars(theirs, ours, bound), key=f"reality.{shown.key}", config=CONFIG)
        st.caption(_sentence("The file's plan", theirs, ours, bound))


def _measured(found: Measured, key: str) -> None:
    figures = found.planned
    st.plotly_chart(bars(found.theirs, figures.ours, figures.bound, found.runtime), key=f"reality.{key}", config=CONFIG)
    st.caption(_sentence(found.runtime, found.theirs, figures.ours, figures.bound))
    rows = "".join(
        f"<li><b>{numbers.full_bytes(abs(size))}{' less' if size < 0 else ''}</b> {markup.esc(what)}</li>"
        for what, size in found.difference()
    )
    st.html(f'<div class="tm">Difference from the lower bound:<ul>{rows}</ul></div>')


def _sentence(name: str, theirs: int, ours: int, bound: int) -> str:
    sizes = (f"{name}: {numbers.full_bytes(theirs)}", f"a plan by {PLANNER}: {numbers.full_bytes(ours)}")
    return f"{'; '.join(sizes)}; lower bound {numbers.full_bytes(bound)}."


def bars(theirs: int, ours: int, bound: int, name: str = "file", label: str = f"plan by {PLANNER}") -> go.Figure:
    """Return three horizontal bars in bytes. ``name``: label of ``theirs``; ``label``: label of ``ours``."""
    rows = ((name, theirs, LINE), (label, ours, LIVE), ("lower bound", bound, FAINT))
    fig = figure(132)
    fig.add_trace(
        go.Bar(
            x=[size for _, size, _ in rows],
            y=[label for label, _, _ in rows],
            orientation="h",
            marker={"color": [colour for _, _, colour in rows]},
            text=[numbers.short_bytes(size) for _, size, _ in rows],
            textposition="auto",
            hovertext=[f"{label} {numbers.full_bytes(size)}" for label, size, _ in rows],
            hoverinfo="text",
        )
    )
    fig.update_xaxes(bytes_axis(max(theirs, ours, bound)), rangemode="tozero", fixedrange=True)
    fig.update_yaxes(autorange="reversed", fixedrange=True)
    fig.update_layout(margin={"l": 110, "r": 14, "t": 4, "b": 24}, bargap=0.3)
    return fig
