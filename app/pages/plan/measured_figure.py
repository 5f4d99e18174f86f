"""Bar chart: runtime peak, planned peak, lower bound."""

from __future__ import annotations

import plotly.graph_objects as go

from app.kit.charts.chart_base import FAINT, LINE, LIVE, bytes_axis, figure
from app.texts import numbers


def bars(theirs: int, ours: int, bound: int, name: str = "file", label: str = "planned") -> go.Figure:
    """Return three horizontal bars in bytes; ``name`` and ``label`` are of the first two."""
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
