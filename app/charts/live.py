"""Live bytes over the steps: the curve from which everything starts."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import plotly.graph_objects as go

from app.charts.base import BAD, LINE, LIVE, bytes_axis, clickable, figure, steps_axis
from app.say import words
from tmmu_core.plan.figures.live import change_points, peak_of
from tmmu_core.plan.figures.storages import beats_of, live_bytes
from tmmu_core.plan.model import Plan

MOST_POINTS = 20_000
ABOVE, BELOW = 12, 24
"""Pixels of margin."""
WORDS = 18
"""Pixels that a level's words are high."""


def live_curve(plan: Plan, arena: str, *, step: int | None = None, height: int = 150) -> go.Figure:
    """Bytes of one arena alive at each step, as steps; its peak, extent, capacity and, where chosen, one step.

    Beyond ``MOST_POINTS`` changes only the highest point of each of as many bins is drawn, so that no peak is lost.
    """
    summary = plan.arena_of[arena]
    curve, steps = live_bytes(plan, arena), beats_of(plan).steps
    beat, most = peak_of(curve)
    at = int(steps[beat])
    begins, values = change_points(curve, steps)
    begins, values = thinned(begins, values)
    x = [*begins.tolist(), plan.steps]
    y = [*values.tolist(), int(values[-1]) if len(values) else 0]
    fig = figure(height)
    fig.add_trace(
        go.Scatter(
            x=x,
            y=y,
            mode="lines",
            line={"shape": "hv", "width": 1.5, "color": LIVE},
            fill="tozeroy",
            fillcolor="rgba(0,114,178,0.16)",
            customdata=[(plan.node_at(t), words.full_bytes(v)) for t, v in zip(x, y, strict=True)],
            hovertemplate="#%{x:,d} %{customdata[0]}<br>%{customdata[1]} alive<extra></extra>",
            name="live bytes",
        )
    )
    top = max(summary.extent_bytes, most)
    # The peak's words go towards the middle; the levels' words stand where those do not reach.
    right = at > plan.steps * 0.6
    side = "left" if (at > plan.steps * 0.75 if right else at > plan.steps * 0.25) else "right"
    levels = {"extent": summary.extent_bytes}
    bound = summary.bound_bytes
    if bound and bound not in (most, summary.extent_bytes):
        levels["lower bound"] = bound
    if most and most != summary.extent_bytes:
        levels["peak"] = most
    if summary.capacity_bytes < words.UNLIMITED and summary.capacity_bytes <= 4 * top:
        top = max(top, summary.capacity_bytes)
        levels["capacity"] = summary.capacity_bytes
    axis = bytes_axis(top)
    for what, at_end in ends({k: (height - ABOVE - BELOW) * v / axis["range"][1] for k, v in levels.items()}, side):
        _level(fig, what, levels[what], at_end)
    if most:
        fig.add_trace(
            go.Scatter(
                x=[at + 0.5],
                y=[most],
                mode="markers+text",
                marker={"size": 9, "color": LIVE, "line": {"width": 2, "color": "white"}},
                text=[f"<b>peak {words.short_bytes(most)}</b> at {words.step(at, words.shortened(plan.node_at(at)))}"],
                textposition="top left" if right else "top right",
                cliponaxis=False,
                hovertemplate=f"peak {words.full_bytes(most)}<extra></extra>",
                name="peak",
            )
        )
    clickable(fig, curve.tolist(), steps.tolist())
    if step is not None:
        fig.add_vline(x=step + 0.5, line={"color": LINE, "width": 2})
    fig.update_xaxes(steps_axis(plan.steps))
    fig.update_yaxes(axis, fixedrange=True)
    fig.update_layout(margin={"l": 70, "r": 14, "t": ABOVE, "b": BELOW})
    return fig


LEVELS = {"extent": ("solid", LINE), "lower bound": ("dot", LINE), "peak": ("dot", LINE), "capacity": ("dash", BAD)}
"""What a level is → its dash and colour."""


def ends(heights: Mapping[str, float], side: str) -> list[tuple[str, str]]:
    """Each level with where its words stand (``"top right"``), those of the peak nowhere, for the peak has its own.

    ``heights`` are in pixels. Words stand on their line at ``side``, or under it, or at the other end: where neither
    others' words nor another line is in the way; else where no others' words are.
    """
    found: list[tuple[str, str]] = []
    taken: list[tuple[str, float]] = []
    places = [(up, end) for end in (side, "left" if side == "right" else "right") for up in ("top", "bottom")]
    for what, height in sorted(heights.items(), key=lambda level: -level[1]):
        if what == "peak":
            found.append((what, ""))
            continue
        low = {"top": height, "bottom": height - WORDS}
        lines = [y for name, y in heights.items() if name != what]
        inside = [(up, end) for up, end in places if low[up] >= 0]
        apart = [(up, end) for up, end in inside if all(end != at or abs(low[up] - y) >= WORDS for at, y in taken)]
        clear = [(up, end) for up, end in apart if not any(-1 < y - low[up] < WORDS for y in lines)]
        up, end = [*clear, *apart, *places][0]
        taken.append((end, low[up]))
        found.append((what, f"{up} {end}"))
    return found


def _level(fig: go.Figure, what: str, value: int, at_end: str) -> None:
    """A line across; where ``at_end`` says so, with its words."""
    dash, colour = LEVELS[what]
    text = f"{what} {words.short_bytes(value)}" if at_end else ""
    fig.add_hline(
        y=value,
        line={"color": colour, "width": 1.3, "dash": dash},
        **({"annotation": {"text": text, "font": {"size": 11, "color": colour}}} if text else {}),
        **({"annotation_position": at_end} if text else {}),
    )


def thinned(begins: np.ndarray, values: np.ndarray, most: int = MOST_POINTS) -> tuple[np.ndarray, np.ndarray]:
    """At most ``most`` changes of a curve: of each bin the first step and the highest value."""
    if len(begins) <= most:
        return begins, values
    cuts = np.linspace(0, len(begins), most + 1).astype(np.int64)[:-1]
    highest = np.maximum.reduceat(values, cuts)
    return begins[cuts], highest
