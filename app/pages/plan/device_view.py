"""The view Device: all arenas end to end in one memory."""

from __future__ import annotations

import streamlit as st

from app.canvas.plan_component import Memory, PlanHandle
from app.kit.charts import chart_base
from app.kit.charts.device_chart import laid_out, together
from app.kit.tensor import plan_drawing, tensor_card
from app.session import plan_rows, state
from app.session.planning import Shown
from app.texts import markup, numbers, totals_text


def draw(shown: Shown) -> None:
    """Draw the view."""
    _body(shown, plan_drawing.store(shown))


@st.fragment
def _body(shown: Shown, handle: PlanHandle) -> None:
    plan, device = shown.plan, capacity(shown)
    left, right = st.columns([0.755, 0.245], gap="small")
    with left:
        plan_drawing.canvas(
            handle,
            key="device",
            height=400,
            room=268,
            arena=None,
            view="map",
            colour=state.choice().colour or "arena",
            strip=False,
            memory=Memory(laid_out(plan), device),
        )
        st.html(markup.heading("Live bytes of all arenas, stacked", f"peak at {totals_text.peak_at(plan)}"))
        figure = chart_base.phase_bands(together(plan, device), plan_rows.bands(shown))
        st.plotly_chart(figure, key=f"device.{shown.key}.{device}", config=chart_base.CONFIG)
    with right, st.container(key="beside"):
        tensor_card.panel(shown)
    state.write_link()


def capacity(shown: Shown) -> int | None:
    """Return the device size in bytes: the budget, else the sum of capacities if every arena has one, else ``None``."""
    if shown.choice.budget is not None:
        return shown.choice.budget
    limits = [arena.capacity_bytes for arena in shown.plan.arenas]
    return sum(limits) if limits and all(limit < numbers.UNLIMITED for limit in limits) else None
