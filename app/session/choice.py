"""What a person has chosen, as one value; and the same as the query of a link.

A link holds everything that makes the screen: which graph, how it is planned, what is selected and how it is shown.
Defaults are left out, so that the first screen has a bare address. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from app.say import words
from tmmu_core.graph.model import MODES, PRESETS

FIRST_SAMPLE = "sample:resnet50"
VIEWS = ("lifetimes", "slots", "map")
VIEW_NAMES = {"lifetimes": "Lifetimes", "slots": "Slots", "map": "Arena map"}
COLOURS = ("role", "slot", "arena", "operator", "size")

Pairs = tuple[tuple[str, int], ...]
"""Name → number, by name; a tuple because a choice is a key."""


@dataclass(frozen=True)
class Choice:
    """Everything that a link copies. Empty texts and ``None`` mean: the default of what is shown."""

    source: str = FIRST_SAMPLE
    """``sample:<name>``, or ``file:<first 16 hex digits of its SHA-256>`` of a file that this server has opened."""
    mode: str = ""
    preset: str = ""
    planner: str = ""
    options: str = ""
    """What differs from the planner's defaults, as a JSON object with sorted keys (:func:`options_text`)."""
    alignment: int | None = None
    """Bytes, for every arena; the contract's 128 where it is not said."""
    arenas: str = ""
    """The arenas that are declared, as the JSON object that ``--arenas`` reads; empty for the contract's three."""
    capacities: Pairs = ()
    """Arena → bytes."""
    page_size: int | None = None
    budget: int | None = None
    dims: Pairs = ()
    baseline: str = ""
    """What Compare sets against the current plan: ``planner:<name>``, or a source as above."""
    swapped: bool = False
    view: str = "map"
    colour: str = ""
    """What colours tell; empty for the view's own (slots in the slot view, roles in the others)."""
    selected: str = ""
    search: str = ""
    marked: str = ""
    """``witness`` where the tensors that make the lower bound are marked."""
    step: int | None = None
    arena: str = ""
    """The arena looked at; ``*`` for all at once where they are drawn; empty for the one in which most is planned."""
    shard: str = ""
    """The shard spec that Ranks plans by, as JSON; empty for the first of its presets."""
    rank: int | None = None
    """The rank of ``shard`` whose share of the graph is planned; ``None`` for the whole graph."""
    look: int | None = None
    """The rank that Ranks has opened."""
    dim: str = ""
    """The dimension that Shapes varies; empty for the first."""
    shapes: str = ""
    """The sequence of shapes of a replan session, as typed; empty for a preset."""
    policy: str = ""
    """The session's replan policy; empty for the graph's own."""
    plan_at: str = ""
    """Where a session plans: ``upper`` ends of the envelopes, or at each ``point``."""

    def but(self, **changes: Any) -> Choice:
        """A copy with some fields changed."""
        return replace(self, **changes)

    def under(self, planner: str) -> Choice:
        """The same under another planner; options are a planner's own."""
        return self.but(planner=planner, options=self.options if planner == self.planner else "")

    @property
    def problem(self) -> tuple[Any, ...]:
        """The part that decides the plan, as a key."""
        return (
            *(self.source, self.mode, self.preset, self.planner, self.alignment, self.capacities),
            *(self.page_size, self.budget, self.dims, self.options, self.arenas),
            *((self.shard, self.rank) if self.rank is not None else ("", None)),
        )


_TEXTS = (
    *("source", "mode", "preset", "planner", "baseline", "view", "colour", "selected", "search", "arena"),
    *("options", "arenas", "marked", "shard", "dim", "shapes", "policy", "plan_at"),
)
_NUMBERS = ("alignment", "page_size", "budget", "step", "rank", "look")
_COUNTS = ("step", "rank", "look")
"""Numbers that are no bytes."""
_PAIRS = ("capacities", "dims")
_NAMES = {"source": "graph", "selected": "tensor", "search": "q", "page_size": "page", "capacities": "capacity"}
"""Field → its name in a link, where the two differ."""

POLICIES = ("ABORT", "REPLAN_AT_SAFEPOINT")
PLAN_AT = ("upper", "point")
_ALLOWED: dict[str, tuple[str, ...]] = {
    "mode": MODES,
    "preset": PRESETS,
    "view": VIEWS,
    "colour": COLOURS,
    "policy": POLICIES,
    "plan_at": PLAN_AT,
    "marked": ("witness",),
}


