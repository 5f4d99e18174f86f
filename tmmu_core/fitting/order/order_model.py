"""The order problem: dependencies between nodes, and the storages that are live for a set of executed nodes.

The live storages depend only on the *set* of executed nodes, not on their order. A storage is live from the first to
the last node that touches it (reads or writes a member), an input from the start, an output to the end. In-place reuse
(contract §1) depends on the set too: node n is the last reader of tensor x if all other nodes that touch x's storage
have run. The peak of an order is the most live bytes at a step.

Besides the flow of data, the initial order (the execution order of the graph) gives these dependencies:

* **overwriting**: a write to a storage keeps its order relative to every other access to this storage;
* **effects**: random, collective, side-effect and unknown operators keep their order;
* **scopes**: the nodes of a nested scope (If, Loop, Scan) run together, as one *unit*, in their order;
* **phases**, on request: all nodes of a phase run before the next phase.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, pairwise

import numpy as np
from numpy.typing import NDArray

from tmmu_core.graph.model import OFFLOAD_ARENA
from tmmu_core.graph.operators import operator_of
from tmmu_core.liveness.analyse import storage_writers
from tmmu_core.liveness.live_ranges import permitted_reuses, saved_tensors
from tmmu_core.liveness.timeline import Liveness, Timeline, dependencies, view_roots

I64 = NDArray[np.int64]
MAX_TOTAL_BYTES = 2**60  # orders are searched only below this sum of the sizes, so that all sums fit into 64 bits


@dataclass(frozen=True, eq=False)
class OrderModel:
    """Units (nodes that run together) with their dependencies, and storages with the nodes that touch each."""

    node_ids: tuple[str, ...]
    units: tuple[tuple[int, ...], ...]  # node numbers in order; units are sorted by first node in the initial order
    successors: list[list[int]]  # unit → units that must run later, ascending
    touches: list[list[int]]  # node → storages that it touches, each once
    candidates: list[list[int]]  # node → storages that its output may reuse in place, in the order of preference
    out: I64  # shape (nodes,): the storage of the output that may reuse another; −1 if none
    size: I64  # shape (storages,): bytes, rounded up to the arena's alignment; 0 for persistent and offloaded storages
    arena: I64  # shape (storages,): index into ``arenas``
    stays_live: NDArray[np.bool_]  # shape (storages,): whether it is live after the last node, as an output
    starts_live: NDArray[np.bool_]  # shape (storages,): whether it is live before the first node, as an input
    constant: I64  # shape (arenas,): bytes that are live at every step
    arenas: tuple[str, ...]
    padding: I64  # shape (arenas,): largest padding of a storage; bounds subtract it, as the top storage needs none

    def __len__(self) -> int:
        return len(self.units)

    @cached_property
    def predecessors(self) -> list[list[int]]:
        """Unit → units that must run earlier, ascending."""
        found: list[list[int]] = [[] for _ in self.units]
        for unit, row in enumerate(self.successors):
            for later in row:
                found[later].append(unit)
        return found

    @cached_property
    def node_touches(self) -> I64:
        """Shape (touches, 2): a node, and a storage that it touches."""
        return _pairs(self.touches)

    @cached_property
    def reuses(self) -> I64:
        """Shape (pairs, 2): a node, and a storage that its output may reuse in place; preferred ones first."""
        return _pairs(self.candidates)

    @cached_property
    def touched_by(self) -> I64:
        """Shape (storages,): number of nodes that touch the storage."""
        return np.bincount(self.node_touches[:, 1], minlength=len(self.size)).astype(np.int64)

    @cached_property
    def variable_arenas(self) -> list[int]:
        """Arenas whose live bytes depend on the order."""
        return np.unique(self.arena[self.size > 0]).tolist()

    def ids_of(self, order: Sequence[int]) -> tuple[str, ...]:
        """Return the node ids of units in an order."""
        return tuple([self.node_ids[node] for unit in order for node in self.units[unit]])


def _pairs(rows: list[list[int]]) -> I64:
    return np.array([(number, value) for number, row in enumerate(rows) for value in row], np.int64).reshape(-1, 2)


def csr(rows: Sequence[Sequence[int]]) -> tuple[I64, I64]:
    """Return lists of numbers as CSR: ``(ptr, idx)``, where list k is ``idx[ptr[k]:ptr[k + 1]]``."""
    ptr = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([len(row) for row in rows], out=ptr[1:])
    return ptr, np.array([value for row in rows for value in row], np.int64)


def csr_rows(ptr: I64, idx: I64) -> list[list[int]]:
    """Return the lists of a CSR."""
    values = idx.tolist()
    return [values[a:b] for a, b in pairwise(ptr.tolist())]


def order_model(
    liveness: Liveness, alignments: Mapping[str, int] | None = None, *, keep_phases: bool = False
) -> OrderModel | None:
    """Return the order problem of a plan; ``None`` if sizes are too large to be summed in 64 bits.

    Sizes are rounded up to ``alignments`` (arena → bytes; default 1). Storages in the arena ``offload`` count 0 bytes,
    because they are in another memory.
    """
    timeline, storages = liveness.timeline, liveness.storages
    alignment = [(alignments or {}).get(name, 1) for name in liveness.arenas]
    is_counted = np.array([name != OFFLOAD_ARENA for name in liveness.arenas], np.bool_)
    counted_bytes = storages.size * is_counted[storages.arena]
    rows = zip(counted_bytes.tolist(), storages.arena.tolist(), strict=True)
    aligned = [-(-size // alignment[arena]) * alignment[arena] for size, arena in rows]
    if sum(aligned) >= MAX_TOTAL_BYTES:
        return None
    order = timeline.node_at[timeline.node_at >= 0].tolist()
    touches, tensor_counts = _touches(liveness)
    units, unit_of = _units(timeline, order)
    size = np.array(aligned, np.int64)
    padding, constant = np.zeros((2, len(liveness.arenas)), np.int64)
    np.maximum.at(padding, storages.arena, size - counted_bytes.astype(np.int64))
    persistent = storages.persistent
    np.add.at(constant, storages.arena[persistent], size[persistent])
    index = timeline.index
    stays_live = storages_with(liveness, index.is_output)
    candidates, out = _candidates(liveness, tensor_counts, stays_live)
    edges = unit_of[_edges(liveness, order, keep_phases)]
    edges = np.unique(edges[edges[:, 0] != edges[:, 1]], axis=0)
    return OrderModel(
        node_ids=index.node_ids,
        units=units,
        successors=csr_rows(np.searchsorted(edges[:, 0], np.arange(len(units) + 1)), edges[:, 1]),
        touches=touches,
        candidates=candidates,
        out=out,
        size=np.where(persistent, 0, size),
        arena=storages.arena.astype(np.int64),
        stays_live=stays_live,
        starts_live=storages_with(liveness, index.is_input),
        constant=constant,
        arenas=liveness.arenas,
        padding=padding,
    )


def storages_with(liveness: Liveness, tensors: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return an array of shape (storages,): whether the mask ``tensors`` selects a member of the storage."""
    mask = np.zeros(len(liveness.storages), np.bool_)
    mask[liveness.storage_of[tensors & (liveness.storage_of >= 0)]] = True
    return mask


