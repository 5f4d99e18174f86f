"""The chart of the progress of a search."""

from collections.abc import Sequence

import plotly.graph_objects as go

from app.kit.charts.chart_base import FEW_TICKS, LEGEND, LINE, LIVE, add_curve, figure
from app.texts import numbers
from tmmu_core.plans.analysis.plan_notes import Moment

LABEL_HEIGHT = 14  # of a tick label, in pixels
MARGIN = {"l": 70, "r": 14, "t": 28, "b": 40}


def search_course(moments: Sequence[Moment], nodes: int, *, height: int = 220) -> go.Figure:
    """Return the chart of arena size and proven bound over search nodes, on a logarithmic axis up to ``nodes``."""
    fig = figure(height)
    first = min((moment.nodes for moment in moments if moment.nodes), default=1)
    last = max(nodes, *(moment.nodes for moment in moments), first + 1)
    begin = max(first // 2, 1)
    x = [max(moment.nodes, begin) for moment in moments] + [last]
    for name, colour, dash, values in (
        ("arena size", LIVE, "solid", [moment.extent for moment in moments]),
        ("proven bound", LINE, "dash", [moment.bound for moment in moments]),
    ):
        hover = f"{name} after %{{x:,d}} search nodes: %{{customdata}}"
        add_curve(fig, x, [*values, values[-1]], name, colour, dash=dash, hover=hover)
    top, low = moments[0].extent, moments[0].bound
    edge = (top - low) // 12 + 1
    distance = max(edge, (top - low) * LABEL_HEIGHT // (height - MARGIN["t"] - MARGIN["b"]))
    ticks = [top]
    for size in (moments[-1].extent, moments[-1].bound, low):  # a tick at each size, if its label does not overlap
        if ticks[-1] - size >= distance:
            ticks.append(size)
    node_ticks = {"tickvals": list(range(begin, last + 1))} if last - begin <= FEW_TICKS else {}
    fig.update_xaxes(type="log", title_text="search nodes", tickformat="~s", **node_ticks)
    labels = [numbers.short_bytes(size) for size in ticks]
    fig.update_yaxes(tickvals=ticks, ticktext=labels, range=[low - edge, top + edge], fixedrange=True)
    return fig.update_layout(showlegend=True, legend=LEGEND, margin=MARGIN)
