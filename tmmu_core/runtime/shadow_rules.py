"""The scene of a replay, in columns, and what is wrong with a plan before a single step is run.

Some faults need no execution: a view that does not lie in its base, a read outside ``[birth, death)``, a hand-off that
the node does not permit. They are found here; what only running shows is found by ``shadow.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tmmu_core.graph.model import INPUTS_STEP
from tmmu_core.liveness.model import Timeline
from tmmu_core.plan.model import Plan
from tmmu_core.runtime.shadow_declared import LOADED, Declared, declared

I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]
Mask = NDArray[np.bool_]

AT_END, BY_INPUTS, BY_LOADING = -1, -2, -3
"""Readers and writers that are no nodes: whoever comes after the last step, ``@inputs``, loading before the run."""

KINDS: tuple[str, ...] = (
    "timeline",
    "missing",
    "unknown_tensor",
    "size",
    "outside",
    "misaligned",
    "misplaced",
    "must_not_alias",
    "handoff_denied",
    "dead_access",
    "stale",
    "constant_written",
    "overwritten",
    "poisoned",
    "never_written",
)
"""What can be found: the last three by running, ``stale`` is a read of what an in-place write has consumed."""


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


def _blocks(storage: I64, rank: I64, plan: Plan, rows: I64, offset: U64, size: U64, written: I64) -> _Blocks:
    """Storages numbered densely; ``rank`` sorts the members of each, the first being its head."""
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
    index, told = timeline.index, declared(timeline)
    tensor_of = index.tensor_of
    known = np.array([tensor_of.get(tensor_id, -1) for tensor_id in plan.tensor_ids], np.int64).reshape(-1)
    rows = np.flatnonzero(told.planned[known] & (known >= 0)) if len(told.planned) else np.zeros(0, np.int64)
    tensor = known[rows]
    row_of = np.full(len(told.planned), -1, np.int64)
    row_of[tensor] = np.arange(len(rows))
    steps = max(timeline.steps, 1)

    written = told.written[tensor]
    by_birth = np.lexsort((np.arange(len(rows)), index.base[tensor] >= 0, written))
    rank = np.empty(len(rows), np.int64)
    rank[by_birth] = np.arange(len(rows))
    offset, size = told.offset[tensor], told.size[tensor]
    blocks = _blocks(told.storage[tensor], rank, plan, rows, offset, size, written)

    write_step, write_row, write_node, poisons = _writes(timeline, told, row_of)
    read_step, read_row, read_node = _reads(timeline, told, row_of, steps)
    look_step, look_row = _looks(blocks.storage, plan.birth[rows], plan.death[rows], write_step, write_row)
    scene = Scene(
        plan=plan,
        timeline=timeline,
        declared=told,
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
        taken_from=np.full(len(blocks.head), -1, np.int64),
        consumed=np.full(len(rows), -1, np.int64),
        read_step=read_step,
        read_row=read_row,
        read_node=read_node,
        look_step=look_step,
        look_row=look_row,
        write_step=write_step,
        write_row=write_row,
        write_node=write_node,
        poisons=poisons,
        denied=(),
    )
    object.__setattr__(scene, "denied", tuple(_handoffs(scene, row_of)))
    for write in told.in_place:
        if row_of[write.source] >= 0:
            scene.consumed[row_of[write.source]] = write.step
    return scene


def _rows_alone(plan: Plan) -> Scene:
    """Each row written at its birth and read at ``death − 1``; storages as the plan numbers them."""
    rows = np.arange(len(plan))
    count = int(plan.storage.max(initial=-1)) + 1
    low = np.full(count, np.iinfo(np.uint64).max, np.uint64)
    np.minimum.at(low, plan.storage, plan.offset)
    offset = plan.offset - low[plan.storage]
    rank = np.empty(len(plan), np.int64)
    rank[np.lexsort((rows, offset, plan.birth))] = rows
    blocks = _blocks(plan.storage, rank, plan, rows, offset, plan.size, plan.birth)
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


def _reads(timeline: Timeline, told: Declared, row_of: I64, steps: int) -> tuple[I64, I64, I64]:
    """(step, row, node): what the nodes read, then what is read after the last step."""
    index = timeline.index
    node = np.repeat(np.arange(len(index.node_ids), dtype=np.int64), np.diff(index.in_ptr))
    inside = (timeline.step_of[node] >= 0) & (row_of[index.in_idx] >= 0)
    node, tensor = node[inside], index.in_idx[inside]
    last = np.flatnonzero((told.held | told.resident) & (row_of >= 0))
    step = np.concatenate([timeline.step_of[node], np.full(len(last), steps)])
    return step, row_of[np.concatenate([tensor, last])], np.concatenate([node, np.full(len(last), AT_END)])


def _writes(timeline: Timeline, told: Declared, row_of: I64) -> tuple[I64, I64, I64, Mask]:
    """(step, row, node, poisons): loading, ``@inputs``, then what the nodes write.

    A view whose producer reads from the same storage (a reshape, a slice) writes nothing: the bytes are there.
    """
    index = timeline.index
    loaded = np.flatnonzero(told.resident & ~(told.resident[told.root] & (index.base >= 0)) & (row_of >= 0))
    fed = np.flatnonzero(index.is_input & ~told.resident & (row_of >= 0))
    node = np.repeat(np.arange(len(index.node_ids), dtype=np.int64), np.diff(index.out_ptr))
    inside = (timeline.step_of[node] >= 0) & (row_of[index.out_idx] >= 0)
    node, tensor = node[inside], index.out_idx[inside]

    reader = np.repeat(np.arange(len(index.node_ids), dtype=np.int64), np.diff(index.in_ptr))
    count = len(told.storage) + 1
    reads_own = np.isin(node * count + told.storage[tensor], reader * count + told.storage[index.in_idx])
    demanded = {write.target for write in told.in_place}
    is_view = index.base[tensor] >= 0
    alias = reads_own & is_view & ~np.fromiter((t in demanded for t in tensor.tolist()), np.bool_, len(tensor))
    node, tensor, reads_own = node[~alias], tensor[~alias], reads_own[~alias]

    early = len(loaded) + len(fed)
    step = [np.full(len(loaded), LOADED), np.zeros(len(fed), np.int64), timeline.step_of[node]]
    by = [np.full(len(loaded), BY_LOADING), np.full(len(fed), BY_INPUTS), node]
    rows = row_of[np.concatenate([loaded, fed, tensor])]
    return np.concatenate(step), rows, np.concatenate(by), np.concatenate([np.zeros(early, np.bool_), ~reads_own])


def _handoffs(scene: Scene, row_of: I64) -> Iterator[Fault]:
    """Take down the hand-offs that the graph permits; those that it does not permit are faults and change nothing."""
    assert scene.timeline is not None
    index, node_at = scene.timeline.index, scene.timeline.node_at
    for step, giver, taker in scene.plan.handoffs:
        x, y = index.tensor_of.get(giver, -1), index.tensor_of.get(taker, -1)
        node = int(node_at[step]) if 0 <= step < len(node_at) else -1
        why = ""
        if x < 0 or y < 0 or row_of[x] < 0 or row_of[y] < 0:
            why = "the plan does not hold both"
        elif node < 0 or y not in index.outputs_of(node) or x not in index.inputs_of(node):
            why = "no node reads the one and writes the other at that step"
        else:
            a, b = int(scene.storage[row_of[x]]), int(scene.storage[row_of[y]])
            if len(index.outputs_of(node)) != 1:
                why = "the node has several outputs"
            elif not _permits(scene.timeline, node, x):
                why = f"node {index.node_ids[node]!r} does not permit it"
            elif a == b or scene.block_birth[b] != step:
                why = f"the storage of {taker!r} is not born there"
            else:
                scene.consumed[row_of[x]] = step
                # A planner of slots frees the giver's slot and may still find a lower one for the taker.
                if scene.block_arena[a] == scene.block_arena[b] and scene.block_start[a] == scene.block_start[b]:
                    scene.taken_from[b] = a
        if why:
            row = int(row_of[x]) if x >= 0 else -1
            message = f"step {step}: the plan hands the place of {giver!r} to {taker!r}, but {why}."
            yield Fault("handoff_denied", step, row, node, message=message)


def _permits(timeline: Timeline, node: int, x: int) -> bool:
    permission = timeline.graph.nodes[node].inplace
    if permission is None or isinstance(permission, str):
        return permission != "none"
    reads = timeline.index.inputs_of(node)
    return any(o == 0 and reads[i] == x for i, o in permission)


# --- rules -------------------------------------------------------------------------------------------------------


def check(scene: Scene) -> Iterator[Fault]:
    """Everything that is wrong without running a step."""
    yield from scene.denied
    yield from _places(scene)
    yield from _ranges(scene)
    if scene.timeline is not None and scene.declared is not None:
        yield from _agreement(scene, scene.timeline, scene.declared)
        yield from _apart(scene, scene.timeline)
        yield from _overwritten_in_place(scene, scene.timeline, scene.declared)


def _agreement(scene: Scene, timeline: Timeline, told: Declared) -> Iterator[Fault]:
    """The plan is of this graph: the same steps, the same tensors, the same sizes."""
    plan, index = scene.plan, timeline.index
    if plan.steps != timeline.steps or plan.execution_order != timeline.order:
        yield Fault("timeline", -1, -1, message="the plan's steps are not those of the graph's timeline.")
    held = np.zeros(len(told.planned), np.bool_)
    held[scene.tensor] = True
    for i in np.flatnonzero(told.planned & ~held).tolist():
        step = max(int(told.written[i]), 0)
        yield Fault("missing", step, -1, message=f"tensor {index.tensor_ids[i]!r} is in no row of the plan.")
    known = np.zeros(len(plan), np.bool_)
    known[scene.plan_row] = True
    for row in np.flatnonzero(~known).tolist():
        message = f"tensor {plan.tensor_ids[row]!r} is planned, but not part of the graph's timeline."
        yield Fault("unknown_tensor", -1, -1, message=message)
    for row in np.flatnonzero(plan.size[scene.plan_row] != scene.size).tolist():
        planned = int(plan.size[scene.plan_row[row]])
        message = f"tensor {scene.name(row)!r} has {int(scene.size[row]):,} B, the plan gives it {planned:,} B."
        yield Fault("size", -1, row, message=message)


def _places(scene: Scene) -> Iterator[Fault]:
    """Rows inside their arenas, on their grids, where their storage is; storages where their slot is."""
    plan = scene.plan
    extent = np.array([arena.extent_bytes for arena in plan.arenas] or [0], np.uint64)[scene.arena]
    for row in np.flatnonzero(
        (scene.start > extent) | (scene.size > extent - np.minimum(scene.start, extent))
    ).tolist():
        end = int(scene.start[row]) + int(scene.size[row])
        message = f"tensor {scene.name(row)!r} ends at byte {end:,}, past its arena's extent of {int(extent[row]):,} B."
        yield Fault("outside", int(scene.birth[row]), row, message=message)

    for row in np.flatnonzero(scene.start % _grids(scene)).tolist():
        message = f"tensor {scene.name(row)!r} lies at byte {int(scene.start[row]):,}, off its alignment."
        yield Fault("misaligned", int(scene.birth[row]), row, message=message)

    block_start, block_arena = scene.block_start[scene.storage], scene.block_arena[scene.storage]
    for row in np.flatnonzero((scene.start - scene.offset != block_start) | (scene.arena != block_arena)).tolist():
        head = scene.name(int(scene.head[scene.storage[row]]))
        message = (
            f"tensor {scene.name(row)!r} does not lie where its storage's first-born, {head!r}, says that it lies."
        )
        yield Fault("misplaced", int(scene.birth[row]), row, message=message)

    slot = plan.logical_slot[scene.plan_row[scene.head]]
    order = np.lexsort((scene.block_birth, slot, scene.block_arena))
    a, b = order[:-1], order[1:]
    same = (slot[a] == slot[b]) & (scene.block_arena[a] == scene.block_arena[b])
    for at in np.flatnonzero(same & (scene.block_start[a] != scene.block_start[b])).tolist():
        row, other = int(scene.head[b[at]]), int(scene.head[a[at]])
        message = f"tensors {scene.name(other)!r} and {scene.name(row)!r} share slot {int(slot[b[at]])}, not its start."
        yield Fault("misplaced", int(scene.birth[row]), row, culprit=other, message=message)
    if scene.timeline is None:
        yield from _views_of_rows(scene)


def _grids(scene: Scene) -> U64:
    """What each row's offset must be a multiple of: what the plan says, and for a storage's start the arena's."""
    plan = scene.plan
    grid = np.maximum(plan.alignment[scene.plan_row], np.uint64(1))
    floor = np.array([max(arena.alignment_bytes, 1) for arena in plan.arenas] or [1], np.uint64)[scene.arena]
    at_start = scene.offset == 0
    if scene.timeline is not None:
        at_start &= scene.timeline.index.base[scene.tensor] < 0
        own = [scene.timeline.graph.tensors[i].alignment or 1 for i in scene.tensor.tolist()]
        grid = np.maximum(grid, np.array(own, np.uint64).reshape(-1))
    return np.where(at_start, np.maximum(grid, floor), grid) if scene.timeline is not None else grid


