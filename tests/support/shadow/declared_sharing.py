"""What a graph declares about its tensors' bytes, worked out afresh: the replay believes neither liveness nor planner.

Three declarations join tensors into one storage (contract §3): a view lies in its base, an in-place write goes over
its input, members of an alias group share. Hand-offs join nothing: they are the planner's choice, on permission.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tmmu_core.liveness.live_model import Timeline

I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]
Mask = NDArray[np.bool_]

NEVER, LOADED = -2, -1
"""No step, and the step before the first: what is resident is there when the run begins."""


@dataclass(frozen=True)
class InPlace:
    """A demanded write of ``target`` over ``source`` (tensor numbers) at ``step``."""

    step: int
    node: int
    source: int
    target: int


@dataclass(frozen=True, eq=False)
class Declared:
    """Columns over the tensors of a timeline's graph."""

    planned: Mask
    """Whether a plan must hold the tensor."""
    written: I64
    """The step at which its bytes are there for the first time: ``LOADED``, its producer's, its base's for a view."""
    made: I64
    """The step of its producer, or its base's for a view that no node writes; −2 where none runs."""
    storage: I64
    """A number per storage; meaningless where not planned."""
    offset: U64
    """Bytes from its storage's start."""
    size: U64
    """Bytes; a view's ``byte_length``."""
    root: I64
    """The tensor at the end of its chain of bases."""
    held: Mask
    """Whether someone reads it after the last step: graph outputs, what is saved for a backward pass to come."""
    resident: Mask
    in_place: tuple[InPlace, ...]
    """In step order."""


def declared(timeline: Timeline) -> Declared:
    """Work it out from the graph and its steps. O(tensors + operands)."""
    index, tensors = timeline.index, timeline.graph.tensors
    count = len(tensors)
    root, view_offset = _roots(timeline)

    step_of = np.append(timeline.step_of, LOADED)
    made_at = np.where(index.producer >= 0, step_of[index.producer], NEVER)
    made_at[made_at == LOADED] = NEVER
    written = made_at.copy()
    written[index.is_input] = 0
    written[index.is_persistent] = LOADED
    unmade_view = (index.base >= 0) & (index.producer < 0) & ~index.is_input & ~index.is_persistent
    planned = written >= LOADED
    written[unmade_view] = written[root[unmade_view]]
    made_at[unmade_view] = made_at[root[unmade_view]]
    planned[unmade_view] = planned[root[unmade_view]]

    in_place = _in_place(timeline)
    storage = _storages(timeline, planned, root, in_place)
    offset = np.zeros(count, np.uint64)
    for write in in_place:
        offset[write.target] = offset[root[write.source]] + view_offset[write.source]
    offset = offset[root] + view_offset

    size = index.nbytes.copy()
    for i in np.flatnonzero(index.base >= 0).tolist():
        view = tensors[i].view
        assert view is not None
        if view.byte_length is not None:
            size[i] = view.byte_length

    held = index.is_output.copy()
    if timeline.retain and timeline.mode == "forward":
        saved = np.fromiter((tensor.saved_for_backward for tensor in tensors), np.bool_, count)
        held |= saved
        held[root[saved]] = True
    held &= planned
    resident = index.is_persistent
    return Declared(planned, written, made_at, storage, offset, size, root, held, resident, in_place)


def _roots(timeline: Timeline) -> tuple[I64, U64]:
    """The end of each chain of bases, and the bytes from there."""
    index, tensors = timeline.index, timeline.graph.tensors
    root = np.arange(len(tensors), dtype=np.int64)
    offset = np.zeros(len(tensors), np.uint64)
    views = np.flatnonzero(index.base >= 0)
    for i in views.tolist():
        view = tensors[i].view
        assert view is not None
        root[i], offset[i] = index.base[i], view.byte_offset
    while not np.array_equal(base := root[views], beyond := root[base]):  # each time twice as far
        root[views], offset[views] = beyond, offset[views] + offset[base]
    return root, offset


def _in_place(timeline: Timeline) -> tuple[InPlace, ...]:
    index = timeline.index
    found = [
        InPlace(step, k, int(index.inputs_of(k)[i]), int(index.outputs_of(k)[o]))
        for k, node in enumerate(timeline.graph.nodes)
        for i, o in node.in_place_write
        if (step := int(timeline.step_of[k])) >= 0
    ]
    return tuple(sorted(found, key=lambda write: (write.step, write.source, write.target)))


def _storages(timeline: Timeline, planned: Mask, root: I64, in_place: tuple[InPlace, ...]) -> I64:
    """Union-find over the three declarations."""
    tensors = timeline.graph.tensors
    parent = list(range(len(tensors)))

    def find(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    def join(i: int, j: int) -> None:
        parent[find(i)] = find(j)

    for i in np.flatnonzero(planned & (timeline.index.base >= 0)).tolist():
        join(i, int(root[i]))
    groups: dict[str, int] = {}
    for i, tensor in enumerate(tensors):
        if tensor.alias_group_id is not None and planned[i]:
            join(i, groups.setdefault(tensor.alias_group_id, i))
    for write in in_place:
        join(write.target, write.source)
    return np.fromiter(map(find, range(len(tensors))), np.int64, len(tensors))
