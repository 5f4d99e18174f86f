"""The order problem: which nodes may run when, and what is alive for a set of nodes that have run.

What is alive depends on *which* nodes have run, not on their order: a storage is alive from the first node that touches
it (writes or reads a member) to the last one. So are hand-offs (contract §1): x is read for the last time by n when all
others that touch its storage have run. An order is a way through those sets, and its peak the greatest step on it.

What must be kept beside the flow of data (each as edges between nodes, taken from the order as given):

* **bytes written over**: who touches a storage before one of its writers stays before it, who comes after, after;
* **effects**: operators that draw random numbers, or speak to other ranks, keep their order among themselves;
* **scopes**: the nodes of a nested scope (If, Loop, Scan) are one unit, in their own order;
* **phases**, where that is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

import numpy as np
from numpy.typing import NDArray

from tmmu_core.graph.model import Node
from tmmu_core.graph.operators import keeps_its_turn
from tmmu_core.liveness.model import Liveness, Timeline
from tmmu_core.liveness.order import dependencies, source_of
from tmmu_core.liveness.views import view_roots
from tmmu_core.once import cached_property

I64 = NDArray[np.int64]
LARGEST = 2**60
"""Bytes in all up to which orders are searched: sums stay far within 64 bits."""


@dataclass(frozen=True, eq=False)
class OrderModel:
    """Units of nodes with what must run before what, and storages with who touches them. CSR throughout."""

    node_ids: tuple[str, ...]
    units: tuple[tuple[int, ...], ...]
    """Nodes (numbers) that run together, in their order; units by their first node's place in the given order."""
    succ_ptr: I64
    succ_idx: I64
    """Unit → units that must come later."""
    waits_for: I64
    """Shape (units,): how many must have run before."""
    touch_ptr: I64
    touch_idx: I64
    """Node → storages that it touches, each once."""
    cand_ptr: I64
    cand_idx: I64
    """Node → storages whose place its output may take, in the order in which they are tried."""
    out: I64
    """Shape (nodes,): the storage whose first tenant may take a place over; −1 where none may."""
    size: I64
    """Shape (storages,): bytes, rounded up to the arena's grid; 0 for what is persistent."""
    arena: I64
    held: NDArray[np.bool_]
    """Never dies: an output."""
    initial: NDArray[np.bool_]
    """Alive before the first node: an input."""
    touched_by: I64
    """Shape (storages,): how many nodes touch it."""
    constant: I64
    """Shape (arenas,): bytes that are there at every step."""
    arenas: tuple[str, ...]
    pad: int
    """The most bytes that any size here is above the storage's own."""

    def __len__(self) -> int:
        return len(self.units)

    @cached_property
    def unit_ptr(self) -> I64:
        """Unit → its nodes, as CSR with :attr:`unit_nodes`."""
        return np.concatenate([[0], np.cumsum([len(unit) for unit in self.units], dtype=np.int64)]).astype(np.int64)

    @cached_property
    def unit_nodes(self) -> I64:
        """The units' nodes, one after the other."""
        return np.array([node for unit in self.units for node in unit], np.int64)

    def nodes_of(self, order: Sequence[int]) -> list[int]:
        """The nodes of units in an order."""
        return [node for unit in order for node in self.units[unit]]

    def ids_of(self, order: Sequence[int]) -> tuple[str, ...]:
        """Their ids."""
        return tuple([self.node_ids[node] for node in self.nodes_of(order)])


