"""The view Snapshot: what an allocator recorded, by category, line, stream and pool, and what to change."""

from __future__ import annotations

import re

import plotly.graph_objects as go
import streamlit as st

from app.kit import arena_focus
from app.kit.charts import chart_base
from app.session.planning import Shown
from app.session.work.jobs import remembered
from app.texts import markup, numbers, snapshot_text
from app.texts.palette import CATEGORY_COLOURS
from tmmu_core.formats.pytorch.snapshot.history import KEYS, History, pool_name

MOST_ROWS = 40
ALL_LANES = "all streams and pools"
SAMPLES = 4_000
"""Most points of a curve: narrower changes are not visible."""
_FULL, _HOVER = re.compile(r"(\S+ \wiB) \(([\d,]+ B)\)"), r'<span title="\2">\1</span>'
"""Bytes as ``numbers.full_bytes`` writes them, and as HTML."""


def history_of(shown: Shown) -> History | None:
    """Return the history that came with the plan; ``None`` for a file that is no snapshot."""
    found = shown.opened.recorded
    return found if isinstance(found, History) else None


def draw(shown: Shown) -> None:
    """Draw the view."""
    history = history_of(shown)
    assert history is not None
    step = arena_focus.step_and_arena(shown, arena_focus.arena(shown))
    st.html(markup.claim(claim(history, step)))
    st.plotly_chart(_curve(shown, history, step), key=f"reserved.{shown.key}.{step}", config=chart_base.CONFIG)
    left, right = st.columns([0.5, 0.5], gap="medium")
    with left:
        key = st.segmented_control(
            "Sum by", KEYS, default=KEYS[0], key="w.sum-by", label_visibility="collapsed", required=True
        )
        lane = _lane(history)
        st.html(_totals(history, key or KEYS[0], step, lane))
        st.html(_pools(history))
    with right:
        st.html(_alike(history, step, lane) + markup.heading("Allocation sizes", "bytes of all allocations"))
        st.plotly_chart(_sizes(history), key=f"sizes.{shown.key}", config=chart_base.CONFIG)
    st.html(_advice(shown.key, shown))


def claim(history: History, step: int) -> str:
    """Return the title: ``62.9 GiB reserved, 59.9 GiB live at #3,156; largest: activation 36.8 GiB``."""
    live = history.totals("category", step)
    held = history.reserved.at(step)
    most = f"; largest: {live[0].name} {numbers.short_bytes(live[0].size)}" if live else ""
    total = numbers.short_bytes(sum(one.size for one in live))
    return f"{numbers.short_bytes(held)} reserved, {total} live at #{step:,}{most}"


def _curve(shown: Shown, history: History, step: int) -> go.Figure:
    """Return the bytes of each category over time, stacked, under the reserved bytes."""
    steps, by_category = _live_by_category(shown.key, shown)
    fig = chart_base.figure(250)
    for name, values in by_category.items():
        fig.add_trace(
            go.Scatter(x=steps, y=values, name=name, stackgroup="live", mode="none", line_shape="hv").update(
                fillcolor=CATEGORY_COLOURS[name], hoverinfo="skip"
            )
        )
    reserved = [history.reserved.at(at) for at in steps]
    fig.add_trace(go.Scatter(x=steps, y=reserved, name="reserved", mode="lines", line_shape="hv", line_color="#D55E00"))
    fig.add_vline(step, line_width=1, line_dash="dot")
    fig.update_yaxes(chart_base.bytes_axis(max([*reserved, 1])), fixedrange=True)
    fig.update_layout(showlegend=True, legend={"orientation": "h", "y": 1.12, "x": 0, "traceorder": "normal"})
    return fig


@remembered
def _live_by_category(key: str, _shown: Shown) -> tuple[list[int], dict[str, list[int]]]:
    """Return steps, and the live bytes of each category at them."""
    del key
    history = history_of(_shown)
    assert history is not None
    return history.live_by_category(SAMPLES)


def _lane(history: History) -> int | None:
    """Return the chosen stream and pool, as an index of the history's lanes; ``None`` for all."""
    if len(history.lanes) < 2:
        return None
    names = [pool_name(lane) for lane in history.lanes]
    chosen = st.selectbox("Stream and pool", [ALL_LANES, *names], key="w.lane")
    return names.index(chosen) if chosen in names else None


def _totals(history: History, key: str, step: int, lane: int | None) -> str:
    found = history.totals(key, step, lane)
    whole = sum(one.size for one in found)
    rows = [
        [_named(one.name), _short(one.size), markup.esc(numbers.percent(one.size, whole)), f"{one.count:,}"]
        for one in found[:MOST_ROWS]
    ]
    return markup.table([key, "live", "share", "buffers"], rows, numbers=(1, 2, 3))


def _alike(history: History, step: int, lane: int | None) -> str:
    """Return the table of the largest buffers, equal ones in one row."""
    rows = []
    for total, size, row in history.alike(step, lane)[:12]:
        line, category, _ = total.name.split("\t")
        name = markup.link_to(history.ids[row], markup.esc(numbers.shortened(line, 40)))
        many = f"{total.count:,} × {numbers.short_bytes(size)}" if total.count > 1 else "1"
        rows.append([_swatch(category) + name, _short(total.size), markup.esc(many)])
    return markup.heading("Largest buffers", "equal ones in one row") + markup.table(
        ["line", "bytes", "buffers"], rows, numbers=(1, 2)
    )


def _pools(history: History) -> str:
    rows = [
        [
            markup.esc(pool.name),
            _short(pool.reserved),
            _short(pool.used),
            _short(pool.needed),
            markup.esc(numbers.percent(pool.reserved - pool.needed, pool.reserved)),
        ]
        for pool in history.pools[:MOST_ROWS]
    ]
    head = ["stream and pool", "reserved peak", "in use then", "perfect packing", "not needed"]
    return markup.heading("Streams and pools") + markup.table(head, rows, numbers=(1, 2, 3, 4))


def _sizes(history: History) -> go.Figure:
    """Return the histogram of allocation sizes: bytes by powers of two."""
    found = history.sizes()
    fig = chart_base.figure(170)
    fig.add_trace(
        go.Bar(
            x=[numbers.short_bytes(1 << k) for k, _, _ in found],
            y=[size for _, _, size in found],
            hovertext=[f"{count:,} allocations, {numbers.full_bytes(size)}" for _, count, size in found],
            hoverinfo="text",
        )
    )
    fig.update_yaxes(chart_base.bytes_axis(max([size for _, _, size in found] + [1])), fixedrange=True)
    return fig


@remembered
def _advice(key: str, _shown: Shown) -> str:
    """Return failed allocations and advice; remembered, because the allocator is replayed."""
    del key
    history = history_of(_shown)
    assert history is not None
    lines = [snapshot_text.failure(history, one) for one in history.failures[: snapshot_text.MOST_FAILURES]]
    lines += snapshot_text.advice(history)
    # The exact number of bytes is shown on hover.
    items = "".join(f"<li>{_FULL.sub(_HOVER, markup.esc(line))}</li>" for line in lines)
    return markup.heading("What to change") + f'<div class="tm"><ul>{items}</ul></div>' if lines else ""


def _named(name: str) -> str:
    return _swatch(name) + markup.esc(numbers.shortened(name, 60))


def _swatch(category: str) -> str:
    colour = CATEGORY_COLOURS.get(category)
    return f'<span class="swatch" style="background:{colour}"></span> ' if colour else ""


def _short(size: int) -> str:
    """Return bytes in short form, with the exact number on hover."""
    return f'<span title="{size:,} B">{markup.esc(numbers.short_bytes(size))}</span>'
