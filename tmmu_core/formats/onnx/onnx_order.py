"""Write the nodes of an ONNX model in another order; all else in the file is kept, unknown fields too."""

from collections.abc import Iterable

import onnx

from tmmu_core.base.errors import Misuse
from tmmu_core.formats.onnx.onnx_model import tensors_of
from tmmu_core.formats.onnx.onnx_scopes import bodies_of
from tmmu_core.graph.model import Graph


def with_order(data: bytes, graph: Graph, order: Iterable[str], name: str = "") -> bytes:
    """Return the model in ``data``, whose graph is ``graph``, with its nodes in ``order`` (all node ids of the graph).

    Every node follows the nodes that it reads from. Nodes that are not in the graph (constants, folded shapes) stay
    behind the node that they follow in the file, or come before their first reader; bodies stay as they are.
    Raises ``Misuse`` for an order of other nodes.
    """
    order = tuple(order)
    written = {node.node_id: node.outputs for node in graph.nodes}
    if len(order) != len(written) or set(order) != set(written):
        other = next(iter(sorted(set(order) ^ set(written))), "")
        raise Misuse(
            f"the order is not one of {name or 'the model'}: the node {other!r} is in one of them only.",
            "Pass the model that the order was made from.",
        )
    rank = {tensor: k for k, node_id in enumerate(order) for tensor in written[node_id]}
    model = onnx.ModelProto.FromString(data)
    nodes = list(model.graph.node)
    maker = {tensor: k for k, node in enumerate(nodes) for tensor in node.output if tensor}
    reads = [sorted({maker[tensor] for tensor in _read_by(node) if tensor in maker}) for node in nodes]
    ranked: list[tuple[int, int]] = []
    for k, node in enumerate(nodes):
        before = ranked[-1][0] if ranked else 0
        ranked.append((min((rank[tensor] for tensor in node.output if tensor in rank), default=before), k))
    sequence: dict[int, None] = {}
    for _, k in sorted(ranked):
        waiting = [k]
        while waiting:
            missing = [other for other in reads[waiting[-1]] if other not in sequence]
            waiting += missing
            if not missing:
                sequence[waiting.pop()] = None
    del model.graph.node[:]
    model.graph.node.extend(nodes[k] for k in sequence)
    return model.SerializeToString()


def _read_by(node: onnx.NodeProto) -> set[str]:
    """Return the tensors that a node reads, those that its bodies read from outside among them."""
    names = set(node.input)
    for _, body in bodies_of(node):
        reads = {output.name for output in body.output}.union(*map(_read_by, body.node))
        own = {value.name for value in (*body.input, *body.initializer)}
        names |= reads - own.union(*(inner.output for inner in body.node))
    return names


def external_files(data: bytes) -> list[str]:
    """Return the external weight files of the model."""
    tensors = tensors_of(onnx.ModelProto.FromString(data))
    found = [entry.value for tensor in tensors for entry in tensor.external_data if entry.key == "location"]
    return list(dict.fromkeys(found))
