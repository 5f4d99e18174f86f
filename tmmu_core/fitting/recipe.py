"""A recipe: the moves of a plan as JSON, which can be applied to the same graph again."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import msgspec

from tmmu_core.base import strict
from tmmu_core.base.errors import UnreadableInput
from tmmu_core.base.struct_types import register_types
from tmmu_core.fitting.move import Cost, Kind, Move
from tmmu_core.graph.native import document as documents

SCHEMA = "tmmu_recipe/1"

register_types(Move)

DETAILS: dict[Kind, tuple[str, ...]] = {
    "planner": ("planner", "options"),
    "order": ("order",),
    "inplace": ("pairs",),
    "alignment": ("alignment", "arenas"),
    "sizes": ("dims",),
    "shards": ("spec",),
    "recompute": ("drops",),
    "offload": ("drops", "steps_idle"),
}
"""Kind of move → the keys of its details."""


def recipe(moves: tuple[Move, ...], ir_hash: bytes) -> dict[str, Any]:
    """Return the moves as JSON-ready values; ``ir_hash`` identifies their graph."""
    return {"schema": SCHEMA, "ir_hash": ir_hash.hex(), "moves": [msgspec.to_builtins(move) for move in moves]}


def moves_of(data: bytes) -> tuple[Move, ...]:
    """Return the moves of a recipe file. Raises ``UnreadableInput`` for damaged files and unknown fields."""
    try:
        document = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise UnreadableInput(f"the recipe is not JSON: {error}.") from error
    if isinstance(document, dict):
        documents.refuse_later(document, "")
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        hint = f'A recipe has "schema": "{SCHEMA}".'
        raise UnreadableInput("the document is not a recipe.", place="$.schema", hint=hint)
    _reject_unknown(document, ("schema", "ir_hash", "moves"), "$")
    try:
        found = tuple(msgspec.convert(document.get("moves"), tuple[Move, ...]))
    except msgspec.ValidationError as error:
        hint = strict.field_hint(error, tuple[Move, ...])
        raise UnreadableInput(f"the recipe is damaged: {error}.", hint=hint) from error
    for k, move in enumerate(found):
        written, path = document["moves"][k], f"$.moves[{k}]"
        _reject_unknown(written, [field.name for field in fields(Move)], path)
        _reject_unknown(written.get("cost", {}), [field.name for field in fields(Cost)], f"{path}.cost")
        _reject_unknown(move.details, DETAILS[move.kind], f"{path}.details")
    return found


def _reject_unknown(document: Mapping[str, Any], known: Sequence[str], path: str) -> None:
    key = next((key for key in document if key not in known), None)
    if key is not None:
        what, hint = f"the recipe has the unknown field {key!r}.", strict.closest_hint(key, known)
        raise UnreadableInput(what, place=f"{path}.{key}", hint=hint)
