"""Convert the fields of a planning request from and to text: command-line options, links and files."""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from tmmu_core.base import strict
from tmmu_core.base.errors import UnreadableInput, source_of_errors
from tmmu_core.base.strict import whole_number
from tmmu_core.graph.checks import dims_text, refuse_too_many_arenas
from tmmu_core.graph.native.document import decode, refuse_long_numbers, refuse_many_values
from tmmu_core.graph.quantities import pair_texts, parse_bytes, read_pairs
from tmmu_core.planners import PLANNERS
from tmmu_core.plans.canonical import is_token
from tmmu_core.plans.making.request import ADDRESSINGS, ANY_ARENA, PlanRequest


@dataclass(frozen=True)
class OptionSpec:
    """The text forms of a field."""

    option: str  # name of the command-line option, such as ``--dims``
    metavar: str
    help_text: str  # help text, with the default in brackets
    read: Callable[[str], Any] = lambda text: text
    """Text → value. Raises ``ValueError`` with a sentence, or ``UnreadableInput`` for the text of a file."""
    write: Callable[[Any], str] = str
    link: str = ""  # key in a link; empty: the name of the field
    many: bool = False
    """Whether the option is repeatable, with one value each time; :attr:`read` parses a text with all values."""
    file: str = ""  # what the file contains, for an option whose value is a file name
    flag: bool = False  # whether the option has no value


def _parse_flag(text: str) -> bool:
    if text not in ("0", "1"):
        raise ValueError(f"{strict.shown(text)} is neither 1 nor 0.")
    return text == "1"


def _bytes(text: str) -> int:
    value = parse_bytes(text)
    if value is None:
        raise ValueError("the size is missing. Write bytes, or a number with KiB, MiB or GiB.")
    return value


def _token(text: str) -> bytes:
    with suppress(ValueError):
        token = bytes.fromhex(text)
        if is_token(token):
            return token
    raise ValueError(f"the token {text[:80]!r} has neither 64 hexadecimal digits nor, for blake3_sparse, 128 or more.")


def _addressing(text: str) -> str:
    if text not in ADDRESSINGS:
        raise ValueError(f"there is no addressing {strict.shown(text)}. {strict.closest_hint(text, ADDRESSINGS)}")
    return text


def _pairs(text: str, read: Callable[[str, str], int], no_name: str | None = None) -> dict[str, int]:
    """Parse ``NAME=VALUE`` pairs and sort them by name; a value without a name gets ``no_name``."""
    pairs: dict[str, int] = {}
    for name, value in read_pairs(text):
        name = no_name if name is None else name
        if name is None:
            raise ValueError(f"{text[:80]!r} is not of the form KEY=VALUE.")
        pairs[name] = read(name, value)
    if not pairs:
        raise ValueError("the value is empty.")
    return dict(sorted(pairs.items()))


def _dimension(name: str, value: str) -> int:
    try:
        return whole_number(value)
    except ValueError as error:
        raise ValueError(f"the dimension {name!r}: {error}") from None


def capacity_texts(capacities: Mapping[str, int]) -> list[str]:
    """Return each capacity in the form of ``--capacity``."""
    return pair_texts((None if name == ANY_ARENA else name, size) for name, size in sorted(capacities.items()))


def read_json_object(text: str, what: str) -> dict[str, Any]:
    """Return a JSON object with unique keys; ``what`` is its name in errors. Raises ``UnreadableInput``."""
    value = read_json(text, what)
    if not isinstance(value, dict):
        hint = 'Write a JSON object, such as {"name": 1}.'
        raise UnreadableInput(f"the {what} is not a JSON object.", place="$", hint=hint)
    return value


def read_json(text: str, what: str) -> Any:
    """Return a JSON value with unique keys and numbers that fit 64 bits. Raises ``UnreadableInput``."""
    data = text.removeprefix("\ufeff").encode("utf-8", "replace")
    with source_of_errors(what):
        refuse_many_values(data)
        return decode(data, Any)


def read_arenas_text(text: str) -> dict[str, Any]:
    """Return an arena configuration: an object per arena. Raises ``UnreadableInput``."""
    config = read_json_object(text, "arena configuration")
    refuse_too_many_arenas(config)
    for name, arena in config.items():
        if not isinstance(arena, dict):
            message = "an arena is not a JSON object."
            hint = 'Write it as {"capacity_bytes": 1048576, "alignment_bytes": 128, "page_size": 4096}.'
            raise UnreadableInput(message, place=f"$.{name}", hint=hint)
    return config


def _order(text: str) -> tuple[str, ...]:
    hint = "Write a JSON list of node ids, or one id per line."
    if text.lstrip()[:1] == "{":
        raise UnreadableInput("the order is a JSON object.", place="$", hint=hint)
    if text.lstrip()[:1] != "[":
        return tuple(line.strip() for line in text.splitlines() if line.strip())
    node_ids = read_json(text, "order")
    for i, node in enumerate(node_ids):
        if not isinstance(node, str):
            raise UnreadableInput("a node id of the order is not a string.", place=f"$[{i}]", hint=hint)
    return tuple(node_ids)


