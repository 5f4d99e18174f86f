"""Read and change parts of an ONNX model: attributes, weights, bodies, local functions, order of nodes.

Planning opens no external weight file. A path outside of the model's folder is refused: a runtime would open it.
"""

import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from graphlib import CycleError, TopologicalSorter
from itertools import chain, pairwise
from typing import Any

import onnx
from onnx import helper, inliner

from tmmu_core.base import limits
from tmmu_core.base.errors import Misuse, UnreadableInput, first_line
from tmmu_core.graph.model import Graph

LOG = logging.getLogger("tmmu")

TypedShape = tuple[int, list[int | str | None]]  # element type, and dimensions as number, name or ``None`` (unknown)
TypedShapes = dict[str, TypedShape]  # value → type and shape

ELEMENTWISE_IN_FIRST: frozenset[str] = frozenset({"BatchNormalization"})  # the other inputs have one value per channel
SUM_IN_CONVOLUTION: dict[tuple[str, str], int] = {("com.microsoft", "FusedConv"): 3, ("com.microsoft.nchwc", "Conv"): 3}
"""Domain and operator of onnxruntime's fused convolutions → input that the kernel may overwrite with the output."""
VIEWS: frozenset[str] = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Dropout"})
"""Operators whose output has the bytes of the first input (``Dropout``: outside of training)."""
SHAPE_OPERATORS: frozenset[str] = frozenset({"Shape", "Size"})  # their result depends on the shape of the input only
_OUTSIDE = re.compile(r"[/\\]|[A-Za-z]:|(?:.*[/\\])?\.\.(?:[/\\]|$)|.*\0", re.S)
Key = tuple[str, str, str]  # (domain, name, overload) of a function
DEFAULT_SET = "ai.onnx"  # Second name of ONNX's default operator set, whose first name is empty. Both are valid.


def operator_name(node: onnx.NodeProto) -> str:
    """Return the node's operator if it is of ONNX's default operator set, else ``""``."""
    return "" if node.domain else node.op_type


def attribute_of(node: onnx.NodeProto, name: str, default: Any = None) -> Any:
    """Return the value of a node's attribute, else ``default``."""
    return next((helper.get_attribute_value(a) for a in node.attribute if a.name == name), default)


def with_nodes(model: onnx.ModelProto, nodes: Iterable[onnx.NodeProto]) -> onnx.ModelProto:
    """Return a copy of a model with ``nodes`` in place of its nodes."""
    copy = deepcopy(model)
    del copy.graph.node[:]
    copy.graph.node.extend(nodes)
    return copy


def typed_shape(tensor: onnx.TypeProto.Tensor) -> TypedShape:
    """Return the element type and the dimensions of a tensor type that has a shape."""
    return tensor.elem_type, [d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in tensor.shape.dim]


def with_shapes(model: onnx.ModelProto, shapes: Mapping[str, TypedShape]) -> onnx.ModelProto:
    """Return a copy of the model that declares these shapes; without shapes, the model itself."""
    if not shapes:
        return model
    copy = deepcopy(model)
    infos = {value.name: value for value in (*copy.graph.value_info, *copy.graph.output)}
    for name, (element, shape) in shapes.items():
        value = infos.get(name) or copy.graph.value_info.add(name=name)
        value.CopyFrom(helper.make_tensor_value_info(name, element, shape))
    return copy


def unique_ids(nodes: list[tuple[int, str, str]]) -> list[str]:
    """Return ids of ``(position, name, operator)``: the unique name, else ``operator_position``; plus ``_`` if used."""
    unique = {name for name, count in Counter(name for _, name, _ in nodes).items() if name and count == 1}
    used = set(unique)
    ids: list[str] = []
    for position, name, operator in nodes:
        node_id = name if name in unique else f"{operator}_{position}"
        while name not in unique and node_id in used:
            node_id += "_"
        used.add(node_id)
        ids.append(node_id)
    return ids


def bodies_of(node: onnx.NodeProto) -> list[tuple[str, onnx.GraphProto]]:
    """Return the ``(attribute name, graph)`` pairs of a node's bodies."""
    bodies = [(a.name, a.g) for a in node.attribute if a.HasField("g")]
    return bodies + [(a.name, body) for a in node.attribute for body in a.graphs]


def graphs(part: Any, place: str = "graph") -> Iterator[tuple[str, Any]]:
    """Yield ``(place in the file, graph)`` of a graph or function and of all its subgraphs."""
    yield place, part
    for k, node in enumerate(part.node):
        for name, body in bodies_of(node):
            yield from graphs(body, f"{place}.node[{k}].{name}")


