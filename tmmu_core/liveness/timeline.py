"""Compute the steps of a graph from a mode, a preset and an optional order (contract §1–§3); types of live ranges.

Mode ``backward`` synthesises a missing backward pass; with preset ``remat_enabled``, it adds nodes that recompute
(:mod:`.backward`). The default order is topological; the ready node with the lowest id (UTF-8 bytes) runs next.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heappop, heappush
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tmmu_core.base import strict
from tmmu_core.base.components import nodes_on_cycles
from tmmu_core.base.errors import U64_MAX, AllocationOverflow, InvalidIrShapes, LivenessCycle, source_of_errors
from tmmu_core.graph.index import GraphIndex, index_graph, names_of
from tmmu_core.graph.model import Graph, Mode, Phase, Preset
from tmmu_core.liveness.backward import with_backward, with_rematerialisation

I64 = NDArray[np.int64]
I32 = NDArray[np.int32]
U64 = NDArray[np.uint64]
Mask = NDArray[np.bool_]
REFUSAL_WORDS: dict[str, str] = {
    "several_outputs": "the last reader writes several outputs",
    "persistent": "the tensor is persistent",
    "graph_output": "the tensor is an output of the graph",
    "saved_for_backward": "the tensor is saved for the backward pass",
    "alias_live": "another tensor of its buffer is still live, or the output has a buffer already",
    "must_not_alias": "the two must not alias",
    "other_arena": "the two are in different arenas",
    "already_taken": "the output reuses another input",
}
"""Condition that refuses a permitted in-place reuse → its text (a clause after "because"), in checking order."""

CONDITIONS: tuple[str, ...] = tuple(REFUSAL_WORDS)


@dataclass(frozen=True, eq=False)
class Timeline:
    """A graph resolved to a sequence of steps under a mode and a preset."""

    source: Graph  # the graph as given; hashes are computed from it
    graph: Graph  # the graph as run, with synthesised backward nodes and recomputing nodes (contract §2)
    index: GraphIndex
    mode: Mode
    preset: Preset
    node_at: I64  # shape (T,): node index run at each step; −1 for ``@inputs``
    step_of: I64  # shape (nodes,): the step of each node; −1 for a node outside this mode's timeline
    has_inputs_step: bool
    order: tuple[str, ...]  # node ids as run, without ``@inputs``
    retain: bool = True  # whether ``saved_for_backward`` counts (neither mode nor preset is ``inference``)

    @property
    def steps(self) -> int:
        """Number of steps T, with ``@inputs``."""
        return len(self.node_at)


@dataclass(frozen=True)
class Refusal:
    """A refused in-place reuse, and the first condition of contract §1 that refused it."""

    step: int
    source: str
    target: str
    condition: str  # one of ``CONDITIONS``


@dataclass(frozen=True, eq=False)
class Storages:
    """Columns, one row per storage, in the order of the contract (birth, −bytes of the head, id bytes of the head)."""

    head: I64  # tensor index of the first-born member, whose id names the storage
    birth: I64
    death: I64
    size: U64  # bytes: greatest end over the members
    alignment: U64  # bytes: greatest alignment of the members; the alignment of the arena is not included
    arena: I32  # index into ``Liveness.arenas``
    persistent: Mask
    handoff_from: I64  # storage whose bytes this one may reuse in place; −1: none
    must_not_alias: I64  # shape (m, 2): storage index pairs, each once, smaller first

    def __len__(self) -> int:
        return len(self.head)


@dataclass(frozen=True, eq=False)
class Liveness:
    """Live ranges of tensors and storages. Columns over tensors are parallel to ``timeline.index.tensor_ids``."""

    timeline: Timeline
    arenas: tuple[str, ...]  # names of the used and the declared arenas, in byte order
    birth: I64  # first step of each tensor; −1 for a tensor outside the timeline
    death: I64  # step after the last step at which each tensor is live; −1 for a tensor outside the timeline
    storage_of: I64  # row of each tensor's storage in ``storages``, or −1
    offset_in_storage: U64  # bytes from the storage's start; 0 except for views and in-place writes into views
    storages: Storages
    handoffs: I64  # shape (h, 3): granted in-place reuses as (step, from tensor, to tensor), in step order
    taken: Mask  # shape (h,): whether the output uses the input's bytes; all true until storages are placed
    refusal_rows: I64  # shape (r, 4): refused reuses as (step, from, to, index into ``CONDITIONS``), by step

    @cached_property
    def refusals(self) -> tuple[Refusal, ...]:
        """The refused in-place reuses by name."""
        ids = self.timeline.index.tensor_ids
        return tuple(Refusal(int(k), ids[x], ids[y], CONDITIONS[c]) for k, x, y, c in self.refusal_rows)


def view_roots(index: GraphIndex) -> tuple[I64, U64]:
    """Return each tensor's root base (itself if it is no view) and byte offset in it. Raises ``AllocationOverflow``."""
    tensors, base, views = index.graph.tensors, index.base.tolist(), np.flatnonzero(index.base >= 0).tolist()
    root_and_offset: dict[int, tuple[int, int]] = {}  # per view
    for number in views:
        chain = [number]
        while base[chain[-1]] >= 0 and chain[-1] not in root_and_offset:  # views are acyclic in an index
            chain.append(base[chain[-1]])
        root, offset = root_and_offset.get(chain[-1], (chain[-1], 0))
        for member in reversed(chain[:-1]):
            view = tensors[member].view
            assert view is not None
            offset += view.byte_offset
            root_and_offset[member] = root, offset
    roots, offsets = np.arange(len(tensors), dtype=np.int64), np.zeros(len(tensors), np.uint64)
    for number, (root, offset) in sorted(root_and_offset.items()):
        if offset > U64_MAX:
            raise overflow(tensors[number].id, offset, f"$.tensors[{number}].view.byte_offset")
        roots[number], offsets[number] = root, offset
    return roots, offsets


