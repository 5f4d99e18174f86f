"""The range of steps chosen on the curve: its buffers and their bytes."""

import pandas as pd
import streamlit as st

from app.kit import arena_focus
from app.kit.tensor import tensor_table
from app.session import plan_rows, state
from app.session.planning import Shown
from app.session.view_state import span_of
from app.texts import markup, numbers


def draw(shown: Shown) -> None:
    """Draw the sums and the buffers of the chosen range; nothing without one."""
    span = span_of(state.choice().span)
    arena = arena_focus.arena(shown)
    if span is None or span[0] >= shown.plan.steps or not arena:
        return
    found = plan_rows.over_steps(shown, span, arena)
    first, end = span
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="step-range"):
        st.html(
            markup.heading(
                f"Steps {numbers.live_range(first, end)} of {arena}: {numbers.count(len(found.rows), 'buffer')}, "
                f"peak {numbers.short_bytes(found.peak)} at {numbers.step(found.peak_step)}, "
                f"mean {numbers.short_bytes(found.mean)}",
                "most bytes × steps first; click a row to select",
            )
        )
        st.button("✕", key="no-range", help="Clear the range", type="tertiary", on_click=lambda: state.choose(span=""))
    listed = found.rows[: tensor_table.MOST_ROWS]
    plan, whole = shown.plan, found.byte_steps
    table = pd.DataFrame(
        {
            "tensor": [plan.tensor_ids[row] for row, _, _ in listed],
            "size": [size for _, size, _ in listed],
            "steps in range": [steps for _, _, steps in listed],
            "share of bytes × steps": [numbers.percent(size * steps, whole) for _, size, steps in listed],
            "first write": [int(plan.birth[row]) for row, _, _ in listed],
            "freed": [int(plan.death[row]) for row, _, _ in listed],
        }
    )
    tensor_table.selectable(table, f"range.{shown.key}.{arena}.{first}.{end}", state.choice().selected, height=260)
