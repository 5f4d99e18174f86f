"""The view Snapshot: curves of the live and reserved bytes of an allocator history, and tables of the live bytes."""

from functools import partial
from typing import Any

import plotly.graph_objects as go
import streamlit as st

from app.kit import arena_focus, charts, controls
from app.session.planning import Shown
from app.session.work.jobs import job_table
from app.texts import markup, numbers
from app.texts.palette import CATEGORY_COLOURS
from tmmu_core.formats.pytorch.snapshot.history import KEYS, History

MOST_ROWS = 40
SAMPLES = 4_000  # points of a curve; a screen does not show more


def history_of(shown: Shown) -> History | None:
    """Return the recorded history in the plan's file; ``None`` for a file that is not a PyTorch snapshot."""
    recorded = shown.opened.instance.recorded if shown.opened.instance is not None else None
    return recorded if isinstance(recorded, History) else None


def draw(shown: Shown) -> None:
    """Draw the curves, and a table that groups the live bytes at the shown step by one of :data:`KEYS`."""
    history = history_of(shown)
    assert history is not None
    step = arena_focus.step_of(shown)
    st.html(markup.claim(claim(history, step)))
    live = job_table().cache.get_or_make(("live by category", shown.key), partial(history.live_by_category, SAMPLES))
    charts.draw_chart(_curve(shown, history, step, live), f"reserved.{shown.key}.{step}")
    key = controls.switch("Sum by", KEYS, default=KEYS[0], key="w.sum-by")
    st.html(_totals(history, key or KEYS[0], step))


def claim(history: History, step: int) -> str:
    """Return the title: ``62.9 GiB reserved, 59.9 GiB live at #3,156; largest: activation 36.8 GiB``."""
    categories = history.totals("category", step)
    largest = f"; largest: {categories[0].name} {numbers.short_bytes(categories[0].size)}" if categories else ""
    reserved = numbers.short_bytes(history.reserved.at(step))
    live = numbers.short_bytes(sum(category.size for category in categories))
    return f"{reserved} reserved, {live} live at #{step:,}{largest}"


def _curve(shown: Shown, history: History, step: int, live: tuple[list[int], dict[str, list[int]]]) -> go.Figure:
    """Return the figure of the reserved bytes and of ``live``: ``(steps, category → live bytes)``."""
    steps, by_category = live
    fig = charts.figure(250)
    for name, values in by_category.items():
        filled: dict[str, Any] = {"stackgroup": "live", "mode": "none", "fillcolor": CATEGORY_COLOURS[name]}
        charts.add_curve(fig, steps, values, name, CATEGORY_COLOURS[name], **filled)
    reserved = [history.reserved.at(sample) for sample in steps]
    charts.add_curve(fig, steps, reserved, "reserved", charts.BAD)
    fig.add_vline(step, line_width=1, line_dash="dot")
    fig.update_xaxes(charts.steps_axis(shown.plan.steps))
    fig.update_yaxes(charts.bytes_axis(max([*reserved, 1])), fixedrange=True)
    fig.update_layout(showlegend=True, legend={**charts.LEGEND, "traceorder": "normal"})
    return fig


def _totals(history: History, key: str, step: int) -> str:
    groups = history.totals(key, step)
    live = sum(group.size for group in groups)
    rows = []
    for group in groups[:MOST_ROWS]:
        colour = CATEGORY_COLOURS.get(group.name)
        swatch = f'<span class="swatch" style="background:{colour}"></span> ' if colour else ""
        name = swatch + markup.esc(numbers.shortened(group.name, 60))
        rows.append([name, markup.size(group.size), markup.esc(numbers.percent(group.size, live)), f"{group.count:,}"])
    heading = markup.heading(f"Live bytes by {key}", f"{numbers.of(len(rows), len(groups), 'row')}, largest first")
    return heading + markup.table([key, "live", "share", "buffers"], rows, numbers=(1, 2, 3))
