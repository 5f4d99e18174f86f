"""Charts of step curves for several pages: the live bytes of two plans, and the progress of a search."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from app.kit.charts.chart_base import FEW_TICKS, LEGEND, LINE, LIVE, add_curve, bytes_axis, figure, steps_axis
from app.texts import numbers
from tmmu_core.plans.analysis.plan_notes import Moment
from tmmu_core.plans.figures.live_bytes import change_points, curve_points_of, live_bytes
from tmmu_core.plans.model import Plan

MOST_POINTS = 20_000
LABEL_HEIGHT = 14  # of a tick label, in pixels
MARGIN = {"l": 70, "r": 14, "t": 28, "b": 40}


def thinned(begins: np.ndarray, values: np.ndarray, most: int = MOST_POINTS) -> tuple[np.ndarray, np.ndarray]:
    """Return ``(steps, values)`` of a curve with at most ``most`` points: first step and highest value of each bin."""
    if len(begins) <= most:
        return begins, values
    cuts = np.linspace(0, len(begins), most + 1).astype(np.int64)[:-1]
    return begins[cuts], np.maximum.reduceat(values, cuts)


def compared_live_bytes(baseline: Plan, candidate: Plan, arena: str) -> go.Figure:
    """Return the chart of an arena's live bytes and size in two plans. The baseline is dashed, the candidate filled."""
    fig = figure(200)
    top = 0
    for plan, name, colour, dash in ((candidate, "candidate", LIVE, "solid"), (baseline, "baseline", LINE, "dash")):
        if arena not in plan.arena_of:
            continue
        begins, values = thinned(*change_points(live_bytes(plan, arena), curve_points_of(plan).steps))
        x = [*begins.tolist(), plan.steps]
        y = [*values.tolist(), int(values[-1]) if len(values) else 0]
        extent = plan.arena_of[arena].extent_bytes
        top = max(top, extent, *y)
        texts = [(plan.node_at(t), numbers.full_bytes(v)) for t, v in zip(x, y, strict=True)]
        filled: dict[str, Any] = {"fill": "tozeroy", "fillcolor": "rgba(0,114,178,0.14)"} if name == "candidate" else {}
        hover = f"{name} #%{{x:,d}} %{{customdata[0]}}: %{{customdata[1]}}"
        label = f"{name}, arena size {numbers.short_bytes(extent)}"
        add_curve(fig, x, y, label, colour, dash=dash, texts=texts, hover=hover, **filled)
        add_curve(fig, [0, plan.steps], [extent, extent], "", colour, dash=dash, showlegend=False)
    fig.update_xaxes(steps_axis(max(baseline.steps, candidate.steps)))
    fig.update_yaxes(bytes_axis(top), fixedrange=True)
    return fig.update_layout(showlegend=True, legend=LEGEND, margin=MARGIN)


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
