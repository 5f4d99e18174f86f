"""The graph of a step at another batch, from its graphs at two neighbouring batches."""

from __future__ import annotations

from typing import Any

import msgspec

from tmmu_core.graph.model import Graph


def sized_graph(first: Graph, second: Graph, steps: int) -> Graph | None:
    """Return ``first`` with every number moved ``steps`` times as far as from ``first`` to ``second``.

    ``None`` where the two graphs differ in more than numbers, or a number would be negative: then the step at that
    batch has to be traced.
    """
    try:
        return msgspec.convert(_moved(msgspec.to_builtins(first), msgspec.to_builtins(second), steps), type(first))
    except _Differs:
        return None


class _Differs(Exception):
    """Two graphs differ in more than numbers."""


def _moved(one: Any, other: Any, steps: int) -> Any:
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return {key: _moved(value, other[key], steps) for key, value in one.items()}
    if isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        return [_moved(*pair, steps) for pair in zip(one, other, strict=True)]
    if type(one) is int and type(other) is int and one + steps * (other - one) >= 0:
        return one + steps * (other - one)
    if one != other:
        raise _Differs
    return one
