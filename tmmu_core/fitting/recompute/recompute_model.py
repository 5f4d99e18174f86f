"""The recompute problem as arrays: storages, their uses, and which of them can be recomputed.

A *gap* is the time between two uses of a storage. In a gap, the storage can be dropped; its producer runs again before
the next use. The inputs of the producer must be live, or are recomputed first.

A storage can be dropped if one node computes it (no alias group, no overwriting), this node can run again at a known
cost, and the storage's views cost nothing. Never dropped: inputs and outputs of the graph, and storages that are
persistent, in a ``must_not_alias`` pair or used in a nested scope. A random producer draws the same numbers again.
"""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tmmu_core.base.components import DisjointSets
from tmmu_core.fitting.order.order_model import csr, csr_rows, storages_with
from tmmu_core.fitting.problem.planner_calls import PlanInput
from tmmu_core.graph.checks import read_arenas
from tmmu_core.graph.flops import graph_flops
from tmmu_core.graph.model import Arena
from tmmu_core.graph.operators import operator_of
from tmmu_core.liveness.analyse import analyse, storage_writers
from tmmu_core.liveness.live_ranges import permitted_reuses, saved_tensors
from tmmu_core.liveness.timeline import Liveness, Timeline, build_timeline, default_mode, default_preset, view_roots

I64 = NDArray[np.int64]
Mask = NDArray[np.bool_]

NEVER = np.int64(2**62)
MOST_BYTES, MOST_NODE_FLOPS = 2**62, 2**61
"""Maximum bytes counted for all storages, and FLOPs for a node, so that sums stay within 64 bits."""
HUB = 4  # minimum number of links of a hub; a hub does not connect its neighbours


@dataclass(frozen=True, eq=False)
class RecomputeModel:
    """A plan input as arrays. Nodes are numbered by position in the order, storages by row of the liveness."""

    liveness: Liveness
    flops: int  # FLOPs of all nodes with a known cost, before any move
    node_at: I64  # shape (positions,): node number in the index
    in_ptr: I64
    in_idx: I64
    """Position → storages that its node reads, or writes although they are already live; each storage once, without
    persistent storages. An index into ``in_idx`` is called an *edge*."""
    out_ptr: I64
    out_idx: I64  # position → storages that its node creates
    pair_ptr: I64
    pair_idx: I64  # position → edges whose storage the output may reuse, in order of priority
    producer: I64  # shape (storages,): position of the producer, −1 for inputs and persistent storages
    can_rerun: Mask  # shape (positions,): whether the node can run again: same result, known cost, no side effects
    can_delay: Mask  # shape (positions,): whether its first run can be later (no in-place write, no random numbers)
    droppable: Mask  # shape (storages,): whether the storage can be recomputed
    movable: Mask  # shape (storages,): whether the storage can be offloaded
    node_flops: I64  # shape (positions,): FLOPs of running the node again; 0 if unknown (then it cannot run again)
    size: I64  # shape (storages,): bytes, rounded up to the larger alignment of storage and arena
    arena: I64  # shape (storages,): index into ``liveness.arenas``
    saved_or_output: Mask
    """Shape (storages,): whether it is saved for backward or an output. Then it is reused in place only if dropped."""
    is_after_forward: Mask  # shape (positions,): whether the node is not in the forward pass
    stays_live: Mask  # shape (storages,): whether it is live after the last node, as an output
    starts_live: Mask  # shape (storages,): whether it is live before the first node, as an input
    expires: I64  # shape (positions,): first position that overwrites an input of the node, else ``NEVER``
    fixed: I64  # shape (arenas,): aligned bytes of persistent storages
    padding: I64  # shape (arenas,): largest padding of a storage; bounds subtract it, as the top storage needs none
    state_bytes: int  # ``PlanInput.state_bytes``
    state_size: I64
    """Shape (positions,): aligned bytes of a random node's saved generator state, in the arena of its first output."""

    @property
    def timeline(self) -> Timeline:
        """The executed steps."""
        return self.liveness.timeline

    @cached_property
    def never_read(self) -> Mask:
        """Shape (storages,): whether no node reads it and it is not an output."""
        found = ~self.stays_live
        found[self.in_idx] = False
        return found

    @cached_property
    def reader(self) -> I64:
        """Shape (edges,): the position that reads the storage of each edge."""
        return np.repeat(np.arange(len(self.node_at), dtype=np.int64), np.diff(self.in_ptr))

    def name_of(self, storage: int) -> str:
        """Return the id of the tensor that names a storage."""
        return self.timeline.index.tensor_ids[int(self.liveness.storages.head[storage])]

    def instr(self, position: int) -> str:
        """Return the operator of the node at a position."""
        return self.timeline.graph.nodes[int(self.node_at[position])].instr

    def node_id(self, position: int) -> str:
        """Return the id of the node at a position."""
        return self.timeline.index.node_ids[int(self.node_at[position])]


