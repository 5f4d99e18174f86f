"""State of one browser session; the only module that uses ``st.session_state``.

The choice is the single source: widgets are set from it before they are drawn, callbacks change it, and the address
bar shows it.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from app.session.pages import FIRST
from app.session.view_state import LANDING, Choice, from_query, to_query

_CHOICE, _GOOD, _REFUSALS, _EPOCH = "tmmu.choice", "tmmu.good", "tmmu.refusals", "tmmu.epoch"
_LINK, _ASIDE, _GO, _BEFORE = "tmmu.link", "tmmu.aside", "tmmu.go", "tmmu.before"
_PAGE = "tmmu.page"


def begin(brought: tuple[str, ...] = ()) -> bool:
    """Read the link on the first run of a session; return whether this is the first run.

    ``brought`` are the files of the command line: the first is opened if the link names no graph; if there are two,
    the second is its baseline. Without link and files, :data:`LANDING` is shown.
    """
    if _CHOICE in st.session_state:
        return False
    query = st.query_params.to_dict()
    choice, complaints = from_query(query)
    files = tuple(dict.fromkeys(brought))
    is_pair = len(files) == 2 and "graph" not in query
    if files and "graph" not in query:
        choice = choice.but(source=files[0], baseline=files[1] if is_pair else choice.baseline)
    if not query and not brought:
        choice = LANDING
    st.session_state[_CHOICE] = choice
    st.session_state[_LINK] = bool(query)
    if is_pair:
        redirect("compare")
    st.session_state[_REFUSALS] = [{"title": "A part of the link was left out", "message": c} for c in complaints]
    return True


def choice() -> Choice:
    """Return the current choice."""
    chosen: Choice = st.session_state.get(_CHOICE, Choice())
    return chosen


def choose(**changes: Any) -> None:
    """Change the choice; another graph or plan resets the fields that depend on it."""
    old = choice()
    if "baseline" in changes:
        changes = {"moves": "", **changes}
    if changes.get("planner", old.planner) != old.planner:
        changes = {"options": {}, **changes}
    new = old.but(**changes)
    if "source" in changes and new.source != old.source:
        kept = {"source": new.source, "view": old.view, "colour": old.colour}
        new = Choice(**{**kept, **changes})
        st.session_state[_REFUSALS] = []
        st.session_state[_ASIDE] = ""
    elif new.problem != old.problem:
        st.session_state[_REFUSALS] = []
        if "step" not in changes:
            new = new.but(step=None)
        new = new.but(turn=None, tried="", span="")
    if new.selected != old.selected and "tried" not in changes:
        new = new.but(tried="")
    st.session_state[_CHOICE] = new


def follow_history() -> None:
    """Read the choice from the address after Back or Forward; an address without a graph changes nothing."""
    context = get_script_run_ctx()
    query = st.query_params.to_dict()
    if context is None or not context.is_history_navigation or "graph" not in query:
        return
    chosen, _ = from_query(query)
    if chosen != choice():
        choose(**{field.name: getattr(chosen, field.name) for field in fields(Choice)})


def write_link() -> None:
    """Write the choice into the address bar."""
    query = to_query(choice())
    if st.query_params.to_dict() != query:
        st.query_params.from_dict(query)


# --- widgets -----------------------------------------------------------------------------------------------------


def set_widget(name: str, value: Any) -> str:
    """Set the value of a widget before it is drawn; return its key."""
    key = f"w.{name}"
    st.session_state[key] = value
    return key


def widget_value(name: str) -> Any:
    """Return the value of a widget in its callback."""
    return st.session_state.get(f"w.{name}")


def raw(key: str) -> Any:
    """Return a value of the session by key, such as the selection of a chart."""
    return st.session_state.get(key)


def put(key: str, value: Any) -> None:
    """Set a value of the session by key."""
    st.session_state[key] = value


def draft(name: str, text: str | None = None) -> str:
    """Return the invalid text of an input, kept for correction; with ``text``, store it."""
    if text is not None:
        st.session_state[f"tmmu.draft.{name}"] = text
    return str(st.session_state.get(f"tmmu.draft.{name}", ""))


# --- refusals and the last plan that worked ------------------------------------------------------------------------


def refuse(card: dict[str, Any]) -> None:
    """Add an error card; it stays until it is dismissed or another file is opened."""
    cards = [old for old in st.session_state.get(_REFUSALS, []) if old != card]
    st.session_state[_REFUSALS] = [*cards, card]


def refusals() -> list[dict[str, Any]]:
    """Return the error cards, oldest first."""
    return list(st.session_state.get(_REFUSALS, []))


def dismiss(n: int | None = None) -> None:
    """Remove all error cards, or the ``n``-th."""
    st.session_state[_REFUSALS] = [] if n is None else [card for k, card in enumerate(refusals()) if k != n]


def arrived() -> bool:
    """Return once whether a link started the session."""
    return bool(st.session_state.pop(_LINK, False))


def clear_notice() -> None:
    """Remove the notice."""
    st.session_state[_ASIDE] = ""


def notice(text: str | None = None) -> str:
    """Return the notice of the session; with ``text``, set it."""
    if text is not None:
        st.session_state[_ASIDE] = text
    return str(st.session_state.get(_ASIDE, ""))


def last_valid() -> Choice | None:
    """Return the last choice that could be planned."""
    return st.session_state.get(_GOOD)


def remember_valid(chosen: Choice) -> None:
    """Store a choice that could be planned, and the previous one if it has the same file."""
    before = last_valid()
    if before is not None and before.problem != chosen.problem:
        st.session_state[_BEFORE] = before if before.source == chosen.source else None
    st.session_state[_GOOD] = chosen


def previous() -> Choice | None:
    """Return the previous choice of the same file, or ``None``."""
    kept: Choice | None = st.session_state.get(_BEFORE)
    return kept


def clear_previous() -> None:
    """Forget the previous choice."""
    st.session_state[_BEFORE] = None


# --- uploads -----------------------------------------------------------------------------------------------------


def upload_epoch() -> int:
    """Return a number that changes after each upload; as part of the key it empties the widget."""
    return int(st.session_state.get(_EPOCH, 0))


def redirect(page: str) -> None:
    """Switch to another page after the callbacks of this run."""
    st.session_state[_GO] = page


def take_redirect() -> str:
    """Return and clear the page to switch to; ``""`` for none."""
    return str(st.session_state.pop(_GO, ""))


def at(page: str | None = None) -> str:
    """Return the current page; with ``page``, set it. A tried place is part of the first page."""
    if page is not None:
        st.session_state[_PAGE] = page
        if page != FIRST and choice().tried:
            choose(tried="")
    return str(st.session_state.get(_PAGE, ""))


def next_upload() -> None:
    """Empty the upload widget and close the gallery."""
    st.session_state[_EPOCH] = upload_epoch() + 1
