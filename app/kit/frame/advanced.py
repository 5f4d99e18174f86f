"""The settings of the menu Advanced: options of the planner, arenas, page size, budget and dimension sizes."""

import json
from typing import Any

import streamlit as st

from app.kit import controls
from app.session import state
from app.session.opening import Opened
from app.session.view_state import Choice
from app.texts import markup, numbers
from tmmu_core.base.escaping import for_markdown
from tmmu_core.graph.assumed_sizes import size_range
from tmmu_core.graph.checks import resolve_dims
from tmmu_core.graph.quantities import parse_bytes
from tmmu_core.planners import PLANNERS
from tmmu_core.planners.greedy import FITS, ORDERS
from tmmu_core.planners.platform import BOARDS, options_of
from tmmu_core.plans.making.request_options import read_arenas_text, read_json

ALIGNMENTS = (1, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096)
DECLARED = '{"activations": {"capacity_bytes": 1048576, "alignment_bytes": 64}, "parameters": {}}'
CHOICES: dict[str, tuple[str, ...]] = {"order": ORDERS, "fit": FITS}
OWN = "none (custom memories)"
HELP = {
    "order": "Order in which buffers are placed. With the fit `free_list`, it is always the order of first writes.",
    "fit": "Gap in which a buffer is placed: the lowest, the tightest, or the first in a free list.",
    "budget": "Maximum number of search nodes. The same budget gives the same plan on every machine.",
    "iterations": "Number of changed placement orders to try.",
    "seed": "Seed of the random numbers. The replay token does not depend on it.",
    "min_alignment": "Smallest alignment of a slot on this platform, in bytes.",
    "memories": "The memories of the device, in order of preference. Default: one memory per configured arena, or one "
    "unlimited memory if no arena is configured.",
    "rules": "The first matching rule selects the memory of a tensor.",
}
EXAMPLES = {
    "memories": '[{"name": "DTCM", "max_size": 131072}, {"name": "SRAM"}]',
    "rules": '[{"role": "constant", "memory": "SRAM"}]',
}


def number_set(full: Choice) -> int:
    """Return the number of settings in this menu that differ from their defaults."""
    settings = (full.arenas or None, full.alignment, full.page_size, full.budget)
    return sum(value is not None for value in settings) + len(full.dims) + len(full.options)


def draw(full: Choice, opened: Opened) -> None:
    """Draw the options of the planner, and the settings of arenas and dimensions."""
    if full.planner in PLANNERS and (options := dict(PLANNERS[full.planner].options)):
        _planner_options(full, options)
    st.html(markup.heading("Arenas"))
    _alignment(full.alignment)
    if opened.graph is None:
        return
    text = json.dumps(full.arenas, indent=1, ensure_ascii=False) if full.arenas else ""
    st.text_area(
        "Arenas, as JSON",
        key=state.set_widget("arenas", state.draft("arenas") or text),
        placeholder=DECLARED,
        help="The content of a file for --arenas. If set, only these arenas exist. A tensor selects one with its field "
        "`arena`.",
        height=100,
        on_change=_declare,
    )
    _size("Page size", "page_size", full.page_size, "none", "Arenas are rounded up to a multiple of this size.")
    about = (
        "Limit of the sum of all arena sizes. Unlike the memory limit above, it does not let two arenas share bytes."
    )
    _size("Budget of all arenas", "budget", full.budget, "unlimited", about)
    defaults = resolve_dims(opened.graph, None)
    for name in sorted(opened.graph.dims):
        allowed = size_range(opened.graph, name)
        st.number_input(
            f"Dimension {for_markdown(name)} ({allowed.min:,} … {allowed.max:,})",
            min_value=allowed.min,
            max_value=allowed.max,
            key=state.set_widget(f"dim.{name}", full.dims.get(name, defaults[name])),
            on_change=lambda n=name: controls.choose_size(n, state.widget_value(f"dim.{n}"), defaults[n]),
        )