def recompute_model(plan_input: PlanInput) -> RecomputeModel:
    """Return the model of a plan input. Raises ``ContractError``. O(tensors + operands)."""
    mode = default_mode(plan_input.graph)
    config = read_arenas(plan_input.arenas)
    liveness = analyse(build_timeline(plan_input.graph, mode, default_preset(mode)), config)
    timeline, storages = liveness.timeline, liveness.storages
    index, count = timeline.index, len(storages)
    node_at = timeline.node_at[int(timeline.has_inputs_step) :]
    nodes = [index.graph.nodes[k] for k in node_at.tolist()]
    flops = graph_flops(index)
    known_flops = [flops[k] for k in node_at.tolist()]
    node_flops = np.array([0 if n is None else min(n, MOST_NODE_FLOPS) for n in known_flops], np.int64)
    is_output, starts_live = (storages_with(liveness, mask) for mask in (index.is_output, index.is_input))
    saved = saved_tensors(timeline, view_roots(index)[0])
    in_ptr, in_idx, out_ptr, out_idx = _adjacency(liveness, node_at)
    producer = np.full(count, -1, np.int64)
    producer[out_idx] = np.repeat(np.arange(len(node_at), dtype=np.int64), np.diff(out_ptr))
    operators = [operator_of(node.instr) for node in nodes]
    can_rerun, can_delay = np.zeros((2, len(nodes)), np.bool_)
    for k, (node, operator) in enumerate(zip(nodes, operators, strict=True)):
        # A node that overwrites only running statistics can run again: its other outputs do not depend on them.
        can_rerun[k] = operator.can_recompute and (not node.in_place_write or "statistics" in operator.traits)
        can_rerun[k] &= not (node.scope or node.unplanned or node.phase == "optimizer" or known_flops[k] is None)
        can_delay[k] = can_rerun[k] and not node.in_place_write and not operator.is_random
    in_scope = np.zeros(count, np.bool_)
    for k in [k for k, node in enumerate(nodes) if node.scope]:
        in_scope[in_idx[in_ptr[k] : in_ptr[k + 1]]] = in_scope[out_idx[out_ptr[k] : out_ptr[k + 1]]] = True
    movable = _has_one_tensor(liveness, node_at) & ~is_output & ~storages.persistent & ~in_scope
    movable &= (producer >= 0) | starts_live
    movable[_pinned_by_views(liveness, node_at, can_rerun & (node_flops == 0), (in_ptr, in_idx))] = False
    droppable = movable & (producer >= 0)
    droppable[droppable] = can_rerun[producer[droppable]]
    size, fixed, padding = _aligned_sizes(liveness, config)
    state_size = np.zeros(len(node_at), np.int64)
    for k in [k for k, operator in enumerate(operators) if operator.is_random and out_ptr[k] < out_ptr[k + 1]]:
        alignment = config.get(liveness.arenas[storages.arena[out_idx[out_ptr[k]]]], Arena()).alignment_bytes
        state_size[k] = -(-plan_input.state_bytes // alignment) * alignment
    pair_ptr, pair_idx = _in_place_candidates(liveness, node_at, (in_ptr, in_idx), out_ptr)
    return RecomputeModel(
        liveness=liveness,
        flops=sum(filter(None, flops)),
        node_at=node_at,
        in_ptr=in_ptr,
        in_idx=in_idx,
        out_ptr=out_ptr,
        out_idx=out_idx,
        pair_ptr=pair_ptr,
        pair_idx=pair_idx,
        producer=producer,
        can_rerun=can_rerun,
        can_delay=can_delay,
        droppable=droppable,
        movable=movable,
        node_flops=node_flops,
        size=size,
        arena=storages.arena.astype(np.int64),
        saved_or_output=storages_with(liveness, saved) | is_output,
        is_after_forward=np.array([node.phase != "forward" for node in nodes], np.bool_),
        stays_live=is_output,
        starts_live=starts_live,
        expires=_first_overwrites(liveness, node_at),
        fixed=fixed,
        padding=padding,
        state_bytes=plan_input.state_bytes,
        state_size=state_size,
    )


def _has_one_tensor(liveness: Liveness, node_at: I64) -> Mask:
    """Return a mask (storages,): those of one tensor and its views; no alias group, in-place write, must_not_alias."""
    index, storage_of = liveness.timeline.index, liveness.storage_of
    tensors = index.graph.tensors
    members = np.flatnonzero((storage_of >= 0) & (index.base < 0))
    single = np.bincount(storage_of[members], minlength=len(liveness.storages)) == 1
    grouped = [i for i in members.tolist() if tensors[i].alias_group_id is not None]
    single[storage_of[grouped]] = False
    for k in node_at.tolist():
        for i, o in index.graph.nodes[k].in_place_write:
            single[storage_of[[index.inputs_of(k)[i], index.outputs_of(k)[o]]]] = False
    single[np.unique(liveness.storages.must_not_alias)] = False  # a pair would not hold for a recomputed copy
    return single


def _aligned_sizes(liveness: Liveness, config: Mapping[str, Arena]) -> tuple[I64, I64, I64]:
    storages = liveness.storages
    of_arena = [config.get(name, Arena()).alignment_bytes for name in liveness.arenas]
    rows = zip(storages.size.tolist(), storages.alignment.tolist(), storages.arena.tolist(), strict=True)
    padded = [(nbytes, -nbytes % max(alignment, of_arena[arena])) for nbytes, alignment, arena in rows]
    most = MOST_BYTES // max(1, len(storages))
    size = np.array([min(nbytes + added, most) for nbytes, added in padded], np.int64)
    fixed, padding = np.zeros((2, len(liveness.arenas)), np.int64)
    np.add.at(fixed, storages.arena[storages.persistent], size[storages.persistent])
    np.maximum.at(padding, storages.arena, np.array([min(added, most) for _, added in padded], np.int64))
    return size, fixed, padding


def connected_parts(model: RecomputeModel, nodes: Mask) -> list[I64]:
    """Return the connected parts of a set of nodes, sorted by first node. A link: one node reads what another writes.

    A node with ``HUB`` or more links is a part of its own, such as the node of a mask that all layers read.
    """
    links = np.stack([model.reader, model.producer[model.in_idx]], axis=1)
    links = np.unique(links[nodes[model.reader] & (links[:, 1] >= 0) & nodes[links[:, 1]]], axis=0)
    degree = np.bincount(links.ravel(), minlength=len(nodes))
    sets = DisjointSets(len(nodes))
    for n, producer in links[(degree[links] < HUB).all(axis=1)].tolist():
        sets.join(n, producer)
    members = np.flatnonzero(nodes)
    part_of = sets.names()[members]
    return [members[part_of == part] for part in np.unique(part_of)]


def _pinned_by_views(liveness: Liveness, node_at: I64, is_free: Mask, reads: tuple[I64, I64]) -> list[int]:
    """Return storages with a view whose node costs FLOPs, cannot run again, or reads other storages."""
    index, storage_of = liveness.timeline.index, liveness.storage_of.tolist()
    in_ptr, in_idx = reads
    found = []
    base, producer = (index.base >= 0).tolist(), index.producer.tolist()
    for position, k in enumerate(node_at.tolist()):
        for i in index.outputs_of(k).tolist():
            s = storage_of[i]
            if not base[i] or producer[int(liveness.storages.head[s])] == k:
                continue
            others = [z for z in in_idx[in_ptr[position] : in_ptr[position + 1]].tolist() if z != s]
            if others or not is_free[position]:
                found.append(s)
    return found


def _first_overwrites(liveness: Liveness, node_at: I64) -> I64:
    """Return an array of shape (positions,): the first position that overwrites an input which the node has read.

    A write by the node itself counts too, except for the inputs in its ``in_place_write``.
    """
    index, roots = liveness.timeline.index, view_roots(liveness.timeline.index)[0]
    position_of = {node: k for k, node in enumerate(node_at.tolist())}
    writes = {s: [position_of[node] for node in writers] for s, writers in storage_writers(liveness).items()}
    expires = np.full(len(node_at), NEVER, np.int64)
    for node, k in position_of.items():
        written_inputs = {i for i, _ in index.graph.nodes[node].in_place_write}
        for i, x in enumerate(index.inputs_of(node).tolist()):
            writers = writes.get(int(liveness.storage_of[x]), [])
            next_writer = bisect_right(writers, position_of.get(int(index.producer[roots[x]]), -1))
            if i not in written_inputs and next_writer < len(writers):
                expires[k] = min(expires[k], writers[next_writer])
    return expires


def _adjacency(liveness: Liveness, node_at: I64) -> tuple[I64, I64, I64, I64]:
    index, persistent, storage_of = liveness.timeline.index, liveness.storages.persistent, liveness.storage_of
    ins: list[list[int]] = []
    outs: list[list[int]] = []
    inputs = csr_rows(index.in_ptr, storage_of[index.in_idx])
    outputs = csr_rows(index.out_ptr, storage_of[index.out_idx])
    is_persistent, is_live = persistent.tolist(), (persistent | storages_with(liveness, index.is_input)).tolist()
    for k in node_at.tolist():
        used, created = list(inputs[k]), list[int]()
        for s in outputs[k]:
            if not is_live[s]:
                is_live[s] = True
                created.append(s)
            elif s not in created:
                used.append(s)  # the storage is already live at this node
        ins.append([s for s in dict.fromkeys(used) if not is_persistent[s]])
        outs.append(created)
    return (*csr(ins), *csr(outs))


def _in_place_candidates(liveness: Liveness, node_at: I64, uses: tuple[I64, I64], out_ptr: I64) -> tuple[I64, I64]:
    """Return position → edges whose storage the output may reuse in place (contract §1)."""
    in_ptr, in_idx = uses
    index, storages, storage_of = liveness.timeline.index, liveness.storages, liveness.storage_of
    arena, tensor_storage, heads = storages.arena.tolist(), storage_of.tolist(), storages.head.tolist()
    rows: list[list[int]] = []
    for position, k in enumerate(node_at.tolist()):
        rows.append([])
        node = index.graph.nodes[k]
        if node.inplace == "none" or len(node.outputs) != 1 or out_ptr[position] == out_ptr[position + 1]:
            continue
        y = int(index.outputs_of(k)[0])
        target = tensor_storage[y]
        if heads[target] != y:
            continue
        edges = {int(in_idx[e]): e for e in range(in_ptr[position], in_ptr[position + 1])}
        sources = [tensor_storage[x] for x, _ in permitted_reuses(index, k)]
        rows[-1] += [edges[s] for s in sources if s in edges and s != target and arena[s] == arena[target]]
    return csr(rows)
