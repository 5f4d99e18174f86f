"""Tables with a callback for clicked cells. Their texts are escaped, so that a spreadsheet shows them as texts."""

from collections.abc import Callable
from typing import Any

import pandas as pd
import streamlit as st

from app.session import state
from tmmu_core.base.escaping import for_cell
from tmmu_core.graph.model import INPUTS_STEP

HEIGHT = 330  # pixels
Cell = tuple[int, str]  # row number and column name


def selectable(
    frame: pd.DataFrame,
    key: str,
    selected: Cell | None,
    on_click: Callable[[Cell | None], None],
    *,
    columns: dict[str, Any],
    height: int = HEIGHT,
) -> None:
    """Draw a table with selectable cells. ``on_click`` receives the clicked cell, or ``None`` without a selection."""

    def changed() -> None:
        event: Any = state.raw(key)
        clicked = event["selection"]["cells"] if event else []
        on_click(clicked[0] if clicked else None)

    state.put(key, {"selection": {"rows": [], "columns": [], "cells": [] if selected is None else [selected]}})
    height = min(height, 38 + 28 * max(1, len(frame)))
    show(frame, key=key, height=height, on_select=changed, selection_mode="single-cell", column_config=columns)


def show(frame: pd.DataFrame, **options: Any) -> None:
    """Draw a table. Texts that a spreadsheet would read as formulas get an apostrophe, except ``@inputs``."""

    def escape(cell: object) -> object:
        return for_cell(cell) if isinstance(cell, str) and cell != INPUTS_STEP else cell

    escaped = frame.copy()
    for name in frame.select_dtypes(exclude="number"):
        escaped[name] = frame[name].map(escape)
    st.dataframe(escaped, row_height=28, hide_index=True, **options)
