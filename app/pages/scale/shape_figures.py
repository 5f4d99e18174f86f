"""Figure of the view Shapes: bytes over a dimension."""

import numpy as np
import plotly.graph_objects as go

from app.kit.charts.chart_base import BAD, LINE, LIVE, bytes_axis, figure
from app.texts import numbers
from tmmu_core.plans.making.dim_curve import DimCurve


def dim_curve(curve: DimCurve, arena: str, *, now: int, capacity: int, whole: bool) -> go.Figure:
    """Return size (line) and peak (filled) of an arena over a dimension, with current size, limit and rejected sizes.

    ``whole``: every size was planned, so the line is continuous; otherwise only the planned sizes have markers. ``x``
    of a marker is the size, for clicks.
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
                name="rejected",
                marker={"symbol": "x", "size": 8, "color": BAD},
                cliponaxis=False,
                customdata=[error.message for _, error in curve.refused],
                hovertemplate=f"{curve.dim} = %{{x}} rejected<br>%{{customdata}}<extra></extra>",
            )
        )
    return refused


def varies(values: np.ndarray) -> bool:
    """Return whether a column has more than one value."""
    return bool(len(values)) and bool((values != values[0]).any())
