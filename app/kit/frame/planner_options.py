"""The options of the chosen planner, as its entry in ``PLANNERS`` lists them."""

import json
from collections.abc import Mapping
from typing import Any

import streamlit as st

from app.session import state
from app.session.view_state import Choice
from app.texts import markup
from tmmu_core.base.errors import UnreadableInput
from tmmu_core.planners import PLANNERS
from tmmu_core.planners.greedy import FITS, ORDERS
from tmmu_core.planners.platform import BOARDS, options_of
from tmmu_core.plans.making.request_options import refuse_odd_json

CHOICES: dict[str, tuple[str, ...]] = {"order": tuple(ORDERS), "fit": FITS}
OWN = "none (custom memories)"
HELP = {
    "order": "The order in which buffers are placed. `free_list` always uses the order of first writes.",
    "fit": "Gap for a buffer: the lowest, the tightest, or first fit with a free list.",
    "budget": "Maximum number of search nodes. The same budget gives the same plan on every machine.",
    "iterations": "Number of changes of the placement order to try.",
    "seed": "Seed of the random numbers; independent of the replay token.",
    "min_alignment": "Smallest alignment of a slot on this platform, in bytes.",
    "memories": "In order of preference. Empty: each arena is one memory.",
    "rules": "The first matching rule selects the memory of a tensor.",
}
EXAMPLES = {
    "memories": '[{"name": "DTCM", "max_size": 131072}, {"name": "SRAM"}]',
    "rules": '[{"role": "constant", "memory": "SRAM"}]',
}


def draw(full: Choice) -> None:
    """Draw the options of the planner, if it has any."""
    defaults = dict(PLANNERS[full.planner].options) if full.planner in PLANNERS else {}
    if not defaults:
        return
    chosen = full.options
    st.html(markup.heading(f"Options of {full.planner}"))
    if "memories" in defaults:
        _board(chosen)
    for name, default in defaults.items():
        _widget(name, default, chosen.get(name, default))
    if chosen:
        st.button("Restore defaults", key="no-options", on_click=state.choose, kwargs={"options": {}})


def _board(chosen: Mapping[str, Any]) -> None:
    """Draw the selector of a board, which sets its memories and rules; both can be edited below."""
    st.selectbox(
        "Board",
        (OWN, *BOARDS),
        key=state.set_widget("board", next((b for b, (_, m) in BOARDS.items() if m == chosen.get("memories")), OWN)),
        on_change=_take_board,
        help="\n\n".join(f"{name}: {about}." for name, (about, _) in BOARDS.items()),
    )


def _take_board() -> None:
    board = state.widget_value("board")
    if board in BOARDS:
        kept = {name: value for name, value in state.choice().options.items() if name not in ("memories", "rules")}
        state.choose(options={**kept, **options_of(board)})


def _widget(name: str, default: Any, value: Any) -> None:
    title, about = name.replace("_", " ").capitalize(), HELP.get(name)
    if name in CHOICES:
        options = CHOICES[name] if value in CHOICES[name] else (value, *CHOICES[name])
        st.selectbox(
            title,
            options,
            key=state.set_widget(f"option.{name}", value),
            on_change=lambda: _set(name, state.widget_value(f"option.{name}"), default),
            help=about,
        )
    elif isinstance(default, int):
        st.number_input(
            f"{title} (default {default:,})",
            min_value=1 if name == "min_alignment" else 0,
            max_value=2**53 - 1,
            step=1,
            key=state.set_widget(f"option.{name}", value if isinstance(value, int) else default),
            on_change=lambda: _set(name, state.widget_value(f"option.{name}"), default),
            help=about,
        )
    else:
        typed = "" if value is None else json.dumps(value, indent=1, ensure_ascii=False)
        st.text_area(
            f"{title}, as JSON",
            key=state.set_widget(f"option.{name}", state.draft(name) or typed),
            placeholder=EXAMPLES.get(name, ""),
            on_change=lambda: _read(name, default),
            help=about,
            height=120,
        )


def _set(name: str, value: Any, default: Any) -> None:
    rest = {key: old for key, old in state.choice().options.items() if key != name}
    state.choose(options=rest if value == default else {**rest, name: value})


def _read(name: str, default: Any) -> None:
    text = str(state.widget_value(f"option.{name}") or "").strip()
    try:
        refuse_odd_json(text, f"option {name}")
        value = json.loads(text) if text else None
    except (ValueError, UnreadableInput) as error:  # ValueError also for more digits than Python reads
        state.draft(name, text)
        state.refuse(
            {
                "title": f"The option {name} was not changed",
                "message": _why(error),
                "hint": f"Write it like {EXAMPLES[name]}." if name in EXAMPLES else "",
            }
        )
        return
    state.draft(name, "")
    _set(name, value, default)


def _why(error: Exception) -> str:
    if isinstance(error, UnreadableInput):
        return error.message
    if isinstance(error, json.JSONDecodeError):
        return f"The text is not JSON: {error.msg} at line {error.lineno}, column {error.colno}."
    return "The text is not JSON."
