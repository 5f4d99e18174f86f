"""Add backward nodes to a forward graph, and nodes that recompute tensors marked ``remat`` (contract §2)."""

from collections.abc import Iterable, Sequence

import msgspec

from tmmu_core.graph.dtypes import FLOATING, canonical
from tmmu_core.graph.model import Graph, Node, Tensor
from tmmu_core.graph.operators import operator_of

GRAD = "@grad"  # suffix of the gradient of a tensor, and of the backward node of a node
REMAT = "@remat"  # suffix of a recomputed tensor, and of the node that recomputes it


def with_backward(graph: Graph, order: Sequence[str], retain: bool) -> tuple[Graph, list[str]]:
    """Return the graph with backward nodes, and its order: forward, backward (in reverse order), all other nodes.

    ``retain``: whether backward nodes read saved operands in addition to gradients.
    """
    nodes = {node.node_id: node for node in graph.nodes}
    tensors = {tensor.id: tensor for tensor in graph.tensors}
    forward = [nodes[node_id] for node_id in order if nodes[node_id].phase == "forward"]
    others = [node_id for node_id in order if nodes[node_id].phase != "forward"]
    differentiable = differentiable_tensors(graph, forward)
    marked = {tensor.id for tensor in graph.tensors if tensor.saved_for_backward}

    backward: list[Node] = []
    gradients: dict[str, Tensor] = {}  # tensor → its gradient, if an earlier backward node writes it
    for node in reversed(forward):
        edges = [(i, o) for i, o in gradient_edges(node) if {node.inputs[i], node.outputs[o]} <= differentiable]
        outputs = dict.fromkeys(node.outputs[o] for o in sorted({o for _, o in edges}))
        inputs = dict.fromkeys(node.inputs[i] for i in sorted({i for i, _ in edges}))
        # The first backward node that contributes to a gradient writes it; later ones accumulate into it. A gradient
        # to which none contributes (of a loss, for example) is written by the backward node of the tensor's producer.
        reads = [name + GRAD for name in (*outputs, *inputs) if name in gradients]
        new = [tensors[name] for name in (*outputs, *inputs) if name not in gradients]
        writes = [t.id + GRAD for t in new]
        gradients |= {t.id: Tensor(t.id + GRAD, t.shape, t.dtype, role="gradient", shard=t.shard) for t in new}
        inplace = node.inplace
        if inplace is not None and not isinstance(inplace, str):  # x@grad may reuse y@grad where y may reuse x
            pairs = dict.fromkeys((node.outputs[o] + GRAD, node.inputs[i] + GRAD) for i, o in inplace)
            inplace = tuple((reads.index(dy), writes.index(dx)) for dy, dx in pairs if dy in reads and dx in writes)
        operands = saved_operands(node, marked) if retain and edges else ()  # no gradient edges: no operand is needed
        instr, read = node.instr and f"{node.instr}_GRAD", (*reads, *operands)
        backward.append(Node(node.node_id + GRAD, instr, read, tuple(writes), phase="backward", inplace=inplace))
    parameter_gradients = [t.id + GRAD for t in graph.tensors if t.role == "parameter" and t.id in gradients]
    all_tensors, all_nodes = (*graph.tensors, *gradients.values()), (*graph.nodes, *backward)
    live_to_end = (*graph.outputs, *parameter_gradients)
    changes = {"tensors": all_tensors, "nodes": all_nodes, "outputs": live_to_end, "execution_order": None}
    return msgspec.structs.replace(graph, **changes), [*(n.node_id for n in (*forward, *backward)), *others]


def gradient_edges(node: Node) -> list[tuple[int, int]]:
    """Return the (input, output) positions between which gradients flow: as declared, else all pairs."""
    return list(node.grad_edges) or [(i, o) for i in range(len(node.inputs)) for o in range(len(node.outputs))]


