"""Tables with a callback for clicked cells. Texts are escaped, so that a spreadsheet reads no text as a formula."""

from collections.abc import Callable
from typing import Any

import pandas as pd
import streamlit as st
from pandas.api.types import is_numeric_dtype

from app.session import state
from app.texts.glossary import define
from tmmu_core.base.escaping import for_cell
from tmmu_core.graph.model import INPUTS_STEP

HEIGHT = 330  # pixels
TITLES = {"hex": "offset (hex)"} | {n: f"{n} (B)" for n in ("size", "padded", "offset", "saved", "transferred")}
WIDTHS: dict[str, Any] = {"tensor": "medium", "operator": 130, "details": "large"}
WITHOUT_SEPARATORS = ("step", "slot", "use of slot")  # number columns without thousands separators
Cell = tuple[int, str]  # row number and column name


def selectable(
    frame: pd.DataFrame,
    key: str,
    selected: Cell | None,
    on_click: Callable[[Cell | None], None],
    *,
    height: int = HEIGHT,
) -> None:
    """Draw a table with selectable cells. ``on_click`` receives the clicked cell, or ``None`` without a selection."""

    def changed() -> None:
        event: Any = state.raw(key)
        clicked = event["selection"]["cells"] if event else []
        on_click(clicked[0] if clicked else None)

    state.put(key, {"selection": {"rows": [], "columns": [], "cells": [] if selected is None else [selected]}})
    height = min(height, 38 + 28 * max(1, len(frame)))
    options = {"on_select": changed, "selection_mode": "single-cell", "column_config": column_config(frame)}
    show(frame, key=key, height=height, **options)


def column_config(frame: pd.DataFrame) -> dict[str, Any]:
    """Return the configuration of the columns: titles, glossary definitions as hover texts, and number formats."""
    config = {}
    for name in frame.columns:
        options: dict[str, Any] = {"label": TITLES.get(name), "help": define(name) or None, "width": WIDTHS.get(name)}
        if not is_numeric_dtype(frame[name].dtype):
            config[name] = st.column_config.TextColumn(**options)
        elif name in WITHOUT_SEPARATORS:
            config[name] = st.column_config.Column(**options)
        else:
            config[name] = st.column_config.NumberColumn(**options, format="localized")
    return config


def show(frame: pd.DataFrame, **options: Any) -> None:
    """Draw a table. Texts that a spreadsheet would read as formulas get an apostrophe, except ``@inputs``."""

    def escape(cell: object) -> object:
        return for_cell(cell) if isinstance(cell, str) and cell != INPUTS_STEP else cell

    escaped = frame.copy()
    for name in frame.select_dtypes(exclude="number"):
        escaped[name] = frame[name].map(escape)
    st.dataframe(escaped, row_height=28, hide_index=True, **options)