def _views_of_rows(scene: Scene) -> Iterator[Fault]:
    """Without the graph a view can still be asked to lie inside its base."""
    plan = scene.plan
    for row, base_id in enumerate(plan.base_tensor_uids):
        if base_id is None:
            continue
        base = plan.row_of.get(base_id, -1)
        inside = base >= 0 and (
            int(plan.arena[row]) == int(plan.arena[base])
            and int(plan.offset[row]) >= int(plan.offset[base])
            and int(plan.offset[row]) + int(plan.size[row]) <= int(plan.offset[base]) + int(plan.size[base])
        )
        if not inside:
            message = f"the view {plan.tensor_ids[row]!r} does not lie inside its base {base_id!r}."
            yield Fault("misplaced", int(plan.birth[row]), row, message=message)


def _ranges(scene: Scene) -> Iterator[Fault]:
    """No access before birth or after death (seed I.E): the plan's own ranges against what the steps do."""
    row, step, node = scene.read_row, scene.read_step, scene.read_node
    taken = (scene.consumed[row] == step) & (scene.death[row] == step)
    inside = (scene.birth[row] <= step) & ((step < scene.death[row]) | taken)
    inside |= (node == AT_END) & (step >= scene.steps) & (scene.death[row] >= scene.steps)
    for at in np.flatnonzero(~inside).tolist():
        yield _dead(scene, int(row[at]), int(step[at]), int(node[at]), "read")
    told = scene.declared
    first = scene.birth if told is None else np.maximum(told.written[scene.tensor], 0)
    wrong = (scene.birth > first) | (scene.death <= first) | (scene.birth < 0) | (scene.death > scene.steps)
    for r in np.flatnonzero(wrong).tolist():
        yield _dead(scene, r, int(first[r]), BY_LOADING if scene.timeline is None else _writer(scene, r), "written")


