"""The scene of a replay, in columns: who reads and writes what, when, and where the plan puts it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tests.support.shadow.declared_sharing import LOADED, Declared, declared
from tmmu_core.graph.model import INPUTS_STEP
from tmmu_core.liveness.live_model import Timeline
from tmmu_core.plans.model import Plan

I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]
Mask = NDArray[np.bool_]

AT_END, BY_INPUTS, BY_LOADING = -1, -2, -3
"""Readers and writers that are no nodes: whoever comes after the last step, ``@inputs``, loading before the run."""


@dataclass(frozen=True)
class Fault:
    """A finding by numbers; ``message`` only where the rule tells it itself."""

    kind: str
    step: int
    row: int
    reader: int = AT_END
    culprit: int = -1
    at: int = 0
    message: str = ""


@dataclass(frozen=True, eq=False)
class Scene:
    """What is replayed. Rows are the plan's that the graph knows; storages are the declared ones.

    Blocks are storages as the plan places them: from where its first-born member says that it starts.
    """

    plan: Plan
    timeline: Timeline | None
    declared: Declared | None
    steps: int
    plan_row: I64
    tensor: I64
    """Tensor number of each row; the row itself where there is no graph."""
    arena: I64
    start: U64
    size: U64
    birth: I64
    death: I64
    storage: I64
    offset: U64
    """Bytes from the storage's start, as declared."""
    head: I64
    """Row of each storage's first-born member."""
    block_arena: I64
    block_start: U64
    block_size: U64
    block_birth: I64
    block_death: I64
    taken_from: I64
    """The storage whose place this one takes by a hand-off that the graph permits; −1 for none."""
    consumed: I64
    """The step at which each row is given up by a hand-off or an in-place write, the last to read it; −1 for none."""
    read_step: I64
    read_row: I64
    read_node: I64
    look_step: I64
    """Before a write into a storage, those of its members that are alive are looked at: what a stranger has spoilt
    must be seen before it is written over."""
    look_row: I64
    write_step: I64
    write_row: I64
    write_node: I64
    poisons: Mask
    """Which writes lay claim to their block before the step reads."""
    denied: tuple[Fault, ...] = ()

    def name(self, row: int) -> str:
        """The tensor id of a row; ``""`` for −1."""
        return self.plan.tensor_ids[self.plan_row[row]] if row >= 0 else ""

    def reader_name(self, node: int, step: int) -> str:
        """The node id, or what stands for it."""
        if node == AT_END:
            return "@end" if step >= self.steps else ""
        if node == BY_INPUTS:
            return INPUTS_STEP
        if node == BY_LOADING:
            return "@load"
        assert self.timeline is not None
        return self.timeline.index.node_ids[node]


def scene_of(plan: Plan, timeline: Timeline | None) -> Scene:
    """The scene of a plan with its graph's timeline, or of its rows alone."""
    return _with_graph(plan, timeline) if timeline is not None else _rows_alone(plan)


@dataclass(frozen=True, eq=False)
class _Blocks:
    storage: I64
    head: I64
    arena: I64
    start: U64
    size: U64
    birth: I64
    death: I64


class _Members(NamedTuple):
    """Tensors as columns: the plan's row of each, its storage, and its rank, offset and size there; when written."""

    rows: I64
    storage: I64
    rank: I64
    offset: U64
    size: U64
    written: I64


def _blocks(plan: Plan, members: _Members) -> _Blocks:
    """Storages numbered densely; ``rank`` sorts the members of each, the first being its head."""
    rows, storage, rank, offset, size, written = members
    order = np.lexsort((rank, storage))
    names, first = np.unique(storage[order], return_index=True)
    dense = np.searchsorted(names, storage)
    head = order[first]
    start, own = plan.offset[rows[head]], offset[head]
    birth = np.full(len(head), np.iinfo(np.int64).max)
    np.minimum.at(birth, dense, written)
    death = np.zeros(len(head), np.int64)
    np.maximum.at(death, dense, plan.death[rows])
    extent = np.zeros(len(head), np.uint64)
    np.maximum.at(extent, dense, offset + size)
    # A member placed before its storage's own start is told as misplaced; the block then starts at the member.
    start = np.where(start >= own, start - own, start)
    return _Blocks(dense, head, plan.arena[rows[head]].astype(np.int64), start, extent, birth, death)


