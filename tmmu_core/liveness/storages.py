"""Tensors that share a storage: views with their bases, alias groups, in-place writes (contract §3).

The cost depends on the number of tensors that share a storage, which is small in most graphs.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from tmmu_core.base.errors import U64_MAX, InvalidIrShapes
from tmmu_core.liveness.live_model import I64, U64, Timeline
from tmmu_core.liveness.live_ranges import Ranges, overflow_error


@dataclass(frozen=True, eq=False)
class Groups:
    """Columns over tensors."""

    group: I64
    """Number of the storage: its lowest member."""
    offset: U64
    """Bytes from the storage's start."""
    shared: NDArray[np.bool_]
    """Whether the storage has more than one member."""
    death: I64
    """Deaths after in-place writes: a tensor overwritten at step k dies at k."""


Write = tuple[int, int, int, int]
"""(step, input, output that overwrites it, node), as numbers."""


class _Union:
    """Disjoint sets of tensors, named by their lowest member."""

    def __init__(self, count: int) -> None:
        self.parent = np.arange(count, dtype=np.int64)

    def find(self, i: int) -> int:
        """Return the name of the set of ``i``."""
        parent = self.parent
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = int(parent[i])
        return i

    def join(self, i: int, j: int) -> None:
        """Merge two sets."""
        a, b = self.find(i), self.find(j)
        self.parent[max(a, b)] = min(a, b)

    def names(self) -> I64:
        """Return the name of each tensor's set."""
        joined = np.flatnonzero(self.parent != np.arange(len(self.parent)))
        self.parent[joined] = [self.find(i) for i in joined.tolist()]
        return self.parent


def storage_groups(timeline: Timeline, ranges: Ranges) -> Groups:
    """Join views, alias groups and in-place writes. Raises ``InvalidIrShapes`` (``in_place_denied``)."""
    index, tensors = timeline.index, timeline.graph.tensors
    groups = _Union(len(tensors))
    _reject_views_of_unwritten(timeline, ranges)
    for view in np.flatnonzero(ranges.planned & (index.base >= 0)).tolist():
        groups.join(view, int(ranges.roots[view]))
    first_of: dict[str, int] = {}
    for i in index.marked.tolist():
        alias = tensors[i].alias_group_id
        if alias is not None and ranges.planned[i]:
            groups.join(i, first_of.setdefault(alias, i))
    offset, death = ranges.view_offset, ranges.death.copy()
    step_of, writes = timeline.step_of, list[Write]()
    writers = [k for k, node in enumerate(timeline.graph.nodes) if node.in_place_write and step_of[k] >= 0]
    for k in sorted(writers, key=step_of.__getitem__):
        inputs, outputs = index.inputs_of(k), index.outputs_of(k)
        pairs = timeline.graph.nodes[k].in_place_write
        writes += [(int(step_of[k]), int(inputs[i]), int(outputs[o]), k) for i, o in pairs]
    if writes:
        placed = _write_in_place(timeline, ranges, groups, writes, death)
        offset = _storage_offsets(timeline, ranges, placed)
    group = groups.names()
    shared = np.bincount(group[ranges.planned], minlength=len(tensors))[group] > 1
    return Groups(group, offset, shared, death)


def _write_in_place(
    timeline: Timeline, ranges: Ranges, groups: _Union, writes: list[Write], death: I64
) -> dict[int, int]:
    """Join each output to the storage of its input and set the input's death; return output → offset."""
    index = timeline.index
    members: dict[int, list[int]] = {}
    for i in np.flatnonzero(ranges.planned).tolist():
        members.setdefault(groups.find(i), []).append(i)
    # A tensor without a producer was loaded before the first step.
    loaded = (index.producer < 0) & (index.producer[ranges.roots] < 0)
    began = np.where(loaded & ((ranges.last_read > 0) | index.is_output), -1, ranges.birth)
    concerned = {groups.find(t) for _, x, y, _ in writes for t in (x, y)}
    lives = {group: _Members(began, ranges.death, members[group]) for group in concerned}
    taken: set[tuple[int, int]] = set()
    placed: dict[int, int] = {}
    for write in writes:
        step, x, y, _ = write
        a, b = groups.find(x), groups.find(y)
        # One input is overwritten by one output; live storages are not joined.
        twice = not taken.isdisjoint({(step, x), (step, y)})
        joins_live_storage = a != b and lives[b].began_before(step, y)
        alone = not (twice or joins_live_storage or lives[a].lives_through(step, (x, y)))
        _check_in_place(timeline, ranges, write, alone=alone)
        taken |= {(step, x), (step, y)}
        if a != b:
            groups.join(x, y)
            lives[groups.find(x)] = lives.pop(a).joined(lives.pop(b))
        if index.base[y] < 0:
            placed[y] = int(ranges.view_offset[x]) + placed.get(int(ranges.roots[x]), 0)
        if not index.is_persistent[x]:
            death[x] = max(step, int(ranges.birth[x]) + 1)  # a tensor that is overwritten at step 0 was loaded before
    return placed


