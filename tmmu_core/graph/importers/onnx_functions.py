"""How large a model becomes when its local functions are inlined: counted before it is done.

A function may call functions that call functions: thirty of three lines each, two calls a line, are 2^30 nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx

from tmmu_core import limits
from tmmu_core.errors import UnreadableInput

Key = tuple[str, str, str]
"""(domain, name, overload) of a function."""


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
