"""Rematerialisation (activation checkpointing): drop marked tensors after the forward pass and recompute them (contract
§2).

Before the first backward step that reads a marked tensor ``h``, insert ``n0@remat``, a copy of its producer ``n0``;
it writes ``h@remat``, which the backward steps read instead. So every tensor keeps one range. Dropped inputs of
``n0`` are recomputed first.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tmmu_core.graph.model import Graph, Node, Tensor, View


def with_rematerialisation(graph: Graph, order: Sequence[str]) -> tuple[Graph, list[str]]:
    """Return the graph with recomputing nodes and rewired readers, and its order.

    Marks on tensors that no forward node writes, or no backward step reads, have no effect.
    """
    nodes = {node.node_id: node for node in graph.nodes}
    tensors = {tensor.id: tensor for tensor in graph.tensors}
    producer = {name: node for node in graph.nodes if node.phase == "forward" for name in node.outputs}
    dropped = {name for name in producer if tensors[name].remat} - set(graph.outputs)

    copies: dict[str, Tensor] = {}
    recomputed: dict[str, Node] = {}
    rewritten: dict[str, Node] = {}
    new_order: list[str] = []

    def recompute(name: str) -> None:
        """Insert the producer of ``name``, and before it the producers of its dropped inputs, at the current step."""
        pending = [producer[name]]
        while pending:
            node = pending[-1]
            if node.node_id in recomputed:
                pending.pop()
                continue
            waiting = [producer[x] for x in node.inputs if x in dropped and producer[x].node_id not in recomputed]
            if waiting:
                pending.extend(waiting)
                continue
            pending.pop()
            for output in node.outputs:
                copies[_remat(output)] = _copy(tensors[output], dropped)
            recomputed[node.node_id] = _recomputing(node, dropped)
            new_order.append(_remat(node.node_id))

    for node_id in order:
        node = nodes[node_id]
        if node.phase != "forward":
            for name in node.inputs:
                if name in dropped:
                    recompute(name)
            node = msgspec.structs.replace(
                node, inputs=tuple(_remat(name) if name in dropped else name for name in node.inputs)
            )
            rewritten[node_id] = node
        new_order.append(node_id)

    unsaved = tuple(
        msgspec.structs.replace(tensor, saved_for_backward=False) if tensor.id in dropped else tensor
        for tensor in graph.tensors
    )
    expanded = msgspec.structs.replace(
        graph,
        tensors=(*unsaved, *copies.values()),
        nodes=(*(rewritten.get(node.node_id, node) for node in graph.nodes), *recomputed.values()),
        execution_order=None,
    )
    return expanded, new_order


def _remat(name: str) -> str:
    return f"{name}@remat"


def _recomputing(node: Node, dropped: set[str]) -> Node:
    """Return the copy of a node that runs again in the backward pass."""
    return msgspec.structs.replace(
        node,
        node_id=_remat(node.node_id),
        inputs=tuple(_remat(x) if x in dropped else x for x in node.inputs),
        outputs=tuple(map(_remat, node.outputs)),
        phase="backward",
        inplace="none",
        in_place_write=(),
        grad_edges=(),
    )


def _copy(tensor: Tensor, dropped: set[str]) -> Tensor:
    """Return the recomputed tensor; a view of a dropped base becomes a view of the base's copy."""
    view = tensor.view
    if view is not None and view.base_tensor_uid in dropped:
        view = View(_remat(view.base_tensor_uid), view.byte_offset, view.byte_length, view.stride_desc)
    return msgspec.structs.replace(
        tensor, id=_remat(tensor.id), saved_for_backward=False, remat=False, alias_group_id=None, view=view
    )
