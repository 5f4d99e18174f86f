"""Tensors dropped after their last forward use and recomputed before their first backward use (contract §2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from tmmu_core.graph.model import Graph, Node, Tensor, View


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
