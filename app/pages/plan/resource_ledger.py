"""The resource ledger (seed II.J): counters per step over all arenas, as a table."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from app.kit.data_table import sheet
from app.session.planning import Shown
from app.session.work.jobs import remembered
from app.texts import glossary, markup, numbers
from tmmu_core.plans.analysis.resource_ledger import ResourceLedger, resource_ledger

MOST_ROWS = 20_000


@remembered
def ledger(key: str, _shown: Shown) -> ResourceLedger:
    """Return the counters of a plan."""
    del key
    return resource_ledger(_shown.plan)


def section(shown: Shown) -> None:
    """Draw the table."""
    plan = shown.plan
    if not plan.steps:
        return
    found = ledger(shown.key, shown)
    failures = int(found.allocation_failures[-1])
    st.html(
        f'<div title="{markup.esc(glossary.define("resource ledger"))}">'
        + markup.heading(
            f"Resource ledger: {numbers.short_bytes(int(found.peak_bytes[-1]))} peak, "
            f"{numbers.count(failures, 'allocation failure')}",
            "counters per step over all arenas",
        )
        + "</div>"
    )
    sheet(
        frame(found, shown),
        height=310,
        column_config={
            name: st.column_config.NumberColumn(name, format="localized") for name in ("bytes_allocated", "peak_bytes")
        }
        | {"internal_fragmentation_ratio": st.column_config.NumberColumn(format="%.4f")},
    )
    if len(found.steps) > MOST_ROWS:
        st.caption(f"{numbers.of(MOST_ROWS, len(found.steps), 'step')} listed.")


def frame(found: ResourceLedger, shown: Shown) -> pd.DataFrame:
    """Return the rows under the seed's column names."""
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
