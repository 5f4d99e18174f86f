"""A model without local functions, and how large it becomes: counted before it is done.

A function may call functions that call functions: thirty of three lines each, two calls a line, are 2^30 nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx
from onnx import inliner

from tmmu_core import limits
from tmmu_core.errors import UnreadableInput
from tmmu_core.graph.importers.onnx_names import first_line

Key = tuple[str, str, str]
"""(domain, name, overload) of a function."""
OTHER_NAME = "ai.onnx"
"""Of the set of operators without a name: ONNX's own. Both are valid, in the model's list and at a node."""


def inlined(model: onnx.ModelProto, name: str) -> onnx.ModelProto:
    """The model with the bodies of its functions where they are called, and ONNX's own operators by one name.

    Changes ``model``. Raises ``UnreadableInput`` as :func:`check_calls`, and for a function that cannot be inlined.
    """
    _name_alike(model)
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


def _name_alike(model: onnx.ModelProto) -> None:
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
    """Raise ``UnreadableInput`` where inlining would make more nodes than the limit, or never end."""
    bodies: dict[Key, onnx.FunctionProto] = {_key(function): function for function in model.functions}
    size: dict[Key, int] = {}
    open_: list[tuple[Key, Iterator[Key]]] = []
    entered: set[Key] = set()
    ceiling = limits.ceiling(limits.INLINED_NODES)

    def enter(key: Key) -> None:
        entered.add(key)
        open_.append((key, iter(_calls(bodies[key].node, bodies))))

    for key in bodies:
        if key not in size:
            enter(key)
        while open_:
            at, calls = open_[-1]
            called = next((each for each in calls if each not in size), None)
            if called is None:
                open_.pop()
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
    """The nodes and those of the bodies that they carry."""
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
    """The functions that are called, each once, in the order of the nodes: the first that is wrong is told."""
    return list(dict.fromkeys(key for node in _nodes(nodes) if (key := _key(node)) in bodies))


def _size(nodes: Iterable[onnx.NodeProto], size: dict[Key, int], ceiling: int) -> int:
    total = 0
    for node in _nodes(nodes):
        total += size.get(_key(node), 1)
        if total > ceiling:
            return ceiling + 1
    return total
