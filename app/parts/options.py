"""The options of the chosen planner, as its line of ``PLANNERS`` lists them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import streamlit as st

from app.parts import platform
from app.session import state
from app.session.choice import Choice
from tmmu_core.errors import UnreadableInput
from tmmu_core.names import for_markdown
from tmmu_core.plan.making.wording import refuse_odd_json
from tmmu_core.planners import PLANNERS
from tmmu_core.planners.greedy import FITS, ORDERS

CHOICES: dict[str, tuple[str, ...]] = {"order": tuple(ORDERS), "fit": FITS}
SAID = {
    "order": "The order in which storages are placed. `free_list` takes them by birth whatever is chosen.",
    "fit": "Where a storage is placed: the lowest gap, the tightest one, or first fit with a free list.",
    "budget": "Nodes that the search may visit. Never a time, so that the same budget gives the same plan everywhere.",
    "iterations": "How many changes of the order are tried.",
    "seed": "Of the random numbers; the replay token has no part in them.",
    "min_alignment": "The platform's floor for every slot, in bytes.",
    "memories": "In the order of preference; none given: each arena is a memory.",
    "rules": "The first rule that matches decides where a tensor belongs.",
}
EXAMPLES = {
    "memories": '[{"name": "DTCM", "max_size": 131072}, {"name": "SRAM"}]',
    "rules": '[{"role": "constant", "memory": "SRAM"}]',
}


def popover(full: Choice, *, fixed: str = "") -> None:
    """A button that says the options and opens their widgets; ``fixed`` says why they cannot be changed."""
    defaults = dict(PLANNERS[full.planner].options) if full.planner in PLANNERS else {}
    chosen = full.options
    why_not = fixed or ("" if defaults else f"The planner {full.planner} has no options.")
    with st.popover(label(chosen), icon=":material/tune:", key="options", disabled=bool(why_not), help=why_not or None):
        if "memories" in defaults:
            platform.form(chosen)
        for name, default in defaults.items():
            _widget(name, default, chosen.get(name, default))
        if chosen:
            st.button("Back to the defaults", key="no-options", on_click=state.choose, kwargs={"options": {}})


def label(chosen: Mapping[str, Any]) -> str:
    """What the options are, in a few letters."""
    said = [name if name in EXAMPLES else f"{name}={value}" for name, value in chosen.items()]
    return f"Options: {for_markdown(', '.join(said))}" if said else "Options"


def _widget(name: str, default: Any, value: Any) -> None:
    title, about = name.replace("_", " ").capitalize(), SAID.get(name)
    if name in CHOICES:
        options = CHOICES[name] if value in CHOICES[name] else (value, *CHOICES[name])
        st.selectbox(
            title,
            options,
            key=state.seat(f"option.{name}", value),
            on_change=lambda: _set(name, state.value_of(f"option.{name}"), default),
            help=about,
        )
    elif isinstance(default, int):
        st.number_input(
            f"{title} (default {default:,})",
            min_value=1 if name == "min_alignment" else 0,
            max_value=2**53 - 1,
            step=1,
            key=state.seat(f"option.{name}", value if isinstance(value, int) else default),
            on_change=lambda: _set(name, state.value_of(f"option.{name}"), default),
            help=about,
        )
    else:
        typed = "" if value is None else json.dumps(value, indent=1, ensure_ascii=False)
        st.text_area(
            f"{title}, as JSON",
            key=state.seat(f"option.{name}", state.draft(name) or typed),
            placeholder=EXAMPLES.get(name, ""),
            on_change=lambda: _read(name, default),
            help=about,
            height=120,
        )


def _set(name: str, value: Any, default: Any) -> None:
    rest = {key: old for key, old in state.choice().options.items() if key != name}
    state.choose(options=rest if value == default else {**rest, name: value})


def _read(name: str, default: Any) -> None:
    text = str(state.value_of(f"option.{name}") or "").strip()
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
        return f"What was typed is not JSON: {error.msg} at line {error.lineno}, column {error.colno}."
    return "What was typed is not JSON."