def overflow(name: str, end: int, path: str) -> AllocationOverflow:
    """Return the error for a tensor that begins or ends past 2^64 − 1 in its storage."""
    what = f"the tensor {name!r} reaches byte {end:,} of its storage, past 2^64 − 1."
    hint = "Check the byte_offset of its views, and the shape of the tensor that it overwrites."
    return AllocationOverflow(what, arena="unknown", offset=str(end), size="unknown", tensor=name, path=path, hint=hint)


def dependencies(index: GraphIndex, in_mode: Mask) -> tuple[I64, I64]:
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


def default_order(index: GraphIndex, edges: tuple[I64, I64], in_mode: Mask) -> I64:
    """Return the topological order with ties by id (Kahn's algorithm). Raises ``LivenessCycle``."""
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


def given_order(index: GraphIndex, order: Sequence[str], edges: tuple[I64, I64], in_mode: Mask) -> I64:
    """Return the numbers of ``order``'s nodes in this mode. Raises ``InvalidIrShapes`` and ``LivenessCycle``."""
    node_of = index.node_of
    nodes: list[int] = []
    position_in_mode = np.full(len(index.node_ids), -1, np.int64)
    for position, node_id in enumerate(order):
        node = node_of.get(node_id)
        if node is None:
            hint = strict.closest_hint(node_id, index.node_ids)
            what = f"is not a node of the graph (position {position})"
            raise _bad_order("order_unknown_node", node_id, position, what, hint)
        if not in_mode[node]:
            continue
        if position_in_mode[node] >= 0:
            raise _bad_order("order_duplicate_node", node_id, position, f"appears twice (position {position})")
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
    message = f"the execution order is not a permutation of the nodes: {strict.shown(node_id)} {what}."
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
            expanded, ids = with_backward(graph, names_of(index.node_ids, nodes), retain=retain)
            index = index_graph(expanded, dims)
            nodes = _order(index, ids, mode)
        if mode == "backward" and preset == "remat_enabled" and any(tensor.remat for tensor in graph.tensors):
            expanded, ids = with_rematerialisation(expanded, names_of(index.node_ids, nodes))
            index = index_graph(expanded, dims)
            nodes = _order(index, ids, mode)

    first = 1 if graph.inputs else 0
    node_at = np.full(first + len(nodes), -1, np.int64)
    node_at[first:] = nodes
    step_of = np.full(len(index.node_ids), -1, np.int64)
    step_of[nodes] = np.arange(first, len(node_at))
    ids_as_run = names_of(index.node_ids, nodes)
    return Timeline(graph, expanded, index, mode, preset, node_at, step_of, bool(graph.inputs), ids_as_run, retain)


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
    """Return the phases as ranges that cover all steps, in order; ``()`` without nodes. ``@inputs`` is in the first."""
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
