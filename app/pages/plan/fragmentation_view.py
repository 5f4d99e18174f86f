"""The view Fragmentation: bytes of an arena that hold no live tensor, by cause."""

import pandas as pd
import streamlit as st

from app.kit import arena_focus
from app.kit.tensor import tensor_table
from app.report.pictures import ACCOUNT_LOOKS
from app.session import state
from app.session.planning import Shown
from app.session.work.jobs import remembered
from app.texts import glossary, markup, numbers
from tmmu_core.plans.analysis.waste_ledger import ACCOUNTS, SlotReport, WasteLedger, slot_reports, waste_ledger


@remembered
def ledger(shown: Shown, arena: str) -> WasteLedger:
    """Return the bytes of each use (live, padding, holes, …) of an arena at every step."""
    return waste_ledger(shown.plan, arena)


@remembered
def reports(shown: Shown, arena: str) -> tuple[SlotReport, ...]:
    """Return a report of each slot of an arena."""
    return slot_reports(shown.plan, arena)


def draw(shown: Shown) -> None:
    """Draw the bytes of each use at the shown step, and the table of slots."""
    plan, arena = shown.plan, arena_focus.arena(shown)
    extent = plan.arena_of[arena].extent_bytes
    step = arena_focus.step_of(shown, arena)
    now = ledger(shown, arena).at(step)
    st.html(markup.claim(claim(arena, extent, step, now)))
    st.html(_accounts(now, extent))
    slots(shown, arena)


def claim(arena: str, extent: int, step: int, now: dict[str, int]) -> str:
    """Return the title: ``25 % of activations holds no live tensor at #13: 1.2 MiB, mostly holes``."""
    unused = extent - now["live"]
    if not unused:
        return f"All {numbers.short_bytes(extent)} of {arena} are live at {numbers.step(step)}"
    largest = max(ACCOUNTS[1:], key=lambda account: (now[account], account))
    return (
        f"{numbers.percent(unused, extent)} of {arena} holds no live tensor at {numbers.step(step)}: "
        f"{numbers.short_bytes(unused)}, mostly {ACCOUNT_LOOKS[largest][0]}"
    )


def _accounts(now: dict[str, int], extent: int) -> str:
    rows = []
    for account in ACCOUNTS:
        name, colour, _ = ACCOUNT_LOOKS[account]
        cells = (numbers.full_bytes(now[account]), numbers.percent(now[account], extent), glossary.define(name))
        rows.append([f'<span style="color:{colour}">■</span> {name}', *map(markup.esc, cells)])
    rows.append(["<b>arena size</b>", f"<b>{numbers.full_bytes(extent)}</b>", "100 %", "sum of all rows"])
    return markup.table(["use", "bytes at this step", "share", "definition"], rows, numbers=(1, 2))


def slots(shown: Shown, arena: str) -> None:
    """Draw the table of slots."""
    if not shown.plan.has_slots:
        st.html(markup.heading("No slots", numbers.WHY_NO_SLOTS))
        return
    st.html(
        markup.heading("Slots", "most unused bytes × steps first; click a row to select the largest tensor of the slot")
    )
    listed = sorted(reports(shown, arena), key=lambda r: (-r.unused_byte_steps, r.slot))[: tensor_table.MOST_ROWS]
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
