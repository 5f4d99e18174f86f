"""Rows of controls, and controls that change the choice (:class:`Choice`) of the session."""

import mimetypes
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import streamlit as st

from app.canvas.component import canvas_script
from app.session import state
from app.session.pages import REDIRECTS
from app.session.view_state import to_query
from app.texts.markup import complete_links
from tmmu_core.base.errors import UnreadableInput

MOST_NUMBER = 2**53 - 1  # a browser stores numbers as binary64


@cache
def component(name: str, script: str) -> Any:
    """Return the Streamlit component with the JavaScript module ``script``, a path in this folder."""
    return st.components.v2.component(name, js=(files(__package__) / script).read_text(encoding="utf-8"))


@cache
def canvas_component(variable: str) -> Any:
    """Return the Streamlit component of a main module. ``variable``: key of ``MAIN_MODULES`` in ``component.py``."""
    script = f"{canvas_script(variable)}export default globalThis.{variable}.streamlit;\n"
    return st.components.v2.component(variable, js=script)


def linked_html(html: str) -> None:
    """Draw HTML in which the tensor links have the query of the current view, so that they work in a new tab."""
    st.html(complete_links(html, to_query(state.choice())))


def row(key: str | None = None) -> Any:
    """Return a container that draws its elements in one line."""
    return st.container(horizontal=True, vertical_alignment="center", gap="small", key=key)


def button(label: str, key: str, changes: Mapping[str, Any], *, kind: Any = "tertiary", **options: Any) -> None:
    """Draw a button that sets fields of the choice to ``changes``. ``options``: further arguments of ``st.button``."""
    st.button(label, key=key, type=kind, on_click=state.choose, kwargs=dict(changes), **options)


def download(label: str, name: str, data: Any, **options: Any) -> None:
    """Draw a button that downloads the file ``name``. ``data``: its content, or the function that makes it."""
    options = {"key": f"download.{name}", "on_click": "ignore", "icon": ":material/download:", **options}
    media_type = mimetypes.guess_type(name)[0] or "application/octet-stream"
    st.download_button(label, data, file_name=name, mime=media_type, **options)


def notice(key: str, html: str, field: str, *, css: str = "tm") -> None:
    """Draw a message with a button that removes it. The button sets ``field`` of the session to ``None``."""
    with row(key):
        st.html(f'<div class="{css}" role="status" id="{key}">{html}</div>')
        arguments = (state.session(), field, None)
        st.button("✕", key=f"no-{key}", help="Dismiss", type="tertiary", on_click=setattr, args=arguments)


def pick_view(names: Mapping[str, str]) -> str:
    """Draw a switch if a page has several views; return the chosen view, else the first. ``names``: view → title."""
    tab = state.choice().tab
    view = tab if tab in names else next(iter(names))
    if len(names) > 1:
        switch("View", names, **state.bind("tab", view))
    is_view_of_page = REDIRECTS.get(tab, ("",))[0] == state.session().page
    if tab != view and is_view_of_page:
        st.html(f'<div class="tm soft" id="no-view">This plan does not have the view {tab} of the link.</div>')
    return view


def switch(label: str, names: Sequence[str] | Mapping[str, str], **options: Any) -> str | None:
    """Draw a switch with a hidden label; return the chosen name. ``names``: names, or name → title."""
    titles = names if isinstance(names, Mapping) else {}
    options = {"format_func": lambda name: titles.get(name, name), "label_visibility": "collapsed", **options}
    return st.segmented_control(label, list(names), required=True, **options)


def choose_size(dim: str, size: int | None, default: int) -> None:
    """Set the size of a dimension in the choice; ``None``: the default size."""
    dims = {**state.choice().dims, dim: default if size is None else int(size)}
    state.choose(dims={name: n for name, n in sorted(dims.items()) if (name, n) != (dim, default)})


def text_widget(
    widget: str, field: str, parse: Callable[[str], Any], text: str, error_title: str, hint: str = "", empty: Any = None
) -> dict[str, Any]:
    """Return ``key`` and ``on_change`` of a text widget that shows ``text`` and sets ``field`` of the choice.

    ``parse`` raises for an invalid text, which stays in the widget with an error card. ``empty``: value of no text.
    """
    drafts = state.session().drafts

    def changed(draft: str) -> None:
        draft = draft.strip()
        try:
            value = parse(draft) if draft else empty
        except (ValueError, UnreadableInput) as error:
            drafts[widget] = draft
            message = error.message_with_place if isinstance(error, UnreadableInput) else str(error)
            state.add_error_card({"title": error_title, "message": message, "hint": hint})
            return
        drafts.pop(widget, None)
        state.choose(**{field: value})

    return state.bind(widget, drafts.get(widget, text), changed)