def _writer(scene: Scene, row: int) -> int:
    assert scene.timeline is not None
    producer = int(scene.timeline.index.producer[scene.tensor[row]])
    return producer if producer >= 0 else BY_LOADING


def _dead(scene: Scene, row: int, step: int, node: int, verb: str) -> Fault:
    life = f"[{int(scene.birth[row])}, {int(scene.death[row])})"
    when = "after the last step" if step >= scene.steps else f"at step {step}"
    message = f"tensor {scene.name(row)!r} is {verb} {when}, outside its planned life {life}."
    return Fault("dead_access", step, row, node, message=message)


def _apart(scene: Scene, timeline: Timeline) -> Iterator[Fault]:
    """``must_not_alias``: never a common byte, even when disjoint in time."""
    row_of = dict(zip(scene.tensor.tolist(), range(len(scene.tensor)), strict=True))
    told: set[tuple[int, int]] = set()
    for i, tensor in enumerate(timeline.graph.tensors):
        for other in tensor.must_not_alias:
            a, b = row_of.get(i), row_of.get(timeline.index.tensor_of[other])
            if a is None or b is None or (min(a, b), max(a, b)) in told:
                continue
            told.add((min(a, b), max(a, b)))
            if scene.storage[a] == scene.storage[b] or _meet(scene, a, b):
                message = f"tensors {scene.name(a)!r} and {scene.name(b)!r} must not alias, yet share bytes."
                yield Fault("must_not_alias", int(scene.birth[b]), a, culprit=b, message=message)


