"""Synthesise the backward pass of a graph, and recompute dropped tensors for it (contract §2).

Each forward node ``n`` gets a backward node ``n@grad``; the backward nodes run in reverse order. Each differentiable
tensor ``t`` that they use has a gradient ``t@grad``. If ``n`` reads x and writes y, ``n@grad`` reads ``y@grad`` and the
saved ones of x and y, and writes ``x@grad``. The first node that contributes to a gradient writes it; later nodes add
to it. The graph has no loss. So ``n@grad`` also writes ``y@grad`` if no earlier node wrote it.

Rematerialisation (activation checkpointing): node ``n0`` writes ``h``, a tensor that has the flag ``remat``. A copy of
this node, ``n0@remat``, runs before the first backward step that reads ``h``. The copy writes ``h@remat``, which the
backward steps read instead of ``h``. If inputs of ``n0`` have the flag too, they are recomputed first.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from tmmu_core.graph.dtypes import is_floating
from tmmu_core.graph.model import Graph, Node, Tensor
from tmmu_core.graph.operators import GRADIENT, operator_of

NOT_DIFFERENTIABLE = frozenset({"constant", "buffer", "optimizer_state"})
GRAD, REMAT = "@grad", "@remat"  # suffixes of synthesised tensors and nodes


def with_backward(graph: Graph, order: Sequence[str], *, retain: bool) -> tuple[Graph, list[str]]:
    """Return the joint graph and its order: forward nodes of ``order``, their backward steps, then the other nodes."""
    tensors = {tensor.id: tensor for tensor in graph.tensors}
    nodes = {node.node_id: node for node in graph.nodes}
    forward = [nodes[node_id] for node_id in order if nodes[node_id].phase == "forward"]
    later = [node_id for node_id in order if nodes[node_id].phase != "forward"]
    differentiable = _differentiable(graph, tensors, forward)
    marked = {tensor.id for tensor in graph.tensors if tensor.saved_for_backward}

    gradients: dict[str, Tensor] = {}
    backward: list[Node] = []
    for node in reversed(forward):
        edges = [(i, o) for i, o in _edges(node) if {node.inputs[i], node.outputs[o]} <= differentiable]
        incoming = dict.fromkeys(node.outputs[o] for o in sorted(o for _, o in edges))
        targets = dict.fromkeys(node.inputs[i] for i, _ in sorted(edges))
        # A step writes the gradients that no earlier step wrote, and reads the others.
        reads = [name + GRAD for name in (*incoming, *targets) if name in gradients]
        written = [name for name in (*incoming, *targets) if name not in gradients]
        for name in written:
            tensor = tensors[name]  # the gradient of a view owns its bytes
            gradients[name] = Tensor(name + GRAD, tensor.shape, tensor.dtype, role="gradient", shard=tensor.shard)
        instr, outputs = node.instr and node.instr + GRADIENT, tuple([name + GRAD for name in written])
        # A step that computes no gradient of an input reads no saved operand; with ``retain`` false, no step does.
        inputs = (*reads, *(_saved(node, marked) if retain and edges else ()))
        inplace = node.inplace
        if inplace is not None and not isinstance(inplace, str):  # the forward node's permissions, reversed
            tensor_pairs = ((node.outputs[o] + GRAD, node.inputs[i]) for i, o in inplace)
            pairs = ((reads.index(x), written.index(y)) for x, y in tensor_pairs if x in reads and y in written)
            inplace = tuple(dict.fromkeys(pairs)) or "none"
        backward.append(Node(node.node_id + GRAD, instr, inputs, outputs, phase="backward", inplace=inplace))
    results = (*graph.outputs, *(t.id + GRAD for t in graph.tensors if t.role == "parameter" and t.id in gradients))
    all_tensors, all_nodes = (*graph.tensors, *gradients.values()), (*graph.nodes, *backward)
    joint = msgspec.structs.replace(graph, tensors=all_tensors, nodes=all_nodes, outputs=results, execution_order=None)
    return joint, [*(node.node_id for node in forward), *(node.node_id for node in backward), *later]


def _edges(node: Node) -> Sequence[tuple[int, int]]:
    return node.grad_edges or [(i, o) for i in range(len(node.inputs)) for o in range(len(node.outputs))]


def _differentiable(graph: Graph, tensors: dict[str, Tensor], forward: Sequence[Node]) -> set[str]:
    """Return the floating-point tensors with a gradient: parameters, graph inputs, and tensors computed from them."""
    produced = {name for node in graph.nodes for name in node.outputs}
    computed_from: dict[str, list[str]] = {}
    for tensor in graph.tensors:
        if tensor.view is not None and tensor.id not in produced:  # such a view is differentiable if its base is
            computed_from.setdefault(tensor.view.base_tensor_uid, []).append(tensor.id)
    for node in forward:
        for i, o in _edges(node):
            computed_from.setdefault(node.inputs[i], []).append(node.outputs[o])
    found: set[str] = set()
    pending = [*(tensor.id for tensor in graph.tensors if tensor.role == "parameter"), *graph.inputs]
    while pending:
        name = pending.pop()
        tensor = tensors[name]
        if name not in found and tensor.role not in NOT_DIFFERENTIABLE and is_floating(tensor.dtype):
            found.add(name)
            pending += computed_from.get(name, ())
    return found


def _saved(node: Node, marked: set[str]) -> list[str]:
    """Return the operands that the backward step reads: the marked ones, or all that it needs if nothing is marked."""
    if marked:
        return [name for name in dict.fromkeys((*node.inputs, *node.outputs)) if name in marked]
    operands = {"inputs": node.inputs, "outputs": node.outputs, "both": (*node.inputs, *node.outputs)}
    operands["mask"] = node.outputs[1:2] or node.outputs  # the second output, if there are several
    return list(dict.fromkeys(operands.get(operator_of(node.instr).gradient_needs, ())))


def with_rematerialisation(graph: Graph, order: Sequence[str]) -> tuple[Graph, list[str]]:
    """Return the graph with recomputing nodes and rewired readers, and its order.

    A tensor with ``remat`` is recomputed if a forward node writes it, it is no graph output, and a recomputed node
    or a node of another phase reads it.
    """
    nodes = {node.node_id: node for node in graph.nodes}
    tensors = {tensor.id: tensor for tensor in graph.tensors}
    producer = {name: node for node in graph.nodes if node.phase == "forward" for name in node.outputs}
    dropped = {name for name in producer if tensors[name].remat} - set(graph.outputs)
    changes: dict[str, Any] = {"phase": "backward", "inplace": "none", "in_place_write": (), "grad_edges": ()}
    copies: dict[str, Tensor] = {}
    recomputed: dict[str, Node] = {}
    new_order: list[str] = []
    for node_id in order:
        node = nodes[node_id]
        if node.phase != "forward":
            pending = [producer[name] for name in reversed(node.inputs) if name in dropped]
            while pending:
                source = pending.pop()
                if source.node_id in recomputed:
                    continue
                waiting = [producer[x] for x in source.inputs if x in dropped and producer[x].node_id not in recomputed]
                if waiting:  # recompute the dropped inputs first
                    pending += [source, *waiting]
                    continue
                copied = dropped.union(source.outputs)
                copies |= {output: _copy(tensors[output], copied) for output in source.outputs}
                inputs, outputs = _renamed(source.inputs, dropped), _renamed(source.outputs, copied)
                names = {"node_id": source.node_id + REMAT, "inputs": inputs, "outputs": outputs}
                recomputed[source.node_id] = msgspec.structs.replace(source, **names, **changes)
                new_order.append(source.node_id + REMAT)
            nodes[node_id] = msgspec.structs.replace(node, inputs=_renamed(node.inputs, dropped))
        new_order.append(node_id)
    # The backward steps read the copy of a dropped tensor, so the tensor itself is not saved.
    unsaved = {name: msgspec.structs.replace(tensors[name], saved_for_backward=False) for name in dropped}
    all_tensors = (*(tensors | unsaved).values(), *copies.values())
    all_nodes = (*nodes.values(), *recomputed.values())
    return msgspec.structs.replace(graph, tensors=all_tensors, nodes=all_nodes, execution_order=None), new_order


def _renamed(names: Iterable[str], dropped: set[str]) -> tuple[str, ...]:
    return tuple([name + REMAT if name in dropped else name for name in names])


def _copy(tensor: Tensor, copied: set[str]) -> Tensor:
    """Return the recomputed copy of a tensor. If the base is in ``copied``, the copy is a view of the base's copy."""
    view = tensor.view
    if view is not None and view.base_tensor_uid in copied:
        view = msgspec.structs.replace(view, base_tensor_uid=view.base_tensor_uid + REMAT)
    marks: dict[str, Any] = {"saved_for_backward": False, "remat": False, "alias_group_id": None}
    return msgspec.structs.replace(tensor, id=tensor.id + REMAT, view=view, **marks)
