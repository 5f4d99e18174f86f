"""The view Fragmentation: the bytes of an arena at one step by account (live, holes, …), and a table of its slots."""

import pandas as pd
import streamlit as st

from app.kit import arena_focus
from app.kit.tensor import tensor_table
from app.report.pictures import ACCOUNT_LOOKS
from app.session import state
from app.session.planning import Shown
from app.session.work.jobs import job_table
from app.texts import glossary, markup, numbers
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
