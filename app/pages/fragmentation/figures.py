"""Figures of the waste ledger: over the steps, at one step, and per slot."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from app.kit.charts.chart_base import (
    ACCOUNT_COLOURS,
    ACCOUNT_NAMES,
    ACCOUNT_PATTERNS,
    FAINT,
    LINE,
    LIVE,
    bytes_axis,
    figure,
    steps_axis,
)
from app.texts import numbers
from tmmu_core.plans.analysis.slot_occupants import SlotReport
from tmmu_core.plans.analysis.waste_ledger import ACCOUNTS, WasteLedger
from tmmu_core.plans.model import Plan

MOST_STEPS = 4_000
MOST_SLOTS = 40
MOST_TENANTS = 4_000


def ledger_over_time(plan: Plan, ledger: WasteLedger, *, step: int | None = None, height: int = 300) -> go.Figure:
    """Return the five accounts stacked at every step; their sum is the arena size.

    Above ``MOST_STEPS`` steps, evenly spaced steps and ``step`` are drawn.
    """
    beats = np.arange(len(ledger.steps) if plan.steps else 0)
    if len(beats) > MOST_STEPS:
        chosen = int(np.searchsorted(ledger.steps, step or 0, side="right")) - 1
        beats = np.unique(np.concatenate([np.linspace(0, len(beats) - 1, MOST_STEPS).astype(np.int64), [chosen]]))
    steps = ledger.steps[beats]
    fig = figure(height)
    x = [*steps.tolist(), plan.steps]
    for account in ACCOUNTS:
        values = getattr(ledger, account)[beats].tolist() if len(beats) else []
        if not any(values):
            continue  # no empty band in the legend
        y = [*values, values[-1] if values else 0]
        fig.add_trace(
            go.Scatter(
                x=x,
                y=y,
                stackgroup="extent",
                mode="lines",
                line={"shape": "hv", "width": 0, "color": ACCOUNT_COLOURS[account]},
                fillcolor=FAINT if account == "tail" else ACCOUNT_COLOURS[account],
                fillpattern={"shape": ACCOUNT_PATTERNS[account], "size": 6, "solidity": 0.3},
                name=ACCOUNT_NAMES[account],
                customdata=[numbers.full_bytes(v) for v in y],
                hovertemplate="%{customdata}",
            )
        )
    if step is not None:
        fig.add_vline(x=step + 0.5, line={"color": LINE, "width": 2})
    fig.update_xaxes(steps_axis(plan.steps))
    fig.update_yaxes(bytes_axis(ledger.extent), fixedrange=True)
    fig.update_layout(
        hovermode="x unified",
        showlegend=True,
        legend={"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0, "traceorder": "normal"},
        margin={"l": 70, "r": 14, "t": 30, "b": 26},
    )
    return fig


def waterfall(accounts: dict[str, int], extent: int, *, height: int = 300) -> go.Figure:
    """Return a waterfall from the live bytes at one step to the arena size."""
    names = [*(ACCOUNT_NAMES[account] for account in ACCOUNTS), "arena size"]
    values = [*(accounts[account] for account in ACCOUNTS), extent]
    starts = [*np.concatenate([[0], np.cumsum(values[:-1])])[:-1].tolist(), 0]
    colours = [*(ACCOUNT_COLOURS[account] for account in ACCOUNTS), LINE]
    fig = figure(height)
    fig.add_trace(
        go.Bar(
            x=names,
            y=values,
            base=starts,
            marker={"color": colours, "pattern": {"shape": [*(ACCOUNT_PATTERNS[a] for a in ACCOUNTS), ""], "size": 6}},
            text=[numbers.short_bytes(v) for v in values],
            textposition="outside",
            cliponaxis=False,
            customdata=[(numbers.full_bytes(v), numbers.percent(v, extent)) for v in values],
            hovertemplate="%{x}: %{customdata[0]}<br>%{customdata[1]} of the arena<extra></extra>",
        )
    )
    tops = [start + value for start, value in zip(starts, values, strict=True)]
    for k in range(len(names) - 1):
        fig.add_shape(
            type="line", x0=k, x1=k + 1, y0=tops[k], y1=tops[k], line={"color": LINE, "width": 1, "dash": "dot"}
        )
    fig.update_yaxes(bytes_axis(extent), fixedrange=True)
    fig.update_yaxes(range=[0, max(1, extent * 112 // 100)])
    fig.update_xaxes(fixedrange=True)
    fig.update_layout(margin={"l": 70, "r": 14, "t": 14, "b": 26}, bargap=0.25)
    return fig


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
