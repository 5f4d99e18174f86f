"""Figures of the page Shapes: bytes over a dimension, and over a replan session."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from app.kit.charts.chart_base import BAD, FEW_STEPS, LINE, LIVE, TextFigure, bytes_axis, figure
from app.texts import numbers
from tmmu_core.plans.making.replan import DimCurve, ReplanLog


def dim_curve(curve: DimCurve, arena: str, *, now: int, capacity: int, whole: bool) -> go.Figure:
    """Return size (line) and peak (filled) of an arena over a dimension, with current size, limit and refused sizes.

    ``whole``: every size was planned, so the line is continuous; otherwise only the planned sizes are marked. ``x`` of
    a marker is the size, for clicks.
    """
    fig = figure(300)
    x, column = curve.values.tolist(), curve.arena_names.index(arena)
    extent, live = curve.extent_bytes[:, column].tolist(), curve.peak_live_bytes[:, column].tolist()
    _sizes(fig, curve.dim, x, ("peak live bytes", live, LIVE, "tozeroy"), whole)
    _sizes(fig, curve.dim, x, ("arena size", extent, LINE if extent != live else LIVE, None), whole)
    top = max([1, *extent, *live])
    if capacity < numbers.UNLIMITED:
        top = max(top, capacity) if capacity <= 4 * top else top
        fig.add_hline(
            y=min(capacity, top),
            line={"color": BAD, "width": 1.3, "dash": "dash"},
            annotation={"text": f"limit {numbers.short_bytes(capacity)}", "font": {"size": 11, "color": BAD}},
            annotation_position="top left",
        )
    refused = _refused(fig, curve)
    fig.add_vline(x=now, line={"color": LINE, "width": 2})
    if now in x:
        right = now > (x[0] + x[-1]) / 2
        fig.add_annotation(
            x=now,
            y=1,
            yref="paper",
            yanchor="top",
            text=f"<b>{curve.dim} = {now:,}: {numbers.short_bytes(extent[x.index(now)])}</b>",
            showarrow=False,
            xanchor="right" if right else "left",
            xshift=-8 if right else 8,
        )
    ends = [*x, *refused, now]
    pad = 0.5 if whole else max(0.5, (max(ends) - min(ends)) * 0.02)
    span = [min(ends) - pad, max(ends) + pad]
    fig.update_xaxes(range=span, title={"text": curve.dim, "standoff": 4}, fixedrange=True)
    fig.update_yaxes(bytes_axis(top), fixedrange=True)
    fig.update_yaxes(range=[0, top * 118 // 100])
    margin = {"l": 70, "r": 14, "t": 10, "b": 40}
    fig.update_layout(margin=margin, clickmode="event+select", hovermode="closest", dragmode=False)
    return fig


def _sizes(fig: go.Figure, dim: str, x: list[int], column: tuple[str, list[int], str, str | None], whole: bool) -> None:
    """Draw one column, given as (name, bytes, colour, fill): a step line if ``whole``, and clickable markers."""
    name, values, colour, fill = column
    if whole:
        wide = [*x, x[-1] + 1] if x else []  # the last size is as wide as the others
        fig.add_trace(
            go.Scatter(
                x=[v - 0.5 for v in wide],
                y=[*values, *values[-1:]],
                mode="lines",
                line={"shape": "hv", "width": 1.6, "color": colour, "dash": "solid" if fill is None else "dot"},
                fill=fill,
                fillcolor="rgba(0,114,178,0.14)",
                hoverinfo="skip",
            )
        )
    marker = {
        "size": 3 if whole and fill else 5,
        "color": colour,
        "symbol": "circle" if fill else "line-ew",
        "line": {"width": 2, "color": colour},
        "opacity": 0 if whole else 1,
    }
    fig.add_trace(
        go.Scatter(
            x=x,
            y=values,
            mode="markers",
            name=name,
            marker=marker,
            selected={"marker": {"opacity": marker["opacity"]}},
            unselected={"marker": {"opacity": marker["opacity"]}},
            customdata=[numbers.full_bytes(v) for v in values],
            hovertemplate=f"{dim} = %{{x}}<br>{name} %{{customdata}}<extra></extra>",
        )
    )


def _refused(fig: go.Figure, curve: DimCurve) -> list[int]:
    """Mark the sizes that cannot be planned; return them."""
    refused = [value for value, _ in curve.refused]
    if refused:
        fig.add_trace(
            go.Scatter(
                x=refused,
                y=[0] * len(refused),
                mode="markers",
                name="refused",
                marker={"symbol": "x", "size": 8, "color": BAD},
                cliponaxis=False,
                customdata=[error.message for _, error in curve.refused],
                hovertemplate=f"{curve.dim} = %{{x}} refused<br>%{{customdata}}<extra></extra>",
            )
        )
    return refused


def session_chart(log: ReplanLog, arena: str, dim: str, *, height: int = 330) -> go.Figure:
    """Return the arena size per iteration; below it the actual and the planned size of ``dim``."""
    fig = make_subplots(
        rows=2, cols=1, shared_xaxes=True, row_heights=[0.55, 0.45], vertical_spacing=0.09, figure=TextFigure()
    )
    fig.update_layout(figure(height).layout)
    steps = [one.number for one in log.iterations]
    x = [*[n - 0.5 for n in steps], steps[-1] + 0.5]
    extents = [_extent(one.solution.plan, arena) for one in log.iterations]
    planned = [dict(one.planned_at)[dim] for one in log.iterations]
    actual = [dict(one.point)[dim] for one in log.iterations]
    line = {"shape": "hv", "width": 1.8}
    fig.add_trace(
        go.Scatter(
            x=x,
            y=[*extents, extents[-1]],
            mode="lines",
            line={**line, "color": LIVE},
            fill="tozeroy",
            fillcolor="rgba(0,114,178,0.14)",
            customdata=[numbers.full_bytes(n) for n in [*extents, extents[-1]]],
            hovertemplate=f"{arena} %{{customdata}}<extra></extra>",
        ),
        row=1,
        col=1,
    )
    again = [k for k, one in enumerate(log.iterations) if one.replanned]
    fig.add_trace(
        go.Scatter(
            x=[steps[k] - 0.5 for k in again],
            y=[extents[k] for k in again],
            mode="markers",
            marker={"symbol": "diamond", "size": 10, "color": BAD, "line": {"width": 1, "color": "white"}},
            hovertemplate="replanned<extra></extra>",
            cliponaxis=False,
        ),
        row=1,
        col=1,
    )
    _iteration_sizes(fig, dim, steps, actual, planned)
    top = max([1, *extents])
    fig.update_yaxes(bytes_axis(top), row=1, col=1)
    fig.update_yaxes(range=[0, top * 118 // 100], row=1, col=1)
    high = max([1, *planned, *actual])
    whole = {"dtick": 1} if high <= FEW_STEPS else {"nticks": 4}
    fig.update_yaxes(range=[0, high * 1.15], **whole, title={"text": dim, "standoff": 6}, row=2, col=1)
    fig.update_xaxes(range=[-0.6, len(steps) - 0.4], tickformat="d", dtick=max(1, len(steps) // 20))
    fig.update_xaxes(title={"text": "iteration", "standoff": 4}, row=2, col=1)
    fig.update_layout(margin={"l": 76, "r": 14, "t": 10, "b": 40}, hovermode="x", bargap=0.4)
    return fig


def _iteration_sizes(fig: go.Figure, dim: str, steps: list[int], actual: list[int], planned: list[int]) -> None:
    """Draw the actual size of each iteration as bars under the size planned for."""
    fig.add_trace(
        go.Bar(x=steps, y=actual, width=0.55, marker={"color": LIVE}, hovertemplate=f"{dim} = %{{y}}<extra></extra>"),
        row=2,
        col=1,
    )
    fig.add_trace(
        go.Scatter(
            x=[*[n - 0.5 for n in steps], steps[-1] + 0.5],
            y=[*planned, planned[-1]],
            mode="lines",
            line={"shape": "hv", "width": 1.8, "color": LINE, "dash": "dot"},
            hovertemplate=f"planned for {dim} = %{{y}}<extra></extra>",
        ),
        row=2,
        col=1,
    )


def _extent(plan: object, arena: str) -> int:
    summary = plan.arena_of.get(arena)  # type: ignore[attr-defined]
    return int(summary.extent_bytes) if summary is not None else 0


def varies(values: np.ndarray) -> bool:
    """Return whether a column has more than one value."""
    return bool(len(values)) and bool((values != values[0]).any())
