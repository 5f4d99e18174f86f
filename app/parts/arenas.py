"""What is said of the arenas: alignment, capacities, declarations, page size, budget; and the sizes of dimensions."""

from __future__ import annotations

import json
from typing import Any

import streamlit as st

from app.say import words
from app.session import planning, state
from app.session.choice import Choice
from app.session.opening import Opened
from tmmu_core.errors import UnreadableInput
from tmmu_core.graph.assumed import reach
from tmmu_core.graph.checks import resolve_dims
from tmmu_core.graph.quantities import parse_bytes
from tmmu_core.names import for_markdown
from tmmu_core.plan.making.wording import read_arenas_text

ALIGNMENTS = (1, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096)


def popover(full: Choice, opened: Opened, *, fixed: str = "") -> None:
    """A button that says the arenas and opens their widgets; ``fixed`` says why they cannot be changed."""
    with st.popover(label(full), icon=":material/memory:", key="arenas", disabled=bool(fixed), help=fixed or None):
        _controls(full, opened)


def label(full: Choice) -> str:
    """What is said of the arenas, in a few letters."""
    said = ["declared"] if full.arenas else []
    said += [f"align {full.alignment}"] if full.alignment is not None else []
    said += [words.count(len(full.capacities), "capacity", "capacities")] if full.capacities else []
    said += [f"page {words.short_bytes(full.page_size)}"] if full.page_size is not None else []
    said += ["budget"] if full.budget is not None else []
    said += [for_markdown(",".join(f"{name}={n}" for name, n in full.dims.items()))] if full.dims else []
    return f"Arenas: {' · '.join(said)}" if said else "Arenas"


def _controls(full: Choice, opened: Opened) -> None:
    options: list[int | None] = [None, *ALIGNMENTS]
    if full.alignment is not None and full.alignment not in ALIGNMENTS:
        options.append(full.alignment)
    st.selectbox(
        "Alignment of every arena",
        options,
        key=state.seat("alignment", full.alignment),
        format_func=lambda n: "as the contract says (128 B)" if n is None else words.exact_bytes(n),
        on_change=lambda: state.choose(alignment=_number("alignment")),
        accept_new_options=True,
        placeholder="as the contract says (128 B)",
    )
    capacities = full.capacities
    for arena in planning.arenas_in_use(full, opened):
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
            key=state.seat(f"dim.{name}", dims.get(name, usual[name])),
            on_change=lambda n=name: _dim(n, usual[n]),
        )
    if not opened.graph.dims:
        st.caption("This graph names no dimensions.")


def _declared(full: Choice) -> None:
    typed = json.dumps(full.arenas, indent=1, ensure_ascii=False) if full.arenas else ""
    st.text_area(
        "Arenas, as JSON",
        key=state.seat("arenas", state.draft("arenas") or typed),
        placeholder=DECLARED,
        help="What --arenas reads. Not empty, it declares every arena that there is; a tensor may name one of them.",
        height=100,
        on_change=_declare,
    )


DECLARED = '{"activations": {"capacity_bytes": 1048576, "alignment_bytes": 64}, "parameters": {}}'


def _declare() -> None:
    text = str(state.value_of("arenas") or "").strip()
    try:
        value = read_arenas_text(text) if text else None
    except UnreadableInput as error:
        state.draft("arenas", text)
        state.refuse(
            {"title": "The arenas were not changed", "message": error.message, "hint": f"Write it like {DECLARED}."}
        )
        return
    state.draft("arenas", "")
    state.choose(arenas=value)


def _number(name: str) -> int | None:
    value = state.value_of(name)
    if value is None or isinstance(value, int):
        return value
    try:
        return parse_bytes(str(value).removesuffix("B"))
    except ValueError as error:
        state.refuse({"title": "The alignment was not changed", "message": str(error)})
        return state.choice().alignment


def _size(label: str, name: str, value: int | None, then: Any) -> None:
    def changed() -> None:
        try:
            size = parse_bytes(state.value_of(name) or "")
        except ValueError as error:
            state.refuse({"title": f"{label} was not changed", "message": str(error)})
            return
        then(size)

    st.text_input(
        label,
        key=state.seat(name, "" if value is None else words.exact_bytes(value).removesuffix(" B")),
        placeholder="unlimited" if name != "page_size" else "none",
        help="Bytes, or a number with KiB, MiB or GiB. Empty: none given.",
        on_change=changed,
    )


def _capacity(arena: str, size: int | None) -> None:
    rest = {name: n for name, n in state.choice().capacities.items() if name != arena}
    state.choose(capacities=dict(sorted({**rest, **({} if size is None else {arena: size})}.items())))


def _dim(name: str, top: int) -> None:
    rest = {other: n for other, n in state.choice().dims.items() if other != name}
    value = int(state.value_of(f"dim.{name}"))
    state.choose(dims=dict(sorted({**rest, **({} if value == top else {name: value})}.items())))
