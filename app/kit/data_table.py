"""Data tables that are safe to download as CSV: Streamlit's download does not escape spreadsheet formulas."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from tmmu_core.base.escaping import for_cell
from tmmu_core.graph.model import INPUTS_STEP


def sheet(frame: pd.DataFrame, **how: Any) -> None:
    """Draw ``frame`` with formula-like texts escaped by an apostrophe. ``how``: arguments of ``st.dataframe``."""
    st.dataframe(harmless(frame), row_height=28, hide_index=True, **how)


def harmless(frame: pd.DataFrame) -> pd.DataFrame:
    """Return ``frame`` with formula-like texts escaped, except ``@inputs``."""
    shown = frame.copy()
    for name in shown.columns[[not pd.api.types.is_numeric_dtype(kind) for kind in shown.dtypes]]:
        shown[name] = [_cell(cell) for cell in frame[name]]
    return shown


def _cell(cell: Any) -> Any:
    return for_cell(cell) if isinstance(cell, str) and cell != INPUTS_STEP else cell
