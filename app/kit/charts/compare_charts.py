"""Charts that compare two plans, and all planners."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log10

import plotly.graph_objects as go

from app.kit.charts.chart_base import LINE, LIVE, bytes_axis, figure, steps_axis
from app.kit.charts.live_chart import thinned
from app.texts import numbers
from tmmu_core.plans.figures.live_bytes import change_points
from tmmu_core.plans.figures.plan_storages import beats_of, live_bytes
from tmmu_core.plans.model import Plan

STATUS_COLOURS = {"optimal": "#009E73", "incomplete": "#D55E00", "invalid": "#D55E00"}


def curves(baseline: Plan, candidate: Plan, arena: str, *, height: int = 200) -> go.Figure:
    """Return the chart of one arena's live bytes in two plans; the baseline is dashed, the candidate filled."""
    fig = figure(height)
    top = 0
    for plan, name, colour, dash in ((candidate, "candidate", LIVE, "solid"), (baseline, "baseline", LINE, "dash")):
        if arena not in plan.arena_of:
            continue
        begins, values = thinned(*change_points(live_bytes(plan, arena), beats_of(plan).steps))
        x = [*begins.tolist(), plan.steps]
        y = [*values.tolist(), int(values[-1]) if len(values) else 0]
        extent = plan.arena_of[arena].extent_bytes
        top = max(top, extent, *y)
        fig.add_trace(
            go.Scatter(
                x=x,
                y=y,
                mode="lines",
                name=f"{name}, live",
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
                name=f"{name}, arena size {numbers.short_bytes(extent)}",
                line={"width": 1.4, "color": colour, "dash": "solid" if name == "candidate" else "dash"},
                hoverinfo="skip",
            )
        )
    fig.update_xaxes(steps_axis(max(baseline.steps, candidate.steps)))
    fig.update_yaxes(bytes_axis(top), fixedrange=True)
    fig.update_layout(
        showlegend=True,
        legend={"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0},
        margin={"l": 70, "r": 14, "t": 28, "b": 24},
    )
    return fig


@dataclass(frozen=True)
class Run:
    """Result of one planner."""

    planner: str
    extent: int
    bound: int
    nanoseconds: int
    status: str
    current: bool = False


MARGIN = 2
"""The axis of times begins and ends this many times before and after the runs."""
LINE_HEIGHT = 0.075
"""A label's height, in heights of the chart."""
LETTER = 0.012
"""Width of a letter relative to the width of the chart beside its table."""
LABEL_AWAY = 0.055
"""From a point to the middle of its label, in heights of the chart."""
POINT = 0.045
"""A point's height, and half a label's beside it."""


def _spread(runs: Sequence[Run]) -> list[tuple[float, float]]:
    """Return the position of each point, in widths and heights of the chart."""
    xs = [log10(max(run.nanoseconds, 1)) for run in runs]
    ys = [log10(max(run.extent, 1)) for run in runs]
    wide, high = max(xs) - min(xs) + 2 * log10(MARGIN), 1.22 * (max(ys) - min(ys)) + 0.04
    return [(x / wide, y / high) for x, y in zip(xs, ys, strict=True)]


def labels(runs: Sequence[Run]) -> list[str]:
    """Return a label per point; points with overlapping labels share one, at the first of them."""
    if not runs:
        return []
    places = _spread(runs)
    texts = [f"<b>{run.planner}</b>" if run.current else run.planner for run in runs]
    order = sorted(range(len(runs)), key=lambda k: (runs[k].extent, runs[k].nanoseconds, runs[k].planner))

    def touch(a: int, b: int) -> bool:
        (left, low), (right, high) = places[a], places[b]
        reach = max(0.1, LETTER * (len(texts[a]) + len(texts[b])) / 2)
        return abs(left - right) < reach and abs(low - high) < LINE_HEIGHT

    def pair() -> tuple[int, int] | None:
        heads = [k for k in order if texts[k]]
        return next(((a, b) for i, a in enumerate(heads) for b in heads[i + 1 :] if touch(a, b)), None)

    while (two := pair()) is not None:  # a longer label may overlap others
        first, second = two
        texts[first], texts[second] = f"{texts[first]}, {texts[second]}", ""
    return texts


def sides(runs: Sequence[Run], texts: Sequence[str]) -> list[int]:
    """Return the side of each label: 1 above its point, −1 below.

    The default is above, or below for high points; the other side is used if only that side is free.
    """
    if not runs:
        return []
    places, best = _spread(runs), min(run.extent for run in runs)
    middles: list[tuple[float, float, float]] = []
    """Centre and half width of each placed label."""

    def box(k: int, side: int) -> tuple[float, float, float]:
        return places[k][0], places[k][1] + side * LABEL_AWAY, LETTER * len(texts[k]) / 2

    def is_free(k: int, side: int) -> bool:
        x, y, half = box(k, side)
        points = (at for j, at in enumerate(places) if j != k)
        covered = any(abs(left - x) < half + POINT / 2 and abs(low - y) < POINT for left, low in points)
        return not covered and not any(abs(at[0] - x) < half + at[2] and abs(at[1] - y) < LABEL_AWAY for at in middles)

    taken = []
    for k, run in enumerate(runs):
        usual = -1 if run.extent > 4 * best else 1
        side = -usual if texts[k] and not is_free(k, usual) and is_free(k, -usual) else usual
        taken.append(side)
        if texts[k]:
            middles.append(box(k, side))
    return taken


def place_of_bound(runs: Sequence[Run], texts: Sequence[str], stands: Sequence[int], letters: int) -> tuple[str, bool]:
    """Return ``(end of the line, whether above it)`` for the lower bound's label, without overlap if possible.

    The order of preference is below right, below left, above right, above left, centre.
    """
    bound = max(run.bound for run in runs)
    ys = [log10(max(run.extent, 1)) for run in runs]
    high = 1.22 * (max(ys) - min(ys)) + 0.04
    first = min(log10(max(run.nanoseconds, 1)) for run in runs) - log10(MARGIN)
    wide = max(log10(max(run.nanoseconds, 1)) for run in runs) + log10(MARGIN) - first
    line, half = log10(bound) / high, LETTER * letters / 2
    boxes = []  # middle in x and y, half the width, half the height
    for run, text, side, y in zip(runs, texts, stands, ys, strict=True):
        x = (log10(max(run.nanoseconds, 1)) - first) / wide
        boxes.append((x, y / high, POINT / 4, POINT / 2))
        if text:
            boxes.append((x, y / high + side * LABEL_AWAY, LETTER * len(text) / 2, LINE_HEIGHT / 2))

    def is_free(end: str, up: bool) -> bool:
        x, y = {"left": half, "center": 0.5, "right": 1 - half}[end], line + (LINE_HEIGHT if up else -LINE_HEIGHT) / 2
        return all(abs(a - x) >= w + half or abs(b - y) >= h + LINE_HEIGHT / 2 for a, b, w, h in boxes)

    places = [(end, up) for up in (False, True) for end in ("right", "left")]
    places += [("center", False), ("center", True)]
    return next((place for place in places if is_free(*place)), places[0])


def field(runs: Sequence[Run], *, height: int = 300) -> go.Figure:
    """Return the chart of arena size against planning time, both logarithmic, with the lower bound."""
    fig = figure(height)
    if not runs:
        return fig
    bound = max(run.bound for run in runs)
    best = min(run.extent for run in runs)
    texts = labels(runs)
    stands = sides(runs, texts)
    fig.add_trace(
        go.Scatter(
            x=[max(run.nanoseconds, 1) / 1e6 for run in runs],
            y=[max(run.extent, 1) for run in runs],
            mode="markers+text",
            text=texts,
            textposition=["top center" if side > 0 else "bottom center" for side in stands],
            cliponaxis=False,
            marker={
                "size": [15 if run.current else 11 for run in runs],
                "color": [STATUS_COLOURS.get(run.status, LIVE) for run in runs],
                "symbol": ["diamond" if run.status == "optimal" else "circle" for run in runs],
                "line": {"width": [2 if run.current else 0 for run in runs], "color": LINE},
            },
            customdata=[
                (
                    numbers.full_bytes(run.extent),
                    numbers.full_bytes(run.extent - run.bound),
                    numbers.gap(run.extent, run.bound),
                    numbers.duration(run.nanoseconds),
                    run.status,
                    run.planner,
                )
                for run in runs
            ],
            hovertemplate=(
                "<b>%{customdata[5]}</b>: %{customdata[0]}<br>%{customdata[1]} over the lower bound (%{customdata[2]})"
                "<br>%{customdata[3]}, %{customdata[4]}<extra></extra>"
            ),
        )
    )
    if bound:
        fig.add_hline(y=bound, line={"color": LINE, "width": 1.5, "dash": "dot"})
        text = f"lower bound {numbers.short_bytes(bound)}"
        end, up = place_of_bound(runs, texts, stands, len(text))
        fig.add_annotation(
            text=text,
            font={"size": 11, "color": LINE},
            showarrow=False,
            x={"left": 0, "center": 0.5, "right": 1}[end],
            xref="paper",
            xanchor=end,
            y=log10(bound),
            yanchor="bottom" if up else "top",
        )
    times = [max(run.nanoseconds, 1) / 1e6 for run in runs]
    marks = [0.01, 0.1, 1, 10, 100, 1_000, 10_000, 100_000]
    left, right = min(times) / MARGIN, max(times) * MARGIN
    fig.update_xaxes(
        type="log",
        title={"text": "planning time", "standoff": 6},
        range=[log10(left), log10(right)],
        tickvals=[m * f for m in marks for f in (1, 2, 5)],
        ticktext=[
            numbers.duration(int(m * f * 1e6)).replace(".00", "").replace(".0", "") for m in marks for f in (1, 2, 5)
        ],
    )
    low, high = max(1, min(bound or best, best)), max(max(run.extent for run in runs), 2)
    few = high > 40 * low
    values = [1024**k * f for k in range(7) for f in ((1, 10, 100) if few else (1, 2, 4, 8, 16, 32, 64, 128, 256, 512))]
    if high < 2 * low:  # no power of two is in the range
        values = sorted({round(low + (high - low) * k / 4) for k in range(5)})
    fig.update_yaxes(
        type="log",
        title={"text": "arena size", "standoff": 8},
        range=[
            log10(low) - 0.06 * (log10(high) - log10(low)) - 0.02,
            log10(high) + 0.16 * (log10(high) - log10(low)) + 0.02,
        ],
        tickvals=values,
        ticktext=[numbers.short_bytes(v).replace(".00 ", " ").replace(".0 ", " ") for v in values],
    )
    fig.update_layout(margin={"l": 84, "r": 30, "t": 14, "b": 48})
    return fig
