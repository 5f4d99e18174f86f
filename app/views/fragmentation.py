"""Fragmentation: where does the extent go that is not alive?"""

from __future__ import annotations

import pandas as pd
import streamlit as st

from app.charts import base, waste
from app.parts import focus, frame, pictures, selected, tensors, verdict
from app.parts import ledger as resources
from app.say import glossary, markup, words
from app.session import placed, state
from app.session.jobs import remembered
from app.session.planning import Shown
from tmmu_core.plan.analysis.tenants import SlotReport, slot_reports
from tmmu_core.plan.analysis.waste import ACCOUNTS, WasteLedger, waste_ledger
from tmmu_core.plan.model import Plan


def page() -> None:
    """The page, top down."""
    shown = frame.shown()
    if not focus.arena(shown) or not shown.plan.steps:
        st.html(markup.empty("Nothing is wasted", "This plan has no tensors. Open another graph above."))
        return
    body(shown)


@remembered
def ledger(key: str, arena: str, _shown: Shown) -> WasteLedger:
    """The arena's accounts over all steps."""
    del key
    return waste_ledger(_shown.plan, arena)


@remembered
def reports(key: str, arena: str, _shown: Shown) -> tuple[SlotReport, ...]:
    """The arena's slots."""
    del key
    return slot_reports(_shown.plan, arena)


@st.fragment
def body(shown: Shown) -> None:
    """Follows the chosen arena and step."""
    plan, arena = shown.plan, focus.arena(shown)
    summary = plan.arena_of[arena]
    step = focus.step_and_arena(shown, arena)
    accounts = ledger(shown.key, arena, shown)
    now = accounts.at(step)
    st.html(markup.claim(claim(arena, summary.extent_bytes, step, now), verdict.chips(shown)))
    focus.step_controls(shown, arena)
    left, right = st.columns([0.62, 0.38], gap="medium")
    with left:
        st.html(markup.heading("The extent, account by account, over the steps", "the five sum to the extent exactly"))
        figure = waste.ledger_over_time(plan, accounts, step=step, height=340)
        base.phase_bands(figure, placed.bands(shown))
        base.clickable(figure, [summary.extent_bytes] * len(accounts.steps), accounts.steps.tolist())
        figure.update_layout(hovermode="x unified")
        key, camera = f"ledger.{shown.key}.{arena}.{step}", pictures.camera()
        st.plotly_chart(figure, key=key, config=camera, on_select=lambda: _picked(key), selection_mode="points")
    with right:
        st.html(markup.heading(f"At {words.step(step, plan.node_at(step))}", "from what is alive up to the extent"))
        st.plotly_chart(
            waste.waterfall(now, summary.extent_bytes, height=340),
            key=f"waterfall.{shown.key}.{arena}.{step}",
            config=pictures.camera(alone=True),
        )
    st.html(_accounts(now, summary.extent_bytes))
    slots(shown, arena)
    resources.section(shown)
    state.write_link()


def claim(arena: str, extent: int, step: int, now: dict[str, int]) -> str:
    """``25 % of activations is not alive at #13: most of it holes``."""
    idle = extent - now["live"]
    if not idle:
        return f"Every byte of {arena} is alive at {words.step(step)}"
    most = max(ACCOUNTS[1:], key=lambda account: (now[account], account))
    return (
        f"{words.percent(idle, extent)} of the extent of {arena} is not alive at {words.step(step)}: "
        f"{words.short_bytes(idle)}, most of it {base.ACCOUNT_NAMES[most]}"
    )


def _accounts(now: dict[str, int], extent: int) -> str:
    rows = [
        [
            f'<span style="color:{base.ACCOUNT_COLOURS[account]}">■</span> ' + markup.esc(base.ACCOUNT_NAMES[account]),
            markup.esc(words.full_bytes(now[account])),
            markup.esc(words.percent(now[account], extent)),
            markup.esc(glossary.define(base.ACCOUNT_NAMES[account])),
        ]
        for account in ACCOUNTS
    ]
    rows.append(["<b>extent</b>", f"<b>{markup.esc(words.full_bytes(extent))}</b>", "100 %", "their sum, to the byte"])
    return markup.table(["account", "bytes at this step", "of the extent", "what it is"], rows, numbers=(1, 2))


def slots(shown: Shown, arena: str) -> None:
    """Slot by slot: the backing against its tenants."""
    if not shown.plan.has_slots:
        st.html(markup.heading("No slots to look into", words.WHY_NO_SLOTS))
        if state.choice().selected:
            selected.panel(shown)
        return
    found = reports(shown.key, arena, shown)
    drawn = min(len(found), waste.MOST_SLOTS)
    unused = sum(r.unused_byte_steps for r in found)
    left, right = st.columns([0.5, 0.5], gap="medium")
    with left:
        st.html(
            markup.heading(
                "Slots against their tenants" if unused else "Every tenant fills its slot",
                f"{drawn:,} of {words.count(len(found), 'slot')} drawn, the most wasteful first; "
                "bar: the slot's bytes, tick: a tenant's",
            )
        )
        figure = waste.slots_against_tenants(found)
        figure.update_layout(clickmode="event+select")
        key, camera = f"slots.{shown.key}.{arena}", pictures.camera()
        st.plotly_chart(
            figure, key=key, config=camera, on_select=lambda: _tenant(key, shown.plan), selection_mode="points"
        )
    with right:
        st.html(
            markup.heading("Slot by slot", "byte-steps: unused bytes × steps alive; a click selects the largest tenant")
        )
        _slot_table(shown, found, int(figure.layout.height) - 40)
        if state.choice().selected:
            selected.panel(shown)


def _slot_table(shown: Shown, found: tuple[SlotReport, ...], height: int) -> None:
    listed = waste.by_waste(found)[: tensors.MOST_ROWS]
    frame_ = pd.DataFrame(
        {
            "slot": [r.slot for r in listed],
            "offset": [r.offset_bytes for r in listed],
            "backing": [r.backing_bytes for r in listed],
            "tenants": [len(r.tenants) for r in listed],
            "busy steps": [r.busy_steps for r in listed],
            "unused byte-steps": [float(r.unused_byte_steps) for r in listed],
            "tensor": [max(r.tenants, key=lambda t: (t.size_bytes, t.tensor_id)).tensor_id for r in listed],
        }
    )
    tensors.selectable(frame_, f"slot-table.{shown.key}", state.choice().selected, height=height)


def _picked(key: str) -> None:
    event = state.raw(key)
    step = base.clicked_step(event["selection"]["points"] if event else [])
    if step is not None:
        state.choose(step=step)


def _tenant(key: str, plan: Plan) -> None:
    event = state.raw(key)
    points = event["selection"]["points"] if event else []
    name = base.clicked_tensor(points, plan.tensor_ids)
    if name is not None and points[0].get("curve_number") == 1:  # a tenant; curve 0 is the slots' backing
        state.choose(selected=name)


page()
