"""The backward pass of a graph that has none, written into the graph (contract §2).

For every forward node ``n``, in reverse order, one node ``n@grad``; for every differentiable tensor ``t`` one tensor
``t@grad``::

      forward   x ──► n ──► y            backward   y@grad ──► n@grad ──► x@grad
                                                    (and what was saved of x, y)

The first step (in backward order) that contributes to a gradient writes it, later ones read and add to it, so the
order of additions is the order of steps. The gradient of a graph output, to which no step contributes, is written
by its producer's own backward step: it comes from the loss, whose graph this is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from tmmu_core.graph.dtypes import is_floating
from tmmu_core.graph.model import Graph, Inplace, Node, Tensor
from tmmu_core.graph.operators import gradient_needs

NOT_DIFFERENTIABLE = frozenset({"constant", "buffer", "optimizer_state"})


def with_backward(graph: Graph, order: Sequence[str], *, retain: bool) -> tuple[Graph, list[str]]:
    """The joint graph and its order: the forward nodes of ``order``, their backward steps, then the rest of it.

    ``order`` lists node ids as run. With ``retain`` false no saved operand is read by the backward steps: that is
    what dropping every activation would leave to hold.
    """
    tensors = {tensor.id: tensor for tensor in graph.tensors}
    nodes = {node.node_id: node for node in graph.nodes}
    forward = [nodes[node_id] for node_id in order if nodes[node_id].phase == "forward"]
    later = [node_id for node_id in order if nodes[node_id].phase != "forward"]
    differentiable = _differentiable(graph, tensors, forward)
    marked = {tensor.id for tensor in graph.tensors if tensor.saved_for_backward}

    gradients: dict[str, Tensor] = {}
    backward: list[Node] = []
    for node in reversed(forward):
        edges = [
            (i, o) for i, o in _edges(node) if node.inputs[i] in differentiable and node.outputs[o] in differentiable
        ]
        incoming = _distinct(node.outputs[o] for _, o in sorted(edges, key=lambda edge: edge[1]))
        targets = _distinct(node.inputs[i] for i, _ in sorted(edges))
        reads = [_grad(y) for y in incoming if y in gradients]
        # Nobody contributed yet: the loss, or nothing at all, and the step begins by writing it.
        fresh = [y for y in incoming if y not in gradients]
        reads += [_grad(x) for x in targets if x in gradients]  # nobody reads what it writes
        written = fresh + [x for x in targets if x not in gradients]
        for x in written:
            gradients[x] = _gradient_of(tensors[x])
        backward.append(
            Node(
                node_id=_grad(node.node_id),
                instr=f"{node.instr}_GRAD" if node.instr else "",
                # A node through which no gradient flows needs none of its operands.
                inputs=(*reads, *(_saved(node, marked) if retain and edges else ())),
                outputs=tuple(map(_grad, written)),
                phase="backward",
                inplace=_mirrored(node, reads, written),
            )
        )
    kept = tuple(_grad(tensor.id) for tensor in graph.tensors if tensor.role == "parameter" and tensor.id in gradients)
    joint = msgspec.structs.replace(
        graph,
        tensors=(*graph.tensors, *gradients.values()),
        nodes=(*graph.nodes, *backward),
        outputs=(*graph.outputs, *kept),
        execution_order=None,
    )
    return joint, [*(node.node_id for node in forward), *(node.node_id for node in backward), *later]


def _grad(name: str) -> str:
    return f"{name}@grad"


def _distinct(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _edges(node: Node) -> list[tuple[int, int]]:
    """(input index, output index) pairs along which gradients flow: the declared ones, else all."""
    if node.grad_edges:
        return list(node.grad_edges)
    return [(i, o) for i in range(len(node.inputs)) for o in range(len(node.outputs))]


def _differentiable(graph: Graph, tensors: dict[str, Tensor], forward: Sequence[Node]) -> set[str]:
    """Ids of the tensors that have a gradient: parameters, graph inputs, and what is computed from them."""

    def can(name: str) -> bool:
        return is_floating(tensors[name].dtype) and tensors[name].role not in NOT_DIFFERENTIABLE

    sources = {tensor.id for tensor in graph.tensors if tensor.role == "parameter"}.union(graph.inputs)
    # A view that no node writes is as differentiable as its base.
    produced = {name for node in graph.nodes for name in node.outputs}
    bases = {tensor.id: tensor.view.base_tensor_uid for tensor in graph.tensors if tensor.view}
    onwards: dict[str, list[str]] = {}
    for name, base in bases.items():
        if name not in produced:
            onwards.setdefault(base, []).append(name)
    for node in forward:
        for i, o in _edges(node):
            onwards.setdefault(node.inputs[i], []).append(node.outputs[o])

    found: set[str] = set()
    ahead = [name for name in sources if can(name)]
    while ahead:
        name = ahead.pop()
        if name not in found:
            found.add(name)
            ahead += [further for further in onwards.get(name, ()) if can(further)]
    return found


def _saved(node: Node, marked: set[str]) -> list[str]:
    """The operands of ``node`` that its backward step reads: the marked ones, else those its gradient needs."""
    if marked:
        return [name for name in _distinct((*node.inputs, *node.outputs)) if name in marked]
    needs = gradient_needs(node.instr)
    return _distinct(
        (*(node.inputs if "inputs" in needs else ()), *(node.outputs if "outputs" in needs else ())),
    )


def _gradient_of(tensor: Tensor) -> Tensor:
    """A plain tensor of the same extent: a view's gradient owns its bytes."""
    return Tensor(id=_grad(tensor.id), shape=tensor.shape, dtype=tensor.dtype, role="gradient", shard=tensor.shard)


def _mirrored(node: Node, reads: Sequence[str], written: Sequence[str]) -> Inplace | None:
    """The hand-offs the backward step permits: the forward node's, turned round."""
    if node.inplace is None or isinstance(node.inplace, str):
        return node.inplace
    pairs = []
    for i, o in node.inplace:
        source, target = _grad(node.outputs[o]), node.inputs[i]
        if source in reads and target in written:
            pairs.append((reads.index(source), list(written).index(target)))
    return tuple(dict.fromkeys(pairs)) or "none"
