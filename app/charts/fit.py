"""Figures of the page Fit: one memory over the steps under one capacity, and bytes against what they cost. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from app.charts.base import BAD, LINE, LIVE, bytes_axis, figure
from app.charts.live import thinned
from app.say import words
from tmmu_core.fit.asking import Candidate
from tmmu_core.fit.capacity import Capacity
from tmmu_core.plan.figures.live import change_points
from tmmu_core.plan.model import U64

TALL = 260
"""Pixels of the figure over the steps."""
WORDS, WIDE = 18, 25
"""Words at a line are as many pixels high, and as many hundredths of the steps wide."""


def memory(today: U64, fitted: U64 | None, capacity: int) -> go.Figure:
    """Bytes in use over the steps, shape (T,): today's as an outline, the fitted plan's filled, what is over in red.

    The plans may have different numbers of steps: each curve runs over its own, from 0 to 100 %.
    """
    fig = figure(TALL)
    x, y = _curve(today if fitted is None else fitted)
    curves = [(x, y)]
    top = max(y, default=0)
    fig.add_trace(
        _steps(x, [min(value, capacity) for value in y], "alive, within the capacity", LIVE, "rgba(0,114,178,0.22)")
    )
    fig.data[0].fill = "tozeroy"
    if top > capacity:
        over = _steps(x, y, "over the capacity", BAD, "rgba(213,94,0,0.45)")
        over.fill, over.line.width = "tonexty", 0  # elsewhere its line is that of what is within
        over.hovertemplate = [over.hovertemplate if value > capacity else "" for value in y]
        over.hoverinfo = ["all" if value > capacity else "skip" for value in y]
        fig.add_trace(over)
    if fitted is not None:
        curves.append(_curve(today))
        top = max(top, *curves[1][1])
        fig.add_trace(_steps(*curves[1], "today", LINE))
        fig.data[-1].line.dash = "dot"
    axis = bytes_axis(max(top, capacity))
    fig.add_hline(
        y=capacity,
        line={"color": BAD, "width": 1.5, "dash": "dash"},
        annotation={"text": f"capacity {words.short_bytes(capacity)}", "font": {"size": 11, "color": BAD}},
        annotation_position=clear_of(curves, capacity, axis["range"][1] * WORDS // TALL),
    )
    fig.update_xaxes(range=[0, 100], ticksuffix=" %", title={"text": "of the steps", "standoff": 4})
    fig.update_yaxes(axis, fixedrange=True)
    fig.update_layout(showlegend=True, legend={"orientation": "h", "y": 1.14, "x": 0})
    return fig


def clear_of(curves: Sequence[tuple[list[float], list[int]]], level: int, high: int) -> str:
    """Where the words of a level stand (``"top right"``), ``high`` bytes of the axis: where no curve runs through them.

    Under the level there may be no room for them; where all ends are taken they stand at the first.
    """
    for up, low in (("top", level), ("bottom", level - high)):
        for end, begins, ends in (("right", 100 - WIDE, 100), ("left", 0, WIDE)):
            spans = [
                [value for k, value in enumerate(y) if x[k] <= ends and (k + 1 == len(x) or x[k + 1] >= begins)]
                for x, y in curves
            ]
            if low >= 0 and all(max(span) <= low or min(span) >= low + high for span in spans):
                return f"{up} {end}"
    return "top right"


def _steps(x: list[float], y: list[int], name: str, colour: str, within: str | None = None) -> go.Scatter:
    return go.Scatter(
        x=x,
        y=y,
        mode="lines",
        name=name,
        line={"shape": "hv", "width": 1.5, "color": colour},
        fillcolor=within,
        customdata=[words.full_bytes(value) for value in y],
        hovertemplate="%{x:.1f} % of the steps<br>%{customdata}<extra>%{fullData.name}</extra>",
    )


def _curve(live: U64) -> tuple[list[float], list[int]]:
    begins, values = thinned(*change_points(live))
    x = [100 * int(t) / len(live) for t in begins] + [100.0]
    y = [int(v) for v in values]
    return x, [*y, y[-1] if y else 0]


def trade(curve: Sequence[Candidate], flops: int, capacity: Capacity, chosen: int | None) -> go.Figure:
    """Bytes against cost: each point is a plan that can be opened; dearer to the right, smaller downwards."""
    fig = figure(260)
    x = [100 * c.cost.extra_flops / flops if flops else 0.0 for c in curve]
    y, limit = [capacity.taken(c.plan) for c in curve], capacity.limit_bytes
    colours = [LIVE if value <= limit else BAD for value in y]
    fig.add_trace(
        go.Scatter(
            x=x,
            y=y,
            mode="lines+markers",
            cliponaxis=False,  # today's plan costs nothing: it stands on the axis
            line={"shape": "hv", "width": 1.2, "color": LINE},
            marker={
                "size": [15 if k == chosen else 10 for k in range(len(y))],
                "color": colours,
                "symbol": ["circle" if value <= limit else "x" for value in y],
            },
            customdata=[
                (words.full_bytes(size), words.short_bytes(c.cost.moved_bytes), len(c.moves))
                for size, c in zip(y, curve, strict=True)
            ],
            hovertemplate=(
                "%{customdata[0]}<br>+%{x:.2f} % operations, %{customdata[1]} moved<br>"
                "%{customdata[2]} moves<extra></extra>"
            ),
        )
    )
    fig.add_hline(y=limit, line={"color": BAD, "width": 1.5, "dash": "dash"})
    fig.update_xaxes(title={"text": "operations more than today, %", "standoff": 4}, rangemode="tozero")
    fig.update_yaxes(bytes_axis(max([limit, *y])), fixedrange=True)
    fig.update_layout(clickmode="event+select")
    return fig
