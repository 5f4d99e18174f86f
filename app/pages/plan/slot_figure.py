"""Sizes of slots against the sizes of their tensors."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from app.kit.charts.chart_base import (
    ACCOUNT_COLOURS,
    LIVE,
    bytes_axis,
    figure,
)
from app.texts import numbers
from tmmu_core.plans.analysis.slot_occupants import SlotReport

MOST_SLOTS = 40
MOST_TENANTS = 4_000


def by_waste(reports: Sequence[SlotReport]) -> list[SlotReport]:
    """Sort slots by unused bytes × steps descending, then by number."""
    return sorted(reports, key=lambda r: (-r.unused_byte_steps, r.slot))


def slots_against_tenants(reports: Sequence[SlotReport], *, height: int | None = None) -> go.Figure:
    """Return each slot's size (bar) and its tensors' sizes (ticks); the space between is slot rounding."""
    drawn = by_waste(reports)[:MOST_SLOTS][::-1]
    labels = [f"slot {report.slot}" for report in drawn]
    fig = figure(height or max(160, 60 + 22 * len(drawn)))
    fig.add_trace(
        go.Bar(
            y=labels,
            x=[r.backing_bytes for r in drawn],
            orientation="h",
            marker={
                # Hatched if a tensor leaves bytes unused.
                "color": ["rgba(230,159,0,0.16)" if r.unused_byte_steps else "rgba(0,114,178,0.14)" for r in drawn],
                "line": {"color": [ACCOUNT_COLOURS["slot_rounding"] if r.unused_byte_steps else LIVE for r in drawn]},
                "pattern": {
                    "shape": ["\\" if r.unused_byte_steps else "" for r in drawn],
                    "size": 6,
                    "fgcolor": "rgba(230,159,0,0.5)",
                },
            },
            customdata=[(numbers.full_bytes(r.backing_bytes), len(r.tenants), r.busy_steps) for r in drawn],
            hovertemplate="%{y}: %{customdata[0]}<br>"
            "%{customdata[1]} tensors over %{customdata[2]} steps<extra></extra>",
            name="slot",
        )
    )
    pairs = [(label, t) for label, report in zip(labels, drawn, strict=True) for t in report.tenants][:MOST_TENANTS]
    fig.add_trace(
        go.Scatter(
            y=[label for label, _ in pairs],
            x=[t.size_bytes for _, t in pairs],
            mode="markers",
            marker={"symbol": "line-ns", "size": 13, "line": {"width": 2, "color": LIVE}},
            customdata=[
                (
                    t.tensor_id,
                    numbers.full_bytes(t.size_bytes),
                    numbers.full_bytes(t.unused_bytes),
                    numbers.live_range(t.birth, t.death),
                )
                for _, t in pairs
            ],
            hovertemplate="<b>%{customdata[0]}</b><br>%{customdata[1]}, %{customdata[2]} unused"
            "<br>live %{customdata[3]}<extra></extra>",
            name="tensor",
        )
    )
    top = max((r.backing_bytes for r in drawn), default=0)
    fig.update_xaxes(bytes_axis(top))
    fig.update_yaxes(range=[-0.7, len(drawn) - 0.3])  # without a range the markers add padding
    fig.update_yaxes(fixedrange=True, automargin=True)
    fig.update_layout(margin={"l": 70, "r": 14, "t": 6, "b": 30}, bargap=0.3, showlegend=False)
    return fig
