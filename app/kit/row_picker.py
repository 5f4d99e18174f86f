"""A data table in which a click on any cell selects its row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pandas as pd

from app.kit.data_table import sheet
from app.session import state

HEIGHT = 330
"""Default maximum height of a table in pixels."""


class Picks(NamedTuple):
    """Selection of a table."""

    key: str
    """Widget key of the table."""
    marked: tuple[int, str] | None
    """Row and column of the selected cell."""
    picked: Callable[[tuple[int, str] | None], None]
    """Callback with the clicked cell, or ``None`` when the selection is cleared."""


def pickable(frame: pd.DataFrame, picks: Picks, columns: dict[str, Any], *, height: int = HEIGHT) -> None:
    """Draw ``frame`` with the column configuration ``columns``, at most ``height`` pixels high."""
    cells = [] if picks.marked is None else [picks.marked]
    state.put(picks.key, {"selection": {"rows": [], "columns": [], "cells": cells}})
    sheet(
        frame,
        key=picks.key,
        height=min(height, 38 + 28 * max(1, len(frame))),
        on_select=lambda: picks.picked(_clicked(picks.key)),
        selection_mode="single-cell",
        column_config=columns,
    )


def _clicked(key: str) -> tuple[int, str] | None:
    event: Any = state.raw(key)
    cells = event["selection"]["cells"] if event else []
    return cells[0] if cells else None
