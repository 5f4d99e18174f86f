"""What is wrong with a plan before a single step is run.

Some faults need no execution: a view that does not lie in its base, a read outside ``[birth, death)``, a hand-off that
the node does not permit. They are found here; what only running shows is found by ``shadow.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from tests.support.shadow.columns import AT_END, BY_LOADING, Fault, Scene
from tests.support.shadow.declared_sharing import Declared
from tmmu_core.liveness.live_model import Timeline

U64 = NDArray[np.uint64]

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


def check(scene: Scene) -> Iterator[Fault]:
    """Everything that is wrong without running a step."""
    yield from scene.denied
    yield from _places(scene)
    yield from _ranges(scene)
    if scene.timeline is not None:
        assert scene.declared is not None
        yield from _agreement(scene, scene.timeline, scene.declared)
        yield from _apart(scene, scene.timeline)
        yield from _overwritten_in_place(scene, scene.timeline, scene.declared)


def _agreement(scene: Scene, timeline: Timeline, declared: Declared) -> Iterator[Fault]:
    """The plan is of this graph: the same steps, the same tensors, the same sizes."""
    plan, index = scene.plan, timeline.index
    if plan.steps != timeline.steps or plan.execution_order != timeline.order:
        yield Fault("timeline", -1, -1, message="the plan's steps are not those of the graph's timeline.")
    held = np.zeros(len(declared.planned), np.bool_)
    held[scene.tensor] = True
    for i in np.flatnonzero(declared.planned & ~held).tolist():
        step = max(int(declared.written[i]), 0)
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
    extent = np.array([arena.extent_bytes for arena in plan.arenas], np.uint64)[scene.arena]
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
    if scene.timeline is None:
        return grid
    floor = np.array([max(arena.alignment_bytes, 1) for arena in plan.arenas], np.uint64)[scene.arena]
    own = [scene.timeline.graph.tensors[i].alignment or 1 for i in scene.tensor.tolist()]
    grid = np.maximum(grid, np.array(own, np.uint64))
    at_start = (scene.offset == 0) & (scene.timeline.index.base[scene.tensor] < 0)
    return np.where(at_start, np.maximum(grid, floor), grid)


def _views_of_rows(scene: Scene) -> Iterator[Fault]:
    """Without the graph a view can still be asked to lie inside its base."""
    plan = scene.plan
    for row, base_id in enumerate(plan.base_tensor_uids):
        # A base that no step makes is in no plan; its view then has the bytes to itself.
        base = -1 if base_id is None else plan.row_of.get(base_id, -1)
        if base < 0:
            continue
        inside = (
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
    inside |= (step >= scene.steps) & (scene.death[row] >= scene.steps)  # after the last one
    for at in np.flatnonzero(~inside).tolist():
        yield _dead(scene, int(row[at]), int(step[at]), int(node[at]), "read")
    declared = scene.declared
    first = scene.birth if declared is None else np.maximum(declared.written[scene.tensor], 0)
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
    seen: set[tuple[int, int]] = set()
    for i, tensor in enumerate(timeline.graph.tensors):
        for other in tensor.must_not_alias:
            a, b = row_of.get(i), row_of.get(timeline.index.tensor_of[other])
            if a is None or b is None or (min(a, b), max(a, b)) in seen:
                continue
            seen.add((min(a, b), max(a, b)))
            if _meet(scene, a, b):
                message = f"tensors {scene.name(a)!r} and {scene.name(b)!r} must not alias, yet share bytes."
                yield Fault("must_not_alias", int(scene.birth[b]), a, culprit=b, message=message)


def _meet(scene: Scene, a: int, b: int) -> bool:
    """Whether the storages of two rows have a byte in common."""
    s, t = int(scene.storage[a]), int(scene.storage[b])
    if scene.block_arena[s] != scene.block_arena[t]:
        return False
    low, high = int(scene.block_start[s]), int(scene.block_start[t])
    return low < high + int(scene.block_size[t]) and high < low + int(scene.block_size[s])


def _overwritten_in_place(scene: Scene, timeline: Timeline, declared: Declared) -> Iterator[Fault]:
    """What an in-place write went over is gone: whoever reads it later reads something else."""
    if not declared.in_place:
        return
    row_of = dict(zip(scene.tensor.tolist(), range(len(scene.tensor)), strict=True))
    members: dict[int, list[int]] = {}
    for row, storage in enumerate(scene.storage.tolist()):
        members.setdefault(storage, []).append(row)
    reads: dict[int, list[tuple[int, int]]] = {}
    for row, step, node in zip(
        scene.read_row.tolist(), scene.read_step.tolist(), scene.read_node.tolist(), strict=True
    ):
        if not (node == AT_END and declared.resident[scene.tensor[row]]):
            reads.setdefault(row, []).append((step, node))
    for write in declared.in_place:
        if write.target not in row_of or write.source not in row_of:
            continue
        y = row_of[write.target]
        if timeline.graph.tensors[write.source].role == "constant":
            x = row_of[write.source]
            message = f"step {write.step}: {scene.name(y)!r} is written in place of the constant {scene.name(x)!r}."
            yield Fault("constant_written", write.step, x, write.node, y, message=message)
        for m in _meeting(scene, members[int(scene.storage[y])], y):
            loaded, made = int(declared.written[scene.tensor[m]]), int(declared.made[scene.tensor[m]])
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
