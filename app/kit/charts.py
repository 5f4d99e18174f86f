"""Parts of all charts (colours, layout, axes and step curves), and the chart of the progress of a search."""

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import plotly.graph_objects as go
import streamlit as st
from plotly.utils import PlotlyJSONEncoder

from app.session import state
from app.texts import numbers
from tmmu_core.plans.analysis.plan_notes import SearchPoint

Floats = Sequence[float]
LIVE = "#0072B2"
LINE = "#7d8896"  # grey with enough contrast on light and dark backgrounds
FAINT = "rgba(125,136,150,0.22)"
BAD = "#D55E00"
LEGEND = {"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom"}  # above the plot
FEW_TICKS = 10  # an axis up to this length gets a tick at each whole number: Plotly would add ticks at fractions
LABEL_HEIGHT = 14  # height of a tick label in pixels


class _TextFigure(go.Figure):
    """A figure that escapes the HTML in its texts, such as tensor names. Only tags of text styles remain."""

    def to_dict(self) -> dict[str, Any]:
        text = json.dumps(super().to_dict(), cls=PlotlyJSONEncoder)
        return json.loads(re.sub(r"<(?!/?(?:b|i|br|extra)/?>)", "&lt;", text))


def figure(height: int) -> go.Figure:
    """Return an empty figure with the common layout."""
    fig, font, transparent = _TextFigure(), {"size": 12}, "rgba(0,0,0,0)"
    fig.update_layout(height=height, margin={"l": 70, "r": 14, "t": 8, "b": 34}, showlegend=False, dragmode="pan")
    fig.update_layout(paper_bgcolor=transparent, plot_bgcolor=transparent)
    fig.update_layout(font=font, hoverlabel={"align": "left", "font": font})
    fig.update_xaxes(gridcolor=FAINT, zerolinecolor=FAINT, linecolor=LINE, ticks="outside", tickcolor=FAINT)
    fig.update_yaxes(gridcolor=FAINT, zerolinecolor=FAINT, linecolor=LINE)
    return fig


def draw_chart(fig: go.Figure, key: str, on_click: Callable[[dict[str, Any]], None] | None = None) -> None:
    """Draw a chart on the page. ``on_click`` receives the clicked point."""
    config = {"displayModeBar": False, "scrollZoom": True}  # the tool bar of Plotly would cover labels
    if on_click is None:
        st.plotly_chart(fig, key=key, config=config)
        return

    def clicked() -> None:
        event = state.raw(key)
        for point in event["selection"]["points"][:1] if event else ():
            on_click(point)

    st.plotly_chart(fig, key=key, config=config, on_select=clicked, selection_mode="points")


def add_curve(
    fig: go.Figure,
    x: Floats,
    y: Floats,
    name: str,
    colour: str,
    *,
    dash: str = "solid",
    hover: str = "",
    **options: Any,
) -> None:
    """Add a step curve. ``hover``: template of the hover text; its ``customdata`` is ``y`` in bytes by default."""
    hover_text: dict[str, Any] = {"hoverinfo": "skip"}
    if hover:
        sizes = [numbers.full_bytes(int(value)) for value in y]
        hover_text = {"customdata": sizes, "hovertemplate": f"{hover}<extra></extra>"}
    line = {"shape": "hv", "width": 1.6, "color": colour, "dash": dash}
    fig.add_trace(go.Scatter(x=x, y=y, name=name, line=line, **{"mode": "lines", **hover_text, **options}))


def limit_line(fig: go.Figure, limit: int, value: int | None = None, *, vertical: bool = False) -> None:
    """Draw a dashed line at ``value`` (default: ``limit``), labelled with ``limit`` in bytes. Horizontal by default."""
    line = {"color": BAD, "width": 1.5, "dash": "dash"}
    label = {"text": f"limit {numbers.short_bytes(limit)}", "font": {"size": 11, "color": BAD}}
    draw, side = (fig.add_vline, "top right") if vertical else (fig.add_hline, "bottom left")
    draw(limit if value is None else value, line=line, annotation=label | {"xshift": 3}, annotation_position=side)


def bytes_axis(top: int) -> dict[str, Any]:
    """Return the settings of a byte axis from 0 to a little above ``top``."""
    values = numbers.ticks(top)
    labels = [numbers.round_bytes(value) for value in values]
    return {"tickvals": values, "ticktext": labels, "range": [0, max(1, top + top // 12)]}


def steps_axis(end: int) -> dict[str, Any]:
    """Return the settings of a step axis from 0 to ``end`` with the labels ``#0 #1 #2``."""
    tick_distance = {"dtick": 1} if end <= FEW_TICKS else {}
    return {"range": [0, max(1, end)], "tickprefix": "#", "tickformat": ",~f", "hoverformat": ",d", **tick_distance}


def search_chart(points: Sequence[SearchPoint], nodes: int, *, height: int = 220) -> go.Figure:
    """Return the chart of arena size and proven bound over search nodes, on a logarithmic axis up to ``nodes``."""
    fig, margin = figure(height), {"l": 70, "r": 14, "t": 28, "b": 40}
    first_nodes = min((point.nodes for point in points if point.nodes), default=1)
    start, end = max(first_nodes // 2, 1), max(nodes, *(point.nodes for point in points), first_nodes + 1)
    x = [max(point.nodes, start) for point in points] + [end]
    for name, colour, dash, field in (("arena size", LIVE, "solid", "extent"), ("proven bound", LINE, "dash", "bound")):
        values = [getattr(point, field) for point in points]
        hover = f"{name} after %{{x:,d}} search nodes: %{{customdata}}"
        add_curve(fig, x, [*values, values[-1]], name, colour, dash=dash, hover=hover)
    largest, smallest = points[0].extent, points[0].bound
    padding = (largest - smallest) // 12 + 1
    min_distance = max(padding, (largest - smallest) * LABEL_HEIGHT // (height - margin["t"] - margin["b"]))
    ticks = [largest]
    for size in (points[-1].extent, points[-1].bound, smallest):  # a tick at each size, if its label does not overlap
        if ticks[-1] - size >= min_distance:
            ticks.append(size)
    node_ticks = {"tickvals": list(range(start, end + 1))} if end - start <= FEW_TICKS else {}
    fig.update_xaxes(type="log", title_text="search nodes", tickformat="~s", **node_ticks)
    labels = [numbers.short_bytes(size) for size in ticks]
    if len({*labels}) < len(labels):  # two labels are equal: label the differences from the smallest
        labels = [*(numbers.delta_bytes(size - ticks[-1]) for size in ticks[:-1]), labels[-1]]
    fig.update_yaxes(tickvals=ticks, ticktext=labels, range=[smallest - padding, largest + padding], fixedrange=True)
    return fig.update_layout(showlegend=True, legend=LEGEND, margin=margin)
