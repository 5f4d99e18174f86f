"""The table of tensors: sorted by a click on a column, filtered by the search, a click selects."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from app.say import markup, words
from app.session import state
from tmmu_core.plan.metrics import arena_number
from tmmu_core.plan.model import Plan

MOST_ROWS = 5_000


def matching(plan: Plan, search: str, arena: str | None = None) -> np.ndarray:
    """Rows (of one arena, or of all) whose id, role, dtype or arena holds every word of the search; largest first."""
    terms = search.lower().split()
    if not terms:
        rows = np.arange(len(plan), dtype=np.int64)
    else:
        arenas = [arena.name for arena in plan.arenas]
        texts = (
            f"{name} {role} {dtype} {arenas[a]}".lower()
            for name, role, dtype, a in zip(plan.tensor_ids, plan.roles, plan.dtypes, plan.arena.tolist(), strict=True)
        )
        rows = np.array([i for i, text in enumerate(texts) if all(term in text for term in terms)], np.int64)
    if arena is not None:
        rows = rows[plan.arena[rows] == arena_number(plan, arena)]
    return rows[np.lexsort((rows, np.uint64(words.UNLIMITED) - plan.size[rows]))]


def frame_of(plan: Plan, rows: np.ndarray) -> pd.DataFrame:
    """The columns of the table for some rows."""
    arenas = np.array([arena.name for arena in plan.arenas] or [""])
    ids = rows.tolist()
    frame = pd.DataFrame(
        {
            "tensor": [plan.tensor_ids[i] for i in ids],
            "role": [plan.roles[i] for i in ids],
            "arena": arenas[plan.arena[rows]] if len(rows) else [],
            "size": plan.size[rows],
            "offset": plan.offset[rows],
            "hex": [f"0x{n:X}" for n in plan.offset[rows].tolist()],
            "slot": plan.logical_slot[rows],
            "tenant": plan.generation[rows] + 1,
            "birth": plan.birth[rows],
            "death": plan.death[rows],
            "steps": plan.death[rows] - plan.birth[rows],
            "dtype": [plan.dtypes[i] for i in ids],
            "shape": [words.shape(plan.shapes[i]) for i in ids],
            "view of": [plan.base_tensor_uids[i] or "" for i in ids],
        }
    )
    return frame if plan.has_slots else frame.drop(columns=["slot", "tenant"])


def by_size(plan: Plan, rows: np.ndarray) -> np.ndarray:
    """Rows by size falling, those of one size by name as people count."""
    sizes = plan.size
    return np.array(sorted(rows.tolist(), key=lambda i: (-int(sizes[i]), words.natural(plan.tensor_ids[i]))), np.int64)


@st.cache_data(show_spinner=False, max_entries=32)
def _frame(plan_key: str, search: str, arena: str | None, _plan: Plan) -> tuple[pd.DataFrame, int]:
    del plan_key
    rows = matching(_plan, search, arena)
    return frame_of(_plan, by_size(_plan, rows[:MOST_ROWS])), len(rows)


def table(plan: Plan, plan_key: str, arena: str | None, *, search: str, selected: str, height: int = 330) -> None:
    """Draw the table of one arena, or of all; a click on a row selects its tensor everywhere."""
    frame, hits = _frame(plan_key, search, arena, plan)
    note = f"{words.of(len(frame), len(plan), 'tensor')} listed, the largest first"
    note += f"; {hits:,} match “{search}”" if search else ""
    note += f"; {hits - len(frame):,} smaller ones left out" if hits > len(frame) else ""
    st.html(
        markup.heading(f"Tensors of {arena}" if arena else "Tensors", f"{note}; click a head to sort, a row to select")
    )
    if not len(frame):
        st.html(markup.empty("No tensor matches", f"Nothing in this plan is called like “{search}”."))
        return
    selectable(frame, f"table.{plan_key}.{arena}.{search}", selected, height=height)


def selectable(frame: pd.DataFrame, key: str, selected: str, *, height: int) -> None:
    """A table with a column ``tensor``: the selected one is marked, a click anywhere in a row selects.

    Cells are what is selected: a column of boxes to tick would push the others aside, and ask for a second aim.
    """
    at = np.flatnonzero(frame["tensor"].to_numpy() == selected) if selected else np.zeros(0, np.int64)
    state.put(key, {"selection": {"rows": [], "columns": [], "cells": [(int(i), "tensor") for i in at[:1]]}})
    st.dataframe(
        frame,
        key=key,
        height=min(height, 38 + 28 * max(1, len(frame))),
        hide_index=True,
        row_height=28,
        on_select=lambda: _selected(key, frame),
        selection_mode="single-cell",
        column_config={
            "tensor": st.column_config.TextColumn(width="medium"),
            "size": st.column_config.NumberColumn("size (B)", format="localized"),
            "offset": st.column_config.NumberColumn("offset (B)", format="localized"),
            "birth": st.column_config.NumberColumn(format="localized"),
            "death": st.column_config.NumberColumn(format="localized"),
            "steps": st.column_config.NumberColumn(format="localized"),
            "operator": st.column_config.TextColumn(width=130),
            "tenants": st.column_config.NumberColumn(format="localized"),
            "busy steps": st.column_config.NumberColumn(format="localized"),
            "hex": st.column_config.TextColumn("offset (hex)"),
            "backing": st.column_config.NumberColumn("backing (B)", format="localized"),
            "unused byte-steps": st.column_config.NumberColumn(format="localized"),
            "bytes in": st.column_config.NumberColumn("bytes in", format="localized"),
            "bytes out": st.column_config.NumberColumn("bytes out", format="localized"),
        },
    )


def _selected(key: str, frame: pd.DataFrame) -> None:
    ev: Any = state.raw(key)
    cells = ev["selection"]["cells"] if ev else []
    state.choose(selected=str(frame["tensor"].iloc[cells[0][0]]) if cells else "")
