"""A design review: notes, bookmarked views and a decision about a plan, and its file with the plan and the graph."""

import base64
import hashlib
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl, urlencode

import msgspec

from app.session import opening, state
from app.session.opening import MOVES, card_of, content_of, shelf, with_store
from app.session.planning import Shown, use_reviewed_plan
from app.session.view_state import from_query, to_query
from tmmu_core.base.errors import TmmuError, UnreadableInput, source_of_errors
from tmmu_core.formats.planfile import plan_file
from tmmu_core.graph.native import document

SCHEMA = "tmmu_review/1"
DECISIONS = ("approved", "changes requested", "rejected")
_KEY = "tmmu.review"
_SERVER_KEYS = {"graph": "source", "file": "file", "moves": "moves"}
"""Keys of a link that name files of one server → fields of the choice. Bookmarks leave out these keys."""
_EMBEDDED = re.compile(rb'<script type="application/json" id="tmmu-review">(.*?)</script>', re.S)


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A note or a decision."""

    @property
    def digest(self) -> str:
        """SHA-256 of the entry. :attr:`Review.deleted` keeps it instead of the text."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()


class Note(Entry, frozen=True):
    """A note about a tensor, about a step, or about the whole plan."""

    text: str
    tensor: str = ""
    step: Annotated[int, msgspec.Meta(ge=0)] | None = None
    author: str = ""
    date: str = ""

    @property
    def place(self) -> str:
        """The subject of the note: ``tensor r12``, ``step 14`` or ``plan``."""
        return f"tensor {self.tensor}" if self.tensor else "plan" if self.step is None else f"step {self.step:,}"


