"""The form of arena settings: alignment, declarations, page size, budget and dimension sizes."""

import json
from typing import Any

import streamlit as st

from app.session import state
from app.session.opening import Opened
from app.session.view_state import Choice
from app.texts import markup, numbers
from tmmu_core.base.errors import UnreadableInput
from tmmu_core.base.escaping import for_markdown
from tmmu_core.graph.assumed_sizes import reach
from tmmu_core.graph.checks import resolve_dims
from tmmu_core.graph.quantities import parse_bytes
from tmmu_core.plans.making.request_options import read_arenas_text

ALIGNMENTS = (1, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096)


def active(full: Choice) -> int:
    """Return the number of arena settings that differ from their defaults."""
    given = (full.arenas or None, full.alignment, full.page_size, full.budget)
    return sum(value is not None for value in given) + len(full.dims)


def draw(full: Choice, opened: Opened) -> None:
    """Draw alignment, declared arenas, page size, budget and dimensions."""
    st.html(markup.heading("Arenas"))
    options: list[int | None] = [None, *ALIGNMENTS]
    if full.alignment is not None and full.alignment not in ALIGNMENTS:
        options.append(full.alignment)
    st.selectbox(
        "Alignment of every arena",
        options,
        key=state.set_widget("alignment", full.alignment),
        format_func=lambda n: "default (128 B)" if n is None else numbers.exact_bytes(n),
        on_change=lambda: state.choose(alignment=_number("alignment")),
        accept_new_options=True,
        placeholder="default (128 B)",
    )
    if opened.graph is None:
        return
    _declared(full)
    _size("Page size", "page_size", full.page_size, lambda n: state.choose(page_size=n))
    _size("Budget over all arenas", "budget", full.budget, lambda n: state.choose(budget=n))
    dims = full.dims
    usual = resolve_dims(opened.graph, None)
    for name in sorted(opened.graph.dims):
        can = reach(opened.graph, name)
        st.number_input(
            f"Dimension {for_markdown(name)} ({can.min:,} … {can.max:,})",
            min_value=can.min,
            max_value=can.max,
            key=state.set_widget(f"dim.{name}", dims.get(name, usual[name])),
            on_change=lambda n=name: _dim(n, usual[n]),
        )


def _declared(full: Choice) -> None:
    typed = json.dumps(full.arenas, indent=1, ensure_ascii=False) if full.arenas else ""
    st.text_area(
        "Arenas, as JSON",
        key=state.set_widget("arenas", state.draft("arenas") or typed),
        placeholder=DECLARED,
        help="As in a file for --arenas. If set, only these arenas exist; tensors can name them.",
        height=100,
        on_change=_declare,
    )


DECLARED = '{"activations": {"capacity_bytes": 1048576, "alignment_bytes": 64}, "parameters": {}}'


def _declare() -> None:
    text = str(state.widget_value("arenas") or "").strip()
    try:
        value = read_arenas_text(text) if text else None
    except UnreadableInput as error:
        state.draft("arenas", text)
        state.refuse({"title": "Arenas not changed", "message": error.message, "hint": f"Example: {DECLARED}."})
        return
    state.draft("arenas", "")
    state.choose(arenas=value)


def _number(name: str) -> int | None:
    value = state.widget_value(name)
    if value is None or isinstance(value, int):
        return value
    try:
        return parse_bytes(str(value).removesuffix("B"))
    except ValueError as error:
        state.refuse({"title": "Alignment not changed", "message": str(error)})
        return state.choice().alignment


def _size(label: str, name: str, value: int | None, then: Any) -> None:
    def changed() -> None:
        try:
            size = parse_bytes(state.widget_value(name) or "")
        except ValueError as error:
            state.refuse({"title": f"{label} not changed", "message": str(error)})
            return
        then(size)

    st.text_input(
        label,
        key=state.set_widget(name, "" if value is None else numbers.exact_bytes(value).removesuffix(" B")),
        placeholder="unlimited" if name != "page_size" else "none",
        help="Bytes, or a number with KiB, MiB or GiB. Empty: none.",
        on_change=changed,
    )


def _dim(name: str, top: int) -> None:
    rest = {other: n for other, n in state.choice().dims.items() if other != name}
    value = int(state.widget_value(f"dim.{name}"))
    state.choose(dims=dict(sorted({**rest, **({} if value == top else {name: value})}.items())))
