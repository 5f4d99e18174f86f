"""The table of tensors: sorted by a click on a column, filtered by the search, a click selects."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from app.canvas.pack import matches
from app.parts import certificate
from app.parts.picking import Picks, pickable
from app.say import details, glossary, markup, words
from app.session import placed, state
from app.session.jobs import remembered
from app.session.placed import Origins
from app.session.planning import Shown
from tmmu_core.graph.assumed import SAID_BY
from tmmu_core.names import natural
from tmmu_core.plan.figures.storages import arena_number
from tmmu_core.plan.model import Plan

MOST_ROWS = 5_000
TERM_OF = {
    "idle steps": "idle step",
    "bytes × idle steps": "idle step",
    "longest stretch": "idle step",
    "steps": "step",
    "hex": "offset",
    "operator": "node",
    "producer": "node",
    "one memory up": "memory",
    "tenants": "tenant",
    "view of": "view",
}
"""A column → its term in the glossary, where the two differ."""
NAMING = ("view of",)
"""Columns whose cells name another tensor: a click there selects that one."""


def matching(plan: Plan, search: str, arena: str | None = None) -> np.ndarray:
    """Rows (of one arena, or of all) that the search finds, which are those that the drawing finds; largest first."""
    rows = np.flatnonzero(matches(plan, search)) if search else np.arange(len(plan), dtype=np.int64)
    if arena is not None:
        rows = rows[plan.arena[rows] == arena_number(plan, arena)]
    return rows[np.lexsort((rows, np.uint64(words.UNLIMITED) - plan.size[rows]))]


def frame_of(plan: Plan, rows: np.ndarray, origins: Origins | None = None) -> pd.DataFrame:
    """The columns of the table for some rows; with ``origins`` also where each comes from."""
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
    if origins is not None:
        known = {"producer": origins.producer, "module": origins.module, "phase": origins.phase}
        for name, texts in known.items():
            if any(texts[i] for i in ids):
                frame[name] = [texts[i] for i in ids]
    return frame if plan.has_slots else frame.drop(columns=["slot", "tenant"])


def by_size(plan: Plan, rows: np.ndarray) -> np.ndarray:
    """Rows by size falling, those of one size by name as people count."""
    sizes = plan.size
    return np.array(sorted(rows.tolist(), key=lambda i: (-int(sizes[i]), natural(plan.tensor_ids[i]))), np.int64)


@remembered
def _frame(plan_key: str, search: str, arena: str | None, layer: str | None, _shown: Shown) -> tuple[pd.DataFrame, int]:
    del plan_key
    plan = _shown.plan
    known = placed.origins(_shown) if layer is not None or len(plan) <= placed.MOST_UNASKED else None
    rows = matching(plan, search, arena)
    if layer is not None and known is not None:
        rows = rows[[known.layer[i] == layer for i in rows.tolist()]]
    frame = frame_of(plan, by_size(plan, rows[:MOST_ROWS]), known)
    said = _shown.solution.graph.shapes_from if _shown.solution is not None else {}
    if said and len(frame):
        at = list(frame.columns).index("shape") + 1
        frame.insert(at, "shape from", [SAID_BY[said[name]] if name in said else "" for name in frame["tensor"]])
    makers = placed.operators(_shown.key, _shown)
    if makers is not None and len(frame):
        frame.insert(1, "operator", [makers[plan.row_of[name]] for name in frame["tensor"]])
    lifted = placed.lifted(_shown)
    if lifted is not None and len(frame):
        uplifts = [lifted[plan.row_of[name]] for name in frame["tensor"]]
        frame["put there by"] = ["" if one is None else details.put_there_by(one) for one in uplifts]
        frame["one memory up"] = ["" if one is None else details.one_up(one) for one in uplifts]
    return frame, len(rows)


def table(shown: Shown, arena: str | None, *, height: int = 330) -> None:
    """The table of one arena, or of all, filtered as chosen; a click on a row selects its tensor everywhere."""
    plan, chosen = shown.plan, state.choice()
    search, layer = chosen.search, certificate.layer_of(chosen.marked)
    frame, hits = _frame(shown.key, search, arena, layer, shown)
    note = f"{words.of(len(frame), len(plan), 'tensor')} listed, the largest first"
    note += f"; of layer {layer}" if layer else ""
    note += f"; {hits:,} match “{search}”" if search else ""
    note += f"; {hits - len(frame):,} smaller ones left out" if hits > len(frame) else ""
    st.html(
        markup.heading(f"Tensors of {arena}" if arena else "Tensors", f"{note}; click a head to sort, a row to select")
    )
    if not len(frame):
        st.html(markup.empty("No tensor matches", f"Nothing in this plan is called like “{search}”."))
        return
    selectable(frame, f"table.{shown.key}.{arena}.{search}.{layer}", chosen.selected, height=height)


def storages(shown: Shown, arena: str | None, *, height: int = 330) -> None:
    """The table of storages by bytes × idle steps: who is kept longest for the least."""
    frame = _storages(shown.key, arena, shown)
    st.html(
        markup.heading(
            f"Storages of {arena}" if arena else "Storages",
            f"{words.count(len(frame), 'storage')} that are kept unused, most bytes × idle steps first; a row selects",
        )
    )
    if not len(frame):
        st.html(markup.empty("Nothing is idle", "Every storage is used at each step at which it is held."))
        return
    selectable(frame, f"storages.{shown.key}.{arena}", state.choice().selected, height=height)


@remembered
def _storages(plan_key: str, arena: str | None, _shown: Shown) -> pd.DataFrame:
    del plan_key
    idle, solution = placed.idle(_shown), _shown.solution
    assert idle is not None
    assert solution is not None
    own = solution.liveness.storages
    kept = np.flatnonzero((idle.idle > 0) & (own.size > 0))
    if arena is not None:
        kept = kept[own.arena[kept] == solution.liveness.arenas.index(arena)]
    products = [int(own.size[k]) * int(idle.idle[k]) for k in kept.tolist()]
    order = sorted(range(len(kept)), key=lambda i: (-products[i], int(kept[i])))[:MOST_ROWS]
    ids, plan = solution.liveness.timeline.index.tensor_ids, _shown.plan
    rows = [(int(kept[i]), products[i]) for i in order]
    return pd.DataFrame(
        {
            "tensor": [ids[own.head[k]] for k, _ in rows],
            "size": [int(own.size[k]) for k, _ in rows],
            "held steps": [int(idle.held[k]) for k, _ in rows],
            "idle steps": [int(idle.idle[k]) for k, _ in rows],
            "bytes × idle steps": [product for _, product in rows],
            "longest stretch": [words.live_range(int(idle.gap_from[k]), int(idle.gap_to[k])) for k, _ in rows],
            "last used by": [_used_by(plan, int(idle.last[k])) for k, _ in rows],
        }
    )


def _used_by(plan: Plan, step: int) -> str:
    return words.step(step, plan.node_at(step)) if step >= 0 else ""


def selectable(frame: pd.DataFrame, key: str, selected: str, *, height: int) -> None:
    """A table with a column ``tensor``: the selected one is marked, a click anywhere in a row selects."""
    at = np.flatnonzero(frame["tensor"].to_numpy() == selected).tolist() if selected else []
    picks = Picks(key, (at[0], "tensor") if at else None, lambda cell: _selected(frame, cell))
    pickable(frame, picks, explained(frame.columns), height=height)


def explained(columns: Iterable[str]) -> dict[str, Any]:
    """How each column is written, with its term of the glossary one hover away."""
    config: dict[str, Any] = {
        "tensor": st.column_config.TextColumn(width="medium"),
        "size": st.column_config.NumberColumn("size (B)", format="localized"),
        "offset": st.column_config.NumberColumn("offset (B)", format="localized"),
        "birth": st.column_config.NumberColumn(format="localized"),
        "death": st.column_config.NumberColumn(format="localized"),
        "steps": st.column_config.NumberColumn(format="localized"),
        "operator": st.column_config.TextColumn(width=130),
        "held steps": st.column_config.NumberColumn(format="localized"),
        "idle steps": st.column_config.NumberColumn(format="localized"),
        "bytes × idle steps": st.column_config.NumberColumn(format="localized"),
        "tenants": st.column_config.NumberColumn(format="localized"),
        "busy steps": st.column_config.NumberColumn(format="localized"),
        "hex": st.column_config.TextColumn("offset (hex)"),
        "backing": st.column_config.NumberColumn("backing (B)", format="localized"),
        "unused byte-steps": st.column_config.NumberColumn(format="localized"),
        "bytes in": st.column_config.NumberColumn("bytes in", format="localized"),
        "bytes out": st.column_config.NumberColumn("bytes out", format="localized"),
    }
    for name in columns:
        if about := glossary.define(TERM_OF.get(name, name)):
            config[name] = {**config.get(name, st.column_config.Column()), "help": about}
    return config


def _selected(frame: pd.DataFrame, cell: tuple[int, str] | None) -> None:
    if cell is None:
        state.choose(selected="")
        return
    row, column = cell
    named = str(frame[column].iloc[row]) if column in NAMING else ""
    state.choose(selected=named or str(frame["tensor"].iloc[row]))
