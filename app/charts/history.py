"""Extent, peak and lower bound of a model over its commits."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from app.charts.base import LINE, LIVE, bytes_axis, figure
from app.say import words
from tmmu_core.store.run import Run

EVERY_NAME = 24
"""Commits that are named on the axis, at most."""


def over_commits(runs: Sequence[Run], picked: int | None) -> go.Figure:
    """A point per run, in their order; ``picked`` is the one that a click compares with."""
    fig = figure(320)
    x = list(range(len(runs)))
    curves = (
        ("extent", [run.extent_bytes for run in runs], LIVE, "solid"),
        ("peak", [run.peak_live_bytes for run in runs], LINE, "solid"),
        ("lower bound", [run.lower_bound_bytes for run in runs], LINE, "dot"),
    )
    for name, y, colour, dash in reversed(curves):
        first = name == "extent"
        sizes = [16 if k == picked else 9 for k in x] if first else 4
        fig.add_trace(
            go.Scatter(
                x=x,
                y=y,
                name=name,
                mode="lines+markers" if first else "lines",
                line={"shape": "hv", "width": 2 if first else 1.4, "color": colour, "dash": dash},
                marker={"size": sizes, "color": colour, "symbol": ["square" if k == picked else "circle" for k in x]},
                customdata=[
                    [k, run.commit, run.at[:19], words.full_bytes(n)]
                    for k, (run, n) in enumerate(zip(runs, y, strict=True))
                ],
                hovertemplate=f"%{{customdata[1]}}, %{{customdata[2]}} UTC<br>{name} %{{customdata[3]}}<extra></extra>",
            )
        )
    every = max(1, -(-len(runs) // EVERY_NAME))
    fig.update_xaxes(
        tickvals=x[::every],
        ticktext=[words.shortened(run.commit, 9) for run in runs[::every]],
        title={"text": "commit, oldest first", "standoff": 4},
        range=[-0.5, max(0.5, len(runs) - 0.5)],
    )
    fig.update_yaxes(bytes_axis(max([run.extent_bytes for run in runs], default=0)), fixedrange=True)
    fig.update_layout(clickmode="event+select", showlegend=True, legend={"orientation": "h", "y": 1.12, "x": 0})
    return fig
