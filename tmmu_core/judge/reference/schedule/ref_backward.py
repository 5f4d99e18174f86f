"""Synthesize the backward pass of a forward graph, and recompute dropped tensors before it reads them (contract §2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from tmmu_core.graph.dtypes import FLOATING, canonical
from tmmu_core.graph.model import Graph, Node, Tensor, View
from tmmu_core.graph.operators import operator_of


def grad(name: str) -> str:
    """Return the id of the gradient of a tensor, or of the backward node of a node."""
    return f"{name}@grad"


def with_backward(graph: Graph, order: Sequence[str], retain: bool) -> tuple[Graph, list[str]]:
    """Return the joint graph and its order: forward nodes, backward nodes in reverse order, all other nodes."""
    nodes = {node.node_id: node for node in graph.nodes}
    tensors = {tensor.id: tensor for tensor in graph.tensors}
    forward = [nodes[node_id] for node_id in order if nodes[node_id].phase == "forward"]
    after = [node_id for node_id in order if nodes[node_id].phase != "forward"]
    differentiable = differentiable_tensors(graph, forward)
    marked = {tensor.id for tensor in graph.tensors if tensor.saved_for_backward}

    backward: list[Node] = []
    begun: dict[str, Tensor] = {}  # gradients that an earlier backward node writes
    for node in reversed(forward):
        edges = [
            (i, o)
            for i, o in gradient_edges(node)
            if node.inputs[i] in differentiable and node.outputs[o] in differentiable
        ]
        outputs = _distinct(node.outputs[o] for o in sorted({o for _, o in edges}))
        inputs = _distinct(node.inputs[i] for i in sorted({i for i, _ in edges}))
        # The gradient of an output without contributions comes from the loss: this node writes it.
        fresh = [name for name in outputs if name not in begun]
        # The first contribution writes a gradient; later ones accumulate into it.
        first = [name for name in inputs if name not in begun]
        reads = [grad(n) for n in outputs if n in begun] + [grad(n) for n in inputs if n in begun]
        writes = [grad(name) for name in (*fresh, *first)]
        for name in (*fresh, *first):
            of = tensors[name]
            begun[name] = Tensor(grad(name), of.shape, of.dtype, role="gradient", shard=of.shard)
        backward.append(
            Node(
                node_id=grad(node.node_id),
                instr=node.instr and f"{node.instr}_GRAD",
                # A node without gradient edges needs no operand.
                inputs=(*reads, *(saved_operands(node, marked) if retain and edges else ())),
                outputs=tuple(writes),
                phase="backward",
                inplace=_reversed_permission(node, reads, writes),
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
    """Return the declared (input, output) positions with a gradient; by default all pairs."""
    everywhere = [(i, o) for i in range(len(node.inputs)) for o in range(len(node.outputs))]
    return list(node.grad_edges) or everywhere


def differentiable_tensors(graph: Graph, forward: Sequence[Node]) -> set[str]:
    """Return the floating-point tensors that depend on a parameter or a graph input, with their unwritten views."""

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
    """Return the forward operands that the backward node reads: the marked ones, or those its gradient needs."""
    if marked:
        return [name for name in _distinct((*node.inputs, *node.outputs)) if name in marked]
    match operator_of(node.instr).gradient_needs:
        case "nothing":
            return []
        case "inputs":
            return _distinct(node.inputs)
        case "outputs":
            return _distinct(node.outputs)
        case "mask":  # the second output; without one, the zeros of the result
            return [node.outputs[1]] if len(node.outputs) > 1 else _distinct(node.outputs)
        case "both":
            return _distinct((*node.inputs, *node.outputs))


def _reversed_permission(
    node: Node, reads: Sequence[str], writes: Sequence[str]
) -> str | tuple[tuple[int, int], ...] | None:
    """Return the in-place permission of the backward node: grad(in) may reuse grad(out) where out may reuse in."""
    if node.inplace is None or isinstance(node.inplace, str):
        return node.inplace
    pairs = [(grad(node.outputs[o]), grad(node.inputs[i])) for i, o in node.inplace]
    return tuple((reads.index(x), writes.index(y)) for x, y in dict.fromkeys(pairs) if x in reads and y in writes)


def again(name: str) -> str:
    """Return the id of the recomputed tensor, or of the recomputing node."""
    return f"{name}@remat"


def with_remat(graph: Graph, order: Sequence[str]) -> tuple[Graph, list[str]]:
    """Insert nodes that recompute marked tensors before their first backward use."""
    nodes = {node.node_id: node for node in graph.nodes}
    tensors = {tensor.id: tensor for tensor in graph.tensors}
    producer = {name: node for node in graph.nodes if node.phase == "forward" for name in node.outputs}
    dropped = {name for name in producer if tensors[name].remat} - set(graph.outputs)

    def renamed(names: Iterable[str]) -> tuple[str, ...]:
        return tuple(again(name) if name in dropped else name for name in names)

    copies: dict[str, Tensor] = {}
    inserted: dict[str, Node] = {}
    readers: dict[str, Node] = {}
    joint: list[str] = []
    for node_id in order:
        node = nodes[node_id]
        if node.phase != "forward":
            for name in node.inputs:
                for source in _to_recompute(name, dropped, producer, inserted):
                    inserted[source.node_id] = msgspec.structs.replace(
                        source,
                        node_id=again(source.node_id),
                        inputs=renamed(source.inputs),
                        outputs=tuple(again(output) for output in source.outputs),
                        phase="backward",
                        inplace="none",
                        in_place_write=(),
                        grad_edges=(),
                    )
                    copies |= {output: _copy_of(tensors[output], dropped) for output in source.outputs}
                    joint.append(again(source.node_id))
            readers[node_id] = msgspec.structs.replace(node, inputs=renamed(node.inputs))
        joint.append(node_id)
    as_run = msgspec.structs.replace(
        graph,
        tensors=(
            # The backward pass reads the recomputed tensor, so the original is not saved.
            *(msgspec.structs.replace(t, saved_for_backward=False) if t.id in dropped else t for t in graph.tensors),
            *copies.values(),
        ),
        nodes=(*(readers.get(node.node_id, node) for node in graph.nodes), *inserted.values()),
        execution_order=None,
    )
    return as_run, joint


def _to_recompute(
    name: str, dropped: set[str], producer: Mapping[str, Node], inserted: Mapping[str, Node]
) -> list[Node]:
    """Return the nodes to run again to recompute ``name``, in order; empty where they have run."""
    plan: dict[str, Node] = {}
    pending = [name] if name in dropped and producer[name].node_id not in inserted else []
    while pending:
        node = producer[pending[-1]]
        lacking = [
            x
            for x in node.inputs
            if x in dropped and producer[x].node_id not in inserted and producer[x].node_id not in plan
        ]
        if lacking:
            pending += lacking  # the last one is made first
        else:
            plan[node.node_id] = node
            pending.pop()
    return list(plan.values())


def _copy_of(tensor: Tensor, dropped: set[str]) -> Tensor:
    view = tensor.view
    if view is not None and view.base_tensor_uid in dropped:
        view = View(again(view.base_tensor_uid), view.byte_offset, view.byte_length, view.stride_desc)
    return msgspec.structs.replace(
        tensor, id=again(tensor.id), view=view, alias_group_id=None, saved_for_backward=False, remat=False
    )