def _alignment(current: int | None) -> None:
    def changed() -> None:
        def read(text: str) -> int | None:
            return parse_bytes(text.removesuffix("B"))

        controls.apply_text("alignment", read, lambda n: state.choose(alignment=n), "Alignment not changed")

    st.selectbox(
        "Alignment of every arena",
        list(dict.fromkeys((None, *ALIGNMENTS, current))),
        key=state.set_widget("alignment", current),
        format_func=lambda n: "default (128 B)" if n is None else numbers.exact_bytes(n),
        on_change=changed,
        accept_new_options=True,
        placeholder="default (128 B)",
    )


def _declare() -> None:
    def read(text: str) -> dict[str, Any] | None:
        return read_arenas_text(text) if text else None

    hint = f"Example: {DECLARED}."
    controls.apply_text("arenas", read, lambda arenas: state.choose(arenas=arenas), "Arenas not changed", hint)


def _size(label: str, name: str, value: int | None, if_empty: str, about: str) -> None:
    def changed() -> None:
        controls.apply_text(name, parse_bytes, lambda size: state.choose(**{name: size}), f"{label} not changed")

    st.text_input(
        label,
        key=state.set_widget(name, "" if value is None else numbers.exact_bytes(value).removesuffix(" B")),
        placeholder=if_empty,
        help=f"{about} Write bytes, or a number with KiB, MiB or GiB. Empty: {if_empty}.",
        on_change=changed,
    )


def _planner_options(full: Choice, defaults: dict[str, Any]) -> None:
    options = full.options
    st.html(markup.heading(f"Options of {full.planner}"))
    if "memories" in defaults:  # a board sets the options memories and rules, which the user can edit below
        board = next((name for name, (_, memories) in BOARDS.items() if memories == options.get("memories")), OWN)
        st.selectbox(
            "Board",
            (OWN, *BOARDS),
            key=state.set_widget("board", board),
            on_change=_set_board,
            help="\n\n".join(f"{name}: {about}." for name, (about, _) in BOARDS.items()),
        )
    for name, default in defaults.items():
        _option(name, default, options.get(name, default))
    if options:
        controls.button("Restore defaults", "no-options", {"options": {}}, kind="secondary")


def _set_board() -> None:
    board = state.widget_value("board")
    if board in BOARDS:
        state.choose(options={**state.choice().options, **options_of(board)})


def _option(name: str, default: Any, value: Any) -> None:
    title, widget, about = name.replace("_", " ").capitalize(), f"option.{name}", HELP.get(name)

    def changed() -> None:
        _set_option(name, state.widget_value(widget), default)

    if name in CHOICES:
        options = list(dict.fromkeys((*CHOICES[name], value)))
        st.selectbox(title, options, key=state.set_widget(widget, value), help=about, on_change=changed)
    elif isinstance(default, int):
        st.number_input(
            f"{title} (default {default:,})",
            min_value=1 if name == "min_alignment" else 0,
            max_value=2**53 - 1,
            step=1,
            key=state.set_widget(widget, value if isinstance(value, int) else default),
            help=about,
            on_change=changed,
        )
    else:
        text = "" if value is None else json.dumps(value, indent=1, ensure_ascii=False)
        st.text_area(
            f"{title}, as JSON",
            key=state.set_widget(widget, state.draft(widget) or text),
            placeholder=EXAMPLES.get(name, ""),
            height=120,
            help=about,
            on_change=lambda: _read_option(name, default),
        )


def _set_option(name: str, value: Any, default: Any) -> None:
    options = {**state.choice().options, name: value}
    if value == default:
        del options[name]
    state.choose(options=options)


def _read_option(name: str, default: Any) -> None:
    def read(text: str) -> Any:
        return read_json(text, f"option {name}") if text else None

    hint = f"Example: {EXAMPLES[name]}." if name in EXAMPLES else ""
    title = f"The option {name} was not changed"
    controls.apply_text(f"option.{name}", read, lambda value: _set_option(name, value, default), title, hint)
