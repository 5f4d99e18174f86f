"""A form that maps the columns of an unrecognized table file to the fields of a buffer."""

import streamlit as st

from app.session import opening, state
from app.texts import markup
from tmmu_core.base.errors import TmmuError
from tmmu_core.formats.csv import csv_table, instance_csv

_TABLE = "columns.table"  # session key of the rejected table: ``(name, bytes, source that was open before)``
NONE = "none"
ABOUT = {
    "size": "Size of the buffer in bytes.",
    "lower": "First step of the live range. Without this column, all rows are live at the same time.",
    "upper": "End of the live range, exclusive.",
    "offset": "Offset of the buffer in bytes. With this column, the table opens with these offsets.",
    "id": "Name of the buffer.",
    "alignment": "Alignment of the offset in bytes.",
    "alias": "Rows with equal values share their bytes.",
}


def offer(name: str, data: bytes) -> None:
    """Keep a rejected file if it is a table, so that the next run of the page shows the form."""
    if csv_table.columns_of(data):
        state.put(_TABLE, (name, data, state.choice().source))


def draw() -> None:
    """Draw the form for a rejected table, until another file is opened."""
    name, data, source_before = state.raw(_TABLE) or ("", b"", None)
    if source_before != state.choice().source:  # also without a rejected table
        state.put(_TABLE, None)
        return
    columns = csv_table.columns_of(data)
    guess = csv_table.suggested_columns(columns)
    with st.container(key="columns", border=True):
        st.html(markup.heading(f"Assign the columns of {name}", "only the size is required"))
        with st.form("columns-form", border=False):
            page_columns = st.columns(4)
            for k, (field, about) in enumerate(ABOUT.items()):
                options = columns if field == "size" else (NONE, *columns)
                chosen = state.widget_value(f"column.{field}")
                chosen = chosen if chosen in options else guess.get(field, options[0])
                label = {"lower": "first step (lower)", "upper": "end step (upper)"}.get(field, field)
                key = state.set_widget(f"column.{field}", chosen)
                page_columns[k % 4].selectbox(label, options, key=key, help=about)
            left, right = st.columns([0.11, 0.89])
            left.form_submit_button("Open the table", type="primary", on_click=_open)
            right.form_submit_button("Cancel", on_click=lambda: state.put(_TABLE, None), type="tertiary")


def _open() -> None:
    name, data, _ = state.raw(_TABLE)
    columns = {field: state.widget_value(f"column.{field}") for field in ABOUT}
    try:
        instance = csv_table.read(data, {field: column for field, column in columns.items() if column != NONE}, name)
    except TmmuError as error:
        state.refuse(opening.card_of(error, f"{name} cannot be opened as a table", name))
        return
    offsets = None if instance.packing is None else instance.packing.offset
    source = opening.shelf().put(f"{instance.name}.csv", instance_csv.write_csv(instance.problem, offsets).encode())
    state.put(_TABLE, None)
    state.choose(source=source)
