"""The chart that compares two plans."""

import numpy as np
import plotly.graph_objects as go

from app.kit.charts.chart_base import LEGEND, LINE, LIVE, bytes_axis, figure, steps_axis
from app.texts import numbers
from tmmu_core.plans.figures.live_bytes import change_points
from tmmu_core.plans.figures.plan_storages import curve_points_of, live_bytes
from tmmu_core.plans.model import Plan


def curves(baseline: Plan, candidate: Plan, arena: str) -> go.Figure:
    """Return the chart of one arena's live bytes in two plans; the baseline is dashed, the candidate filled."""
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
        fig.add_trace(
            go.Scatter(
                x=x,
                y=y,
                mode="lines",
                name=f"{name}, arena size {numbers.short_bytes(extent)}",
                line={"shape": "hv", "width": 1.6, "color": colour, "dash": dash},
                fill="tozeroy" if name == "candidate" else None,
                fillcolor="rgba(0,114,178,0.14)",
                customdata=[(plan.node_at(t), numbers.full_bytes(v)) for t, v in zip(x, y, strict=True)],
                hovertemplate=f"{name} #%{{x:,d}} %{{customdata[0]}}: %{{customdata[1]}}<extra></extra>",
            )
        )
        fig.add_trace(
            go.Scatter(
                x=[0, plan.steps],
                y=[extent, extent],
                mode="lines",
                showlegend=False,
                line={"width": 1.4, "color": colour, "dash": "solid" if name == "candidate" else "dash"},
                hoverinfo="skip",
            )
        )
    fig.update_xaxes(steps_axis(max(baseline.steps, candidate.steps)))
    fig.update_yaxes(bytes_axis(top), fixedrange=True)
    fig.update_layout(
        showlegend=True,
        legend=LEGEND,
        margin={"l": 70, "r": 14, "t": 28, "b": 24},
    )
    return fig


MOST_POINTS = 20_000


def thinned(begins: np.ndarray, values: np.ndarray, most: int = MOST_POINTS) -> tuple[np.ndarray, np.ndarray]:
    """Return at most ``most`` changes of a curve: the first step and the highest value of each bin."""
    if len(begins) <= most:
        return begins, values
    cuts = np.linspace(0, len(begins), most + 1).astype(np.int64)[:-1]
    highest = np.maximum.reduceat(values, cuts)
    return begins[cuts], highest