def _meet(scene: Scene, a: int, b: int) -> bool:
    """Whether the storages of two rows have a byte in common."""
    s, t = int(scene.storage[a]), int(scene.storage[b])
    if scene.block_arena[s] != scene.block_arena[t]:
        return False
    low, high = int(scene.block_start[s]), int(scene.block_start[t])
    return low < high + int(scene.block_size[t]) and high < low + int(scene.block_size[s])


def _overwritten_in_place(scene: Scene, timeline: Timeline, told: Declared) -> Iterator[Fault]:
    """What an in-place write went over is gone: whoever reads it later reads something else."""
    if not told.in_place:
        return
    row_of = dict(zip(scene.tensor.tolist(), range(len(scene.tensor)), strict=True))
    members: dict[int, list[int]] = {}
    for row, storage in enumerate(scene.storage.tolist()):
        members.setdefault(storage, []).append(row)
    reads: dict[int, list[tuple[int, int]]] = {}
    for row, step, node in zip(
        scene.read_row.tolist(), scene.read_step.tolist(), scene.read_node.tolist(), strict=True
    ):
        if not (node == AT_END and told.resident[scene.tensor[row]]):
            reads.setdefault(row, []).append((step, node))
    for write in told.in_place:
        if write.target not in row_of or write.source not in row_of:
            continue
        y = row_of[write.target]
        if timeline.graph.tensors[write.source].role == "constant":
            x = row_of[write.source]
            message = f"step {write.step}: {scene.name(y)!r} is written in place of the constant {scene.name(x)!r}."
            yield Fault("constant_written", write.step, x, write.node, y, message=message)
        for m in _meeting(scene, members[int(scene.storage[y])], y):
            loaded, made = int(told.written[scene.tensor[m]]), int(told.made[scene.tensor[m]])
            for step, node in reads.get(m, ()):
                # The version that is read: what its producer wrote, or before that what was loaded.
                version = made if loaded <= made < step else loaded
                if version < write.step < step:
                    reader = scene.reader_name(node, step)
                    message = (
                        f"step {step}: {reader!r} reads {scene.name(m)!r}, "
                        f"which {scene.name(y)!r} has overwritten in place at step {write.step}."
                    )
                    yield Fault("stale", step, m, node, y, message=message)


def _meeting(scene: Scene, members: Iterable[int], y: int) -> Iterator[int]:
    """The members of a storage that have bytes in common with ``y``."""
    low, high = int(scene.offset[y]), int(scene.offset[y]) + int(scene.size[y])
    for m in members:
        begin, end = int(scene.offset[m]), int(scene.offset[m]) + int(scene.size[m])
        if begin < high and low < end:
            yield m
