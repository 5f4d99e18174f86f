"""State of one browser session; the only module that uses ``st.session_state``.

The choice determines the page: widgets are set from it before they are drawn, callbacks change it, the URL shows it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from app.session.view_state import ALL_ARENAS, LANDING, Choice, from_query, to_query

_SESSION = "tmmu.session"


@dataclass
class Session:
    """The state of a session between runs of the script."""

    choice: Choice = field(default_factory=Choice)
    error_cards: list[dict[str, Any]] = field(default_factory=list)
    """Error cards, oldest first; each stays until it is dismissed, or the file or the planning request changes."""
    notice: str = ""
    drafts: dict[str, str] = field(default_factory=dict)  # input → its invalid text, which the user can correct
    page: str = ""
    redirect: str = ""  # page to switch to after the callbacks of this run
    has_unchecked_link: bool = False  # the link may name items that the plan does not have
    last_valid: Choice | None = None  # the last choice that could be planned
    previous: Choice | None = None  # last valid choice with another request; ``None`` if that choice had another file
    uploads: int = 0  # number of uploads; part of the key of an upload widget, because a new key empties the widget


def session() -> Session:
    """Return the session."""
    return st.session_state.setdefault(_SESSION, Session())


def begin(sources: tuple[str, ...] = ()) -> bool:
    """In a session's first run, read the link, open ``sources`` unless the link names a graph, and return true."""
    if _SESSION in st.session_state:
        return False
    query = st.query_params.to_dict()
    chosen, warnings = from_query(query)
    files = () if "graph" in query else tuple(dict.fromkeys(sources))
    is_pair = len(files) == 2  # baseline and candidate
    if files:
        chosen = chosen.but(source=files[1 if is_pair else 0], baseline=files[0] if is_pair else chosen.baseline)
    elif not query:
        chosen = LANDING
    cards = [{"title": "A part of the link was ignored", "message": warning} for warning in warnings]
    redirect = "compare" if is_pair else ""
    st.session_state[_SESSION] = Session(chosen, cards, redirect=redirect, has_unchecked_link=bool(query))
    return True


def choice() -> Choice:
    """Return the current choice."""
    return session().choice


def choose(**changes: Any) -> None:
    """Change fields of the choice; reset each field that depends on a changed file, request, baseline or selection."""
    current, old = session(), choice()
    if "baseline" in changes:
        changes = {"moves": "", **changes}
    if changes.get("planner", old.planner) != old.planner:
        changes = {"options": {}, **changes}
    new = old.but(**changes)
    if new.source != old.source:
        new = Choice(**{"view": old.view, "colour": old.colour, **changes})
        current.error_cards, current.notice, current.drafts = [], "", {}
    elif new.problem != old.problem:
        new = new.but(**{name: None for name in ("step", "replayed", "span") if name not in changes})
        current.error_cards = []
    if new.selected not in ("", old.selected) and "arena" not in changes and new.arena != ALL_ARENAS:
        new = new.but(arena="")  # then ``arena_focus.follow_selection`` chooses the arena
    current.choice = new


def choose_and_show(page: str, **changes: Any) -> None:
    """Change fields of the choice, and switch to ``page`` after the callbacks of this run ("": stay)."""
    choose(**changes)
    session().redirect = page


def follow_history() -> None:
    """Read the choice from the address after the browser's Back or Forward, if the address names a graph."""
    context = get_script_run_ctx()
    query = st.query_params.to_dict()
    if context is None or not context.is_history_navigation or "graph" not in query:
        return
    chosen, _ = from_query(query)
    if chosen != choice():
        choose(**vars(chosen))


def write_link() -> None:
    """Write the choice into the address bar."""
    query = to_query(choice())
    if st.query_params.to_dict() != query:
        st.query_params.from_dict(query)


def remember_valid(chosen: Choice) -> None:
    """Store a choice that could be planned as ``last_valid``; update ``previous`` if the file or request changed."""
    current = session()
    before = current.last_valid
    if before is not None and before.problem != chosen.problem:
        current.previous = before if before.source == chosen.source else None
    current.last_valid = chosen


def add_error_card(card: dict[str, Any]) -> None:
    """Add an error card; a card with the same title is replaced."""
    session().error_cards = [*(old for old in session().error_cards if old["title"] != card["title"]), card]


def bind(name: str, value: Any, on_change: Callable[[Any], None] | None = None) -> dict[str, Any]:
    """Return arguments of a widget with ``value``; ``on_change`` gets the input (default: set the field ``name``)."""
    key = f"w.{name}"
    st.session_state[key] = value

    def set_field(new: Any) -> None:
        choose(**{name: getattr(Choice(), name) if new is None else new})

    return {"key": key, "on_change": lambda: (on_change or set_field)(raw(key))}


def listeners(key: str, callbacks: Mapping[str, Callable[[Any], None]]) -> dict[str, Callable[[], None]]:
    """Return handlers for the events of a Streamlit component. A handler passes the event's value to the callback."""

    def handle(event: str) -> None:
        message = (raw(key) or {}).get(event)
        if isinstance(message, Mapping):  # the browser sends {"value": …}, so that None means "no event"
            callbacks[event](message["value"])

    return {f"on_{event}_change": partial(handle, event) for event in callbacks}


def raw(key: str) -> Any:
    """Return a value of the session by key, such as the selection of a chart."""
    return st.session_state.get(key)


def put(key: str, value: Any) -> None:
    """Set a value of the session by key."""
    st.session_state[key] = value
