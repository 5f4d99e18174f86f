"""Resolve a graph, a mode, a preset and an optional order to a sequence of steps (contract §2).

Mode ``backward`` synthesises a missing backward pass; with preset ``remat_enabled``, it inserts recomputing nodes
(:mod:`.backward`). The default order is topological; the ready node with the lowest id (UTF-8 bytes) runs next.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tmmu_core.base import strict
from tmmu_core.base.components import nodes_on_cycles
from tmmu_core.base.errors import InvalidIrShapes, LivenessCycle, source_of_errors
from tmmu_core.graph.index import I64, GraphIndex, index_graph
from tmmu_core.graph.model import Graph, Mode, Phase, Preset
from tmmu_core.liveness.backward import with_backward, with_rematerialisation
from tmmu_core.liveness.live_model import Timeline
from tmmu_core.liveness.live_ranges import view_roots


def dependencies(index: GraphIndex, in_mode: NDArray[np.bool_]) -> tuple[I64, I64]:
    """Return the edges (writer, reader) of the nodes ``in_mode``. Raises ``InvalidIrShapes`` for a writer outside."""
    # The reader of a view without a producer waits for the producer of its root base.
    source = np.where((index.base >= 0) & (index.producer < 0), index.producer[view_roots(index)[0]], index.producer)
    after = np.repeat(np.arange(len(index.node_ids), dtype=np.int64), np.diff(index.in_ptr))
    before = source[index.in_idx]
    keep = (before >= 0) & in_mode[after]
    before, after = before[keep], after[keep]
    outside = np.flatnonzero(~in_mode[before]).tolist()
    if outside:
        at = min(outside, key=lambda edge: (index.node_ids[after[edge]], edge))
        reader, writer = index.node_ids[after[at]], index.node_ids[before[at]]
        message = f"node {reader!r} reads an output of node {writer!r}, which is not part of this mode's timeline."
        hint = "Choose mode 'backward', or mark the producer with phase 'forward'."
        raise InvalidIrShapes(message, reason="producer_outside_mode", node_id=reader, hint=hint)
    return before, after


def default_order(index: GraphIndex, edges: tuple[I64, I64], in_mode: NDArray[np.bool_]) -> I64:
    """Return the topological order with ties by id (Kahn's algorithm). Raises ``LivenessCycle`` with the lowest id."""
    ids = index.node_ids
    numbers = np.array(sorted(np.flatnonzero(in_mode).tolist(), key=ids.__getitem__), np.int64)
    rank = np.zeros(len(ids), np.int64)  # among the nodes of the timeline
    rank[numbers] = np.arange(len(numbers))
    before, after = rank[edges[0]], rank[edges[1]]
    if bool((before < after).all()):  # the order of the ids respects all dependencies
        return numbers
    by_id = numbers.tolist()
    waits_for = np.bincount(after, minlength=len(by_id)).tolist()
    followers: list[list[int]] = [[] for _ in by_id]
    for writer, reader in zip(before.tolist(), after.tolist(), strict=True):
        followers[writer].append(reader)
    ready = [r for r, waiting in enumerate(waits_for) if waiting == 0]
    heapify(ready)
    order: list[int] = []
    while ready:
        done = heappop(ready)
        order.append(by_id[done])
        for follower in followers[done]:
            waits_for[follower] -= 1
            if waits_for[follower] == 0:
                heappush(ready, follower)
    if len(order) < len(by_id):
        stuck = ids[by_id[min(nodes_on_cycles(zip(before.tolist(), after.tolist(), strict=True)))]]
        message = f"the graph has a cycle: node {stuck!r} depends on itself through its inputs."
        hint = "Break the cycle: every tensor must be written before it is read."
        raise LivenessCycle(message, node_id=stuck, hint=hint)
    return np.array(order, np.int64)


def given_order(index: GraphIndex, order: Sequence[str], edges: tuple[I64, I64], in_mode: NDArray[np.bool_]) -> I64:
    """Return the node numbers of ``order``. Nodes of other modes are skipped, so one order is valid in every mode.

    Raises ``InvalidIrShapes`` for an unknown, repeated or missing node, ``LivenessCycle`` for a violated dependency.
    """
    node_of = index.node_of
    nodes: list[int] = []
    position_in_mode = np.full(len(index.node_ids), -1, np.int64)
    for position, node_id in enumerate(order):
        node = node_of.get(node_id)
        if node is None:
            hint = strict.closest_hint(node_id, index.node_ids)
            raise _bad_order("order_unknown_node", node_id, position, "is not a node of the graph", hint)
        if not in_mode[node]:
            continue
        if position_in_mode[node] >= 0:
            raise _bad_order("order_duplicate_node", node_id, position, "appears twice")
        position_in_mode[node] = len(nodes)
        nodes.append(node)
    missing = np.flatnonzero(in_mode & (position_in_mode < 0))
    if len(missing):
        node_id = min(index.node_ids[i] for i in missing.tolist())
        raise _bad_order("order_missing_node", node_id, len(order), "is missing")
    before, after = edges
    violated = np.flatnonzero(position_in_mode[before] >= position_in_mode[after])
    if len(violated):
        first = int(position_in_mode[after[violated]].min())
        edge = violated[position_in_mode[after[violated]] == first][0]
        node_id, writer = index.node_ids[nodes[first]], index.node_ids[before[edge]]
        message = f"the execution order runs node {node_id!r} before node {writer!r}, whose output it reads."
        hint = "Move it after its producers, or omit the order to use the default."
        raise LivenessCycle(message, t=first + bool(index.graph.inputs), node_id=node_id, hint=hint)
    return np.array(nodes, np.int64)


def _bad_order(reason: str, node_id: str, position: int, what: str, hint: str = "") -> InvalidIrShapes:
    problem = f"{strict.shown(node_id)} {what} (position {position})"
    message = f"the execution order is not a permutation of the nodes: {problem}."
    hint = hint or "List every node of the mode's timeline exactly once."
    return InvalidIrShapes(message, reason=reason, node_id=node_id, path=f"$.execution_order[{position}]", hint=hint)


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

    ``order`` overrides the graph's ``execution_order``; ``dims`` sets named dimensions (default: assumed sizes, else
    upper bounds). Raises ``InvalidIrShapes`` for an order that is not a permutation, ``LivenessCycle`` for a cycle or a
    violated dependency, and the errors of :func:`index_graph`.
    """
    index = index_graph(graph, dims)
    retain = mode != "inference" and preset != "inference"
    nodes = _order(index, order if order is not None else graph.execution_order, mode)
    expanded = graph
    with source_of_errors(f"{graph.name or 'the graph'} with the steps that mode {mode} and preset {preset} add"):
        if mode == "backward" and all(node.phase != "backward" for node in graph.nodes):
            expanded, ids = with_backward(graph, _ids(index, nodes), retain=retain)
            index = index_graph(expanded, dims)
            nodes = _order(index, ids, mode)
        if mode == "backward" and preset == "remat_enabled" and any(tensor.remat for tensor in graph.tensors):
            expanded, ids = with_rematerialisation(expanded, _ids(index, nodes))
            index = index_graph(expanded, dims)
            nodes = _order(index, ids, mode)

    first = 1 if graph.inputs else 0
    node_at = np.full(first + len(nodes), -1, np.int64)
    node_at[first:] = nodes
    step_of = np.full(len(index.node_ids), -1, np.int64)
    step_of[nodes] = np.arange(first, len(node_at))
    ids_as_run = _ids(index, nodes)
    return Timeline(graph, expanded, index, mode, preset, node_at, step_of, bool(graph.inputs), ids_as_run, retain)


def _ids(index: GraphIndex, nodes: I64) -> tuple[str, ...]:
    return tuple([index.node_ids[node] for node in nodes.tolist()])


def _order(index: GraphIndex, order: Sequence[str] | None, mode: Mode) -> I64:
    in_mode = np.ones(len(index.node_ids), np.bool_) if mode == "backward" else index.is_forward
    edges = dependencies(index, in_mode)
    return default_order(index, edges, in_mode) if order is None else given_order(index, order, edges, in_mode)


@dataclass(frozen=True)
class PhaseSteps:
    """Consecutive steps ``[start, end)`` of one phase."""

    phase: Phase
    start: int
    end: int


def phases_of(timeline: Timeline) -> tuple[PhaseSteps, ...]:
    """Return the phases as ranges that cover all steps, in order; none without nodes. ``@inputs`` is in the first."""
    nodes = timeline.graph.nodes
    phases = ((step, nodes[node].phase) for step, node in enumerate(timeline.node_at.tolist()) if node >= 0)
    return phases_from_known(timeline.steps, phases)


def phases_from_known(steps: int, known: Iterable[tuple[int, Phase | None]]) -> tuple[PhaseSteps, ...]:
    """Return the phases as ranges of ``steps`` steps; ``known`` has ``(step, phase)`` of some steps.

    Other steps have the phase of the last known step before them, else the first known phase. ``()`` if none is known.
    """
    phases = sorted((step, phase) for step, phase in known if phase is not None)
    first_steps = [(step, phase) for k, (step, phase) in enumerate(phases) if k == 0 or phase != phases[k - 1][1]]
    bounds = [0, *(step for step, _ in first_steps[1:]), steps]
    rows = zip(first_steps, pairwise(bounds), strict=False)
    return tuple([PhaseSteps(phase, start, end) for (_, phase), (start, end) in rows])
