"""A recipe: the moves of a plan as JSON, to be read by people and other tools, and made again on the same graph."""

from __future__ import annotations

from typing import Any

import msgspec

from tmmu_core.errors import UnreadableInput
from tmmu_core.fit.moves import Move
from tmmu_core.once import learned

SCHEMA = "tmmu_recipe/1"

learned(Move)


def recipe(moves: tuple[Move, ...], ir_hash: bytes) -> dict[str, Any]:
    """The moves, JSON-ready; ``ir_hash`` is that of the graph that they were found for."""
    return {"schema": SCHEMA, "ir_hash": ir_hash.hex(), "moves": [msgspec.to_builtins(move) for move in moves]}


def moves_of(data: bytes) -> tuple[Move, ...]:
    """The moves of a recipe. Raises ``UnreadableInput``."""
    try:
        document = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise UnreadableInput(f"the recipe is not JSON: {error}.") from error
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise UnreadableInput("this is no recipe.", place="$.schema", hint=f'A recipe says "schema": "{SCHEMA}".')
    try:
        found = tuple(msgspec.convert(document.get("moves"), tuple[Move, ...]))
    except msgspec.ValidationError as error:
        raise UnreadableInput(f"the recipe is damaged: {error}.") from error
    return found
