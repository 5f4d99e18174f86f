"""The curve of the chosen arena; a click selects a step."""

from __future__ import annotations

import streamlit as st

from app.kit.charts import chart_base
from app.kit.charts.live_chart import live_curve
from app.session import plan_rows, state
from app.session.planning import Shown
from tmmu_core.plans.analysis.waste_ledger import WasteLedger


def draw(shown: Shown, arena: str, step: int, ledger: WasteLedger | None = None) -> None:
    """Draw live bytes, or with a ledger the accounts of the arena size."""
    figure = live_curve(shown.plan, arena, step=step, height=240, ledger=ledger)
    key = f"steps.{shown.key}.{arena}.{step}.{ledger is not None}"
    st.plotly_chart(
        chart_base.phase_bands(figure, plan_rows.bands(shown)),
        key=key,
        config=chart_base.CONFIG,
        on_select=lambda: _picked(key),
        selection_mode="points",
    )


def _picked(key: str) -> None:
    event = state.raw(key)
    step = chart_base.clicked_step(event["selection"]["points"] if event else [])
    if step is not None:
        state.choose(step=step)
