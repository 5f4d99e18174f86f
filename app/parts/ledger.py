"""The resource ledger (seed II.J): counters per step over all arenas, as a chart and as rows."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from app.charts import base
from app.charts.ledger import ledger_chart
from app.parts import pictures
from app.parts.sheets import sheet
from app.say import glossary, markup, words
from app.session import placed
from app.session.jobs import remembered
from app.session.planning import Shown
from tmmu_core.plan.analysis.ledger import ResourceLedger, resource_ledger

MOST_ROWS = 20_000


@remembered
def ledger(key: str, _shown: Shown) -> ResourceLedger:
    """The counters of a plan."""
    del key
    return resource_ledger(_shown.plan)


def section(shown: Shown) -> None:
    """Chart and rows."""
    plan = shown.plan
    if not plan.steps:
        return
    found = ledger(shown.key, shown)
    failures = int(found.allocation_failures[-1])
    st.html(
        f'<div title="{markup.esc(glossary.define("resource ledger"))}">'
        + markup.heading(
            f"Resource ledger: {words.short_bytes(int(found.peak_bytes[-1]))} at the end, "
            f"{words.count(failures, 'allocation failure')}",
            "over all arenas; filled: bytes allocated, line: peak bytes so far; below, internal fragmentation",
        )
        + "</div>"
    )
    left, right = st.columns([0.56, 0.44], gap="medium")
    with left:
        drawn = base.phase_bands(ledger_chart(plan, found), placed.bands(shown))
        st.plotly_chart(drawn, key=f"resources.{shown.key}", config=pictures.camera())
    with right:
        sheet(
            frame(found, shown),
            height=310,
            column_config={
                name: st.column_config.NumberColumn(name, format="localized")
                for name in ("bytes_allocated", "peak_bytes")
            }
            | {"internal_fragmentation_ratio": st.column_config.NumberColumn(format="%.4f")},
        )
        if len(found.steps) > MOST_ROWS:
            st.caption(f"{words.of(MOST_ROWS, len(found.steps), 'step')} listed.")


def frame(found: ResourceLedger, shown: Shown) -> pd.DataFrame:
    """The rows, keys as the seed names them."""
    steps = min(len(found.steps), MOST_ROWS)
    listed = found.steps[:steps].tolist()
    return pd.DataFrame(
        {
            "t": listed,
            "node": [shown.plan.node_at(t) for t in listed],
            "bytes_allocated": found.bytes_allocated[:steps],
            "peak_bytes": found.peak_bytes[:steps],
            "allocation_failures": found.allocation_failures[:steps],
            "internal_fragmentation_ratio": found.internal_fragmentation_ratio[:steps],
        }
    )
