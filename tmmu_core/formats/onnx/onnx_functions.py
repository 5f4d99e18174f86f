"""Inline the local functions of an ONNX model; the resulting size is computed first.

Functions call functions: thirty of them with two calls each are 2^30 nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter

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
        nodes = holder.graph.node if isinstance(holder, onnx.ModelProto) else holder.node
        for part in (*model.functions, *holder.opset_import, *_nodes(nodes)):
            if part.domain == OTHER_NAME:
                part.domain = ""


def check_calls(model: onnx.ModelProto, name: str) -> None:
    """Raise ``UnreadableInput`` if functions are recursive or inline to more nodes than the limit."""
    bodies = {_key(function): function.node for function in model.functions}
    calls = {key: {_key(node) for node in _nodes(body)} & bodies.keys() for key, body in bodies.items()}
    ceiling = limits.ceiling(limits.INLINED_NODES)
    size: dict[Key, int] = {}

    def inlined_size(nodes: Iterable[onnx.NodeProto]) -> int:
        return min(ceiling + 1, sum(size.get(_key(node), 1) for node in _nodes(nodes)))

    try:
        for key in TopologicalSorter(calls).static_order():
            size[key] = inlined_size(bodies[key])
    except CycleError as error:
        domain, function, _ = error.args[1][0]
        raise UnreadableInput(
            f'the local function "{domain}::{function}" calls itself.',
            source=name,
            hint="Export the model without functions.",
        ) from error
    if inlined_size(model.graph.node) > ceiling:
        raise limits.past(limits.INLINED_NODES, "the model with its local functions inlined", name)


def _key(function: onnx.FunctionProto | onnx.NodeProto) -> Key:
    called = function.name if isinstance(function, onnx.FunctionProto) else function.op_type
    return function.domain, called, getattr(function, "overload", "")


def _nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Yield the nodes and those of their bodies."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _nodes(graph.node)
