"""Tables with a callback for clicked cells: the table of tensors, and the table of buffers with idle steps."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st
from pandas.api.types import is_numeric_dtype

from app.canvas.component import matches
from app.kit.tensor_card import layer_of
from app.session import plan_rows, state
from app.session.plan_rows import Origins
from app.session.planning import Shown
from app.session.work.jobs import memoized
from app.texts import markup, numbers, tensor_text
from app.texts.markup import define
from tmmu_core.base.escaping import for_cell, natural_key
from tmmu_core.graph.checks import SHAPE_SOURCES
from tmmu_core.graph.model import INPUTS_STEP
from tmmu_core.planners.columns import align_up
from tmmu_core.plans.analysis.plan_notes import residences
from tmmu_core.plans.figures.live_bytes import arena_number
from tmmu_core.plans.model import Plan

HEIGHT = 330  # pixels
TITLES = {"hex": "offset (hex)"} | {n: f"{n} (B)" for n in ("size", "padded", "offset", "saved", "transferred")}
WIDTHS: dict[str, Any] = {"tensor": "medium", "change": 230, "operator": 130, "details": "large"}
WITHOUT_SEPARATORS = ("step", "slot", "order in slot")  # number columns without thousands separators
Cell = tuple[int, str] | None  # row number and column name; ``None``: no cell
MOST_ROWS = 5_000


def clickable_table(
    frame: pd.DataFrame, key: str, selected: Cell, on_click: Callable[[Cell], None], *, height: int = HEIGHT
) -> None:
    """Draw a table with clickable cells. ``on_click`` receives the clicked cell, or ``None`` without a selection."""

    def changed() -> None:
        event: Any = state.raw(key)
        clicked = event["selection"]["cells"] if event else []
        on_click(clicked[0] if clicked else None)

    state.put(key, {"selection": {"rows": [], "columns": [], "cells": [] if selected is None else [selected]}})
    height = min(height, 38 + 28 * max(1, len(frame)))
    options = {"on_select": changed, "selection_mode": "single-cell", "column_config": column_config(frame)}
    show_table(frame, key=key, height=height, **options)


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


def show_table(frame: pd.DataFrame, **options: Any) -> None:
    """Draw a table. Texts that a spreadsheet would read as formulas get an apostrophe, except ``@inputs``."""
    escaped = frame.copy()
    for name in frame.select_dtypes(exclude="number"):
        escaped[name] = [for_cell(c) if isinstance(c, str) and c != INPUTS_STEP else c for c in frame[name]]
    st.dataframe(escaped, row_height=28, hide_index=True, **options)


def matching_rows(plan: Plan, search: str, arena: str | None = None) -> np.ndarray:
    """Return the rows of an arena (``None``: all) whose tensor or producer name contains ``search``."""
    rows = np.flatnonzero(matches(plan, search)) if search else np.arange(len(plan), dtype=np.int64)
    if arena is not None:
        rows = rows[plan.arena[rows] == arena_number(plan, arena)]
    return rows


def frame_of(plan: Plan, rows: np.ndarray, origins: Origins | None = None) -> pd.DataFrame:
    """Return the table of ``rows``. The column of padded sizes is empty if no size has padding."""
    listed, arenas = rows.tolist(), [arena.name for arena in plan.arenas]
    sizes, alignments = plan.size[rows].tolist(), plan.alignment[rows].tolist()
    padded = [align_up(size, alignment) for size, alignment in zip(sizes, alignments, strict=True)]
    column, kind_of = ("category", plan.categories) if plan.categories else ("role", plan.roles)
    frame = pd.DataFrame(
        {
            "tensor": [plan.tensor_ids[i] for i in listed],
            column: [kind_of[i] for i in listed],
            "arena": [arenas[k] for k in plan.arena[rows].tolist()],
            "size": plan.size[rows],
            "padded": padded if padded != sizes else "",
            "offset": plan.offset[rows],
            "hex": [f"0x{n:X}" for n in plan.offset[rows].tolist()],
            "slot": plan.logical_slot[rows],
            "order in slot": plan.generation[rows] + 1,
            "first write": plan.birth[rows],
            "freed": plan.death[rows],
            "steps": plan.death[rows] - plan.birth[rows],
            "dtype": [plan.dtypes[i] for i in listed],
            "shape": [numbers.shape(plan.shapes[i]) for i in listed],
            "view of": [plan.base_tensor_uids[i] or "" for i in listed],
        }
    )
    if origins is not None:
        for name, texts in {"producer": origins.producer, "module": origins.module, "phase": origins.phase}.items():
            frame[name] = [texts[i] for i in listed]
    return frame if plan.has_slots else frame.drop(columns=["slot", "order in slot"])


def without_empty_columns(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table without its empty columns."""
    return frame.loc[:, [not len(frame) or bool((frame[name] != "").any()) for name in frame]]


def by_size(plan: Plan, rows: np.ndarray) -> np.ndarray:
    """Return ``rows`` sorted by size, largest first, then by name in natural order."""
    sizes = plan.size
    return np.array(sorted(rows.tolist(), key=lambda i: (-int(sizes[i]), natural_key(plan.tensor_ids[i]))), np.int64)


