"""Bars that compare the memory of a runtime with a plan by ``auto`` and the lower bound."""

import plotly.graph_objects as go
import streamlit as st

from app.kit.charts.chart_base import CONFIG, FAINT, LINE, LIVE, bytes_axis, figure
from app.kit.frame import long_work
from app.session import page_jobs, state
from app.session.planning import Shown
from app.texts import markup, numbers
from tmmu_core.runtime.measure.measure_model import PLANNER, Measured


def draw(shown: Shown) -> None:
    """Draw the bars, or the button that starts the measurement; draw nothing if no runtime runs the file."""
    runtime = page_jobs.runtime_of(shown.opened)
    if not runtime:
        return
    choice = state.choice()
    with st.expander(f"Measured by {runtime}", expanded=page_jobs.known_run(choice) is not None):
        if page_jobs.known_run(choice) is None:
            st.caption("The button runs the model in a separate process and compares its memory with a plan of auto.")
            if not st.button(f"Measure with {runtime}", key="measure"):
                return
        job = page_jobs.model_run(choice, shown.opened)
        title, failed = f"Measuring with {runtime}", f"{runtime} could not run the model"
        measured = long_work.result(job, title, failed, source=shown.opened.name, patience=0)
        if measured is not None:
            _measured(measured, shown.key)


def _measured(measured: Measured, key: str) -> None:
    planned = measured.planned
    fig = bars((measured.runtime, measured.theirs), (f"plan by {PLANNER}", planned.ours), planned.bound)
    st.plotly_chart(fig, key=f"reality.{key}", config=CONFIG)
    st.caption(
        f"{measured.runtime}: {numbers.full_bytes(measured.theirs)}; a plan by {PLANNER}: "
        f"{numbers.full_bytes(planned.ours)}; lower bound {numbers.full_bytes(planned.bound)}."
    )
    rows = "".join(
        f"<li><b>{'−' if size < 0 else '+'}{numbers.full_bytes(abs(size))}</b> {markup.esc(what)}</li>"
        for what, size in measured.difference()
    )
    st.html(f'<div class="tm">Difference from the lower bound:<ul>{rows}</ul></div>')


def bars(first: tuple[str, int], second: tuple[str, int], bound: int) -> go.Figure:
    """Return horizontal bars of the two sizes ``(label, bytes)`` and of the lower bound."""
    rows = ((*first, LINE), (*second, LIVE), ("lower bound", bound, FAINT))
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
    fig.update_xaxes(bytes_axis(max(size for _, size, _ in rows)), rangemode="tozero", fixedrange=True)
    fig.update_yaxes(autorange="reversed", fixedrange=True)
    fig.update_layout(margin={"l": 110, "r": 14, "t": 4, "b": 24}, bargap=0.3)
    return fig