def _touches(liveness: Liveness) -> tuple[list[list[int]], dict[tuple[int, int], int]]:
    """Return node → touched storages, not persistent ones, and (node, storage) → number of touched tensors, if > 1."""
    index = liveness.timeline.index
    nodes = len(index.node_ids)
    node = np.concatenate([np.repeat(np.arange(nodes), np.diff(ptr)) for ptr in (index.in_ptr, index.out_ptr)])
    tensor = np.concatenate([index.in_idx, index.out_idx])
    is_planned = (liveness.timeline.step_of[node] >= 0) & (liveness.storage_of[tensor] >= 0)
    pairs = np.unique(node[is_planned] * len(index.tensor_ids) + tensor[is_planned])
    node, tensor = np.divmod(pairs, len(index.tensor_ids))
    storage = liveness.storage_of[tensor]
    keep = ~liveness.storages.persistent[storage]
    width = len(liveness.storages)
    touched, counts = np.unique(node[keep] * width + storage[keep], return_counts=True)
    node, storage = np.divmod(touched, width)
    tensor_counts = {(int(node[k]), int(storage[k])): int(counts[k]) for k in np.flatnonzero(counts > 1)}
    return csr_rows(np.searchsorted(node, np.arange(nodes + 1)), storage), tensor_counts


def _units(timeline: Timeline, order: list[int]) -> tuple[tuple[tuple[int, ...], ...], I64]:
    """Return the units, sorted by their first node in the initial order, and the unit of each node (−1: not run).

    Nodes outside a scope that run between its nodes join its unit. Otherwise, dependencies of units could have a cycle.
    """
    scopes = [timeline.graph.nodes[node].scope.partition("/")[0] for node in order]
    last_of_scope = {scope: position for position, scope in enumerate(scopes) if scope}
    unit_of = np.full(len(timeline.index.node_ids), -1, np.int64)
    units: list[list[int]] = []
    last = -1  # last position of the current unit so far
    for position, (node, scope) in enumerate(zip(order, scopes, strict=True)):
        if position > last:
            units.append([])
        last = max(last, last_of_scope.get(scope, -1))
        units[-1].append(node)
        unit_of[node] = len(units) - 1
    return tuple(map(tuple, units)), unit_of


