"""The form of arena settings: alignment, capacities, declarations, page size, budget and dimension sizes."""

from __future__ import annotations

import json
from typing import Any

import streamlit as st

from app.session import planning, state
from app.session.opening import Opened
from app.session.view_state import Choice
from app.texts import numbers
from tmmu_core.base.errors import UnreadableInput
from tmmu_core.base.escaping import for_markdown
from tmmu_core.graph.assumed_sizes import reach
from tmmu_core.graph.checks import resolve_dims
from tmmu_core.graph.quantities import parse_bytes
from tmmu_core.plans.making.request import ANY_ARENA
from tmmu_core.plans.making.request_options import read_arenas_text

ALIGNMENTS = (1, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096)


def popover(full: Choice, opened: Opened, *, fixed: str = "") -> None:
    """Draw the button that opens the arena form; ``fixed`` is the reason why it is disabled."""
    with st.popover(label(full), icon=":material/memory:", key="arenas", disabled=bool(fixed), help=fixed or None):
        _controls(full, opened)


def label(full: Choice) -> str:
    """Return the button label, a summary of the arena settings."""
    parts = ["declared"] if full.arenas else []
    parts += [f"align {full.alignment}"] if full.alignment is not None else []
    parts += [numbers.count(len(full.capacities), "capacity", "capacities")] if full.capacities else []
    parts += [f"page {numbers.short_bytes(full.page_size)}"] if full.page_size is not None else []
    parts += ["budget"] if full.budget is not None else []
    parts += [for_markdown(",".join(f"{name}={n}" for name, n in full.dims.items()))] if full.dims else []
    return f"Arenas: {' · '.join(parts)}" if parts else "Arenas"


def _controls(full: Choice, opened: Opened) -> None:
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
    capacities = full.capacities
    if opened.graph is not None:
        _size("Memory limit", "capacity.", capacities.get(ANY_ARENA), _memory_limit)
    for arena in () if full.is_one_memory else planning.arenas_in_use(full, opened):
        _size(f"Capacity of {arena}", f"capacity.{arena}", capacities.get(arena), lambda n, a=arena: _capacity(a, n))
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
    if not opened.graph.dims:
        st.caption("This graph has no named dimensions.")


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


def _memory_limit(size: int | None) -> None:
    state.choose(capacities={} if size is None else {ANY_ARENA: size})


def _capacity(arena: str, size: int | None) -> None:
    rest = {name: n for name, n in state.choice().capacities.items() if name != arena}
    state.choose(capacities=dict(sorted({**rest, **({} if size is None else {arena: size})}.items())))


def _dim(name: str, top: int) -> None:
    rest = {other: n for other, n in state.choice().dims.items() if other != name}
    value = int(state.widget_value(f"dim.{name}"))
    state.choose(dims=dict(sorted({**rest, **({} if value == top else {name: value})}.items())))
