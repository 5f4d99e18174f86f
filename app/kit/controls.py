"""Rows of controls, and controls that change the choice of the session."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import streamlit as st

from app.session import state
from tmmu_core.base.errors import UnreadableInput

T = TypeVar("T")


def row(key: str | None = None) -> Any:
    """Return a container that draws its elements in one line."""
    return st.container(horizontal=True, vertical_alignment="center", gap="small", key=key)


def button(label: str, key: str, changes: Mapping[str, Any], *, kind: Any = "tertiary", **options: Any) -> None:
    """Draw a button that applies ``changes`` to the choice; ``options``: further arguments of ``st.button``."""
    st.button(label, key=key, type=kind, on_click=state.choose, kwargs=dict(changes), **options)


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


def choose_size(dim: str, size: int | None, default: int) -> None:
    """Set the size of a dimension in the choice; ``None`` means the default."""
    dims = {**state.choice().dims, dim: default if size is None else int(size)}
    state.choose(dims={name: n for name, n in sorted(dims.items()) if (name, n) != (dim, default)})


def apply_text(widget: str, read: Callable[[str], T], apply: Callable[[T], None], title: str, hint: str = "") -> None:
    """Parse the text of a widget and pass the value to ``apply``. For an invalid text, keep it and show an error card.

    ``read`` parses a text, also "". ``title`` and ``hint`` are of the error card.
    """
    text = str(state.widget_value(widget) or "").strip()
    try:
        value = read(text)
    except (ValueError, UnreadableInput) as error:
        state.draft(widget, text)
        message = str(error)
        if isinstance(error, UnreadableInput):
            message = error.message + (f" (at {error.place})" if error.place else "")
        state.refuse({"title": title, "message": message, "hint": hint})
        return
    state.draft(widget, "")
    apply(value)
