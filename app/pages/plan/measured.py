"""The memory that a runtime uses for the model: its measurement, and bars that compare it with a plan."""

import plotly.graph_objects as go
import streamlit as st

from app.kit.charts import FAINT, LINE, LIVE, bytes_axis, draw_chart, figure
from app.kit.frame import long_work
from app.session import page_jobs, state
from app.session.opening import content_of
from app.session.planning import Shown
from app.session.work.jobs import job_table
from app.texts import markup, numbers
from tmmu_core.runtime.measure.measure_model import PLANNER, runtime_of


def draw(shown: Shown) -> None:
    """Draw the measured memory, or the button that starts the measurement; nothing for a file that no runtime runs."""
    if shown.opened.graph is None or not (runtime := runtime_of(content_of(shown.opened.source)[0])):
        return
    choice = state.choice()
    is_started = job_table().known(page_jobs.run_key(choice)) is not None
    with st.expander(f"Measured by {runtime}", expanded=is_started):
        if not is_started:
            st.caption(f"Runs the model in a separate process and compares its memory with the plan of {PLANNER}.")
            if not st.button(f"Measure with {runtime}", key="measure"):
                return
        job = page_jobs.model_run(choice)
        title, failed = f"Measuring with {runtime}", f"{runtime} could not run the model"
        measured = long_work.result(job, title, failed, source=shown.opened.name, timeout=0)
        if measured is None:
            return
        runtime_bytes, plan_bytes, bound = measured.theirs, measured.planned.ours, measured.planned.bound
        fig = bars((measured.runtime, runtime_bytes), (f"plan of {PLANNER}", plan_bytes), bound)
        draw_chart(fig, f"measured.{shown.key}")
        texts = [numbers.full_bytes(size) for size in (runtime_bytes, plan_bytes, bound)]
        st.caption(f"{measured.runtime}: {texts[0]}; plan of {PLANNER}: {texts[1]}; lower bound {texts[2]}.")
        amounts = [(cause, ("−" if n < 0 else "+") + numbers.full_bytes(abs(n))) for cause, n in measured.difference()]
        items = "".join(f"<li><b>{amount}</b> {markup.esc(cause)}</li>" for cause, amount in amounts)
        st.html(f'<div class="tm">Difference from the lower bound:<ul>{items}</ul></div>')


def bars(first: tuple[str, int], second: tuple[str, int], bound: int) -> go.Figure:
    """Return horizontal bars of two sizes ``(label, bytes)`` and of the lower bound."""
    sizes = dict([first, second, ("lower bound", bound)])
    hover = [f"{label} {numbers.full_bytes(size)}" for label, size in sizes.items()]
    texts = [numbers.short_bytes(size) for size in sizes.values()]
    fig = figure(132)
    text_options = {"text": texts, "textposition": "auto", "hovertext": hover, "hoverinfo": "text"}
    bar_options = {"orientation": "h", "marker": {"color": [LINE, LIVE, FAINT]}}
    fig.add_bar(x=list(sizes.values()), y=list(sizes), **bar_options, **text_options)
    fig.update_xaxes(bytes_axis(max(sizes.values())), rangemode="tozero", fixedrange=True)
    fig.update_yaxes(autorange="reversed", fixedrange=True)
    fig.update_layout(margin={"l": 110, "r": 14, "t": 4, "b": 24}, bargap=0.3)
    return fig
