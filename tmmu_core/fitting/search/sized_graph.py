"""The graph of a model at another size, extrapolated from its graphs at consecutive sizes."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec

from tmmu_core.graph.model import Graph


def sized_graph(graphs: Sequence[Graph], steps: int) -> Graph | None:
    """Return the graph at the size of the first graph plus ``steps``; every number is a polynomial of the size.

    ``graphs`` have consecutive sizes: two for linear numbers, three for quadratic ones. Return ``None`` if they
    differ in more than integers, or if a number would be negative.
    """
    try:
        return msgspec.convert(_extended([msgspec.to_builtins(each) for each in graphs], steps), type(graphs[0]))
    except ValueError:
        return None


def _extended(values: list[Any], steps: int) -> Any:
    first = values[0]
    if all(value == first for value in values):
        return first
    if all(isinstance(value, dict) and value.keys() == first.keys() for value in values):
        return {key: _extended([value[key] for value in values], steps) for key in first}
    if all(isinstance(value, list | tuple) and len(value) == len(first) for value in values):
        return [_extended(list(parts), steps) for parts in zip(*values, strict=True)]
    if not all(type(value) is int for value in values) or (number := _newton(values, steps)) < 0:
        raise ValueError
    return number


def _newton(values: list[int], steps: int) -> int:
    """Return the value at ``steps`` of the polynomial with ``values`` at 0, 1, …, by forward differences."""
    number, binomial = 0, 1
    for k in range(len(values)):
        number += binomial * values[0]
        binomial = binomial * (steps - k) // (k + 1)
        values = [second - first for first, second in pairwise(values)]
    return number
