"""The recompute problem as numbers: storages, who uses them when, and which of them can be made again.

A graph that stands for itself (its order and backward pass written out) is a sequence of steps; a storage is born, used
and used again. Between two uses lies a *gap*. In any of its gaps a storage may be dropped, to be made again just before
it is needed the next time, by running its producer once more; what that one reads must be there, or is made first.

A storage can be dropped when a node alone makes it (no alias group, nothing written over), it is no input or output of
the graph, its producer speaks to no other rank, stands in no nested scope, and what it costs is known. A producer that
draws random numbers saves the state of its generator, and draws the same ones again.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from tmmu_core.fit.asking import Question
from tmmu_core.graph.arenas import read_arenas
from tmmu_core.graph.flops import GraphFlops, graph_flops, plain_name
from tmmu_core.graph.model import Node
from tmmu_core.graph.operators import is_random, keeps_its_turn
from tmmu_core.liveness.analyse import analyse
from tmmu_core.liveness.model import Liveness, Timeline
from tmmu_core.liveness.timeline import build_timeline, default_mode, default_preset
from tmmu_core.liveness.views import view_roots

I64 = NDArray[np.int64]
Mask = NDArray[np.bool_]

NEVER = np.int64(2**62)

WRITES_APART: frozenset[str] = frozenset(
    {"nativebatchnormlegitfunctional", "nativebatchnormlegit", "nativebatchnorm", "batchnormwithupdatefunctional"}
)
"""Operators that write running statistics in place, on which their other outputs do not depend while they train."""


@dataclass(frozen=True, eq=False)
class RecomputeModel:
    """Steps and storages of a question. Nodes are by position in its order, storages by row of the liveness."""

    liveness: Liveness
    flops: GraphFlops
    node_at: I64
    """Shape (positions,): node number in the index."""
    in_ptr: I64
    in_idx: I64
    """Position → storages it reads, or makes a further member of; each once, persistent ones left out."""
    out_ptr: I64
    out_idx: I64
    """Position → storages that are born there."""
    pair_ptr: I64
    pair_idx: I64
    """Position → *edges* (places in ``in_idx``) whose storage the output may take over, in order of priority."""
    producer: I64
    """Shape (storages,): position of the node that makes it, −1 for inputs and what is persistent."""
    makeable: Mask
    """Shape (positions,): may run again."""
    droppable: Mask
    """Shape (storages,)."""
    movable: Mask
    """Shape (storages,): may be copied to another memory and back."""
    made_of: I64
    """Shape (positions,): FLOPs of running the node again; 0 where unknown (then it is not makeable)."""
    size: I64
    """Shape (storages,): bytes on the arena's grid."""
    arena: I64
    kept_place: Mask
    """Shape (storages,): its first life hands its place to nobody (saved, output)."""
    late: Mask
    """Shape (positions,): behind the forward pass."""
    held: Mask
    """Shape (storages,): an output: alive to the end."""
    at_start: Mask
    """Shape (storages,): there from the first step on: inputs."""
    expires: I64
    """Shape (positions,): position of the first node that overwrites what the node reads, ``NEVER`` for most."""
    fixed: I64
    """Shape (arenas,): bytes of persistent storages on the grid."""
    spare: I64
    """Shape (arenas,): the most of them that need not be there: what lies last takes no more than its own bytes."""

    @property
    def timeline(self) -> Timeline:
        """The steps as they are run."""
        return self.liveness.timeline

    def name_of(self, storage: int) -> str:
        """The tensor that names a storage."""
        return self.timeline.index.tensor_ids[int(self.liveness.storages.head[storage])]

    def node_id(self, position: int) -> str:
        """The node's id."""
        return self.timeline.index.node_ids[int(self.node_at[position])]


