"""A table of which a click on any cell picks the row.

Cells are what is picked: a column of boxes to tick would push the others aside, and ask for a second aim.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pandas as pd

from app.parts.sheets import sheet
from app.session import state

HEIGHT = 330
"""Pixels that a table takes at most, where nothing else is said."""


class Picks(NamedTuple):
    """What is picked in a table."""

    key: str
    """Where the table keeps it."""
    marked: tuple[int, str] | None
    """The row and the column of the cell that is marked now."""
    picked: Callable[[tuple[int, str] | None], None]
    """Called with the cell of a click; with nothing where a click takes the mark away."""


def pickable(frame: pd.DataFrame, picks: Picks, columns: dict[str, Any], *, height: int = HEIGHT) -> None:
    """Draw ``frame``, its columns written as ``columns`` says, at most ``height`` pixels high."""
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
