"""Figures of the view Changes: live bytes against the limit, and bytes against cost. Pure."""

from collections.abc import Sequence

import plotly.graph_objects as go

from app.kit.charts.chart_base import BAD, LINE, LIVE, bytes_axis, figure
from app.kit.charts.compare_charts import thinned
from app.texts import numbers
from tmmu_core.fitting.problem.capacity import Capacity
from tmmu_core.fitting.problem.planner_calls import Candidate
from tmmu_core.plans.figures.live_bytes import change_points
from tmmu_core.plans.model import U64

TALL = 260
"""Height of the memory figure in pixels."""


def memory(today: U64, fitted: U64 | None, limit: int | None) -> go.Figure:
    """Return live bytes over time, shape (T,): current plan dotted, fitted plan filled, red above the limit.

    The plans can have different numbers of steps; the x axis is 0 to 100 % of each.
    """
    fig = figure(TALL)
    capacity = numbers.UNLIMITED if limit is None else limit
    x, y = _curve(today if fitted is None else fitted)
    top = max(y, default=0)
    fig.add_trace(
        _steps(
            x,
            [min(value, capacity) for value in y],
            "live" if limit is None else "live, within the limit",
            LIVE,
            "rgba(0,114,178,0.22)",
        )
    )
    fig.data[0].fill = "tozeroy"
    if top > capacity:
        over = _steps(x, y, "over the limit", BAD, "rgba(213,94,0,0.45)")
        over.fill, over.line.width = "tonexty", 0  # the other curve draws the line
        over.hovertemplate = [over.hovertemplate if value > capacity else "" for value in y]
        over.hoverinfo = ["all" if value > capacity else "skip" for value in y]
        fig.add_trace(over)
    if fitted is not None:
        before = _curve(today)
        top = max(top, *before[1])
        fig.add_trace(_steps(*before, "current plan", LINE))
        fig.data[-1].line.dash = "dot"
    axis = bytes_axis(max(top, limit or 0))
    if limit is not None:
        fig.add_hline(
            y=limit,
            line={"color": BAD, "width": 1.5, "dash": "dash"},
            annotation={"text": f"limit {numbers.short_bytes(limit)}", "font": {"size": 11, "color": BAD}},
            annotation_position="top right",
        )
    fig.update_xaxes(range=[0, 100], ticksuffix=" %", title={"text": "of the steps", "standoff": 4})
    fig.update_yaxes(axis, fixedrange=True)
    fig.update_layout(showlegend=True, legend={"orientation": "h", "y": 1.14, "x": 0})
    return fig


def _steps(x: list[float], y: list[int], name: str, colour: str, within: str | None = None) -> go.Scatter:
    return go.Scatter(
        x=x,
        y=y,
        mode="lines",
        name=name,
        line={"shape": "hv", "width": 1.5, "color": colour},
        fillcolor=within,
        customdata=[numbers.full_bytes(value) for value in y],
        hovertemplate="%{x:.1f} % of the steps<br>%{customdata}<extra>%{fullData.name}</extra>",
    )


def _curve(live: U64) -> tuple[list[float], list[int]]:
    begins, values = thinned(*change_points(live))
    x = [100 * int(t) / len(live) for t in begins] + [100.0]
    y = [int(v) for v in values]
    return x, [*y, y[-1] if y else 0]


def trade(curve: Sequence[Candidate], flops: int, capacity: Capacity, chosen: int | None) -> go.Figure:
    """Return bytes against extra FLOPs; each point is a plan."""
    fig = figure(260)
    x = [100 * c.cost.extra_flops / flops if flops else 0.0 for c in curve]
    y, limit = [capacity.taken(c.plan) for c in curve], capacity.limit_bytes
    colours = [LIVE if value <= limit else BAD for value in y]
    fig.add_trace(
        go.Scatter(
            x=x,
            y=y,
            mode="lines+markers",
            cliponaxis=False,  # the current plan has no cost and is on the axis
            line={"shape": "hv", "width": 1.2, "color": LINE},
            marker={
                "size": [15 if k == chosen else 10 for k in range(len(y))],
                "color": colours,
                "symbol": ["circle" if value <= limit else "x" for value in y],
            },
            customdata=[
                (numbers.full_bytes(size), numbers.short_bytes(c.cost.moved_bytes), len(c.moves))
                for size, c in zip(y, curve, strict=True)
            ],
            hovertemplate=(
                "%{customdata[0]}<br>+%{x:.2f} % FLOPs, %{customdata[1]} transferred<br>"
                "%{customdata[2]} changes<extra></extra>"
            ),
        )
    )
    fig.add_hline(y=limit, line={"color": BAD, "width": 1.5, "dash": "dash"})
    fig.update_xaxes(title={"text": "extra FLOPs, %", "standoff": 4}, rangemode="tozero")
    fig.update_yaxes(bytes_axis(max([limit, *y])), fixedrange=True)
    fig.update_layout(clickmode="event+select")
    return fig