def to_query(choice: Choice) -> dict[str, str]:
    """The query of a link: changed fields only, in the order of the fields."""
    query: dict[str, str] = {}
    for field in fields(choice):
        value = getattr(choice, field.name)
        if value == field.default:
            continue
        if field.name in _PAIRS:
            text = ",".join(f"{name}={n}" for name, n in value)
        elif field.name == "swapped":
            text = "1"
        else:
            text = str(value)
        query[_NAMES.get(field.name, field.name)] = text
    return query


def from_query(query: Mapping[str, str]) -> tuple[Choice, tuple[str, ...]]:
    """``(choice, complaints)``: what a link says. What it says wrongly is left at its default and named."""
    values: dict[str, Any] = {}
    complaints: list[str] = []
    known = {_NAMES.get(field.name, field.name): field.name for field in fields(Choice)}
    for key, text in query.items():
        name = known.get(key)
        if name is None:
            complaints.append(f"The link says {key}={text!r}: no link of this version says {key}.")
            continue
        try:
            values[name] = _read(name, text)
        except ValueError as error:
            complaints.append(f"The link says {key}={text!r}: {error}")
    return Choice(**values), tuple(complaints)


def _read(name: str, text: str) -> Any:
    if name == "swapped":
        return text == "1"
    if name in _TEXTS:
        allowed = _ALLOWED.get(name, ())
        if allowed and text not in allowed:
            raise ValueError(f"choose one of {', '.join(allowed)}.")
        if name == "arenas" and text:
            return options_text(read_declared(text))
        return _options(text) if name == "options" else text
    if name in _COUNTS:
        return _count(text)
    if name in _NUMBERS:
        return _number(text)
    pairs = [part.rpartition("=") for part in text.split(",") if part]
    return tuple(sorted((key, _number(value)) for key, _, value in pairs))


def _options(text: str) -> str:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON: {error}.") from error
    if not isinstance(value, dict):
        raise ValueError("it is not a JSON object.")
    return options_text(value)


def options_text(options: Mapping[str, Any]) -> str:
    """Planner options as the text that a choice holds; ``""`` for none."""
    return json.dumps(options, sort_keys=True, ensure_ascii=False, separators=(",", ":")) if options else ""


def options_of(choice: Choice) -> dict[str, Any]:
    """The planner options that a choice names."""
    options: dict[str, Any] = json.loads(choice.options) if choice.options else {}
    return options


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 20:
        raise ValueError("it is no whole number from 0 up.")
    return int(text)


def _number(text: str) -> int:
    value = words.parse_bytes(text)
    if value is None:
        raise ValueError("a number is missing.")
    return value


def read_declared(text: str) -> dict[str, dict[str, Any]]:
    """An arena configuration as typed. Raises ``ValueError`` with a sentence; figures are checked when it is used."""
    try:
        config = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON: {error.msg} at line {error.lineno}, column {error.colno}.") from error
    if not isinstance(config, dict) or not all(isinstance(arena, dict) for arena in config.values()):
        raise ValueError("it is not a JSON object with an object per arena.")
    return config


def declared_of(choice: Choice) -> dict[str, dict[str, Any]]:
    """The arenas that a choice declares itself; none for the contract's three."""
    return read_declared(choice.arenas) if choice.arenas else {}


def arena_config(choice: Choice, arenas: tuple[str, ...]) -> dict[str, dict[str, Any]] | None:
    """The arena configuration for ``plan_graph``, as little as was chosen; ``None`` where nothing was.

    ``arenas`` are the names in use; all of them are declared, for a configuration that is not empty must be whole.
    """
    declared = declared_of(choice)
    arenas = tuple(declared) or arenas
    capacities = {name: n for name, n in choice.capacities if name in arenas}
    if has_defaults(choice.but(capacities=tuple(capacities.items()))):
        return None
    config: dict[str, dict[str, Any]] = {}
    for name in arenas:
        config[name] = dict(declared.get(name, {}))
        if name in capacities:
            config[name]["capacity_bytes"] = capacities[name]
        if choice.alignment is not None:
            config[name]["alignment_bytes"] = choice.alignment
        if choice.page_size is not None:
            config[name]["page_size"] = choice.page_size
    return config


def has_defaults(choice: Choice) -> bool:
    """Whether nothing about the arenas was chosen."""
    return choice.alignment is None and choice.page_size is None and not choice.capacities and not choice.arenas
