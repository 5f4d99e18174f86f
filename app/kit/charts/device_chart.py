"""Stacked live bytes of all arenas, with the capacity of the device."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from app.kit.charts.chart_base import BAD, LINE, bytes_axis, figure, steps_axis
from app.texts import numbers
from app.texts.palette import CATEGORIES
from tmmu_core.plans.figures.metrics import totals
from tmmu_core.plans.figures.plan_storages import beats_of, live_bytes
from tmmu_core.plans.model import Plan

MOST_BEATS = 4_000


def laid_out(plan: Plan) -> tuple[str, ...]:
    """Return the arenas in the order of the stack: arenas without reuse first."""
    return tuple(arena.name for arena in sorted(plan.arenas, key=lambda a: a.max_live < a.storages))


def together(plan: Plan, capacity: int | None, *, height: int = 330) -> go.Figure:
    """Return the chart of live bytes of every arena, stacked, with total reserved and ``capacity``."""
    fig, sums = figure(height), totals(plan)
    x, curves = _beats(plan)
    names = [arena.name for arena in plan.arenas]
    for name in laid_out(plan):
        k = names.index(name)
        curve = curves[k]
        texts = [numbers.full_bytes(n) for n in curve]
        fig.add_trace(
            go.Scatter(
                x=x,
                y=curve,
                mode="lines",
                line={"shape": "hv", "width": 0.8, "color": CATEGORIES[k % len(CATEGORIES)]},
                stackgroup="device",
                name=numbers.shortened(name, 40),
                customdata=texts,
                hovertemplate="%{customdata}<extra>%{fullData.name}</extra>",
            )
        )
    _line(fig, (sums.extent_bytes, f"total reserved {numbers.short_bytes(sums.extent_bytes)}"), "solid", LINE)
    if capacity is not None:
        _line(fig, (capacity, f"capacity {numbers.short_bytes(capacity)}"), "dash", BAD, "top right")
    fig.add_trace(
        go.Scatter(
            x=[sums.peak_step + 0.5],
            y=[sums.peak_live_bytes],
            mode="markers",
            marker={"size": 9, "color": "#111", "line": {"width": 2, "color": "white"}},
            hovertemplate=f"peak use, all arenas {numbers.full_bytes(sums.peak_live_bytes)}<extra></extra>",
            showlegend=False,
        )
    )
    fig.update_xaxes(steps_axis(plan.steps))
    fig.update_yaxes(bytes_axis(max(sums.extent_bytes, sums.peak_live_bytes, capacity or 0)), fixedrange=True)
    fig.update_layout(showlegend=True, hovermode="x unified", legend={"orientation": "h", "y": -0.12})
    return fig


def _beats(plan: Plan) -> tuple[list[int], list[list[int]]]:
    """Return the steps to draw, ending with the last step's end, and every arena's live bytes there.

    Beyond ``MOST_BEATS`` steps, each interval is represented by its step with the most live bytes.
    """
    steps = beats_of(plan).steps
    curves = np.array([live_bytes(plan, arena.name) for arena in plan.arenas], np.float64).reshape(-1, len(steps))
    if not len(steps):
        return [], [[] for _ in plan.arenas]
    new = np.ones(len(steps), np.bool_)
    new[1:] = (curves[:, 1:] != curves[:, :-1]).any(axis=0)
    drawn = np.flatnonzero(new)
    if len(drawn) > MOST_BEATS:
        whole = curves[:, drawn].sum(axis=0)
        parts = np.array_split(np.arange(len(drawn)), MOST_BEATS)
        drawn = drawn[[int(part[np.argmax(whole[part])]) for part in parts]]
    exact = [live_bytes(plan, arena.name)[drawn].tolist() for arena in plan.arenas]
    return [*steps[drawn].tolist(), plan.steps], [[*curve, curve[-1]] for curve in exact]


def _line(fig: go.Figure, level: tuple[int, str], dash: str, colour: str, where: str = "top left") -> None:
    value, text = level
    fig.add_hline(
        y=value,
        line={"color": colour, "width": 1.4, "dash": dash},
        annotation={"text": text, "font": {"size": 11, "color": colour}},
        annotation_position=where,
    )
