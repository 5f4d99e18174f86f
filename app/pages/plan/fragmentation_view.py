"""The view Fragmentation: the bytes of an arena at one step by account (live, holes, …), and a table of its slots."""

from functools import partial
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from app.kit import arena_focus, charts, controls
from app.kit.tensor import tensor_table
from app.report.pictures import ACCOUNT_LOOKS
from app.session import state
from app.session.planning import Shown
from app.session.work.jobs import job_table
from app.texts import glossary, markup, numbers
from app.texts.palette import CATEGORY_COLOURS
from tmmu_core.formats.pytorch.snapshot.history import KEYS, History
from tmmu_core.plans.analysis.waste_ledger import ACCOUNTS, slot_reports, waste_ledger


def draw(shown: Shown) -> None:
    """Draw the bytes of each account at the shown step, and the table of slots."""
    plan, arena = shown.plan, arena_focus.arena(shown)
    extent = plan.arena_of[arena].extent_bytes
    step = arena_focus.step_of(shown)
    account_bytes = waste_ledger(plan, arena).at(step)
    st.html(markup.claim(claim(arena, extent, step, account_bytes)))
    rows = []
    for account in ACCOUNTS:
        (name, colour, _), size = ACCOUNT_LOOKS[account], account_bytes[account]
        cells = (numbers.full_bytes(size), numbers.percent(size, extent), glossary.define(name))
        rows.append([f'<span style="color:{colour}">■</span>&nbsp;{name}', *map(markup.esc, cells)])
    rows.append(["<b>arena size</b>", f"<b>{numbers.full_bytes(extent)}</b>", "100 %", "sum of all rows"])
    st.html(markup.table(["use", "bytes at this step", "share", "definition"], rows, numbers=(1, 2)))
    slots(shown, arena)


def claim(arena: str, extent: int, step: int, account_bytes: dict[str, int]) -> str:
    """Return the title: ``At #13, 1.20 MiB (25 %) of activations are unused, mostly holes``."""
    unused = extent - account_bytes["live"]
    if not unused:
        return f"At {numbers.step(step)}, all {numbers.short_bytes(extent)} of {arena} are live"
    largest = max(ACCOUNTS[1:], key=lambda account: (account_bytes[account], account))
    share = f"{numbers.short_bytes(unused)} ({numbers.percent(unused, extent)}) of {arena}"
    return f"At {numbers.step(step)}, {share} are unused, mostly {ACCOUNT_LOOKS[largest][0]}"


def slots(shown: Shown, arena: str) -> None:
    """Draw the table of slots, or why the plan has none."""
    if not shown.plan.has_slots:
        st.html(markup.heading("No slots", numbers.WHY_NO_SLOTS))
        return
    note = "sorted by unused bytes × steps; click a row to select the largest tensor of the slot"
    st.html(markup.heading("Slots", note))
    reports = job_table().cache.get_or_make(("slots", shown.key, arena), lambda: slot_reports(shown.plan, arena))
    listed = sorted(reports, key=lambda r: (-r.unused_byte_steps, r.slot))[: tensor_table.MOST_ROWS]
    frame = pd.DataFrame(
        {
            "slot": [r.slot for r in listed],
            "offset": [r.offset_bytes for r in listed],
            "size": [r.backing_bytes for r in listed],
            "tensors": [r.tenants for r in listed],
            "busy steps": [r.busy_steps for r in listed],
            "unused bytes × steps": [float(r.unused_byte_steps) for r in listed],
            "tensor": [r.largest for r in listed],
        }
    )
    tensor_table.selectable(frame, f"slot-table.{shown.key}", state.choice().selected, height=420)


MOST_ROWS = 40
SAMPLES = 4_000  # points of a curve; a screen does not show more


def history_of(shown: Shown) -> History | None:
    """Return the recorded history in the plan's file; ``None`` for a file that is not a PyTorch snapshot."""
    recorded = shown.opened.instance.recorded if shown.opened.instance is not None else None
    return recorded if isinstance(recorded, History) else None


def draw_snapshot(shown: Shown) -> None:
    """Draw the curves, and a table that groups the live bytes at the shown step by one of :data:`KEYS`."""
    history = history_of(shown)
    assert history is not None
    step = arena_focus.step_of(shown)
    st.html(markup.claim(snapshot_claim(history, step)))
    live = job_table().cache.get_or_make(("live by category", shown.key), partial(history.live_by_category, SAMPLES))
    charts.draw_chart(_curve(shown, history, step, live), f"reserved.{shown.key}.{step}")
    key = controls.switch("Sum by", KEYS, default=KEYS[0], key="w.sum-by")
    st.html(_totals(history, key or KEYS[0], step))


def snapshot_claim(history: History, step: int) -> str:
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
