"""Arena size, peak and lower bound of a model over its commits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from app.kit.charts.chart_base import LINE, LIVE, bytes_axis, figure
from app.texts import numbers
from tmmu_core.store.run_label import Run

EVERY_NAME = 24
"""The most commits labelled on the axis."""


def over_commits(runs: Sequence[Run], picked: int | None) -> go.Figure:
    """Return a figure with one point per run, in their order; ``picked`` is the run that a click compares with.

    Only the points of the extent react to the pointer: plotly selects no point of a line without markers, and a line
    that passes over a point would take its clicks. Their label has the figures of all three curves.
    """
    fig = figure(320)
    x = list(range(len(runs)))
    marks: dict[str, Any] = {
        "mode": "lines+markers",
        "marker": {
            "size": [16 if k == picked else 9 for k in x],
            "color": LIVE,
            "symbol": ["square" if k == picked else "circle" for k in x],
        },
        "customdata": [
            [k, run.commit, run.at[:19], *map(numbers.full_bytes, _figures(run))] for k, run in enumerate(runs)
        ],
        "hovertemplate": "%{customdata[1]}, %{customdata[2]} UTC<br>size %{customdata[3]}<br>peak %{customdata[4]}"
        "<br>lower bound %{customdata[5]}<extra></extra>",
    }
    beside: dict[str, Any] = {"mode": "lines", "hoverinfo": "skip"}
    curves: tuple[tuple[str, str, str, float, dict[str, Any]], ...] = (
        ("arena size", LIVE, "solid", 2, marks),
        ("peak", LINE, "solid", 1.4, beside),
        ("lower bound", LINE, "dot", 1.4, beside),
    )
    for number, (name, colour, dash, width, how) in reversed(list(enumerate(curves))):
        line = {"shape": "hv", "width": width, "color": colour, "dash": dash}
        fig.add_trace(go.Scatter(x=x, y=[_figures(run)[number] for run in runs], name=name, line=line, **how))
    every = max(1, -(-len(runs) // EVERY_NAME))
    fig.update_xaxes(
        tickvals=x[::every],
        ticktext=[numbers.shortened(run.commit, 9) for run in runs[::every]],
        title={"text": "commit, oldest first", "standoff": 4},
        range=[-0.5, max(0.5, len(runs) - 0.5)],
    )
    fig.update_yaxes(bytes_axis(max([run.extent_bytes for run in runs], default=0)), fixedrange=True)
    fig.update_layout(clickmode="event+select", showlegend=True, legend={"orientation": "h", "y": 1.12, "x": 0})
    return fig


def _figures(run: Run) -> tuple[int, int, int]:
    return run.extent_bytes, run.peak_live_bytes, run.lower_bound_bytes
