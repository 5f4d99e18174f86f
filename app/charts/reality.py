"""Three bars: what somebody else takes, what we do, and what nobody can be below."""

from __future__ import annotations

import plotly.graph_objects as go

from app.charts.base import FAINT, LINE, LIVE, bytes_axis, figure
from app.say import words


def bars(theirs: int, ours: int, bound: int, called: str = "theirs", *, height: int = 132) -> go.Figure:
    """``theirs``, ``ours`` and ``bound`` in bytes, from the same zero; each says its bytes."""
    rows = ((called, theirs, LINE), ("ours", ours, LIVE), ("bound", bound, FAINT))
    fig = figure(height)
    fig.add_trace(
        go.Bar(
            x=[size for _, size, _ in rows],
            y=[name for name, _, _ in rows],
            orientation="h",
            marker={"color": [colour for _, _, colour in rows]},
            text=[words.short_bytes(size) for _, size, _ in rows],
            textposition="auto",
            hovertext=[f"{name} {words.full_bytes(size)}" for name, size, _ in rows],
            hoverinfo="text",
        )
    )
    fig.update_xaxes(bytes_axis(max(theirs, ours, bound)), rangemode="tozero", fixedrange=True)
    fig.update_yaxes(autorange="reversed", fixedrange=True)
    fig.update_layout(margin={"l": 110, "r": 14, "t": 4, "b": 24}, bargap=0.3)
    return fig
