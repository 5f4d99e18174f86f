"""Infer the shapes of the nodes that open and close scopes (:mod:`.onnx_scopes`), which have no ONNX schema."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from tmmu_core.base.errors import InvalidIrShapes
from tmmu_core.formats.onnx.onnx_model import Found, attribute_of, with_nodes
from tmmu_core.formats.onnx.onnx_scopes import UNBOUNDED, Flat, Origin, branch, carried_of, is_scope
from tmmu_core.graph.model import Dim

Values = Mapping[str, np.ndarray[Any, Any]]


def scope_shapes(model: onnx.ModelProto, known: Mapping[str, Found], values: Values) -> dict[str, Found]:
    """Return new shapes of the outputs of scope nodes, from ``known`` shapes and constant ``values``."""
    new: dict[str, Found] = {}
    weights = {weight.name: (weight.data_type, list(weight.dims)) for weight in model.graph.initializer}
    shapes = ChainMap[str, Found](new, dict(known), weights)
    for node in model.graph.node:
        for name, found in _RULES[node.op_type](node, shapes.get, values) if is_scope(node) else ():
            before = shapes.get(name)
            if name and found is not None and (before is None or _unknown(found) < _unknown(before)):
                new[name] = found
    return new


def _unknown(found: Found) -> int:
    return sum(2 if dim is None else isinstance(dim, str) for dim in found[1])


def same_bytes(a: Typed | None, b: Typed | None) -> bool:
    """Return whether two values have one type and, at every size, the same number of elements."""
    if a is None or b is None or a == b:
        return a == b
    return a[0] == b[0] and None not in (*a[1], *b[1]) and _elements(a[1]) == _elements(b[1])


def _elements(dims: Sequence[int | str | None]) -> tuple[int, list[str]]:
    """Return the number of elements as a number and the names that multiply it."""
    number = prod(dim for dim in dims if isinstance(dim, int))
    return number, sorted(dim for dim in dims if isinstance(dim, str)) if number else []


Typed = tuple[Any, Sequence[int | str | None]]
"""Element type or dtype, and dimensions."""
Shapes = Iterator[tuple[str, Found | None]]


def _if_close(node: onnx.NodeProto, find: Any, values: Values) -> Shapes:
    """Yield the shapes of the results: those of both branches, or of the only branch that runs."""
    count, condition = len(node.output), values.get(node.input[0])
    then, otherwise = node.input[1 : 1 + count], node.input[1 + count :]
    for name, a, b in zip(node.output, then, otherwise, strict=True):
        if condition is not None:
            yield name, find(a if condition.all() else b)
        elif same_bytes(find(a), find(b)):
            yield name, find(a)


def _open(node: onnx.NodeProto, find: Any, _: Values) -> Shapes:
    """Yield the shapes of the carried states (those of the initial values), and scalars for counter and condition."""
    states = _number(node, "states")
    first = len(node.input) - states
    if node.op_type == "Loop.open":
        yield node.output[0], (TensorProto.INT64, [])
        yield node.output[1], (TensorProto.BOOL, [])
    for i in range(states):
        yield node.output[first + i], find(node.input[first + i])


def _next(node: onnx.NodeProto, find: Any, _: Values) -> Shapes:
    """Yield the shapes of the slices: those of the inputs without the scanned axis."""
    for source, row, axis in zip(node.input, node.output, attribute_of(node, "axes") or [], strict=True):
        found = find(source)
        at = None if found is None else _axis(axis, len(found[1]))
        if at is not None:
            yield row, (found[0], [*found[1][:at], *found[1][at + 1 :]])


AT_MOST = "at_most"
"""Attribute of a closing node: the maximum trip count that the user gives, because the model has none."""


def write_trip_limits(flat: Flat, envelopes: Mapping[str, Dim]) -> dict[str, Dim]:
    """Write maximum trip counts that ``envelopes`` gives into loops; return the ones used.

    The key is the name of the trip count (in a body: with the prefix of its scope), or of the loop if it has none.
    """
    used: dict[str, Dim] = {}
    for node, origin in zip(flat.model.graph.node, flat.origins, strict=True):
        count = (node.input[0] or origin.scope) if is_scope(node, "Loop.close") else ""
        if count in envelopes and 0 < envelopes[count].max < UNBOUNDED:
            node.attribute.append(helper.make_attribute(AT_MOST, envelopes[count].max))
            used[count] = envelopes[count]
    return used


def _loop_close(node: onnx.NodeProto, find: Any, values: Values) -> Shapes:
    count = values.get(node.input[0]) if node.input[0] else None
    trips = _number(node, AT_MOST) or UNBOUNDED
    if count is not None:
        trips = int(count.item()) if count.size == 1 else UNBOUNDED
    yield from _closed(node, find, max(0, trips) if trips < UNBOUNDED else None, repeat(0))


def _scan_close(node: onnx.NodeProto, find: Any, _: Values) -> Shapes:
    sliced = find((attribute_of(node, "measured") or b"").decode())
    axis = None if sliced is None else _axis(_number(node, "axis"), len(sliced[1]))
    yield from _closed(node, find, None if axis is None else sliced[1][axis], attribute_of(node, "axes") or [])


def _closed(node: onnx.NodeProto, find: Any, length: int | str | None, axes: Iterable[int]) -> Shapes:
    """Yield the shapes of the final states, and of the stacked outputs and their buffers, which add an axis."""
    carried = carried_of(node)
    for state, output in zip(carried.states, node.output, strict=False):
        yield output, find(state)
    collected = node.output[len(carried.states) :]
    for buffer, row, axis, output in zip(carried.stacked, carried.slices, axes, collected, strict=False):
        found = find(row)
        at = None if found is None else _axis(axis, len(found[1]) + 1)
        if at is not None:
            yield output, (found[0], [*found[1][:at], length, *found[1][at:]])
        yield buffer, find(output)


_RULES: dict[str, Any] = {
    "If.close": _if_close,
    "Loop.open": _open,
    "Loop.close": _loop_close,
    "Scan.open": _open,
    "Scan.next": _next,
    "Scan.close": _scan_close,
}


def _axis(axis: int, rank: int) -> int | None:
    return axis % rank if -rank <= axis < rank else None


def _number(node: onnx.NodeProto, name: str) -> int:
    return int(attribute_of(node, name) or 0)


# --- constant conditions ---------------------------------------------------------------------------------


def without_dead_branches(flat: Flat, values: Values) -> Flat:
    """Return the model without branches that are never taken, because the condition is constant in ``values``."""
    dead: set[str] = set()
    taken: dict[int, bool] = {}
    for k, node in enumerate(flat.model.graph.node):
        if is_scope(node, "If.close") and node.input[0] in values:
            taken[k] = bool(values[node.input[0]].all())
            dead.add(branch(_number(node, "number"), not taken[k]))
    if not dead:
        return flat
    nodes: list[onnx.NodeProto] = []
    origins: list[Origin] = []
    for k, (node, origin) in enumerate(zip(flat.model.graph.node, flat.origins, strict=True)):
        if not dead.isdisjoint(origin.branches):
            continue
        if k not in taken:
            nodes.append(node)
            origins.append(origin)
            continue
        count = len(node.output)
        results = node.input[1 : 1 + count] if taken[k] else node.input[1 + count :]
        for i, (result, output) in enumerate(zip(results, node.output, strict=True)):
            if output:
                nodes.append(helper.make_node("Identity", [result], [output], name=f"{origin.scope}/taken_{i}"))
                origins.append(origin)
    return replace(flat, model=with_nodes(flat.model, nodes), origins=tuple(origins))


# --- shapes that must agree ---------------------------------------------------------------------------------------


def check_scopes(
    flat: Flat, shape: Mapping[str, Any], dtype: Mapping[str, str], point: Mapping[str, int], source: str
) -> bool:
    """Raise ``InvalidIrShapes`` (reason ``scope_shape``) if a state changes its shape or branches have different sizes.

    Returns whether they agree at every size, not only at ``point``. Branches may differ in axes of size 1. Unknown
    shapes are skipped: the graph builder refuses them.
    """
    everywhere = True
    for node, origin in zip(flat.model.graph.node, flat.origins, strict=True):
        for first, second, problem in _equals(node):
            if not all(name in shape and name in dtype for name in (first, second)):
                continue
            a, b = ((dtype[name], shape[name]) for name in (first, second))
            is_branch = is_scope(node, "If.close")
            if a == b or (is_branch and same_bytes(a, b)):
                continue
            everywhere = False
            if is_branch and same_bytes(*[(kind, [point.get(dim, dim) for dim in dims]) for kind, dims in (a, b)]):
                continue
            texts = [f"{kind}{list(dims)}" for kind, dims in (a, b)]
            operator = node.op_type.partition(".")[0]
            what = f'the operator {operator} ("{origin.scope}"): {problem} ("{first}" is {texts[0]}, '
            what += f'"{second}" is {texts[1]}); both have one buffer.'
            hint = "Give both one shape, padding where needed, or simplify the model first."
            scope = origin.scope
            raise InvalidIrShapes(what, hint=hint, reason="scope_shape", tensor=second, node_id=scope, source=source)
    return everywhere


def _equals(node: onnx.NodeProto) -> Iterator[tuple[str, str, str]]:
    """Yield pairs of values that must have one shape and dtype, and the error if they differ."""
    if is_scope(node, "If.close"):
        count = len(node.output)
        for a, b in zip(node.input[1 : 1 + count], node.input[1 + count :], strict=True):
            yield a, b, "its branches give results of different shapes"
    if is_scope(node, "Loop.close", "Scan.close"):
        carried = carried_of(node)
        for state, result in zip(carried.states, carried.results, strict=True):
            yield state, result, "its state changes from one iteration to the next"
