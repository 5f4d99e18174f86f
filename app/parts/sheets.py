"""Tables that can be sorted and taken away: drawn here alone, for what a table's own button downloads is CSV.

Streamlit writes that CSV in the browser, cell by cell as it is, and a spreadsheet computes what looks like a formula.
"""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from tmmu_core.graph.model import INPUTS_STEP
from tmmu_core.names import for_cell


def sheet(frame: pd.DataFrame, **how: Any) -> None:
    """Draw ``frame``; texts that a spreadsheet would compute are led by an apostrophe. ``how`` as ``st.dataframe``."""
    st.dataframe(harmless(frame), row_height=28, hide_index=True, **how)


def harmless(frame: pd.DataFrame) -> pd.DataFrame:
    """The same cells, none of which a spreadsheet computes. ``@inputs`` is ours, and computes nothing."""
    shown = frame.copy()
    for name in shown.columns[[not pd.api.types.is_numeric_dtype(kind) for kind in shown.dtypes]]:
        shown[name] = [_cell(cell) for cell in frame[name]]
    return shown


def _cell(cell: Any) -> Any:
    return for_cell(cell) if isinstance(cell, str) and cell != INPUTS_STEP else cell
