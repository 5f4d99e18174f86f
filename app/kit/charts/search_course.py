"""Figure of a search: arena size and proven bound over search nodes."""

from collections.abc import Sequence

import plotly.graph_objects as go

from app.kit.charts.chart_base import LEGEND, LINE, LIVE, figure
from app.texts import numbers
from tmmu_core.plans.analysis.search_progress import Moment

FEW_NODES = 10
"""Node range up to which ticks are set by hand; Plotly would use fractions."""
LABEL = 14
"""Height of a tick label in pixels."""
MARGIN = {"l": 70, "r": 14, "t": 28, "b": 40}


def falling(moments: Sequence[Moment], nodes: int, *, height: int = 220) -> go.Figure:
    """Return the figure on a logarithmic axis up to ``nodes``. ``moments`` must not be empty."""
    fig = figure(height)
    first = min((moment.nodes for moment in moments if moment.nodes), default=1)
    last = max(nodes, *(moment.nodes for moment in moments), first + 1)
    begin = max(first // 2, 1)
    x = [max(moment.nodes, begin) for moment in moments] + [last]
    for name, colour, dash, values in (
        ("arena size", LIVE, "solid", [moment.extent for moment in moments]),
        ("proven bound", LINE, "dash", [moment.bound for moment in moments]),
    ):
        y = [*values, values[-1]]
        fig.add_trace(
            go.Scatter(
                x=x,
                y=y,
                mode="lines",
                name=name,
                line={"shape": "hv", "width": 1.6, "color": colour, "dash": dash},
                customdata=[numbers.full_bytes(value) for value in y],
                hovertemplate=f"{name} after %{{x:,d}} nodes: %{{customdata}}<extra></extra>",
            )
        )
    top, low = moments[0].extent, moments[0].bound
    edge = (top - low) // 12 + 1
    apart = max(edge, (top - low) * LABEL // (height - MARGIN["t"] - MARGIN["b"]))
    ticks = [top]
    for at in (moments[-1].extent, moments[-1].bound, low):  # ticks at the figures, if labels do not overlap
        if ticks[-1] - at >= apart:
            ticks.append(at)
    few = {"tickvals": list(range(begin, last + 1))} if last - begin <= FEW_NODES else {}
    fig.update_xaxes(type="log", title_text="nodes", tickformat="~s", **few)
    fig.update_yaxes(
        tickvals=ticks,
        ticktext=[numbers.short_bytes(at) for at in ticks],
        range=[low - edge, top + edge],
        fixedrange=True,
    )
    fig.update_layout(
        showlegend=True,
        legend=LEGEND,
        margin=MARGIN,
    )
    return fig
