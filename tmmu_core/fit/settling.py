"""A graph written out: what a mode, a preset, an order and a point of its sizes make of it, as a graph without them.

Planning the settled graph with nothing further said gives every storage the range that the asked one gives it (a test
says so for all nine pairs of mode and preset), so moves need to know nothing of modes, and a fitted file needs no
flags.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tmmu_core.graph.model import Dim, Graph, Tensor
from tmmu_core.liveness.model import Timeline
from tmmu_core.liveness.views import view_roots


def written_out(timeline: Timeline, dims: Mapping[str, int] | None = None) -> Graph:
    """The graph as run: its nodes in their order, and of its tensors those that live."""
    graph, index = timeline.graph, timeline.index
    outside = {k for k, step in enumerate(timeline.step_of.tolist()) if step < 0}
    gone = {graph.tensors[i].id for i, k in enumerate(index.producer.tolist()) if k in outside}
    if gone:
        gone = _views_behind(graph, gone)
    nodes = [graph.nodes[k] for k in timeline.node_at.tolist() if k >= 0]
    if all(node.phase != "backward" for node in nodes):
        nodes = [msgspec.structs.replace(node, phase="forward") for node in nodes]
    held = _held_to_the_end(timeline) if timeline.mode == "forward" and timeline.retain else []
    outputs = [name for name in graph.outputs if name not in gone]
    outputs += [name for name in held if name not in outputs and name not in gone]
    kept = timeline.mode == "backward" and timeline.retain
    return msgspec.structs.replace(
        graph,
        tensors=tuple(_settled(tensor, gone, kept) for tensor in graph.tensors if tensor.id not in gone),
        nodes=tuple(nodes),
        outputs=tuple(outputs),
        dims={name: _at(dim, (dims or {}).get(name)) for name, dim in graph.dims.items()},
        safepoints=tuple(name for name in graph.safepoints if name in set(timeline.order)),
        execution_order=timeline.order,
    )


def _views_behind(graph: Graph, gone: set[str]) -> set[str]:
    """``gone`` with every unwritten view that looks, through whatever bases, into it."""
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


def _held_to_the_end(timeline: Timeline) -> list[str]:
    """What mode ``forward`` holds for a backward pass that is not run: marked tensors and their bases."""
    roots, _ = view_roots(timeline.index)
    marked = [i for i, tensor in enumerate(timeline.graph.tensors) if tensor.saved_for_backward]
    index = timeline.index
    ids = index.tensor_ids
    there = (index.producer >= 0) | index.is_input | (index.base >= 0)  # what nobody makes is held by nobody
    return list(
        dict.fromkeys(ids[k] for i in marked for k in (i, int(roots[i])) if there[k] and not index.is_persistent[k])
    )


def _settled(tensor: Tensor, gone: set[str], kept: bool) -> Tensor:
    if (
        not (tensor.saved_for_backward and not kept)
        and not tensor.remat
        and not gone.intersection(tensor.must_not_alias)
    ):
        return tensor
    return msgspec.structs.replace(
        tensor,
        saved_for_backward=tensor.saved_for_backward and kept,
        remat=False,
        must_not_alias=tuple(name for name in tensor.must_not_alias if name not in gone),
    )


def _at(dim: Dim, point: int | None) -> Dim:
    return dim if point is None else Dim(min(dim.min, point), point)
