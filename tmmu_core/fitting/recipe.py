"""A recipe: the moves of a plan as JSON."""

from typing import Any

import msgspec

from tmmu_core.base.struct_types import register_types
from tmmu_core.fitting.move import Move

register_types(Move)


def recipe(moves: tuple[Move, ...], ir_hash: bytes) -> dict[str, Any]:
    """Return the moves as JSON-ready values; ``ir_hash`` identifies their graph."""
    return {"schema": "tmmu_recipe/1", "ir_hash": ir_hash.hex(), "moves": [msgspec.to_builtins(move) for move in moves]}
