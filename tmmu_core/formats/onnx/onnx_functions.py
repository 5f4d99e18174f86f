"""Inline the local functions of an ONNX model; the resulting size is computed first.

Functions call functions: thirty of them with two calls each are 2^30 nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx
from onnx import inliner

from tmmu_core.base import limits
from tmmu_core.base.errors import UnreadableInput
from tmmu_core.formats.onnx.onnx_model import first_line

Key = tuple[str, str, str]
"""(domain, name, overload) of a function."""
OTHER_NAME = "ai.onnx"
"""Second name of ONNX's default operator set, whose first name is empty. Both are valid."""


def inlined(model: onnx.ModelProto, name: str) -> onnx.ModelProto:
    """Return the model with its functions inlined and the default operator set under one name. Changes ``model``.

    Raises ``UnreadableInput`` as :func:`check_calls`, and for a function that cannot be inlined.
    """
    _unify_domains(model)
    if not model.functions:
        return model
    check_calls(model, name)
    try:
        return inliner.inline_local_functions(model)
    except Exception as error:  # the inliner raises bare RuntimeErrors of its own
        function = model.functions[0]
        raise UnreadableInput(
            f'the local function "{function.domain}::{function.name}" cannot be inlined: {first_line(error)}',
            source=name,
            hint="Export the model without functions.",
        ) from error


def _unify_domains(model: onnx.ModelProto) -> None:
    for holder in (model, *model.functions):
        named = {entry.domain for entry in holder.opset_import}
        for k in reversed(range(len(holder.opset_import))):
            if holder.opset_import[k].domain == OTHER_NAME and "" in named:
                del holder.opset_import[k]
        for part in (*model.functions, *holder.opset_import, *_nodes(_own(holder))):
            if part.domain == OTHER_NAME:
                part.domain = ""


def _own(holder: onnx.ModelProto | onnx.FunctionProto) -> Iterable[onnx.NodeProto]:
    return holder.graph.node if isinstance(holder, onnx.ModelProto) else holder.node


def check_calls(model: onnx.ModelProto, name: str) -> None:
    """Raise ``UnreadableInput`` if functions are recursive or inline to more nodes than the limit."""
    bodies: dict[Key, onnx.FunctionProto] = {_key(function): function for function in model.functions}
    size: dict[Key, int] = {}
    stack: list[tuple[Key, Iterator[Key]]] = []
    entered: set[Key] = set()
    ceiling = limits.ceiling(limits.INLINED_NODES)

    def enter(key: Key) -> None:
        entered.add(key)
        stack.append((key, iter(_calls(bodies[key].node, bodies))))

    for key in bodies:
        if key not in size:
            enter(key)
        while stack:
            at, calls = stack[-1]
            called = next((each for each in calls if each not in size), None)
            if called is None:
                stack.pop()
                size[at] = _size(bodies[at].node, size, ceiling)
            elif called in entered:
                raise UnreadableInput(
                    f'the local function "{called[0]}::{called[1]}" calls itself.',
                    source=name,
                    hint="Export the model without functions.",
                )
            else:
                enter(called)
    if _size(model.graph.node, size, ceiling) > ceiling:
        raise limits.past(limits.INLINED_NODES, "the model with its local functions inlined", name)


def _key(function: onnx.FunctionProto | onnx.NodeProto) -> Key:
    called = function.name if isinstance(function, onnx.FunctionProto) else function.op_type
    return function.domain, called, getattr(function, "overload", "")


def _nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Yield the nodes and those of their bodies."""
    waiting = [iter(nodes)]
    while waiting:
        node = next(waiting[-1], None)
        if node is None:
            waiting.pop()
            continue
        yield node
        for attribute in node.attribute:
            waiting += [iter(graph.node) for graph in (attribute.g, *attribute.graphs) if graph.node]


def _calls(nodes: Iterable[onnx.NodeProto], bodies: dict[Key, onnx.FunctionProto]) -> list[Key]:
    """Return the functions that are called, each once, in the order of the nodes."""
    return list(dict.fromkeys(key for node in _nodes(nodes) if (key := _key(node)) in bodies))


def _size(nodes: Iterable[onnx.NodeProto], size: dict[Key, int], ceiling: int) -> int:
    total = 0
    for node in _nodes(nodes):
        total += size.get(_key(node), 1)
        if total > ceiling:
            return ceiling + 1
    return total
