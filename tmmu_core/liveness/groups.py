"""Which tensors share a storage: views with their bases, alias groups, in-place chains (contract §3).

Most tensors share nothing. Everything here costs by the number of tensors that do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from tmmu_core.errors import InvalidIrShapes
from tmmu_core.liveness.model import Timeline
from tmmu_core.liveness.ranges import Ranges

I64 = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Groups:
    """Columns over tensors."""

    group: I64
    """A tensor number that stands for the storage: the lowest of its members."""
    offset: I64
    """Bytes from the storage's start."""
    shared: NDArray[np.bool_]
    """Whether the storage has more than one member."""
    death: I64
    """Deaths after in-place writes: what is overwritten at step k dies at k."""


def storage_groups(timeline: Timeline, ranges: Ranges) -> Groups:
    """Join views, alias groups and in-place chains. Raises ``InvalidIrShapes`` (``in_place_denied``)."""
    index = timeline.index
    tensors = timeline.graph.tensors
    parent = np.arange(len(tensors), dtype=np.int64)

    def find(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = int(parent[i])
        return i

    def join(i: int, j: int) -> None:
        a, b = find(i), find(j)
        parent[max(a, b)] = min(a, b)

    for view in np.flatnonzero(ranges.planned & (index.base >= 0)).tolist():
        root = int(ranges.roots[view])
        if not ranges.planned[root]:
            _refuse_view_of_nothing(timeline, view, root)
        join(view, root)
    first_of: dict[str, int] = {}
    for i in index.marked.tolist():
        alias = tensors[i].alias_group_id
        if alias is not None and ranges.planned[i]:
            join(i, first_of.setdefault(alias, i))

    offset = ranges.view_offset.copy()
    death = ranges.death.copy()
    writes = _in_place_writes(timeline)
    if writes:
        members: dict[int, list[int]] = {}
        for i in np.flatnonzero(ranges.planned).tolist():
            members.setdefault(find(i), []).append(i)
        taken: set[tuple[int, int]] = set()
        for write in writes:
            step, x, y, _ = write
            a, b = find(x), find(y)
            # One input gives its bytes to one output, and brings nobody together who was alive before.
            twice = not taken.isdisjoint({(step, x), (step, y)})
            strangers = a != b and any(ranges.birth[m] < step for m in members[b] if m != y)
            _check_in_place(timeline, ranges, write, members[a], alone=not (twice or strangers))
            taken |= {(step, x), (step, y)}
            if a != b:
                join(x, y)
                members[find(x)] = members[a] + members[b]
            if index.base[y] < 0:
                offset[y] = ranges.view_offset[x] + offset[ranges.roots[x]]
            if not index.is_persistent[x]:
                death[x] = max(step, int(ranges.birth[x]) + 1)  # of step 0 already: what was there before it
        _settle_views(timeline, ranges, offset)
    group = np.fromiter(map(find, range(len(tensors))), np.int64, len(tensors)) if _any_shared(parent) else parent
    shared = np.bincount(group[ranges.planned], minlength=len(tensors))[group] > 1
    return Groups(group, offset, shared, death)


def _refuse_view_of_nothing(timeline: Timeline, view: int, root: int) -> NoReturn:
    ids, producer = timeline.index.tensor_ids, int(timeline.index.producer[view])
    raise InvalidIrShapes(
        f"tensor {ids[view]!r} is a view of {ids[root]!r}, which nothing in this mode's timeline writes: "
        "it has no address.",
        reason="view_of_nothing",
        node_id=timeline.index.node_ids[producer] if producer >= 0 else "",
        tensor=ids[view],
        hint=f"Let a node write {ids[root]!r}, make it a graph input, or let {ids[view]!r} be no view.",
    )


def _any_shared(parent: I64) -> bool:
    return bool((parent != np.arange(len(parent))).any())


def _settle_views(timeline: Timeline, ranges: Ranges, offset: I64) -> None:
    """A view lies where its root lies, and the root may have been written in place somewhere inside a storage."""
    views = np.flatnonzero(timeline.index.base >= 0)
    offset[views] = ranges.view_offset[views] + offset[ranges.roots[views]]


class _Write(NamedTuple):
    """The node that writes ``y`` in place of ``x``, as numbers of tensors and nodes, and its step."""

    step: int
    x: int
    y: int
    node: int


def _in_place_writes(timeline: Timeline) -> list[_Write]:
    """In step order."""
    index = timeline.index
    found = []
    for k in [k for k, node in enumerate(timeline.graph.nodes) if node.in_place_write]:
        inputs, outputs = index.inputs_of(k), index.outputs_of(k)
        step = int(timeline.step_of[k])
        if step >= 0:
            found += [
                _Write(step, int(inputs[i]), int(outputs[o]), k) for i, o in timeline.graph.nodes[k].in_place_write
            ]
    return sorted(found)


def _check_in_place(timeline: Timeline, ranges: Ranges, write: _Write, members: list[int], *, alone: bool) -> None:
    """Seed II.G, condition by condition; a write that may not be is refused, never silently copied."""
    step, x, y, node = write
    tensors, index = timeline.graph.tensors, timeline.index
    others = [m for m in members if m not in (x, y)]
    forbidden = set(tensors[x].must_not_alias) & {tensors[y].id} or set(tensors[y].must_not_alias) & {tensors[x].id}
    arenas = {tensor.arena for tensor in (tensors[x], tensors[y]) if tensor.arena is not None}
    conditions = (
        ("refcount", not alone or any(ranges.birth[m] < step < ranges.death[m] for m in others)),
        ("saved_for_backward", bool(ranges.saved[x])),
        ("read_later", bool(ranges.last_read[x] > step)),
        ("graph_output", bool(index.is_output[x])),
        ("constant", tensors[x].role == "constant"),
        ("must_not_alias", bool(forbidden)),
        ("other_arena", len(arenas) > 1),
    )
    for condition, broken in conditions:
        if broken:
            raise InvalidIrShapes(
                f"node {index.node_ids[node]!r} may not write {tensors[y].id!r} in place of {tensors[x].id!r}: "
                f"{_IN_WORDS[condition]}.",
                t=step,
                reason="in_place_denied",
                condition=condition,
                node_id=index.node_ids[node],
                tensor=tensors[x].id,
                hint="Take the pair out of in_place_write, or change what stands in its way.",
            )


_IN_WORDS = {
    "refcount": "it is not the only one of its storage that is alive",
    "saved_for_backward": "it is saved for the backward pass",
    "read_later": "it is read again later",
    "graph_output": "it is an output of the graph",
    "constant": "it is a constant",
    "must_not_alias": "the two must not alias",
    "other_arena": "the two name different arenas",
}
