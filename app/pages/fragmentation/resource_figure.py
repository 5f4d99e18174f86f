"""The resource ledger over the steps."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from app.kit.charts.chart_base import LINE, LIVE, TextFigure, bytes_axis, figure, steps_axis
from app.kit.charts.live_chart import thinned
from app.texts import numbers
from tmmu_core.plans.analysis.resource_ledger import ResourceLedger
from tmmu_core.plans.figures.live_bytes import change_points
from tmmu_core.plans.model import Plan

MOST_POINTS = 4_000
"""The most changes drawn per counter."""


def ledger_chart(plan: Plan, ledger: ResourceLedger, *, height: int = 310) -> go.Figure:
    """Return bytes allocated and peak bytes so far; below them the internal fragmentation ratio."""
    fig = make_subplots(
        rows=2, cols=1, shared_xaxes=True, row_heights=[0.68, 0.32], vertical_spacing=0.08, figure=TextFigure()
    )
    fig.update_layout(figure(height).layout)
    for name, column, colour, fill in (
        ("bytes allocated", ledger.bytes_allocated, LIVE, True),
        ("peak bytes so far", ledger.peak_bytes, LINE, False),
    ):
        begins, values = thinned(*change_points(column, ledger.steps), MOST_POINTS)
        x, y = [*begins.tolist(), plan.steps], [*values.tolist(), int(values[-1])]
        fig.add_trace(
            go.Scatter(
                x=x,
                y=y,
                mode="lines",
                line={"shape": "hv", "width": 1.5, "color": colour},
                fill="tozeroy" if fill else None,
                fillcolor="rgba(0,114,178,0.16)",
                customdata=[(plan.node_at(t), numbers.full_bytes(v)) for t, v in zip(x, y, strict=True)],
                hovertemplate=f"#%{{x:,d}} %{{customdata[0]}}<br>{name} %{{customdata[1]}}<extra></extra>",
            ),
            row=1,
            col=1,
        )
    ratio = ledger.internal_fragmentation_ratio
    begins = np.flatnonzero(np.concatenate([[True], ratio[1:] != ratio[:-1]]))
    begins, percents = thinned(ledger.steps[begins], ratio[begins] * 100, MOST_POINTS)
    fig.add_trace(
        go.Scatter(
            x=[*begins.tolist(), plan.steps],
            y=[*percents.tolist(), float(percents[-1])],
            mode="lines",
            line={"shape": "hv", "width": 1.5, "color": LINE},
            hovertemplate="#%{x:,d}: %{y:.1f} % of the peak bytes so far were never live<extra></extra>",
        ),
        row=2,
        col=1,
    )
    fig.update_xaxes(steps_axis(plan.steps))
    fig.update_yaxes(bytes_axis(int(ledger.peak_bytes[-1])), fixedrange=True, row=1, col=1)
    fig.update_yaxes(range=[0, max(1.0, float(percents.max()) * 1.15)], nticks=4, fixedrange=True, row=2, col=1)
    fig.update_yaxes(ticksuffix=" %", row=2, col=1)
    fig.update_layout(margin={"l": 70, "r": 14, "t": 8, "b": 24})
    return fig
