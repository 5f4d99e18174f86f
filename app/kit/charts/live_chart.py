"""The chart of one arena over the steps: live bytes, or the arena size by account."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import plotly.graph_objects as go

from app.kit.charts.chart_base import (
    ACCOUNT_COLOURS,
    ACCOUNT_NAMES,
    ACCOUNT_PATTERNS,
    BAD,
    FAINT,
    LINE,
    LIVE,
    bytes_axis,
    clickable,
    figure,
    steps_axis,
)
from app.texts import numbers
from tmmu_core.plans.analysis.waste_ledger import ACCOUNTS, WasteLedger
from tmmu_core.plans.figures.live_bytes import change_points, peak_of
from tmmu_core.plans.figures.plan_storages import beats_of, live_bytes
from tmmu_core.plans.model import Plan

MOST_POINTS = 20_000
MOST_STEPS = 4_000
"""Steps of the accounts that are drawn."""
ABOVE, BELOW = 12, 24
"""Pixels of margin."""
WORDS = 18
"""Height of a level's label in pixels."""


def live_curve(
    plan: Plan, arena: str, *, step: int | None = None, height: int = 150, ledger: WasteLedger | None = None
) -> go.Figure:
    """Return the step chart of one arena's live bytes with its peak, size, lower bound, capacity and selected step.

    With a ``ledger`` its accounts are stacked instead of the live bytes alone: their sum is the arena size.

    Beyond ``MOST_POINTS`` changes, the highest point of each bin is drawn.
    """
    summary = plan.arena_of[arena]
    curve, steps = live_bytes(plan, arena), beats_of(plan).steps
    beat, most = peak_of(curve)
    at = int(steps[beat])
    fig = figure(height)
    if ledger is None:
        _live(fig, plan, *thinned(*change_points(curve, steps)))
    else:
        _accounts(fig, plan, ledger, step)
    top = max(summary.extent_bytes, most)
    # The label of the peak is placed towards the middle, those of the levels at the other side.
    right = at > plan.steps * 0.6
    side = "left" if (at > plan.steps * 0.75 if right else at > plan.steps * 0.25) else "right"
    levels = {"arena size": summary.extent_bytes}
    bound = summary.bound_bytes
    if bound and bound not in (most, summary.extent_bytes):
        levels["lower bound"] = bound
    if most and most != summary.extent_bytes:
        levels["peak"] = most
    if summary.capacity_bytes < numbers.UNLIMITED and summary.capacity_bytes <= 4 * top:
        top = max(top, summary.capacity_bytes)
        levels["capacity"] = summary.capacity_bytes
    axis = bytes_axis(top)
    for what, at_end in ends({k: (height - ABOVE - BELOW) * v / axis["range"][1] for k, v in levels.items()}, side):
        _level(fig, what, levels[what], at_end)
    if most:
        where = numbers.step(at, numbers.shortened(plan.node_at(at)))
        fig.add_trace(
            go.Scatter(
                x=[at + 0.5],
                y=[most],
                mode="markers+text",
                marker={"size": 9, "color": LIVE, "line": {"width": 2, "color": "white"}},
                text=[f"<b>peak {numbers.short_bytes(most)}</b> at {where}"],
                textposition="top left" if right else "top right",
                cliponaxis=False,
                hovertemplate=f"peak {numbers.full_bytes(most)}<extra></extra>",
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


def _live(fig: go.Figure, plan: Plan, begins: np.ndarray, values: np.ndarray) -> None:
    x = [*begins.tolist(), plan.steps]
    y = [*values.tolist(), int(values[-1]) if len(values) else 0]
    fig.add_trace(
        go.Scatter(
            x=x,
            y=y,
            mode="lines",
            line={"shape": "hv", "width": 1.5, "color": LIVE},
            fill="tozeroy",
            fillcolor="rgba(0,114,178,0.16)",
            customdata=[(plan.node_at(t), numbers.full_bytes(v)) for t, v in zip(x, y, strict=True)],
            hovertemplate="#%{x:,d} %{customdata[0]}<br>%{customdata[1]} live<extra></extra>",
            name="live bytes",
        )
    )


def _accounts(fig: go.Figure, plan: Plan, ledger: WasteLedger, step: int | None) -> None:
    """Stack the accounts. Above ``MOST_STEPS`` steps, evenly spaced steps and ``step`` are drawn."""
    beats = np.arange(len(ledger.steps) if plan.steps else 0)
    if len(beats) > MOST_STEPS:
        chosen = int(np.searchsorted(ledger.steps, step or 0, side="right")) - 1
        beats = np.unique(np.concatenate([np.linspace(0, len(beats) - 1, MOST_STEPS).astype(np.int64), [chosen]]))
    x = [*ledger.steps[beats].tolist(), plan.steps]
    for account in ACCOUNTS:
        values = getattr(ledger, account)[beats].tolist() if len(beats) else []
        if not any(values):
            continue  # no empty band in the legend
        y = [*values, values[-1]]
        fig.add_trace(
            go.Scatter(
                x=x,
                y=y,
                stackgroup="extent",
                mode="lines",
                line={"shape": "hv", "width": 0, "color": ACCOUNT_COLOURS[account]},
                fillcolor=FAINT if account == "tail" else ACCOUNT_COLOURS[account],
                fillpattern={"shape": ACCOUNT_PATTERNS[account], "size": 6, "solidity": 0.3},
                name=ACCOUNT_NAMES[account],
                customdata=[numbers.full_bytes(v) for v in y],
                hovertemplate="%{customdata}",
            )
        )


LEVELS = {"arena size": ("solid", LINE), "lower bound": ("dot", LINE), "peak": ("dot", LINE), "capacity": ("dash", BAD)}
"""Kind of a level → its dash and colour."""


def ends(heights: Mapping[str, float], side: str) -> list[tuple[str, str]]:
    """Return each level with the position of its label (``"top right"``); "" for the peak, which has its own label.

    ``heights`` are in pixels. A label is above or below its line, at ``side`` or at the other end, where it overlaps no
    other label and, if possible, no line.
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
    """Draw a horizontal line, with a label at ``at_end`` unless that is ""."""
    dash, colour = LEVELS[what]
    text = f"{what} {numbers.short_bytes(value)}" if at_end else ""
    fig.add_hline(
        y=value,
        line={"color": colour, "width": 1.3, "dash": dash},
        **({"annotation": {"text": text, "font": {"size": 11, "color": colour}}} if text else {}),
        **({"annotation_position": at_end} if text else {}),
    )


def thinned(begins: np.ndarray, values: np.ndarray, most: int = MOST_POINTS) -> tuple[np.ndarray, np.ndarray]:
    """Return at most ``most`` changes of a curve: the first step and the highest value of each bin."""
    if len(begins) <= most:
        return begins, values
    cuts = np.linspace(0, len(begins), most + 1).astype(np.int64)[:-1]
    highest = np.maximum.reduceat(values, cuts)
    return begins[cuts], highest