def differentiable_tensors(graph: Graph, forward: Sequence[Node]) -> set[str]:
    """Return the floating-point tensors with a gradient: parameters, graph inputs and tensors computed from them."""
    candidates = {
        tensor.id
        for tensor in graph.tensors
        if canonical(tensor.dtype) in FLOATING and tensor.role not in ("constant", "buffer", "optimizer_state")
    }
    written = {name for node in graph.nodes for name in node.outputs}
    # A view that no node writes has a gradient if its base has one.
    edges = [(t.view.base_tensor_uid, t.id) for t in graph.tensors if t.view is not None and t.id not in written]
    edges += [(node.inputs[i], node.outputs[o]) for node in forward for i, o in gradient_edges(node)]
    leads_to: dict[str, set[str]] = {}
    for source, target in edges:
        leads_to.setdefault(source, set()).add(target)
    new = candidates & {*(t.id for t in graph.tensors if t.role == "parameter"), *graph.inputs}
    differentiable: set[str] = set()
    while new:
        differentiable |= new
        new = (set().union(*(leads_to.get(name, ()) for name in new)) & candidates) - differentiable
    return differentiable


def saved_operands(node: Node, marked: set[str]) -> list[str]:
    """Return the operands that the backward node reads: all in ``marked``; without marks, those its operator needs."""
    if marked:
        return [name for name in dict.fromkeys((*node.inputs, *node.outputs)) if name in marked]
    needs = operator_of(node.instr).gradient_needs
    if needs == "mask":  # the second output is the mask; of a single output, the zeros are the mask
        return list(dict.fromkeys(node.outputs[1:2] or node.outputs))
    inputs = node.inputs if needs in ("inputs", "both") else ()
    return list(dict.fromkeys((*inputs, *(node.outputs if needs in ("outputs", "both") else ()))))


def with_remat(graph: Graph, order: Sequence[str]) -> tuple[Graph, list[str]]:
    """Return the graph and its order, with nodes that recompute marked tensors before their first non-forward read."""
    nodes = {node.node_id: node for node in graph.nodes}
    tensors = {tensor.id: tensor for tensor in graph.tensors}
    producer = {name: node for node in graph.nodes if node.phase == "forward" for name in node.outputs}
    dropped = {name for name in producer if tensors[name].remat} - set(graph.outputs)  # outputs are kept

    def renamed(names: Iterable[str]) -> tuple[str, ...]:
        return tuple(name + REMAT if name in dropped else name for name in names)

    def copy_of(tensor: Tensor, source: Node) -> Tensor:
        view = tensor.view
        if view is not None and (view.base_tensor_uid in dropped or view.base_tensor_uid in source.outputs):
            view = msgspec.structs.replace(view, base_tensor_uid=view.base_tensor_uid + REMAT)
        marks = {"alias_group_id": None, "saved_for_backward": False, "remat": False}
        return msgspec.structs.replace(tensor, id=tensor.id + REMAT, view=view, **marks)

    copies, inserted, expanded_order = dict[str, Tensor](), dict[str, Node](), list[str]()
    for node_id in order:
        node = nodes[node_id]
        if node.phase != "forward":
            pending = [name for name in reversed(node.inputs) if name in dropped]
            while pending:
                source = producer[pending[-1]]
                if source.node_id in inserted:
                    pending.pop()
                    continue
                missing = [x for x in source.inputs if x in dropped and producer[x].node_id not in inserted]
                if missing:
                    pending += missing  # the last one is recomputed first
                    continue
                changes = {"phase": "backward", "inplace": "none", "in_place_write": (), "grad_edges": ()}
                ends = {"inputs": renamed(source.inputs), "outputs": tuple(name + REMAT for name in source.outputs)}
                node_of_copy = msgspec.structs.replace(source, node_id=source.node_id + REMAT, **ends, **changes)
                inserted[source.node_id] = node_of_copy
                copies |= {output: copy_of(tensors[output], source) for output in source.outputs}
                expanded_order.append(source.node_id + REMAT)
            nodes[node_id] = msgspec.structs.replace(node, inputs=renamed(node.inputs))
        expanded_order.append(node_id)
    # The backward pass reads the recomputed tensor, so the original is not saved.
    originals = [msgspec.structs.replace(t, saved_for_backward=False) if t.id in dropped else t for t in graph.tensors]
    all_tensors, all_nodes = (*originals, *copies.values()), (*nodes.values(), *inserted.values())
    return msgspec.structs.replace(graph, tensors=all_tensors, nodes=all_nodes, execution_order=None), expanded_order
