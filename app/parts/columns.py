"""A table that no reader knows: which column is which, asked where it was refused."""

from __future__ import annotations

import streamlit as st

from app.say import markup
from app.session import opening, state
from tmmu_core.errors import TmmuError
from tmmu_core.names import for_markdown
from tmmu_core.plan.formats import table
from tmmu_core.planners import instances

_KEPT = "columns.kept"
"""The table that waits for its columns, as (name, bytes, what was shown when it was refused)."""
NONE = "not in it"
ABOUT = {
    "size": "Bytes.",
    "lower": "The step from which on a row is alive; without it all rows are alive at once.",
    "upper": "The step at which it is alive no more.",
    "offset": "Where it lies: with it, the table opens as the plan that it is.",
    "id": "What it is called.",
    "alignment": "Bytes that its offset is a multiple of.",
    "alias": "Rows that say the same here are the same bytes.",
}


def offer(name: str, data: bytes) -> None:
    """Keep a refused file where it is a table: the next page asks for its columns."""
    if table.columns_of(data, name):
        state.put(_KEPT, (name, data, state.choice().source))


def draw() -> None:
    """The question, where a table waits for it; like its refusal, it is let go once something else is shown."""
    kept = state.raw(_KEPT)
    if kept and kept[2] != state.choice().source:
        state.put(_KEPT, None)
        return
    if not kept:
        return
    name, data, _ = kept
    columns = table.columns_of(data, name)
    guess = table.likely(columns)
    with st.container(key="columns", border=True):
        st.html(markup.heading(f"{name} is a table: which column is which?", "lives and sizes are all that is needed"))
        with st.form("columns-form", border=False):
            seats = st.columns(4)
            for k, (field, about) in enumerate(ABOUT.items()):
                seats[k % 4].selectbox(
                    field,
                    columns if field == "size" else (NONE, *columns),
                    key=state.seat(f"column.{field}", _now(field, columns, guess)),
                    format_func=for_markdown,
                    help=about,
                )
            left, right = st.columns([0.11, 0.89])
            left.form_submit_button("Open the table", type="primary", on_click=_open)
            right.form_submit_button("Not now", on_click=lambda: state.put(_KEPT, None), type="tertiary")


def _now(field: str, columns: tuple[str, ...], guess: dict[str, str]) -> str:
    said = state.value_of(f"column.{field}")
    if said in columns:
        return str(said)
    return guess.get(field, columns[0] if field == "size" else NONE)


def _open() -> None:
    """Open it as the instance that it then is: its link works like that of any file."""
    name, data, _ = state.raw(_KEPT)
    said = {field: state.value_of(f"column.{field}") for field in ABOUT}
    try:
        found = table.read(data, {field: own for field, own in said.items() if own != NONE}, name)
    except TmmuError as error:
        state.refuse(opening.card_of(error, f"{name} was not opened as a table", name))
        return
    offsets = None if found.packing is None else found.packing.offset
    source = opening.shelf().put(f"{found.name}.csv", instances.write_csv(found.problem, offsets).encode())
    state.put(_KEPT, None)
    state.choose(source=source)
