"""Lower a graph: write the mode, preset, order and sizes of a request into the graph itself.

With default options, a plan of the lowered graph has the live ranges that the options of the request give for the
original graph. So moves do not depend on the mode, and a fitted file is planned without options.
"""

from collections.abc import Mapping

import msgspec
import numpy as np

from tmmu_core.graph.assumed_sizes import assumed_at
from tmmu_core.graph.model import OFFLOAD_ARENA, ONE_MEMORY, Dim, Graph
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
    """Return the graph as executed: nodes in order, tensors that are live, ``dims`` as upper bounds of dimensions."""
    graph, index, dims = timeline.graph, timeline.index, dims or {}
    step_of = np.append(timeline.step_of, 0)  # tensors without a producer have producer −1, which selects this 0
    is_removed = (step_of[index.producer[index.root]] < 0) & ~index.is_persistent[index.root]
    removed = {index.tensor_ids[i] for i in np.flatnonzero(is_removed).tolist()}
    nodes = [graph.nodes[k] for k in timeline.node_at.tolist() if k >= 0]
    # A graph without backward nodes is planned in mode ``inference``, which runs forward nodes only.
    if all(node.phase != "backward" for node in nodes):
        nodes = [msgspec.structs.replace(node, phase="forward") for node in nodes]
    saved = _saved_for_backward(timeline) if timeline.mode == "forward" and timeline.retain else []
    outputs = [name for name in dict.fromkeys((*graph.outputs, *saved)) if name not in removed]
    keeps_saved = timeline.mode == "backward" and timeline.retain
    tensors = [
        msgspec.structs.replace(
            tensor,
            saved_for_backward=tensor.saved_for_backward and keeps_saved,
            remat=False,
            must_not_alias=tuple(name for name in tensor.must_not_alias if name not in removed),
        )
        for tensor in graph.tensors
        if tensor.id not in removed
    ]
    bounds = {name: Dim(min(graph.dims[name].min, size), size) for name, size in dims.items() if name in graph.dims}
    return msgspec.structs.replace(
        graph,
        tensors=tuple(tensors),
        nodes=tuple(nodes),
        outputs=tuple(outputs),
        dims=graph.dims | bounds,
        assumed=assumed_at(graph, dims),
        safepoints=tuple(filter(frozenset(timeline.order).__contains__, graph.safepoints)),
        execution_order=timeline.order,
    )


def _saved_for_backward(timeline: Timeline) -> list[str]:
    """Return the saved tensors and their bases, except those that are persistent, or neither computed nor loaded."""
    index = timeline.index
    roots, _ = view_roots(index)
    has_bytes = ((index.producer >= 0) | index.is_input | (index.base >= 0)) & ~index.is_persistent
    saved = [i for i, tensor in enumerate(timeline.graph.tensors) if tensor.saved_for_backward]
    return [index.tensor_ids[k] for i in saved for k in (i, int(roots[i])) if has_bytes[k]]
