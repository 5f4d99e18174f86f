"""Rows of controls, and controls that change the choice of the session."""

from collections.abc import Callable, Mapping
from typing import Any

import streamlit as st

from app.session import state
from tmmu_core.base.errors import UnreadableInput
from tmmu_core.graph.model import Dim

MOST_NUMBER = 2**53 - 1
"""Largest number of an input field, because a browser stores it as a floating-point number."""


def row(key: str | None = None) -> Any:
    """Return a container that draws its elements in one line."""
    return st.container(horizontal=True, vertical_alignment="center", gap="small", key=key)


def button(label: str, key: str, changes: Mapping[str, Any], *, kind: Any = "tertiary", **options: Any) -> None:
    """Draw a button that sets fields of the choice to ``changes``. ``options``: further arguments of ``st.button``."""
    st.button(label, key=key, type=kind, on_click=state.choose, kwargs=dict(changes), **options)


def download(label: str, name: str, media_type: str, data: Any, **options: Any) -> None:
    """Draw a button that downloads the file ``name``. ``data``: its content, or the function that makes it.

    ``options``: further arguments of ``st.download_button``.
    """
    options = {"key": f"download.{name}", "on_click": "ignore", "icon": ":material/download:", **options}
    st.download_button(label, data, file_name=name, mime=media_type, **options)


def notice(key: str, html: str, field: str, *, css: str = "tm") -> None:
    """Draw a message with a button that removes it. The button sets ``field`` of the session to ``None``."""
    with row(key):
        st.html(f'<div class="{css}" role="status" id="{key}">{html}</div>')
        clear = (state.session(), field, None)
        st.button("✕", key=f"no-{key}", help="Dismiss", type="tertiary", on_click=setattr, args=clear)


def pick_view(names: Mapping[str, str]) -> str:
    """Draw the switch between the views of a page; return the chosen view, else the first. ``names``: view → title."""
    tab = state.choice().tab
    view = tab if tab in names else next(iter(names))
    if len(names) > 1:
        st.segmented_control(
            "View",
            list(names),
            format_func=names.__getitem__,
            label_visibility="collapsed",
            required=True,
            **state.bound("tab", view),
        )
    return view


def size_input(label: str, allowed: Dim, size: int, widget: str, **options: Any) -> None:
    """Draw the input field of a dimension's size. ``options``: further arguments of ``st.number_input``."""
    low, high, value = (min(number, MOST_NUMBER) for number in (allowed.min, allowed.max, size))
    st.number_input(label, low, high, key=state.set_widget(widget, value), **options)


def choose_size(dim: str, size: int | None, default: int) -> None:
    """Set the size of a dimension in the choice; ``None``: the default size."""
    dims = {**state.choice().dims, dim: default if size is None else int(size)}
    state.choose(dims={name: n for name, n in sorted(dims.items()) if (name, n) != (dim, default)})


def apply_text(
    widget: str, field: str, read: Callable[[str], Any], title: str, hint: str = "", *, empty: Any = None
) -> None:
    """Set ``field`` of the choice to the text of a widget, parsed with ``read``; to ``empty`` for an empty text.

    An invalid text becomes the draft of the widget, and an error card shows ``title``, the reason and ``hint``.
    """
    text = str(state.widget_value(widget) or "").strip()
    try:
        value = read(text) if text else empty
    except (ValueError, UnreadableInput) as error:
        state.draft(widget, text)
        message = error.message_with_place if isinstance(error, UnreadableInput) else str(error)
        state.refuse({"title": title, "message": message, "hint": hint})
        return
    state.draft(widget, "")
    state.choose(**{field: value})