def _reject_views_of_unwritten(timeline: Timeline, ranges: Ranges) -> None:
    """Raise for the view of lowest id whose base is never written."""
    index, ids = timeline.index, timeline.index.tensor_ids
    views = np.flatnonzero(ranges.planned & (index.base >= 0) & ~ranges.planned[ranges.roots]).tolist()
    if not views:
        return
    view = min(views, key=ids.__getitem__)
    root, producer = int(ranges.roots[view]), int(index.producer[view])
    raise InvalidIrShapes(
        f"tensor {ids[view]!r} is a view of {ids[root]!r}, which nothing in this mode's timeline writes: "
        "it has no address.",
        reason="view_of_nothing",
        node_id=index.node_ids[producer] if producer >= 0 else "",
        tensor=ids[view],
        hint=f"Write {ids[root]!r} by a node, make it a graph input, or remove the view of {ids[view]!r}.",
    )


def _storage_offsets(timeline: Timeline, ranges: Ranges, placed: dict[int, int]) -> U64:
    """Return an array of shape (tensors,): bytes from the start of the storage.

    ``placed``: tensor written in place → its offset, by which its views move too. Raises ``AllocationOverflow`` past
    2^64 − 1, for the lowest id.
    """
    offset, ids = ranges.view_offset.copy(), timeline.index.tensor_ids
    moved = np.flatnonzero(ranges.planned & np.isin(ranges.roots, list(placed))).tolist()
    begins = {i: int(offset[i]) + placed[int(ranges.roots[i])] for i in moved}
    far = [i for i in moved if begins[i] > U64_MAX]
    if far:
        i = min(far, key=ids.__getitem__)
        raise overflow_error(ids[i], begins[i], f"$.tensors[{i}]")
    offset[moved] = np.fromiter(begins.values(), np.uint64, len(begins))
    return offset


class _Members:
    """Live members of a storage, queried in step order; each enters and leaves once."""

    def __init__(self, began: I64, death: I64, members: list[int]) -> None:
        self.death = death
        self.upcoming = sorted((int(began[m]), m) for m in members)
        """Heap of (birth step, tensor) of members that are not live yet; −1 for loaded tensors that are read later."""
        self.first = self.upcoming[:2]
        self.live: list[int] = []

    def began_before(self, step: int, besides: int) -> bool:
        """Return whether any member but ``besides`` was live before ``step``."""
        return any(birth < step for birth, m in self.first if m != besides)

    def lives_through(self, step: int, besides: tuple[int, int]) -> bool:
        """Return whether any other member is live both before and after ``step``; steps ascend."""
        while self.upcoming and self.upcoming[0][0] < step:
            self.live.append(heappop(self.upcoming)[1])
        self.live = [m for m in self.live if self.death[m] > step]
        return any(m not in besides for m in self.live)

    def joined(self, other: _Members) -> _Members:
        """Return the union; the smaller one is merged into the larger."""
        large, small = (self, other) if len(self.upcoming) >= len(other.upcoming) else (other, self)
        for each in small.upcoming:
            heappush(large.upcoming, each)
        large.first = sorted(large.first + small.first)[:2]
        large.live += small.live
        return large


def _check_in_place(timeline: Timeline, ranges: Ranges, write: Write, *, alone: bool) -> None:
    """Raise for an in-place write that violates a condition of TMMU v2 II.G."""
    step, x, y, node = write
    tensors, index = timeline.graph.tensors, timeline.index
    forbidden = tensors[y].id in tensors[x].must_not_alias or tensors[x].id in tensors[y].must_not_alias
    arenas = {tensor.arena for tensor in (tensors[x], tensors[y]) if tensor.arena is not None}
    conditions = (
        ("refcount", "another tensor of its storage is live", not alone),
        ("saved_for_backward", "it is saved for the backward pass", ranges.saved[x]),
        ("read_later", "it is read again later", ranges.last_read[x] > step),
        ("graph_output", "it is an output of the graph", index.is_output[x]),
        ("constant", "it is a constant", tensors[x].role == "constant"),
        ("must_not_alias", "the two must not alias", forbidden),
        ("other_arena", "the two name different arenas", len(arenas) > 1),
    )
    for condition, why, is_broken in conditions:
        if is_broken:
            node_id, source = index.node_ids[node], tensors[x].id
            raise InvalidIrShapes(
                f"node {node_id!r} may not write {tensors[y].id!r} in place of {source!r}: {why}.",
                t=step,
                reason="in_place_denied",
                condition=condition,
                node_id=node_id,
                tensor=source,
                hint="Remove the pair from in_place_write, or remove the condition.",
            )