@memoized
def _frame(shown: Shown, search: str, arena: str | None, layer: str | None) -> tuple[pd.DataFrame, int]:
    """Return ``(table, number of matching rows)``; the table has at most :data:`MOST_ROWS` rows."""
    plan = shown.plan
    origins = plan_rows.origins(shown)
    rows = matching_rows(plan, search, arena)
    if layer is not None and origins is not None:
        rows = rows[[origins.layer[i] == layer for i in rows.tolist()]]
    listed = by_size(plan, rows)[:MOST_ROWS]
    frame = frame_of(plan, listed, origins)
    if shown.solution is not None and (sources := shown.solution.graph.shapes_from):
        texts = [SHAPE_SOURCES[sources[name]] if name in sources else "" for name in frame["tensor"]]
        frame.insert(list(frame.columns).index("shape") + 1, "shape from", texts)
    if (operators := plan_rows.operators(shown)) is not None:
        frame.insert(1, "operator", [operators[row] for row in listed.tolist()])
    if memories := residences(plan):
        frame["placed by"] = [tensor_text.placed_by(memories[row]) for row in listed.tolist()]
    return without_empty_columns(frame), len(rows)


def table(shown: Shown, arena: str | None) -> None:
    """Draw the table of the tensors of an arena (``None``: all arenas), filtered by search and marked layer."""
    plan, chosen = shown.plan, state.choice()
    search, layer = chosen.search, layer_of(chosen.marked)
    frame, match_count = _frame(shown, search, arena, layer)
    notes = [f"{numbers.of(len(frame), len(plan), 'tensor')} listed, largest first"]
    notes += [f"of layer {layer}"] if layer else []
    notes += [f"{match_count:,} match '{search}'"] if search else []
    notes += [f"{match_count - len(frame):,} smaller tensors omitted"] if match_count > len(frame) else []
    notes += ["click a header to sort, a row to select"]
    st.html(markup.heading(f"Tensors of {arena}" if arena else "Tensors", "; ".join(notes)))
    if not len(frame):
        of_layer, in_arena = f" of layer {layer}" if layer else "", f" in {arena}" if arena else ""
        by_name = f" with '{search}' in its name or node name" if search else ""
        st.html(markup.empty("No tensor matches", f"There is no tensor{of_layer}{in_arena}{by_name}."))
        return
    selectable_table(frame, f"table.{shown.key}.{arena}.{search}.{layer}", chosen.selected)


def storages(shown: Shown, arena: str | None) -> None:
    """Draw the table of the buffers with idle steps in an arena (``None``: all), most bytes × idle steps first."""
    frame = _storages(shown, arena)
    count = ("at least " if len(frame) == MOST_ROWS else "") + numbers.count(len(frame), "buffer")
    note = f"{count} with idle steps, most bytes × idle steps first; click to select" if len(frame) else ""
    st.html(markup.heading(f"Buffers of {arena}" if arena else "Buffers", note))
    if not len(frame):
        st.html(markup.empty("No idle steps", "Every buffer is used at each step of its live range."))
        return
    selectable_table(frame, f"storages.{shown.key}.{arena}", state.choice().selected)


@memoized
def _storages(shown: Shown, arena: str | None) -> pd.DataFrame:
    idle, solution = plan_rows.idle(shown), shown.solution
    assert idle is not None
    assert solution is not None
    buffers, ids = solution.liveness.storages, solution.liveness.timeline.index.tensor_ids
    with_idle_steps = np.flatnonzero((idle.idle > 0) & (buffers.size > 0))
    if arena is not None:
        with_idle_steps = with_idle_steps[buffers.arena[with_idle_steps] == solution.liveness.arenas.index(arena)]
    byte_steps = {k: int(buffers.size[k]) * int(idle.idle[k]) for k in with_idle_steps.tolist()}
    listed = sorted(byte_steps, key=lambda k: (-byte_steps[k], k))[:MOST_ROWS]
    last_uses = [int(idle.last_use[k]) for k in listed]
    return pd.DataFrame(
        {
            "tensor": [ids[buffers.head[k]] for k in listed],
            "size": [int(buffers.size[k]) for k in listed],
            "held steps": [int(idle.live[k]) for k in listed],
            "idle steps": [int(idle.idle[k]) for k in listed],
            "bytes × idle steps": [byte_steps[k] for k in listed],
            "longest idle range": [numbers.live_range(int(idle.gap_from[k]), int(idle.gap_to[k])) for k in listed],
            "last use": [numbers.step(t, shown.plan.node_at(t)) if t >= 0 else "" for t in last_uses],
        }
    )


def selectable_table(frame: pd.DataFrame, key: str, selected: str, *, height: int = HEIGHT) -> None:
    """Draw a table with a column ``tensor``. A click selects the row's tensor or, in the column "view of", its base."""
    rows = np.flatnonzero(frame["tensor"].to_numpy() == selected).tolist() if selected else []

    def select(cell: Cell) -> None:
        name = ""
        if cell is not None:
            row, column = cell
            name = frame["view of"].iloc[row] if column == "view of" else ""
            name = name or frame["tensor"].iloc[row]
        state.choose(selected=str(name))

    clickable_table(frame, key, (rows[0], "tensor") if rows else None, select, height=height)