def _with_graph(plan: Plan, timeline: Timeline) -> Scene:
    index, said = timeline.index, declared(timeline)
    tensor_of = index.tensor_of
    known = np.array([tensor_of.get(tensor_id, -1) for tensor_id in plan.tensor_ids], np.int64)
    rows = np.flatnonzero(np.append(said.planned, False)[known])  # the last one is nobody's
    tensor = known[rows]
    row_of = np.full(len(said.planned), -1, np.int64)
    row_of[tensor] = np.arange(len(rows))
    steps = max(timeline.steps, 1)

    written = said.written[tensor]
    by_birth = np.lexsort((np.arange(len(rows)), index.base[tensor] >= 0, written))
    rank = np.empty(len(rows), np.int64)
    rank[by_birth] = np.arange(len(rows))
    offset, size = said.offset[tensor], said.size[tensor]
    blocks = _blocks(plan, _Members(rows, said.storage[tensor], rank, offset, size, written))

    write_step, write_row, write_node, poisons = _writes(timeline, said, row_of)
    read_step, read_row, read_node = _reads(timeline, said, row_of, steps)
    look_step, look_row = _looks(blocks.storage, plan.birth[rows], plan.death[rows], write_step, write_row)
    taken_from, consumed, denied = _handoffs(plan, timeline, row_of, blocks)
    for write in said.in_place:
        if row_of[write.source] >= 0:
            consumed[row_of[write.source]] = write.step
    return Scene(
        plan=plan,
        timeline=timeline,
        declared=said,
        steps=steps,
        plan_row=rows,
        tensor=tensor,
        arena=plan.arena[rows].astype(np.int64),
        start=plan.offset[rows],
        size=size,
        birth=plan.birth[rows],
        death=plan.death[rows],
        storage=blocks.storage,
        offset=offset,
        head=blocks.head,
        block_arena=blocks.arena,
        block_start=blocks.start,
        block_size=blocks.size,
        block_birth=blocks.birth,
        block_death=blocks.death,
        taken_from=taken_from,
        consumed=consumed,
        read_step=read_step,
        read_row=read_row,
        read_node=read_node,
        look_step=look_step,
        look_row=look_row,
        write_step=write_step,
        write_row=write_row,
        write_node=write_node,
        poisons=poisons,
        denied=denied,
    )


def _rows_alone(plan: Plan) -> Scene:
    """Each row written at its birth and read at ``death − 1``; storages as the plan numbers them."""
    rows = np.arange(len(plan))
    count = int(plan.storage.max(initial=-1)) + 1
    low = np.full(count, np.iinfo(np.uint64).max, np.uint64)
    np.minimum.at(low, plan.storage, plan.offset)
    offset = plan.offset - low[plan.storage]
    rank = np.empty(len(plan), np.int64)
    rank[np.lexsort((rows, offset, plan.birth))] = rows
    blocks = _blocks(plan, _Members(rows, plan.storage, rank, offset, plan.size, plan.birth))
    none = np.zeros(0, np.int64)
    look_step, look_row = _looks(blocks.storage, plan.birth, plan.death, plan.birth, rows)
    return Scene(
        plan=plan,
        timeline=None,
        declared=None,
        steps=max(plan.steps, 1),
        plan_row=rows,
        tensor=rows,
        arena=plan.arena.astype(np.int64),
        start=plan.offset,
        size=plan.size,
        birth=plan.birth,
        death=plan.death,
        storage=blocks.storage,
        offset=offset,
        head=blocks.head,
        block_arena=blocks.arena,
        block_start=blocks.start,
        block_size=blocks.size,
        block_birth=blocks.birth,
        block_death=blocks.death,
        taken_from=np.full(len(blocks.head), -1, np.int64),
        consumed=np.full(len(plan), -1, np.int64),
        read_step=none,
        read_row=none,
        read_node=none,
        look_step=look_step,
        look_row=look_row,
        write_step=plan.birth,
        write_row=rows,
        write_node=np.full(len(plan), BY_LOADING),
        poisons=np.zeros(len(plan), np.bool_),
    )