def json_text(value: Any) -> str:
    """Return JSON in one line with sorted keys."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def option_pairs(texts: list[str]) -> dict[str, Any]:
    """Return planner options from texts ``KEY=VALUE`` (JSON or text). Raises ``ValueError``, ``UnreadableInput``."""
    options: dict[str, Any] = {}
    for text in texts:
        key, separator, value = (part.strip() for part in text.partition("="))
        if not separator or not key:
            raise ValueError(f"{text[:80]!r} is not of the form KEY=VALUE. Example: budget=100.")
        if key in options:
            raise ValueError(f"{key!r} occurs twice.")
        data = value.encode("utf-8", "replace")
        with source_of_errors(f"option {key}"):
            refuse_many_values(data)
            refuse_long_numbers(data)
        try:
            options[key] = json.loads(value)
        except (ValueError, RecursionError):
            options[key] = value
    return options


def _file(option: str, content: str, help_text: str, read: Callable[[str], Any]) -> OptionSpec:
    """Return the spec of an option whose value is the name of a file with this content."""
    return OptionSpec(option, "FILE", help_text, read, json_text, file=content)


OPTION_SPECS: Mapping[str, OptionSpec] = {
    "mode": OptionSpec(
        "--mode",
        "M",
        "Nodes to plan: forward, backward or inference [backward if the graph has backward nodes, else inference].",
    ),
    "preset": OptionSpec(
        "--preset",
        "P",
        "Tensors kept for the backward pass: train_full, inference or remat_enabled [depends on the mode].",
    ),
    "planner": OptionSpec("--planner", "NAME", f"Planner: {', '.join(PLANNERS)} [depends on the file, usually slots]."),
    "options": OptionSpec(
        "--option",
        "KEY=VALUE",
        "Planner option; the value is JSON or text. Repeatable.",
        lambda text: read_json_object(text, "planner's options"),
        json_text,
        many=True,
    ),
    "arenas": _file(
        "--arenas",
        "arena configuration",
        "Arena configuration: JSON, arena → capacity, alignment, page size.",
        read_arenas_text,
    ),
    "alignment": OptionSpec("--alignment", "BYTES", "Alignment of every arena [128, or that of the file].", _bytes),
    "capacities": OptionSpec(
        "--capacity",
        "[ARENA=]BYTES",
        "Memory limit for all tensors, or the capacity of one arena [unlimited]. Repeatable.",
        lambda text: _pairs(text, lambda _, value: _bytes(value), ANY_ARENA),
        lambda capacities: ",".join(capacity_texts(capacities)),
        link="capacity",
        many=True,
    ),
    "one_memory": OptionSpec(
        "--one-memory",
        "",
        "Place all tensors in one arena, as --capacity BYTES does.",
        _parse_flag,
        lambda is_set: "1" if is_set else "",
        flag=True,
    ),
    "page_size": OptionSpec("--page-size", "BYTES", "Page size of every arena [none].", _bytes, link="page"),
    "order": _file("--order", "execution order", "Execution order: JSON list of node ids, or one id per line.", _order),
    "token": OptionSpec("--token", "HEX", "Replay token, 64 hexadecimal digits.", _token, bytes.hex),
    "seed": OptionSpec("--seed", "N", "Seed of the replay token [0].", whole_number),
    "rank": OptionSpec("--rank", "R", "Rank to plan [0].", whole_number),
    "world_size": OptionSpec("--world-size", "W", "Number of ranks [mesh size, or 1].", whole_number, link="world"),
    "shard_spec": _file(
        "--shard",
        "shard spec",
        "Shard spec, JSON: plan the rank's share of the graph.",
        lambda text: read_json_object(text, "shard spec"),
    ),
    "dims": OptionSpec(
        "--dims",
        "B=8,T=512",
        "Sizes of named dimensions [the sizes that the reader assumes, else the upper bounds].",
        lambda text: _pairs(text, _dimension),
        dims_text,
    ),
    "budget": OptionSpec("--budget", "BYTES", "Maximum total size of all arenas [unlimited].", _bytes),
    "addressing": OptionSpec(
        "--addressing",
        "KIND",
        "Addresses: offsets, or blake3_sparse (hashed, only for old plans) [offsets].",
        _addressing,
    ),
}
"""Field of a :class:`PlanRequest` → its text forms, in the order of the fields."""
FIELDS_OF_INSTANCES = ("planner", "options", "arenas", "alignment", "page_size", "capacities", "token", "seed")
"""The fields that apply to instances too; the others apply only to graphs."""


class Contradiction(NamedTuple):
    """Fields of a request that no plan can satisfy."""

    message: str
    hint: str
    field: str  # the field that a link leaves out to resolve the contradiction


def contradiction(request: PlanRequest) -> Contradiction | None:
    """Return the first contradiction in a request; ``None`` without one."""
    world = request.world_size or 1
    if request.token is not None and request.seed is not None:
        hint = "The token is computed from the seed; give one of them."
        return Contradiction("--token and --seed exclude each other.", hint, "seed")
    if request.world_size == 0:
        return Contradiction("the number of ranks is 0.", "Give --world-size 1 or more.", "world_size")
    if request.shard_spec is None and request.rank >= world:
        message = f"there is no rank {request.rank}; the number of ranks is {world}."
        return Contradiction(message, f"Give a rank from 0 to {world - 1}.", "rank")
    return None


def first_graph_option(request: PlanRequest) -> str | None:
    """Return the name of the first field in the request that applies only to graphs; ``None`` without one."""
    return next((name.replace("_", " ") for name in option_texts(request) if name not in FIELDS_OF_INSTANCES), None)


def option_texts(request: PlanRequest) -> dict[str, str]:
    """Return field → text of the fields that differ from their defaults, in the order of the fields."""
    defaults = PlanRequest()
    return {
        name: spec.write(getattr(request, name))
        for name, spec in OPTION_SPECS.items()
        if getattr(request, name) != getattr(defaults, name)
    }
