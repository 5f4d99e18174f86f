"""The backward pass that a forward graph means: contract §2."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from tmmu_core.graph.dtypes import FLOATING, canonical
from tmmu_core.graph.model import Graph, Node, Tensor
from tmmu_core.graph.operators import gradient_needs


def grad(name: str) -> str:
    """The gradient of a tensor, the backward step of a node."""
    return f"{name}@grad"


def with_backward(graph: Graph, order: Sequence[str], retain: bool) -> tuple[Graph, list[str]]:
    """The joint graph, N more steps in reverse order, and the joint order: forward, backward, what comes after."""
    nodes = {node.node_id: node for node in graph.nodes}
    tensors = {tensor.id: tensor for tensor in graph.tensors}
    forward = [nodes[node_id] for node_id in order if nodes[node_id].phase == "forward"]
    after = [node_id for node_id in order if nodes[node_id].phase != "forward"]
    differentiable = differentiable_tensors(graph, forward)
    marked = {tensor.id for tensor in graph.tensors if tensor.saved_for_backward}

    backward: list[Node] = []
    begun: dict[str, Tensor] = {}  # gradients that an earlier backward step has written
    for node in reversed(forward):
        edges = [
            (i, o)
            for i, o in gradient_edges(node)
            if node.inputs[i] in differentiable and node.outputs[o] in differentiable
        ]
        outputs = _distinct(node.outputs[o] for o in sorted({o for _, o in edges}))
        inputs = _distinct(node.inputs[i] for i in sorted({i for i, _ in edges}))
        # The gradient of an output to which nobody contributed comes from the loss: this step begins by writing it.
        fresh = [name for name in outputs if name not in begun]
        # The first contributor in backward order writes a gradient; later ones read it and add to it.
        first = [name for name in inputs if name not in begun]
        reads = [grad(n) for n in outputs if n in begun] + [grad(n) for n in inputs if n in begun]
        writes = [grad(name) for name in (*fresh, *first)]
        for name in (*fresh, *first):
            begun[name] = _gradient_tensor(tensors[name])
        backward.append(
            Node(
                node_id=grad(node.node_id),
                instr=node.instr and f"{node.instr}_GRAD",
                # What no gradient flows through needs none of its operands for one.
                inputs=(*reads, *(saved_operands(node, marked) if retain and edges else ())),
                outputs=tuple(writes),
                phase="backward",
                inplace=_turned_round(node, reads, writes),
            )
        )
    lasting = [grad(t.id) for t in graph.tensors if t.role == "parameter" and t.id in begun]
    joint = msgspec.structs.replace(
        graph,
        tensors=(*graph.tensors, *begun.values()),
        nodes=(*graph.nodes, *backward),
        outputs=(*graph.outputs, *lasting),  # parameter gradients live to T
        execution_order=None,
    )
    return joint, [*(n.node_id for n in forward), *(n.node_id for n in backward), *after]


def _distinct(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def gradient_edges(node: Node) -> list[tuple[int, int]]:
    """(input, output) positions along which gradients flow: as declared, else from every output to every input."""
    everywhere = [(i, o) for i in range(len(node.inputs)) for o in range(len(node.outputs))]
    return list(node.grad_edges) or everywhere


def differentiable_tensors(graph: Graph, forward: Sequence[Node]) -> set[str]:
    """Floating tensors that are a parameter, a graph input, computed from such, or an unwritten view of such."""

    def may(tensor: Tensor) -> bool:
        never = tensor.role in ("constant", "buffer", "optimizer_state")
        return canonical(tensor.dtype) in FLOATING and not never

    tensors = {tensor.id: tensor for tensor in graph.tensors}
    written = {name for node in graph.nodes for name in node.outputs}
    bases = {t.id: t.view.base_tensor_uid for t in graph.tensors if t.view is not None}
    steps = [(base, name) for name, base in bases.items() if name not in written]
    steps += [(node.inputs[i], node.outputs[o]) for node in forward for i, o in gradient_edges(node)]
    leads_to: dict[str, set[str]] = {}
    for source, target in steps:
        if may(tensors[source]) and may(tensors[target]):
            leads_to.setdefault(source, set()).add(target)
    inputs = set(graph.inputs)
    new = {t.id for t in graph.tensors if may(t) and (t.role == "parameter" or t.id in inputs)}
    found: set[str] = set()
    while new:
        found |= new
        new = set().union(*(leads_to.get(name, ()) for name in new)) - found
    return found


def saved_operands(node: Node, marked: set[str]) -> list[str]:
    """What the backward step of ``node`` reads of the forward: the marked operands, or what its gradient needs."""
    if marked:
        return [name for name in _distinct((*node.inputs, *node.outputs)) if name in marked]
    needs = gradient_needs(node.instr)
    inputs = node.inputs if "inputs" in needs else ()
    outputs = node.outputs if "outputs" in needs else ()
    return _distinct((*inputs, *outputs))


def _gradient_tensor(tensor: Tensor) -> Tensor:
    return Tensor(grad(tensor.id), tensor.shape, tensor.dtype, role="gradient", shard=tensor.shard)


def _turned_round(node: Node, reads: Sequence[str], writes: Sequence[str]) -> str | tuple[tuple[int, int], ...] | None:
    """Permission of the backward step: where out might overwrite in, grad(in) may overwrite grad(out)."""
    if node.inplace is None or isinstance(node.inplace, str):
        return node.inplace
    pairs = [(grad(node.outputs[o]), grad(node.inputs[i])) for i, o in node.inplace]
    return tuple((reads.index(x), writes.index(y)) for x, y in _distinct_pairs(pairs) if x in reads and y in writes)


def _distinct_pairs(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    return list(dict.fromkeys(pairs))
