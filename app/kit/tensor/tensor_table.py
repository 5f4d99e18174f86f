"""The table of tensors, and the table of buffers with idle steps."""

from typing import Any

import numpy as np
import pandas as pd
import streamlit as st
from pandas.api.types import is_numeric_dtype

from app.canvas.pack import matches
from app.kit import data_table
from app.kit.tensor import marks
from app.session import plan_rows, state
from app.session.plan_rows import Origins
from app.session.planning import Shown
from app.session.work.jobs import remembered
from app.texts import glossary, markup, numbers, tensor_text
from tmmu_core.base.escaping import natural
from tmmu_core.graph.assumed_sizes import SHAPE_SOURCES
from tmmu_core.planners.columns import align_up
from tmmu_core.plans.analysis.plan_notes import residences
from tmmu_core.plans.figures.live_bytes import arena_number
from tmmu_core.plans.model import Plan

MOST_ROWS, HEIGHT = 5_000, 330
NUMBERS = {
    **{name: f"{name} (B)" for name in ("size", "padded", "offset")},
    **{name: name for name in ("first write", "freed", "steps", "held steps", "idle steps", "bytes × idle steps")},
    **{name: name for name in ("tensors", "busy steps", "unused bytes × steps", "bytes in", "bytes out")},
}
"""Column with numbers → its title."""
NAMING = ("view of",)
"""Columns that contain the name of another tensor. A click on a cell selects that tensor."""


def matching(plan: Plan, search: str, arena: str | None = None) -> np.ndarray:
    """Return the rows of an arena (default: all arenas) whose tensor or node name contains ``search``, largest first.

    An empty search matches all rows.
    """
    rows = np.flatnonzero(matches(plan, search)) if search else np.arange(len(plan), dtype=np.int64)
    if arena is not None:
        rows = rows[plan.arena[rows] == arena_number(plan, arena)]
    return rows[np.lexsort((rows, np.uint64(numbers.UNLIMITED) - plan.size[rows]))]


def frame_of(plan: Plan, rows: np.ndarray, origins: Origins | None = None) -> pd.DataFrame:
    """Return the table of ``rows``; ``origins`` adds the columns producer, module and phase."""
    arenas = np.array([arena.name for arena in plan.arenas] or [""])
    ids = rows.tolist()
    kind, kinds = ("category", plan.categories) if plan.categories else ("role", plan.roles)
    frame = pd.DataFrame(
        {
            "tensor": [plan.tensor_ids[i] for i in ids],
            kind: [kinds[i] for i in ids],
            "arena": arenas[plan.arena[rows]] if len(rows) else [],
            "size": plan.size[rows],
            "padded": _padded(plan, rows),
            "offset": plan.offset[rows],
            "hex": [f"0x{n:X}" for n in plan.offset[rows].tolist()],
            "slot": plan.logical_slot[rows],
            "use of slot": plan.generation[rows] + 1,
            "first write": plan.birth[rows],
            "freed": plan.death[rows],
            "steps": plan.death[rows] - plan.birth[rows],
            "dtype": [plan.dtypes[i] for i in ids],
            "shape": [numbers.shape(plan.shapes[i]) for i in ids],
            "view of": [plan.base_tensor_uids[i] or "" for i in ids],
        }
    )
    if origins is not None:
        for name, texts in {"producer": origins.producer, "module": origins.module, "phase": origins.phase}.items():
            frame[name] = [texts[i] for i in ids]
    return frame if plan.has_slots else frame.drop(columns=["slot", "use of slot"])


def _padded(plan: Plan, rows: np.ndarray) -> list[int] | str:
    """Return the sizes with padding to the alignment; "" if no size has padding."""
    sizes, alignments = plan.size[rows].tolist(), plan.alignment[rows].tolist()
    padded = [align_up(size, alignment) for size, alignment in zip(sizes, alignments, strict=True)]
    return "" if padded == sizes else padded