def _looks(storage: I64, birth: I64, death: I64, write_step: I64, write_row: I64) -> tuple[I64, I64]:
    """(step, row) of every member that is alive when another member of its storage is written."""
    members: dict[int, list[int]] = {}
    for row in np.flatnonzero(np.bincount(storage)[storage] > 1).tolist():
        members.setdefault(int(storage[row]), []).append(row)
    looks = [
        (step, other)
        for step, row in zip(write_step.tolist(), write_row.tolist(), strict=True)
        for other in members.get(int(storage[row]), ())
        if other != row and birth[other] < step < death[other]
    ]
    table = np.array(looks, np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def _reads(timeline: Timeline, facts: Declared, row_of: I64, steps: int) -> tuple[I64, I64, I64]:
    """(step, row, node): what the nodes read, then what is read after the last step."""
    index = timeline.index
    node = np.repeat(np.arange(len(index.node_ids), dtype=np.int64), np.diff(index.in_ptr))
    inside = (timeline.step_of[node] >= 0) & (row_of[index.in_idx] >= 0)
    node, tensor = node[inside], index.in_idx[inside]
    last = np.flatnonzero((facts.held | facts.resident) & (row_of >= 0))
    step = np.concatenate([timeline.step_of[node], np.full(len(last), steps)])
    return step, row_of[np.concatenate([tensor, last])], np.concatenate([node, np.full(len(last), AT_END)])


def _writes(timeline: Timeline, facts: Declared, row_of: I64) -> tuple[I64, I64, I64, Mask]:
    """(step, row, node, poisons): loading, ``@inputs``, then what the nodes write.

    A view whose producer reads from the same storage (a reshape, a slice) writes nothing: the bytes are there.
    """
    index = timeline.index
    loaded = np.flatnonzero(facts.resident & ~(facts.resident[facts.root] & (index.base >= 0)) & (row_of >= 0))
    fed = np.flatnonzero(index.is_input & ~facts.resident & (row_of >= 0))
    node = np.repeat(np.arange(len(index.node_ids), dtype=np.int64), np.diff(index.out_ptr))
    inside = (timeline.step_of[node] >= 0) & (row_of[index.out_idx] >= 0)
    node, tensor = node[inside], index.out_idx[inside]

    reader = np.repeat(np.arange(len(index.node_ids), dtype=np.int64), np.diff(index.in_ptr))
    count = len(facts.storage) + 1
    reads_own = np.isin(node * count + facts.storage[tensor], reader * count + facts.storage[index.in_idx])
    demanded = {write.target for write in facts.in_place}
    is_view = index.base[tensor] >= 0
    alias = reads_own & is_view & ~np.fromiter((t in demanded for t in tensor.tolist()), np.bool_, len(tensor))
    node, tensor, reads_own = node[~alias], tensor[~alias], reads_own[~alias]

    early = len(loaded) + len(fed)
    step = [np.full(len(loaded), LOADED), np.zeros(len(fed), np.int64), timeline.step_of[node]]
    by = [np.full(len(loaded), BY_LOADING), np.full(len(fed), BY_INPUTS), node]
    rows = row_of[np.concatenate([loaded, fed, tensor])]
    return np.concatenate(step), rows, np.concatenate(by), np.concatenate([np.zeros(early, np.bool_), ~reads_own])


def _handoffs(plan: Plan, timeline: Timeline, row_of: I64, blocks: _Blocks) -> tuple[I64, I64, tuple[Fault, ...]]:
    """Which storage takes whose place, when each row is given up, and the hand-offs that the graph does not permit.

    Those change nothing: without permission a block is claimed before the step reads.
    """
    index, node_at = timeline.index, timeline.node_at
    taken_from = np.full(len(blocks.head), -1, np.int64)
    consumed = np.full(len(blocks.storage), -1, np.int64)
    denied: list[Fault] = []
    for step, giver, taker in plan.handoffs:
        x, y = index.tensor_of.get(giver, -1), index.tensor_of.get(taker, -1)
        node = int(node_at[step]) if 0 <= step < len(node_at) else -1
        why = ""
        if x < 0 or y < 0 or row_of[x] < 0 or row_of[y] < 0:
            why = "the plan does not hold both"
        elif node < 0 or y not in index.outputs_of(node) or x not in index.inputs_of(node):
            why = "no node reads the one and writes the other at that step"
        elif len(index.outputs_of(node)) != 1:
            why = "the node has several outputs"
        elif not _permits(timeline, node, x):
            why = f"node {index.node_ids[node]!r} does not permit it"
        else:
            a, b = int(blocks.storage[row_of[x]]), int(blocks.storage[row_of[y]])
            if a == b or blocks.birth[b] != step:
                why = f"the storage of {taker!r} is not born there"
            else:
                consumed[row_of[x]] = step
                # A planner of slots frees the giver's slot and may still find a lower one for the taker.
                if blocks.arena[a] == blocks.arena[b] and blocks.start[a] == blocks.start[b]:
                    taken_from[b] = a
        if why:
            row = int(row_of[x]) if x >= 0 else -1
            message = f"step {step}: the plan hands the place of {giver!r} to {taker!r}, but {why}."
            denied.append(Fault("handoff_denied", step, row, node, message=message))
    return taken_from, consumed, tuple(denied)


def _permits(timeline: Timeline, node: int, x: int) -> bool:
    permission = timeline.graph.nodes[node].inplace
    if permission is None or isinstance(permission, str):
        return permission != "none"
    listed = {i for i, o in permission if o == 0}
    positions = np.flatnonzero(timeline.index.inputs_of(node) == x).tolist()
    return bool(positions) and listed.issuperset(positions)