def recompute_model(question: Question) -> RecomputeModel:
    """The numbers of ``question``. Raises ``ContractError`` as planning it does. O(tensors + operands)."""
    graph = question.graph
    mode = default_mode(graph)
    config = read_arenas(question.arenas)
    liveness = analyse(build_timeline(graph, mode, default_preset(mode)), config)
    timeline, storages = liveness.timeline, liveness.storages
    index, count = timeline.index, len(storages)
    node_at = timeline.node_at[int(timeline.has_inputs_step) :]
    tensors = index.graph.tensors
    storage_of = liveness.storage_of

    flops = graph_flops(index)
    made_of = np.array(
        [min(each.total, 2**61) if each is not None else 0 for each in map(flops.of_node.__getitem__, node_at)],
        np.int64,
    )
    members = np.flatnonzero((storage_of >= 0) & (index.base < 0))
    alone = np.bincount(storage_of[members], minlength=count) == 1
    grouped = [i for i in members.tolist() if tensors[i].alias_group_id is not None]
    alone[storage_of[grouped]] = False

    overwriting = np.zeros(len(node_at), np.bool_)
    for at, k in enumerate(node_at.tolist()):
        node = index.graph.nodes[k]
        for i, o in node.in_place_write:
            x, y = (int(storage_of[side]) for side in (index.inputs_of(k)[i], index.outputs_of(k)[o]))
            alone[[x, y]] = False
            overwriting[at] = True
    apart = _apart_pairs(liveness)
    alone[apart] = False

    is_output = np.zeros(count, np.bool_)
    is_output[storage_of[np.flatnonzero(index.is_output & (storage_of >= 0))]] = True
    at_start = np.zeros(count, np.bool_)
    at_start[storage_of[np.flatnonzero(index.is_input & (storage_of >= 0))]] = True
    saved = np.zeros(count, np.bool_)
    if timeline.retain:
        saved[
            [int(storage_of[i]) for i in np.flatnonzero(storage_of >= 0).tolist() if tensors[i].saved_for_backward]
        ] = True

    in_ptr, in_idx, out_ptr, out_idx = _adjacency(liveness, node_at)
    producer = np.full(count, -1, np.int64)
    producer[out_idx] = np.repeat(np.arange(len(node_at), dtype=np.int64), np.diff(out_ptr))

    makeable = np.array(
        [
            _may_run_again(index.graph.nodes[k], overwriting[at])
            and flops.of_node[k] is not None
            and index.graph.nodes[k].phase != "optimizer"
            for at, k in enumerate(node_at.tolist())
        ],
        np.bool_,
    ).reshape(len(node_at))
    in_scope = np.zeros(count, np.bool_)
    for at, k in enumerate(node_at.tolist()):
        if index.graph.nodes[k].params.get("scope"):
            in_scope[in_idx[in_ptr[at] : in_ptr[at + 1]]] = True
            in_scope[out_idx[out_ptr[at] : out_ptr[at + 1]]] = True
    movable = alone & ~is_output & ~storages.persistent & ~in_scope & ((producer >= 0) | at_start)
    movable[_awkward_views(liveness, node_at, makeable & (made_of == 0), (in_ptr, in_idx))] = False
    droppable = movable & (producer >= 0)
    droppable[droppable] = makeable[producer[droppable]]

    alignment = np.maximum(
        storages.alignment.astype(np.int64),
        np.array([config[name].alignment_bytes if name in config else 128 for name in liveness.arenas], np.int64)[
            storages.arena
        ],
    )
    size = -(-storages.size.astype(np.int64) // alignment) * alignment
    fixed = np.bincount(
        storages.arena[storages.persistent], size[storages.persistent].astype(float), len(liveness.arenas)
    ).astype(np.int64)
    spare = np.zeros(len(liveness.arenas), np.int64)
    padding = size - storages.size.astype(np.int64)
    np.maximum.at(spare, storages.arena[storages.persistent], padding[storages.persistent])
    pair_ptr, pair_idx = _takeovers(liveness, node_at, in_ptr, in_idx)
    return RecomputeModel(
        liveness=liveness,
        flops=flops,
        node_at=node_at,
        in_ptr=in_ptr,
        in_idx=in_idx,
        out_ptr=out_ptr,
        out_idx=out_idx,
        pair_ptr=pair_ptr,
        pair_idx=pair_idx,
        producer=producer,
        makeable=makeable,
        droppable=droppable,
        movable=movable,
        made_of=made_of,
        size=size,
        arena=storages.arena.astype(np.int64),
        kept_place=saved | is_output,
        late=np.array([index.graph.nodes[k].phase != "forward" for k in node_at.tolist()], np.bool_),
        held=is_output,
        at_start=at_start,
        expires=_expiries(liveness, node_at),
        fixed=fixed,
        spare=spare,
    )


HUB = 4
"""A node that so many others of a set read, or that reads so many, holds no part together: it is one by itself."""


def connected_parts(model: RecomputeModel, nodes: Mask) -> list[I64]:
    """Connected parts of a set of nodes, one reading what another writes; by their first node.

    What many share (an attention mask that is made once for all layers) does not make one part of all of them.
    """
    members = np.flatnonzero(nodes).tolist()
    inside = set(members)
    links = [
        (n, maker)
        for n in members
        for maker in dict.fromkeys(model.producer[model.in_idx[model.in_ptr[n] : model.in_ptr[n + 1]]].tolist())
        if maker in inside
    ]
    degree = Counter(chain.from_iterable(links))
    parent = {n: n for n in members}

    def root(n: int) -> int:
        while parent[n] != n:
            parent[n] = parent[parent[n]]
            n = parent[n]
        return n

    for n, maker in links:
        if degree[n] < HUB and degree[maker] < HUB:
            parent[root(n)] = root(maker)
    parts: dict[int, list[int]] = {}
    for n in members:
        parts.setdefault(root(n), []).append(n)
    return [np.array(part, np.int64) for part in parts.values()]


def _may_run_again(node: Node, overwriting: bool) -> bool:
    """Whether a second run of ``node`` gives what the first one gave, and does nothing else.

    One that draws random numbers does so from the state of the generator, which its first run saves.
    """
    if node.params.get("scope") or node.params.get("subgraphs_not_planned"):
        return False
    if keeps_its_turn(node.instr) and not is_random(node.instr):
        return False
    return not overwriting or plain_name(node.instr) in WRITES_APART


def _awkward_views(liveness: Liveness, node_at: I64, free: Mask, reads: tuple[I64, I64]) -> list[int]:
    """Storages into which a node looks that cannot run again for nothing, or that reads other storages as well."""
    index, storage_of = liveness.timeline.index, liveness.storage_of.tolist()
    in_ptr, in_idx = reads
    found = []
    base, makes = (index.base >= 0).tolist(), index.producer.tolist()
    for at, k in enumerate(node_at.tolist()):
        for i in index.outputs_of(k).tolist():
            s = storage_of[i]
            if not base[i] or makes[int(liveness.storages.head[s])] == k:
                continue
            others = [z for z in in_idx[in_ptr[at] : in_ptr[at + 1]].tolist() if z != s]
            if others or not free[at]:
                found.append(s)
    return found


def _apart_pairs(liveness: Liveness) -> I64:
    """Storages with a ``must_not_alias``: a copy would not be under it."""
    return np.unique(liveness.storages.must_not_alias)


def _expiries(liveness: Liveness, node_at: I64) -> I64:
    """Shape (positions,): when the first of what a node reads is written over; what it writes over itself left out."""
    index = liveness.timeline.index
    roots = view_roots(index)[0]
    over: dict[int, int] = {}
    for at, k in enumerate(node_at.tolist()):
        for i, _ in index.graph.nodes[k].in_place_write:
            over.setdefault(int(roots[index.inputs_of(k)[i]]), at)
    expires = np.full(len(node_at), NEVER, np.int64)
    for at, k in enumerate(node_at.tolist()):
        own = {i for i, _ in index.graph.nodes[k].in_place_write}
        ends = [
            over[root] for i, root in enumerate(roots[index.inputs_of(k)].tolist()) if i not in own and root in over
        ]
        expires[at] = min(ends, default=NEVER)
    return expires


def _adjacency(liveness: Liveness, node_at: I64) -> tuple[I64, I64, I64, I64]:
    index, storages, storage_of = liveness.timeline.index, liveness.storages, liveness.storage_of
    persistent = storages.persistent
    ins: list[list[int]] = []
    outs: list[list[int]] = []
    seen = np.zeros(len(storages), np.bool_)
    seen[persistent] = True
    seen[storage_of[np.flatnonzero(index.is_input & (storage_of >= 0))]] = True
    in_list, out_list = index.in_idx.tolist(), index.out_idx.tolist()
    in_at, out_at = index.in_ptr.tolist(), index.out_ptr.tolist()
    of, always, known = storage_of.tolist(), persistent.tolist(), seen.tolist()
    for k in node_at.tolist():
        used = [of[i] for i in in_list[in_at[k] : in_at[k + 1]]]
        born = []
        for i in out_list[out_at[k] : out_at[k + 1]]:
            if not known[of[i]]:
                known[of[i]] = True
                born.append(of[i])
            elif of[i] not in born:
                used.append(of[i])  # a further member of a storage: its bytes are held until this one is made in them
        ins.append([s for s in dict.fromkeys(used) if not always[s]])
        outs.append(born)
    return (*_csr(ins), *_csr(outs))


def _csr(rows: list[list[int]]) -> tuple[I64, I64]:
    ptr = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([len(row) for row in rows], out=ptr[1:])
    return ptr, np.array([value for row in rows for value in row], np.int64)


def _takeovers(liveness: Liveness, node_at: I64, in_ptr: I64, in_idx: I64) -> tuple[I64, I64]:
    """Per position the edges whose storage its output may take over by the node's permission (contract §1)."""
    index, storages, storage_of = liveness.timeline.index, liveness.storages, liveness.storage_of
    arena, persistent = storages.arena.tolist(), storages.persistent.tolist()
    of = storage_of.tolist()
    heads = storages.head.tolist()
    rows: list[list[int]] = []
    for at, k in enumerate(node_at.tolist()):
        node = index.graph.nodes[k]
        row: list[int] = []
        rows.append(row)
        permission = node.inplace
        if permission == "none" or len(node.outputs) != 1:
            continue
        y = int(index.outputs_of(k)[0])
        if heads[of[y]] != y:
            continue
        inputs = index.inputs_of(k).tolist()
        candidates = inputs
        if permission is not None and not isinstance(permission, str):  # a list may be empty: then it permits nothing
            listed = {i for i, _ in permission}
            whole = {x for x in inputs if all(j in listed for j, other in enumerate(inputs) if other == x)}
            candidates = [inputs[i] for i, _ in permission if inputs[i] in whole]
        edges = {s: in_ptr[at] + e for e, s in enumerate(in_idx[in_ptr[at] : in_ptr[at + 1]].tolist())}
        for x in candidates:
            s = of[x]
            if s != of[y] and not persistent[s] and arena[s] == arena[of[y]] and s in edges:
                row.append(int(edges[s]))
    return _csr(rows)