def _edges(liveness: Liveness, order: list[int], keep_phases: bool) -> I64:
    """Return the dependencies as an array of shape (edges, 2): a node, and a node that must run after it."""
    timeline = liveness.timeline
    index = timeline.index
    before, after = dependencies(index, timeline.step_of >= 0)
    nodes = timeline.graph.nodes
    fixed = (node for node in order if operator_of(nodes[node].instr).keeps_position)
    extra = [*pairwise(fixed), *_overwrite_edges(liveness)]
    edges = np.concatenate([np.stack([before, after], axis=1), np.array(extra, np.int64).reshape(-1, 2)])
    if not keep_phases:
        return edges
    # A section is a sequence of nodes of one phase. Nodes without a successor in it run before the nodes of the next
    # section without a predecessor there. Gradients of results are a section: backward begins with them.
    phases = groupby(order, key=lambda k: (nodes[k].phase, nodes[k].instr == "tangent"))
    sections = [list(section) for _, section in phases]
    section_of = np.full(len(nodes), -1, np.int64)
    for number, section in enumerate(sections):
        section_of[section] = number
    inner_edges = edges[section_of[edges[:, 0]] == section_of[edges[:, 1]]]
    has_successor, has_predecessor = (set(column) for column in inner_edges.T.tolist())
    extra = []
    for section, next_section in pairwise(sections):
        firsts = [k for k in next_section if k not in has_predecessor]
        extra += [(k, first) for k in section if k not in has_successor for first in firsts]
    return np.concatenate([edges, np.array(extra, np.int64).reshape(-1, 2)])


def _overwrite_edges(liveness: Liveness) -> Iterator[tuple[int, int]]:
    """Yield edges from each write of a storage to later accesses, and from earlier accesses to the write."""
    storages = liveness.storages
    # The first write of a storage overwrites nothing, except if its birth is 0: it can already have content.
    overwritten = {s: row for s, row in storage_writers(liveness).items() if len(row) > (storages.birth[s] > 0)}
    step_of, index = liveness.timeline.step_of, liveness.timeline.index
    accesses = {storage: set(writers) for storage, writers in overwritten.items()}
    readers = np.repeat(np.arange(len(step_of)), np.diff(index.in_ptr))
    for k, storage in zip(readers.tolist(), liveness.storage_of[index.in_idx].tolist(), strict=True):
        if storage in accesses and step_of[k] >= 0:
            accesses[storage].add(k)
    for storage, nodes in accesses.items():
        last_write = -1
        reads_since: list[int] = []
        for k in sorted(nodes, key=step_of.__getitem__):
            if last_write >= 0:
                yield last_write, k
            if k in overwritten[storage]:
                yield from ((reader, k) for reader in reads_since)
                last_write, reads_since = k, []
            else:
                reads_since.append(k)


def _candidates(
    liveness: Liveness, tensor_counts: dict[tuple[int, int], int], stays_live: NDArray[np.bool_]
) -> tuple[list[list[int]], I64]:
    """Return the fields ``candidates`` and ``out`` of the model.

    A candidate satisfies the conditions of in-place reuse that no order changes. ``tensor_counts``: see ``_touches``.
    """
    timeline = liveness.timeline
    index, storages = timeline.index, liveness.storages
    saved = saved_tensors(timeline, view_roots(index)[0])
    forbidden = {frozenset(pair) for pair in storages.must_not_alias.tolist()}
    rows: list[list[int]] = []
    out = np.full(len(index.node_ids), -1, np.int64)
    for k, node in enumerate(timeline.graph.nodes):
        rows.append([])
        if timeline.step_of[k] < 0 or len(node.outputs) != 1 or node.inplace == "none":
            continue
        y = int(index.outputs_of(k)[0])
        target = int(liveness.storage_of[y])
        if index.base[y] >= 0 or storages.persistent[target]:
            continue
        out[k] = target
        for x, _ in permitted_reuses(index, k):
            source = int(liveness.storage_of[x])
            is_permitted = (
                source not in (target, -1)
                and not storages.persistent[source]
                and not stays_live[source]
                and not saved[x]
                and tensor_counts.get((k, source), 1) == 1
                and frozenset((source, target)) not in forbidden
                and storages.arena[source] == storages.arena[target]
            )
            if is_permitted:
                rows[-1].append(source)
    return rows, out