def filled(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table without its empty columns."""
    return frame.loc[:, [not len(frame) or bool((frame[name] != "").any()) for name in frame]]


def by_size(plan: Plan, rows: np.ndarray) -> np.ndarray:
    """Return ``rows`` sorted by size, largest first, then by name in natural order."""
    sizes = plan.size
    return np.array(sorted(rows.tolist(), key=lambda i: (-int(sizes[i]), natural(plan.tensor_ids[i]))), np.int64)


@remembered
def _frame(shown: Shown, search: str, arena: str | None, layer: str | None) -> tuple[pd.DataFrame, int]:
    """Return ``(table, number of matching rows)``; the table has at most :data:`MOST_ROWS` rows."""
    plan = shown.plan
    origins = plan_rows.origins(shown) if layer is not None or len(plan) <= plan_rows.MOST_EAGER else None
    rows = matching(plan, search, arena)
    if layer is not None and origins is not None:
        rows = rows[[origins.layer[i] == layer for i in rows.tolist()]]
    frame = frame_of(plan, by_size(plan, rows[:MOST_ROWS]), origins)
    if not len(frame):
        return frame, 0
    listed = [(name, plan.row_of[name]) for name in frame["tensor"]]
    if shown.solution is not None and (sources := shown.solution.graph.shapes_from):
        texts = [SHAPE_SOURCES[sources[name]] if name in sources else "" for name, _ in listed]
        frame.insert(list(frame.columns).index("shape") + 1, "shape from", texts)
    if (operators := plan_rows.operators(shown)) is not None:
        frame.insert(1, "operator", [operators[row] for _, row in listed])
    if memories := residences(plan):
        frame["placed by"] = [tensor_text.placed_by(memories[row]) for _, row in listed]
    return filled(frame), len(rows)


def table(shown: Shown, arena: str | None) -> None:
    """Draw the table of an arena's tensors (default: all arenas), filtered by search and marked layer."""
    plan, chosen = shown.plan, state.choice()
    search, layer = chosen.search, marks.layer_of(chosen.marked)
    frame, hits = _frame(shown, search, arena, layer)
    notes = [f"{numbers.of(len(frame), len(plan), 'tensor')} listed, largest first"]
    notes += [f"of layer {layer}"] if layer else []
    notes += [f"{hits:,} match “{search}”"] if search else []
    notes += [f"{hits - len(frame):,} smaller tensors omitted"] if hits > len(frame) else []
    notes += ["click a header to sort, a row to select"]
    st.html(markup.heading(f"Tensors of {arena}" if arena else "Tensors", "; ".join(notes)))
    if not len(frame):
        st.html(markup.empty("No tensor matches", f"No tensor or node name contains “{search}”."))
        return
    selectable(frame, f"table.{shown.key}.{arena}.{search}.{layer}", chosen.selected, height=HEIGHT)


def storages(shown: Shown, arena: str | None) -> None:
    """Draw the table of buffers with idle steps, most bytes × idle steps first."""
    frame = _storages(shown, arena)
    note = f"{numbers.count(len(frame), 'buffer')} with idle steps, most bytes × idle steps first; click to select"
    st.html(markup.heading(f"Buffers of {arena}" if arena else "Buffers", note))
    if not len(frame):
        st.html(markup.empty("No idle steps", "Every buffer is used at each step of its live range."))
        return
    selectable(frame, f"storages.{shown.key}.{arena}", state.choice().selected, height=HEIGHT)


@remembered
def _storages(shown: Shown, arena: str | None) -> pd.DataFrame:
    idle, solution = plan_rows.idle(shown), shown.solution
    assert idle is not None
    assert solution is not None
    storages_, ids = solution.liveness.storages, solution.liveness.timeline.index.tensor_ids
    with_idle = np.flatnonzero((idle.idle > 0) & (storages_.size > 0))
    if arena is not None:
        with_idle = with_idle[storages_.arena[with_idle] == solution.liveness.arenas.index(arena)]
    products = {k: int(storages_.size[k]) * int(idle.idle[k]) for k in with_idle.tolist()}
    rows = sorted(products, key=lambda k: (-products[k], k))[:MOST_ROWS]
    last = [int(idle.last[k]) for k in rows]
    return pd.DataFrame(
        {
            "tensor": [ids[storages_.head[k]] for k in rows],
            "size": [int(storages_.size[k]) for k in rows],
            "held steps": [int(idle.live[k]) for k in rows],
            "idle steps": [int(idle.idle[k]) for k in rows],
            "bytes × idle steps": [products[k] for k in rows],
            "longest idle range": [numbers.live_range(int(idle.gap_from[k]), int(idle.gap_to[k])) for k in rows],
            "last use": [numbers.step(t, shown.plan.node_at(t)) if t >= 0 else "" for t in last],
        }
    )


def selectable(frame: pd.DataFrame, key: str, selected: str, *, height: int) -> None:
    """Draw a table that has a column ``tensor``. A click on a row selects its tensor."""
    rows = np.flatnonzero(frame["tensor"].to_numpy() == selected).tolist() if selected else []

    def select(cell: data_table.Cell | None) -> None:
        if cell is None:
            state.choose(selected="")
            return
        row, column = cell
        other = frame[column].iloc[row] if column in NAMING else ""
        state.choose(selected=str(other or frame["tensor"].iloc[row]))

    cell = (rows[0], "tensor") if rows else None
    data_table.selectable(frame, key, cell, select, columns=explained(frame), height=height)


def explained(frame: pd.DataFrame) -> dict[str, Any]:
    """Return the column configuration with glossary definitions as hover texts.

    A column of numbers that has texts such as ``1 → 2`` becomes a column of texts.
    """
    config: dict[str, Any] = {
        name: st.column_config.NumberColumn(label, format="localized") for name, label in NUMBERS.items()
    }
    config["tensor"] = st.column_config.TextColumn(width="medium")
    config["operator"] = st.column_config.TextColumn(width=130)
    config["hex"] = st.column_config.TextColumn("offset (hex)")
    for name in frame.columns:
        if "format" in config.get(name, {}).get("type_config", {}) and not is_numeric_dtype(frame[name].dtype):
            config[name] = st.column_config.TextColumn(config[name]["label"])
        if about := glossary.define(name):
            config[name] = {**config.get(name, st.column_config.Column()), "help": about}
    return config
