"""Data tables with a callback for clicked cells, and with cells that are safe in a spreadsheet after a download."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pandas as pd
import streamlit as st

from app.session import state
from tmmu_core.base.escaping import for_cell
from tmmu_core.graph.model import INPUTS_STEP

HEIGHT = 330
"""Default maximum height of a table in pixels."""


class Picks(NamedTuple):
    """The selection of a table and its callback."""

    key: str
    """Widget key of the table."""
    marked: tuple[int, str] | None
    """Row and column of the selected cell; ``None`` without one."""
    on_click: Callable[[tuple[int, str] | None], None]
    """Called with row and column of the clicked cell, or with ``None`` when the selection is cleared."""


def pickable(frame: pd.DataFrame, picks: Picks, columns: dict[str, Any], *, height: int = HEIGHT) -> None:
    """Draw ``frame`` as a table with selectable cells. ``columns``: configuration; ``height``: maximum in pixels."""

    def changed() -> None:
        event: Any = state.raw(picks.key)
        clicked = event["selection"]["cells"] if event else []
        picks.on_click(clicked[0] if clicked else None)

    cells = [] if picks.marked is None else [picks.marked]
    state.put(picks.key, {"selection": {"rows": [], "columns": [], "cells": cells}})
    show(
        frame,
        key=picks.key,
        height=min(height, 38 + 28 * max(1, len(frame))),
        on_select=changed,
        selection_mode="single-cell",
        column_config=columns,
    )


def show(frame: pd.DataFrame, **options: Any) -> None:
    """Draw ``frame``; ``options``: further arguments of ``st.dataframe``.

    Texts that a spreadsheet reads as formulas get an apostrophe (except ``@inputs``), because the download button of
    ``st.dataframe`` does not escape them.
    """
    escaped = frame.copy()
    for name in escaped.columns[[not pd.api.types.is_numeric_dtype(kind) for kind in escaped.dtypes]]:
        escaped[name] = [
            for_cell(cell) if isinstance(cell, str) and cell != INPUTS_STEP else cell for cell in frame[name]
        ]
    st.dataframe(escaped, row_height=28, hide_index=True, **options)
