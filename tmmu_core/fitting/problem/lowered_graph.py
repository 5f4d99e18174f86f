"""Lower a graph: write its mode, preset, order and sizes into the graph itself.

Planning the lowered graph with default options gives every storage the live range that the original options give, so
that moves need no modes, and a fitted file needs no options.
"""

from collections.abc import Mapping

import msgspec

from tmmu_core.graph.assumed_sizes import assumed_at
from tmmu_core.graph.model import OFFLOAD_ARENA, ONE_MEMORY, Dim, Graph, Tensor
from tmmu_core.liveness.live_model import Timeline
from tmmu_core.liveness.live_ranges import view_roots


def in_one_memory(graph: Graph) -> Graph:
    """Return the graph with every tensor in the arena ``memory``, except offloaded copies."""
    tensors = [
        tensor
        if tensor.arena == OFFLOAD_ARENA or tensor.view is not None
        else msgspec.structs.replace(tensor, arena=ONE_MEMORY)
        for tensor in graph.tensors
    ]
    return msgspec.structs.replace(graph, tensors=tuple(tensors))


def lower_graph(timeline: Timeline, dims: Mapping[str, int] | None = None) -> Graph:
    """Return the graph as executed: nodes in order, and the tensors that are live."""
    graph, index = timeline.graph, timeline.index
    outside = {k for k, step in enumerate(timeline.step_of.tolist()) if step < 0}
    gone = _dependent_views(graph, {graph.tensors[i].id for i, k in enumerate(index.producer.tolist()) if k in outside})
    nodes = [graph.nodes[k] for k in timeline.node_at.tolist() if k >= 0]
    if all(node.phase != "backward" for node in nodes):
        nodes = [msgspec.structs.replace(node, phase="forward") for node in nodes]
    saved = _saved_for_backward(timeline) if timeline.mode == "forward" and timeline.retain else []
    outputs = [name for name in dict.fromkeys((*graph.outputs, *saved)) if name not in gone]
    keeps_saved = timeline.mode == "backward" and timeline.retain
    return msgspec.structs.replace(
        graph,
        tensors=tuple(_without_marks(tensor, gone, keeps_saved) for tensor in graph.tensors if tensor.id not in gone),
        nodes=tuple(nodes),
        outputs=tuple(outputs),
        dims={name: _bounds_at(dim, (dims or {}).get(name)) for name, dim in graph.dims.items()},
        assumed=assumed_at(graph, dims),
        safepoints=tuple(name for name in graph.safepoints if name in set(timeline.order)),
        execution_order=timeline.order,
    )


def _dependent_views(graph: Graph, gone: set[str]) -> set[str]:
    """Return ``gone`` and the views of its tensors that no node writes."""
    written = {name for node in graph.nodes for name in node.outputs}
    base = {t.id: t.view.base_tensor_uid for t in graph.tensors if t.view is not None and t.id not in written}
    found = set(gone)
    for name in base:
        chain = [name]
        while chain[-1] in base and chain[-1] not in found:
            chain.append(base[chain[-1]])
        if chain[-1] in found:
            found.update(chain)
    return found


def _saved_for_backward(timeline: Timeline) -> list[str]:
    """Return saved tensors and their bases, which mode ``forward`` keeps for a backward pass."""
    roots, _ = view_roots(timeline.index)
    marked = [i for i, tensor in enumerate(timeline.graph.tensors) if tensor.saved_for_backward]
    index = timeline.index
    ids = index.tensor_ids
    has_bytes = ((index.producer >= 0) | index.is_input | (index.base >= 0)) & ~index.is_persistent
    return [ids[k] for i in marked for k in (i, int(roots[i])) if has_bytes[k]]


def _without_marks(tensor: Tensor, gone: set[str], keeps_saved: bool) -> Tensor:
    return msgspec.structs.replace(
        tensor,
        saved_for_backward=tensor.saved_for_backward and keeps_saved,
        remat=False,
        must_not_alias=tuple(name for name in tensor.must_not_alias if name not in gone),
    )


def _bounds_at(dim: Dim, point: int | None) -> Dim:
    return dim if point is None else Dim(min(dim.min, point), point)