def tensors_of(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Yield the weights and constants of a model, its bodies and its functions."""
    for _, part in chain.from_iterable(map(graphs, (model.graph, *model.functions))):
        yield from getattr(part, "initializer", ())
        for sparse in getattr(part, "sparse_initializer", ()):
            yield from (sparse.values, sparse.indices)
        for node in part.node:
            for attribute in node.attribute:
                yield from ([attribute.t] if attribute.HasField("t") else [])
                yield from attribute.tensors


def external_files(data: bytes) -> list[str]:
    """Return the paths of the external weight files of the model in ``data``, each once."""
    tensors = tensors_of(onnx.ModelProto.FromString(data))
    entries = (entry for tensor in tensors for entry in tensor.external_data)
    return list(dict.fromkeys(entry.value for entry in entries if entry.key == "location"))


def check_weight_paths(model: onnx.ModelProto) -> None:
    """Raise ``UnreadableInput`` for a weight whose path is absolute, has a folder ``..``, or contains a zero byte."""
    for tensor in tensors_of(model):
        for entry in tensor.external_data:
            if entry.key == "location" and _OUTSIDE.match(entry.value):
                what = f"the weight {tensor.name!r} is outside the model's folder: {entry.value[:80]!r}."
                raise UnreadableInput(what, hint="Save the weights in the folder of the model, with a relative path.")


def inlined(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return ``model`` with functions inlined and ``""`` as the name of the default operator set. Changes ``model``."""
    for part in (model, *model.functions):
        has_default = any(not entry.domain for entry in part.opset_import)
        for k in reversed(range(len(part.opset_import))):
            if part.opset_import[k].domain == DEFAULT_SET and has_default:
                del part.opset_import[k]
        body = part.graph if isinstance(part, onnx.ModelProto) else part
        for entry in (*model.functions, *part.opset_import, *_nodes(body)):
            if entry.domain == DEFAULT_SET:
                entry.domain = ""
    if not model.functions:
        return model
    bodies = {_key(function): function for function in model.functions}
    calls = {key: {_key(node) for node in _nodes(body)} & bodies.keys() for key, body in bodies.items()}
    ceiling = limits.ceiling(limits.INLINED_NODES)
    size: dict[Key, int] = {}

    def inlined_size(body: Any) -> int:
        return min(ceiling + 1, sum(size.get(_key(node), 1) for node in _nodes(body)))

    try:
        for key in TopologicalSorter(calls).static_order():
            size[key] = inlined_size(bodies[key])
    except CycleError as error:
        domain, function, _ = error.args[1][0]
        what = f'the local function "{domain}::{function}" calls itself.'
        raise UnreadableInput(what, hint="Export the model without functions.") from error
    if inlined_size(model.graph) > ceiling:
        raise limits.limit_error(limits.INLINED_NODES, "the model with its local functions inlined")
    try:
        flat = inliner.inline_local_functions(model, convert_version=True)
    except Exception as error:  # the inliner raises bare RuntimeErrors of its own
        what = f"the model's local functions cannot be inlined: {first_line(error)}"
        raise UnreadableInput(what, hint="Export the model without functions.") from error
    called = {_key(node) for node in _nodes(flat.graph)}
    uninlined = next((function for function in flat.functions if _key(function) in called), None)
    if uninlined is not None:  # a plan with the function as one node would not contain the memory of its body
        what = f'the local function "{uninlined.domain}::{uninlined.name}" needs other versions of operator sets.'
        raise UnreadableInput(what, hint="Export the model with one version of each operator set.")
    return flat


def _key(function: onnx.FunctionProto | onnx.NodeProto) -> Key:
    called = function.name if isinstance(function, onnx.FunctionProto) else function.op_type
    return function.domain, called, getattr(function, "overload", "")


def _nodes(part: Any) -> Iterator[onnx.NodeProto]:
    return (node for _, inner in graphs(part) for node in inner.node)


def with_order(data: bytes, graph: Graph, order: Iterable[str], name: str = "") -> bytes:
    """Return the model in ``data`` with its nodes in ``order`` (all node ids). ``graph`` was read from ``data``.

    A node n that the graph lacks (a constant, a folded shape) is written after the preceding node of the file and the
    producers of its operands. If a node earlier in ``order`` reads the result of n, n is written before this reader.
    The producers of n then precede n even if ``order`` has them later, and the log has a warning. Bodies and unknown
    fields are unchanged. Raises ``Misuse`` if ``order`` has other nodes.
    """
    order = tuple(order)
    outputs_of = {node.node_id: node.outputs for node in graph.nodes}
    if different := sorted(outputs_of.keys() ^ set(order)):
        what = f"the order and {name or 'the model'} have different nodes: {different[0]!r} is in one of them only."
        raise Misuse(what, "Pass the model of the order. If a fit made the order, use --allow planner,order,inplace.")
    rank = {tensor: k for k, node_id in enumerate(order) for tensor in outputs_of[node_id]}
    model = onnx.ModelProto.FromString(data)
    nodes = list(model.graph.node)
    producer = {tensor: k for k, node in enumerate(nodes) for tensor in node.output if tensor}
    producers = [sorted({producer[tensor] for tensor in _reads_of(node) if tensor in producer}) for node in nodes]
    ranks: list[int] = []  # a node that the graph lacks gets the highest rank of its predecessor and its producers
    for k, node in enumerate(nodes):
        earliest = max([ranks[other] for other in (k - 1, *producers[k]) if 0 <= other < k], default=0)
        ranks.append(min((rank[tensor] for tensor in node.output if tensor in rank), default=earliest))
    sequence: dict[int, None] = {}
    for k in sorted(range(len(nodes)), key=ranks.__getitem__):
        pending = [k]
        while pending:
            missing = [other for other in producers[pending[-1]] if other not in sequence]
            pending += missing
            if not missing:
                sequence[pending.pop()] = None
    planned = [k for k in sequence if any(tensor in rank for tensor in nodes[k].output)]
    for first, second in (pair for pair in pairwise(planned) if ranks[pair[0]] > ranks[pair[1]]):
        text = "warning: the written order is not the planned order: the model computes %r before %r"
        LOG.info(text, nodes[first].output[0], nodes[second].output[0])
        break
    del model.graph.node[:]
    model.graph.node.extend(nodes[k] for k in sequence)
    return model.SerializeToString()


def _reads_of(node: onnx.NodeProto) -> set[str]:
    """Return the tensors that a node reads, and those that its bodies read from outside of the body."""
    names = set(node.input)
    for _, body in bodies_of(node):
        reads = {output.name for output in body.output}.union(*map(_reads_of, body.node))
        defined = {value.name for value in (*body.input, *body.initializer)}
        names |= reads - defined.union(*(inner.output for inner in body.node))
    return names