class View(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A bookmarked view: its name, and the query of its link."""

    name: str
    link: str


class Decision(Entry, frozen=True):
    """The decision about the plan, with its author and its date."""

    answer: Literal["approved", "changes requested", "rejected"]
    text: str = ""
    author: str = ""
    date: str = ""


class Review(msgspec.Struct, frozen=True):
    """A review of the open plan."""

    notes: tuple[Note, ...] = ()
    views: tuple[View, ...] = ()
    decision: Decision | None = None
    author: str = ""  # author of new notes and decisions in this session; a store does not keep it
    deleted: tuple[str, ...] = ()  # digests of deleted notes and decisions; a merge does not add these again


class ReviewFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of a review file: JSON, or JSON in an HTML report. ``graph`` and ``plan``: gzipped, in base64."""

    schema: Literal["tmmu_review/1"] = "tmmu_review/1"
    review: Review
    verdict: str  # headline of the explanation of the peak
    graph_name: str
    graph: str
    plan: str
    link: str
    moves: str = ""  # the changes that the page Fix made to the graph, as gzipped and base64-coded JSON; "" for none
    author: str = ""
    date: str = ""


def current() -> Review:
    """Return the review of the open file: the stored review, which all visitors share, else the session's review."""
    source, (own_source, own) = state.choice().source, state.raw(_KEY) or ("", Review())
    if (stored := with_store(lambda store: store.file(f"review:{source}"))) is not None:
        return msgspec.structs.replace(msgspec.json.decode(stored[1], type=Review), author=own.author)
    return own if own_source == source else Review(author=own.author)


def fault() -> TmmuError | None:
    """Return the error of reading the stored review; ``None`` if it can be read, or without a store."""
    try:
        if (store := opening.store()) is not None:
            store.file(f"review:{state.choice().source}")
    except TmmuError as error:
        return error
    return None


def change(edit: Callable[[Review], Review]) -> None:
    """Replace the review of the open file by ``edit(review)``, in the store if there is one, else in the session."""
    source, before = state.choice().source, current()

    def edited(stored: bytes) -> bytes:
        latest = msgspec.json.decode(stored, type=Review) if stored else before
        return msgspec.json.encode(msgspec.structs.replace(edit(latest), author=""))

    key, now = f"review:{source}", datetime.now(UTC)
    stored = with_store(lambda store: store.change_file(key, "review.json", edited, now))
    after = edit(before) if stored is None else msgspec.json.decode(stored, type=Review)
    state.put(_KEY, (source, msgspec.structs.replace(after, author=before.author)))


def sign(author: str) -> None:
    """Set the author of new notes and decisions of this session."""
    state.put(_KEY, (state.choice().source, msgspec.structs.replace(current(), author=author)))


def merged(first: Review, second: Review) -> Review:
    """Merge two reviews, without deleted entries. The later decision stays; of two on one day, that of ``second``."""
    deleted = tuple(dict.fromkeys((*first.deleted, *second.deleted)))
    decisions = [d for d in (second.decision, first.decision) if d is not None and d.digest not in deleted]
    notes = tuple(n for n in dict.fromkeys((*first.notes, *second.notes)) if n.digest not in deleted)
    views = tuple(dict.fromkeys(map(_portable, (*first.views, *second.views))))
    latest = max(decisions, key=lambda decision: decision.date, default=None)
    return Review(notes=notes, views=views, decision=latest, deleted=deleted)


def today() -> str:
    """Return today's date in UTC as ``YYYY-MM-DD``."""
    return datetime.now(UTC).date().isoformat()


def _edited(review: Review, deleted: Entry | None, added: Entry | None, **changes: Any) -> Review:
    """Return the review with ``changes``; record the digest of ``deleted``, and remove the digest of ``added``."""
    digests = dict.fromkeys((*review.deleted, *(() if deleted is None else (deleted.digest,))))
    if added is not None:
        digests.pop(added.digest, None)
    return msgspec.structs.replace(review, deleted=tuple(digests), **changes)


def add_note(text: str, *, tensor: str = "", step: int | None = None) -> None:
    """Add a note of the current author to the review."""
    note = Note(text, tensor, step, current().author, today())
    change(lambda review: _edited(review, None, note, notes=(*review.notes, note)))


def drop_note(note: Note) -> None:
    """Delete a note."""
    change(lambda review: _edited(review, note, None, notes=tuple(other for other in review.notes if other != note)))


def decide(decision: Decision | None) -> None:
    """Set or clear the decision."""
    change(lambda review: _edited(review, review.decision, decision, decision=decision))


def link() -> str:
    """Return the query of the current view."""
    return urlencode(to_query(state.choice()))


def _portable(view: View) -> View:
    return View(view.name, urlencode([pair for pair in parse_qsl(view.link) if pair[0] not in _SERVER_KEYS]))


def add_view(name: str) -> None:
    """Bookmark the current view."""
    view = _portable(View(name, link()))
    change(lambda review: msgspec.structs.replace(review, views=tuple(dict.fromkeys((*review.views, view)))))


def view_changes(view: View) -> dict[str, object]:
    """Return the fields that a bookmark sets. The file is kept; ``moves`` is kept if the baseline does not change."""
    chosen, _ = from_query(dict(parse_qsl(view.link)))
    changes = {name: value for name, value in vars(chosen).items() if name not in _SERVER_KEYS.values()}
    return changes | ({"moves": state.choice().moves} if chosen.baseline == state.choice().baseline else {})


def to_json(shown: Shown, verdict: str, review: Review, link: str) -> bytes:
    """Return the review file of a plan as JSON. Opening the file shows the view that ``link`` encodes."""
    data, name = content_of(shown.opened.source)
    moves = b""
    with suppress(TmmuError):  # the server may have evicted the file with the moves
        if source := dict(parse_qsl(link)).get("moves"):
            moves = content_of(source)[0]
    graph, plan = _encoded(data), _encoded(plan_file.to_cbor(shown.plan))
    rest: dict[str, Any] = {"moves": _encoded(moves) if moves else "", "author": review.author, "date": today()}
    file = ReviewFile(review=review, verdict=verdict, graph_name=name, graph=graph, plan=plan, link=link, **rest)
    return msgspec.json.encode(file)


def is_review(data: bytes) -> bool:
    """Return whether the bytes are a review file in JSON or HTML."""
    return b'"tmmu_review/' in data


def open_or_refuse(data: bytes, name: str) -> None:
    """Open a review file (:func:`open_file`); show an error as a card."""
    try:
        open_file(data, name)
    except TmmuError as error:
        state.add_error_card(card_of(error, f"{name} was not opened", name))


def open_file(data: bytes, name: str) -> None:
    """Restore graph, view and review; also the plan if it matches the graph and the link. Raises ``TmmuError``."""
    embedded = _EMBEDDED.search(data)
    text = embedded[1] if embedded else document.unpack(data)
    with source_of_errors(name):
        document.check_version(document.text_field(text, "schema"), SCHEMA)
        file = document.decode(text, ReviewFile, "review")
    try:
        packed = [base64.b64decode(text, validate=True) for text in (file.graph, file.plan, file.moves)]
        graph, plan, moves = (document.unpack(data, name) for data in packed)
    except ValueError as error:
        raise UnreadableInput(f"the review file is damaged: {error}.", source=name, hint="Export it again.") from error
    source = shelf().put(file.graph_name, graph)
    chosen, _ = from_query(dict(parse_qsl(file.link)))
    chosen = chosen.but(source=source, moves=shelf().put(f"{file.graph_name}{MOVES}", moves) if moves else "")
    is_matching = use_reviewed_plan(chosen, plan_file.from_document(plan, name))
    state.choose(**vars(chosen))
    change(lambda review: merged(review, file.review))
    if not is_matching:
        problem = "the plan in the review file does not match its graph and link; the planner made another plan."
        fault = UnreadableInput(problem, source=name, hint="Check the notes and the decision against the shown plan.")
        state.add_error_card(card_of(fault, f"{name}: another plan is shown", name))


def _encoded(data: bytes) -> str:
    return base64.b64encode(document.pack(data)).decode()
