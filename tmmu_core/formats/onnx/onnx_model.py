"""Parts of an ONNX model that several steps of the reader need: names, attributes, weights, operators, functions.

Planning needs no weight's bytes, so no external file is opened. A path outside of the model's folder is refused all the
same: a runtime that loads the model later would follow it.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any

import onnx
from onnx import helper, inliner

from tmmu_core.base import limits
from tmmu_core.base.errors import UnreadableInput

Found = tuple[int, list[int | str | None]]
"""Element type, and dimensions as number, name or ``None``."""
Known = dict[str, Found]
"""Value → type and shape."""

ELEMENTWISE_IN_FIRST: frozenset[str] = frozenset({"BatchNormalization"})
"""Element-wise in the first input; the others hold a value per channel. Inference only."""
VIEWS: frozenset[str] = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Dropout"})
"""The output has the bytes of the first input (``Dropout``: outside of training)."""
SUBGRAPHS: frozenset[str] = frozenset({"If", "Loop", "Scan", "SequenceMap"})
MEASURES: frozenset[str] = frozenset({"Shape", "Size"})
"""Constant as soon as the shape of the input is."""
_OUTSIDE = re.compile(r"[/\\]|[A-Za-z]:|(?:.*[/\\])?\.\.(?:[/\\]|$)", re.S)


def operator_name(node: onnx.NodeProto) -> str:
    """Return the name of an operator of the default set; ``""`` for other sets."""
    return "" if node.domain else node.op_type


def attribute_of(node: onnx.NodeProto, name: str) -> Any:
    """Return the value of a node's attribute; ``None`` if it has none."""
    return next((helper.get_attribute_value(a) for a in node.attribute if a.name == name), None)


def fixed_shape(known: Mapping[str, Found], value: str) -> tuple[int, ...] | None:
    """Return the shape of a value if all its dimensions are numbers."""
    shape = known[value][1] if value in known else [None]
    sizes = tuple([size for size in shape if isinstance(size, int)])
    return sizes if len(sizes) == len(shape) else None


def copy_of(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy of a model."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy


def declaring(model: onnx.ModelProto, shapes: Mapping[str, Found]) -> onnx.ModelProto:
    """Return the model with these shapes declared; itself without any."""
    if not shapes:
        return model
    copy = copy_of(model)
    infos = {value.name: value for value in (*copy.graph.value_info, *copy.graph.output)}
    for name, (element, shape) in shapes.items():
        value = infos.get(name) or copy.graph.value_info.add(name=name)
        value.CopyFrom(helper.make_tensor_value_info(name, element, shape))
    return copy


def unique_ids(nodes: list[tuple[int, str, str]]) -> list[str]:
    """Return an id per (position, name, operator): the name if it is unique, else ``<operator>_<position>``, made
    unique.
    """
    times = Counter(name for _, name, _ in nodes)
    taken = {name for name, count in times.items() if name and count == 1}
    ids: list[str] = []
    for position, name, operator in nodes:
        node_id = name if name in taken else f"{operator}_{position}"
        while name not in taken and node_id in taken:
            node_id += "_"
        taken.add(node_id)
        ids.append(node_id)
    return ids


def first_line(error: Exception) -> str:
    """Return the first line of an error, without the trace that the onnx package appends."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def write_defaults(model: onnx.ModelProto) -> None:
    """Write default attributes into ``model`` where inference assumes another value than the specification.

    A ``STFT`` without ``onesided`` is one-sided (specification and onnxruntime); inference returns all bins, twice the
    bytes.
    """
    for node in model.graph.node:
        if node.op_type == "STFT" and not any(attribute.name == "onesided" for attribute in node.attribute):
            node.attribute.append(helper.make_attribute("onesided", 1))


def tensors_of(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Yield the weights and constants of a model, of its bodies and of its functions."""
    waiting: list[Any] = [model.graph, *model.functions]
    while waiting:
        part = waiting.pop()
        yield from getattr(part, "initializer", ())
        for sparse in getattr(part, "sparse_initializer", ()):
            yield from (sparse.values, sparse.indices)
        for node in part.node:
            for attribute in node.attribute:
                yield from ([attribute.t] if attribute.HasField("t") else [])
                yield from attribute.tensors
                waiting += [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]


def check_places(model: onnx.ModelProto, name: str) -> None:
    """Raise ``UnreadableInput`` for weights with an absolute path or a path that contains ``..``."""
    for tensor in tensors_of(model):
        for entry in tensor.external_data:
            if entry.key == "location" and _OUTSIDE.match(entry.value):
                raise UnreadableInput(
                    f'the weight "{tensor.name}" is outside the model\'s folder: "{entry.value[:80]}".',
                    source=name,
                    hint="Save the weights in the folder of the model, with a relative path.",
                )


def without_places(model: onnx.ModelProto) -> onnx.ModelProto:
    """Remove all paths of external files from ``model``, and return it."""
    for tensor in tensors_of(model):
        del tensor.external_data[:]
        tensor.data_location = onnx.TensorProto.DEFAULT
    return model


# --- local functions ---------------------------------------------------------------------------------------------


Key = tuple[str, str, str]
"""(domain, name, overload) of a function."""
OTHER_NAME = "ai.onnx"
"""Second name of ONNX's default operator set, whose first name is empty. Both are valid."""


def inlined(model: onnx.ModelProto, name: str) -> onnx.ModelProto:
    """Return the model with its functions inlined and the default operator set under one name. Changes ``model``.

    Raises ``UnreadableInput`` for functions that call themselves, inline to too many nodes, or cannot be inlined.
    """
    for holder in (model, *model.functions):
        named = {entry.domain for entry in holder.opset_import}
        for k in reversed(range(len(holder.opset_import))):
            if holder.opset_import[k].domain == OTHER_NAME and "" in named:
                del holder.opset_import[k]
        nodes = holder.graph.node if isinstance(holder, onnx.ModelProto) else holder.node
        for part in (*model.functions, *holder.opset_import, *_nodes(nodes)):
            if part.domain == OTHER_NAME:
                part.domain = ""
    if not model.functions:
        return model
    _check_calls(model, name)
    try:
        return inliner.inline_local_functions(model)
    except Exception as error:  # the inliner raises bare RuntimeErrors of its own
        function = model.functions[0]
        raise UnreadableInput(
            f'the local function "{function.domain}::{function.name}" cannot be inlined: {first_line(error)}',
            source=name,
            hint="Export the model without functions.",
        ) from error


def _check_calls(model: onnx.ModelProto, name: str) -> None:
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
