"""Resolve a graph, a mode, a preset and an optional order to a sequence of steps (contract §2).

Where the mode needs a backward pass that the graph lacks, it is synthesised (``backward.py``); where the preset needs
rematerialisation, recomputing nodes are inserted (``remat.py``). Later stages see one graph and one order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tmmu_core.graph.index import GraphIndex, index_graph
from tmmu_core.graph.model import Graph, Mode, Preset
from tmmu_core.liveness.backward import with_backward
from tmmu_core.liveness.execution_order import default_order, dependencies, given_order, source_of
from tmmu_core.liveness.live_model import Timeline
from tmmu_core.liveness.remat import with_rematerialisation
from tmmu_core.liveness.views import view_roots


def default_mode(graph: Graph) -> Mode:
    """Return ``backward`` for a graph with backward nodes, else ``inference`` (contract §10)."""
    return "backward" if "backward" in [node.phase for node in graph.nodes] else "inference"


def default_preset(mode: Mode) -> Preset:
    """Return ``inference`` for mode ``inference``, else ``train_full`` (contract §10)."""
    return "inference" if mode == "inference" else "train_full"


def build_timeline(
    graph: Graph,
    mode: Mode,
    preset: Preset,
    *,
    order: Sequence[str] | None = None,
    dims: Mapping[str, int] | None = None,
) -> Timeline:
    """Resolve ``graph`` to steps.

    ``order`` overrides the graph's ``execution_order``; ``dims`` sets named dimensions (default: upper bounds).
    Raises ``InvalidIrShapes`` for an order that is no permutation, ``LivenessCycle`` for a cycle or a violated
    dependency, and the errors of :func:`index_graph`.
    """
    index = index_graph(graph, dims)
    given = order if order is not None else graph.execution_order
    retain = mode != "inference" and preset != "inference"
    expanded = graph

    synthesise = mode == "backward" and all(node.phase != "backward" for node in graph.nodes)
    ordered = _order(index, given, mode)
    if synthesise:
        expanded, ids = with_backward(graph, _ids(index, ordered), retain=retain)
        index = index_graph(expanded, dims)
        ordered = _order(index, ids, mode)
    if preset == "remat_enabled" and mode == "backward" and any(tensor.remat for tensor in graph.tensors):
        expanded, ids = with_rematerialisation(expanded, _ids(index, ordered))
        index = index_graph(expanded, dims)
        ordered = _order(index, ids, mode)

    first = 1 if graph.inputs else 0
    node_at = np.full(first + len(ordered), -1, np.int64)
    node_at[first:] = ordered
    step_of = np.full(len(index.node_ids), -1, np.int64)
    step_of[node_at[first:]] = np.arange(first, len(node_at))
    return Timeline(
        source=graph,
        graph=expanded,
        index=index,
        mode=mode,
        preset=preset,
        node_at=node_at,
        step_of=step_of,
        has_inputs_step=bool(graph.inputs),
        order=tuple(_ids(index, ordered)),
        retain=retain,
    )


def _ids(index: GraphIndex, ordered: NDArray[np.int64]) -> Sequence[str]:
    """Return the node ids in an order; the graph's own tuple where the order is the graph's."""
    if np.array_equal(ordered, np.arange(len(index.node_ids))):
        return index.node_ids
    return list(map(index.node_ids.__getitem__, ordered.tolist()))


def _order(index: GraphIndex, given: Sequence[str] | None, mode: Mode) -> NDArray[np.int64]:
    """Return the node numbers in execution order: the given one, checked, or the default."""
    inside = np.ones(len(index.node_ids), np.bool_) if mode == "backward" else index.is_forward
    edges = dependencies(index, source_of(index, view_roots(index)[0]), inside)
    return default_order(index, edges, inside) if given is None else given_order(index, given, edges, inside)
