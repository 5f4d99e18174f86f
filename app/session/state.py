"""What one person's session remembers. The only file that says ``session_state``.

The choice is the one source of truth: widgets are seated from it before they are drawn, their callbacks change it, and
the address bar follows it. So a click anywhere selects everywhere, and a link copies the screen.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from app.session.choice import LANDING, Choice, from_query, to_query

_CHOICE, _GOOD, _REFUSALS, _EPOCH = "tmmu.choice", "tmmu.good", "tmmu.refusals", "tmmu.epoch"
_LINK, _ASIDE, _GO, _BEFORE = "tmmu.link", "tmmu.aside", "tmmu.go", "tmmu.before"
_PAGE, _NEW, _TOUR = "tmmu.page", "tmmu.new", "tmmu.tour"


def begin(brought: tuple[str, ...] = ()) -> bool:
    """Take up the link on a session's first run; whether this is that run.

    ``brought`` are the sources named on the command line: the first one is shown where the link names no graph, the
    second is what it is compared with. With neither, a sample is shown that does not fit what is said of its memory.
    """
    if _CHOICE in st.session_state:
        return False
    query = st.query_params.to_dict()
    choice, complaints = from_query(query)
    if brought and "graph" not in query:
        choice = choice.but(source=brought[0], baseline=brought[1] if len(brought) > 1 else choice.baseline)
    if not query and not brought:
        choice = LANDING
    st.session_state[_CHOICE] = choice
    st.session_state[_LINK] = bool(query)
    st.session_state[_NEW] = not query and not brought
    if len(brought) > 1 and "graph" not in query:
        go("compare")
    st.session_state[_REFUSALS] = [{"title": "A part of the link was left out", "message": c} for c in complaints]
    return True


def choice() -> Choice:
    """What is chosen now."""
    chosen: Choice = st.session_state.get(_CHOICE, Choice())
    return chosen


def choose(**changes: Any) -> None:
    """Change the choice. Another graph or another plan lets go of what was only true of the old one."""
    old = choice()
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
        new = new.but(turn=None)
    if new.selected != old.selected and "tried" not in changes:
        new = new.but(tried="")
    st.session_state[_CHOICE] = new


def follow_history() -> None:
    """Take up the address where Back or Forward led to it: the step is undone or done again.

    An address that names no graph was written by nobody's step; there the choice stays.
    """
    context = get_script_run_ctx()
    query = st.query_params.to_dict()
    if context is None or not context.is_history_navigation or "graph" not in query:
        return
    chosen, _ = from_query(query)
    if chosen != choice():
        choose(**{field.name: getattr(chosen, field.name) for field in fields(Choice)})


def write_link() -> None:
    """Let the address bar say what is chosen."""
    query = to_query(choice())
    if st.query_params.to_dict() != query:
        st.query_params.from_dict(query)


# --- widgets -----------------------------------------------------------------------------------------------------


def seat(name: str, value: Any) -> str:
    """Put ``value`` into the widget called ``name`` before it is drawn; its key."""
    key = f"w.{name}"
    st.session_state[key] = value
    return key


def value_of(name: str) -> Any:
    """What the widget called ``name`` says, in its callback."""
    return st.session_state.get(f"w.{name}")


def raw(key: str) -> Any:
    """The state that streamlit keeps for a component under its own key (selections of charts and tables)."""
    return st.session_state.get(key)


def put(key: str, value: Any) -> None:
    """Set such a state before the component is drawn."""
    st.session_state[key] = value


def draft(name: str, text: str | None = None) -> str:
    """What was typed and could not be taken, kept so that it can be mended; with ``text``, keep that from now on."""
    if text is not None:
        st.session_state[f"tmmu.draft.{name}"] = text
    return str(st.session_state.get(f"tmmu.draft.{name}", ""))


# --- refusals and the last plan that worked ------------------------------------------------------------------------


def refuse(card: dict[str, Any]) -> None:
    """Show an error card until it is dismissed or something else is opened."""
    cards = [old for old in st.session_state.get(_REFUSALS, []) if old != card]
    st.session_state[_REFUSALS] = [*cards, card]


def refusals() -> list[dict[str, Any]]:
    """The error cards to show, oldest first."""
    return list(st.session_state.get(_REFUSALS, []))


def dismiss(n: int | None = None) -> None:
    """Take the error cards away, or the ``n``-th of them."""
    st.session_state[_REFUSALS] = [] if n is None else [card for k, card in enumerate(refusals()) if k != n]


def arrived() -> bool:
    """Whether this is the first plan of a session that a link began; true once."""
    return bool(st.session_state.pop(_LINK, False))


def no_aside() -> None:
    """Take the quiet line away."""
    st.session_state[_ASIDE] = ""


def aside(text: str | None = None) -> str:
    """One quiet line, said until it is dismissed or something else is opened; with ``text``, say that."""
    if text is not None:
        st.session_state[_ASIDE] = text
    return str(st.session_state.get(_ASIDE, ""))


def good() -> Choice | None:
    """The last choice whose plan could be made."""
    return st.session_state.get(_GOOD)


def worked(chosen: Choice) -> None:
    """Remember a choice whose plan could be made; where it is another plan of the same file, the one before too."""
    before = good()
    if before is not None and before.problem != chosen.problem:
        st.session_state[_BEFORE] = before if before.source == chosen.source else None
    st.session_state[_GOOD] = chosen


def before() -> Choice | None:
    """The choice that the present one took the place of, until it is let go; ``None`` where the file is another one."""
    kept: Choice | None = st.session_state.get(_BEFORE)
    return kept


def no_before() -> None:
    """Let it go."""
    st.session_state[_BEFORE] = None


# --- uploads -----------------------------------------------------------------------------------------------------


def upload_epoch() -> int:
    """A number that changes once the uploaded files were taken over, so that the widget starts empty again."""
    return int(st.session_state.get(_EPOCH, 0))


def go(page: str) -> None:
    """Lead to another page when this run's callbacks are done."""
    st.session_state[_GO] = page


def going() -> str:
    """The page to lead to, once; ``""`` for none."""
    return str(st.session_state.pop(_GO, ""))


def at(page: str | None = None) -> str:
    """The name of the page that is drawn; with ``page``, say it."""
    if page is not None:
        st.session_state[_PAGE] = page
    return str(st.session_state.get(_PAGE, ""))


def tour(*, again: bool = False) -> tuple[bool, int]:
    """``(new, asked)``: whether this session began at a bare address, and how often the tour was asked for since."""
    if again:
        st.session_state[_TOUR] = int(st.session_state.get(_TOUR, 0)) + 1
    return bool(st.session_state.get(_NEW)), int(st.session_state.get(_TOUR, 0))


def next_upload() -> None:
    """Empty the upload widget and close the gallery."""
    st.session_state[_EPOCH] = upload_epoch() + 1