def order_model(
    liveness: Liveness, grids: Mapping[str, int] | None = None, *, keep_phases: bool = False
) -> OrderModel | None:
    """The order problem of what was planned; ``None`` where sizes are too large to be summed in 64 bits.

    ``grids`` (arena → bytes): sizes are rounded up to their arena's, as all but the topmost take; else to 1.
    """
    timeline = liveness.timeline
    storages = liveness.storages
    grid_of = [(grids or {}).get(name, 1) for name in liveness.arenas]
    each = zip(storages.size.tolist(), storages.arena.tolist(), strict=True)
    if sum(-(-size // grid_of[arena]) * grid_of[arena] for size, arena in each) >= LARGEST:
        return None
    given = [int(node) for node in timeline.node_at if node >= 0]
    touch_ptr, touch_idx, members = _touches(liveness)
    units, unit_of = _units(timeline, given)
    edges = _edges(liveness, given, keep_phases)
    succ_ptr, succ_idx, waits_for = _between_units(edges, unit_of, len(units))

    size = storages.size.astype(np.int64)
    grid = np.array(grid_of, np.int64)[storages.arena]
    rounded = -(-size // grid) * grid
    index = timeline.index
    planned = liveness.storage_of >= 0
    held = np.zeros(len(storages), np.bool_)
    held[liveness.storage_of[planned & index.is_output]] = True
    initial = np.zeros(len(storages), np.bool_)
    initial[liveness.storage_of[planned & index.is_input]] = True
    persistent = storages.persistent
    constant = np.zeros(len(liveness.arenas), np.int64)
    np.add.at(constant, storages.arena[persistent], rounded[persistent])
    rounded = np.where(persistent, 0, rounded)
    cand_ptr, cand_idx, out = _candidates(liveness, members, held)
    return OrderModel(
        node_ids=index.node_ids,
        units=units,
        succ_ptr=succ_ptr,
        succ_idx=succ_idx,
        waits_for=waits_for,
        touch_ptr=touch_ptr,
        touch_idx=touch_idx,
        cand_ptr=cand_ptr,
        cand_idx=cand_idx,
        out=out,
        size=rounded,
        arena=storages.arena.astype(np.int64),
        held=held,
        initial=initial,
        touched_by=np.bincount(touch_idx, minlength=len(storages)).astype(np.int64),
        constant=constant,
        arenas=liveness.arenas,
        pad=int((rounded - size)[~persistent].max(initial=0)),
    )


def _touches(liveness: Liveness) -> tuple[I64, I64, dict[tuple[int, int], int]]:
    """Node → its storages (persistent ones left out), and how many distinct members of a storage a node touches."""
    index = liveness.timeline.index
    nodes = len(index.node_ids)
    node = np.concatenate(
        [
            np.repeat(np.arange(nodes), np.diff(index.in_ptr)),
            np.repeat(np.arange(nodes), np.diff(index.out_ptr)),
        ]
    )
    tensor = np.concatenate([index.in_idx, index.out_idx])
    inside = (liveness.timeline.step_of[node] >= 0) & (liveness.storage_of[tensor] >= 0)
    pairs = np.unique(node[inside] * len(index.tensor_ids) + tensor[inside])
    node, tensor = np.divmod(pairs, len(index.tensor_ids))
    storage = liveness.storage_of[tensor]
    keep = ~liveness.storages.persistent[storage]
    width = len(liveness.storages)
    touched, counts = np.unique(node[keep] * width + storage[keep], return_counts=True)
    node, storage = np.divmod(touched, width)
    members = {(int(node[k]), int(storage[k])): int(counts[k]) for k in np.flatnonzero(counts > 1)}
    ptr = np.concatenate([[0], np.cumsum(np.bincount(node, minlength=nodes))]).astype(np.int64)
    return ptr, storage.astype(np.int64), members


def _units(timeline: Timeline, given: list[int]) -> tuple[tuple[tuple[int, ...], ...], I64]:
    """Nodes that run together, by their first in the given order, and the unit of each node (−1 outside).

    A scope reaches from its first node to its last, strangers between them included: so no circle of units comes up.
    """
    scopes = [str(timeline.graph.nodes[node].params.get("scope", "")).partition("/")[0] for node in given]
    ends = {scope: at for at, scope in enumerate(scopes) if scope}
    unit_of = np.full(len(timeline.index.node_ids), -1, np.int64)
    units: list[list[int]] = []
    until = -1
    for at, (node, scope) in enumerate(zip(given, scopes, strict=True)):
        if at > until:
            units.append([])
        until = max(until, ends.get(scope, -1))
        units[-1].append(node)
        unit_of[node] = len(units) - 1
    return tuple(map(tuple, units)), unit_of


def _edges(liveness: Liveness, given: list[int], keep_phases: bool) -> I64:
    """Shape (edges, 2): (before, after) between nodes."""
    timeline = liveness.timeline
    index = timeline.index
    inside = timeline.step_of >= 0
    before, after = dependencies(index, source_of(index, view_roots(index)[0]), inside)
    found = [np.stack([before, after], axis=1)]
    nodes = timeline.graph.nodes
    turns = [node for node in given if keeps_its_turn(nodes[node].instr)]
    extra = [*pairwise(turns), *_written_over(liveness)]
    if keep_phases:
        extra += _phase_edges(nodes, given)
    found.append(np.array(extra, np.int64).reshape(-1, 2))
    return np.concatenate(found)


def _written_over(liveness: Liveness) -> Iterator[tuple[int, int]]:
    """Edges that keep everybody who touches bytes on their side of everybody who writes over them."""
    timeline = liveness.timeline
    index, nodes = timeline.index, timeline.graph.nodes
    written: dict[int, dict[int, None]] = {}
    for k in np.flatnonzero(timeline.step_of >= 0).tolist():
        node = nodes[k]
        groups = {int(liveness.storage_of[x]) for x in index.inputs_of(k)}
        targets = {o for _, o in node.in_place_write}
        for o, y in enumerate(index.outputs_of(k).tolist()):
            storage = int(liveness.storage_of[y])
            looks_only = index.base[y] >= 0 and storage in groups and node.phase != "optimizer" and o not in targets
            if not looks_only:
                written.setdefault(storage, {})[k] = None
    several = {
        storage: writers for storage, writers in written.items() if len(writers) > 1 or _is_there(liveness, storage)
    }
    if not several:
        return
    touching: dict[int, set[int]] = {storage: set(writers) for storage, writers in several.items()}
    for x, k in zip(
        index.in_idx.tolist(), np.repeat(np.arange(len(nodes)), np.diff(index.in_ptr)).tolist(), strict=True
    ):
        storage = int(liveness.storage_of[x])
        if storage in touching and timeline.step_of[k] >= 0:
            touching[storage].add(k)
    for storage, touchers in touching.items():
        writers = several[storage]
        last = -1
        since: list[int] = []
        for k in sorted(touchers, key=lambda k: int(timeline.step_of[k])):
            if last >= 0:
                yield last, k
            if k in writers:
                yield from ((reader, k) for reader in since)
                last, since = k, []
            else:
                since.append(k)


def _is_there(liveness: Liveness, storage: int) -> bool:
    """Whether the storage holds something before the first node writes into it: it is loaded, or born with it."""
    return bool(liveness.storages.birth[storage] == 0)


def _phase_edges(nodes: Sequence[Node], given: list[int]) -> Iterator[tuple[int, int]]:
    """Edges that keep runs of one phase apart: a run begins with the node that it began with."""
    runs = [list(run) for _, run in groupby(given, key=lambda k: nodes[k].phase)]
    for before, after in pairwise(runs):
        yield from ((k, after[0]) for k in before)
        yield from ((after[0], k) for k in after[1:])


def _between_units(edges: I64, unit_of: I64, count: int) -> tuple[I64, I64, I64]:
    """Unit → later units as CSR, and how many each waits for."""
    pairs = unit_of[edges]
    pairs = np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0)
    ptr = np.concatenate([[0], np.cumsum(np.bincount(pairs[:, 0], minlength=count))]).astype(np.int64)
    return ptr, pairs[:, 1].astype(np.int64), np.bincount(pairs[:, 1], minlength=count).astype(np.int64)


def _candidates(
    liveness: Liveness, members: dict[tuple[int, int], int], held: NDArray[np.bool_]
) -> tuple[I64, I64, I64]:
    """Node → storages that its one output may take over, as far as that does not depend on the order."""
    timeline = liveness.timeline
    index, tensors, storages = timeline.index, timeline.graph.tensors, liveness.storages
    apart = {(int(a), int(b)) for a, b in storages.must_not_alias} | {
        (int(b), int(a)) for a, b in storages.must_not_alias
    }
    ptr, found = [0], []
    out = np.full(len(index.node_ids), -1, np.int64)
    for k, node in enumerate(timeline.graph.nodes):
        if timeline.step_of[k] >= 0 and len(node.outputs) == 1 and node.inplace != "none":
            y = int(index.outputs_of(k)[0])
            target = int(liveness.storage_of[y])
            if index.base[y] < 0:
                out[k] = target
                for x in _permitted(node, index.inputs_of(k).tolist()):
                    source = int(liveness.storage_of[x])
                    fine = (
                        source not in (target, -1)
                        and not storages.persistent[source]
                        and not held[source]
                        and not (timeline.retain and tensors[x].saved_for_backward)
                        and members.get((k, source), 1) == 1
                        and (source, target) not in apart
                        and storages.arena[source] == storages.arena[target]
                    )
                    if fine:
                        found.append(source)
        ptr.append(len(found))
    return np.array(ptr, np.int64), np.array(found, np.int64), out


def _permitted(node: Node, inputs: list[int]) -> list[int]:
    """Tensors whose place the output may take, in the order of the permission."""
    if node.inplace is None or node.inplace == "any":
        return list(dict.fromkeys(inputs))
    assert not isinstance(node.inplace, str)
    listed = list(dict.fromkeys(inputs[i] for i, o in node.inplace if o == 0))
    positions = {i for i, _ in node.inplace}
    return [x for x in listed if all(i in positions for i, other in enumerate(inputs) if other == x)]
